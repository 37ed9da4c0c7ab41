"""`kreiss train`: its flags are the settings of `kreiss.settings` that have a short name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from cyclopts import Parameter

from kreiss.commands.compare import sources, train_seeds
from kreiss.commands.words import (
    ADVANCED,
    COMMON,
    Flag,
    Positive,
    Trust,
    Words,
    display,
    exit_code,
    may_import,
    new_folder,
    only_task,
    remember,
)
from kreiss.settings import SECTIONS, SHORT, Config, RecurrentSettings

USUAL = ("model", "hidden", "layers", "lr", "clip_norm", "steps", "epochs", "batch", "eval_every", "device", "seed")


def train(
    *words: Words,
    preset: str | None = None,
    config: Path | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    seeds: Positive | None = None,
    jobs: Positive | None = None,
    trust: Trust = None,
    verbose: Flag = False,
    quiet: Flag = False,
    json: Flag = False,
    **settings: Any,
) -> int:
    """Train a network; the command line describes it in `kreiss.cli`.

    Parameters
    ----------
    words
        Task, and settings by dotted name.
    preset
        Published settings to start from; `kreiss list presets` lists them.
    config
        YAML or TOML file of settings with the same names.
    out
        Folder of the run; by default a new one in runs/.
    resume
        Folder of a run to resume, instead of a task.
    seeds
        Train with this many seeds side by side, in OUT/seed-0, OUT/seed-1, …, and end with a table; the same command
        resumes what was interrupted.
    jobs
        Runs at a time with --seeds, each in a process with one thread; by default one per core.
    trust
        Module of your own that the model or task of a file of settings, or of a run, is from; --model and --task may
        themselves name package.module:Class.
    verbose
        Print every setting, not only those that differ from their defaults.
    quiet
        Print nothing.
    json
        Print JSON lines.
    """
    from kreiss.training import config as configuration
    from kreiss.training import fitting
    from kreiss.training.planning import make_network, make_task, planned

    named, dotted = configuration.words(words)
    chosen = {**{name: value for name, value in settings.items() if value is not None}, **dotted}
    show = display(quiet, json, verbose)
    may_import(trust, only_task(named), chosen)
    if resume is not None:
        return exit_code(fitting.resume(resume, chosen, show=show))
    resolved = configuration.resolved(*sources(preset, config, chosen), only_task(named), chosen)
    task = make_task(resolved)
    folder = out or new_folder(resolved.task.name, resolved.model.name)
    if out is not None:
        remember(out)
    if seeds is not None:
        make_network(resolved, task)  # raises for settings that do not fit, before anything is started
        return train_seeds(planned(resolved, task), seeds, jobs, folder, quiet)
    return exit_code(fitting.run(resolved, folder, make_network(resolved, task), task, show=show))


# ---------------------------------------------------------------- flags from settings


def _flags() -> Iterator[inspect.Parameter]:
    """One keyword for every setting with a short name, with its type and description."""
    sections: dict[str, Any] = {name: Config.model_fields[name].annotation for name in SECTIONS}
    sections["model"] = RecurrentSettings
    for short, dotted in SHORT.items():
        section, _, name = dotted.partition(".")
        if section != "task" and sections[section].model_fields[name].annotation is not bool:  # --name true|false
            yield _flag(short, sections[section].model_fields[name])
    for name, field in Config.model_fields.items():
        if name not in SECTIONS:
            yield _flag(name, field)


def _flag(name: str, field: Any) -> inspect.Parameter:
    """A keyword that is None unless passed, so that the value of a file or preset holds."""
    default = field.default if field.default not in (None, ()) else None
    text = f"{field.description[0].upper()}{field.description[1:]}."
    help = text if default is None else f"{text} Default: {default}."
    kind: Any = Annotated[
        _plain(field.annotation) | None, Parameter(help=help, group=COMMON if name in USUAL else ADVANCED)
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _plain(kind: Any) -> Any:
    """A type as the command line takes it: several values as a list; the settings check bounds."""
    if get_origin(kind) is tuple:
        return list[get_args(kind)[0]]  # type: ignore[misc]
    return kind


def _with_flags(verb: Any) -> Any:
    words, *others, _ = inspect.signature(verb, eval_str=True).parameters.values()
    signature = inspect.Signature([words, *_flags(), *others], return_annotation=int)
    verb.__signature__ = signature
    verb.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return verb


_with_flags(train)
