"""`kreiss list` and `kreiss show`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import cyclopts
from cyclopts import Parameter

from kreiss.commands.words import print_table
from kreiss.errors import InputError, check_name, unknown_name

app = cyclopts.App(name="list", help="List models, tasks, and presets: the experiments of the papers.")


@app.command
def models(like: str = "") -> int:
    """List the networks that `--model` takes: constraint, number of parameters, cost and reference.

    First the recurrent layers: N is hidden_size, I input_size, m the number of reflections, s the size of the part that
    forgets, q = N − s, b the number of angles, r the number of rotations, ν `short`, ρ `relevant`, t the time. N
    complex units are 2N real numbers in the state.

    Then the networks over sequences of objects: E are the parameters of the encoder of images (198,880 for 3 × 32 ×
    32), T the objects of a sequence, y the classes, n `hidden`; the cost is that of a sequence after encoding.

    Parameters
    ----------
    like
        Show only rows that contain this text.
    """
    from kreiss.catalogue import MODELS, RELATIONAL_MODELS, short, shown

    for listed, headings in (
        (MODELS, ("model", "constraint", "parameters", "cost of a step", "reference")),
        (RELATIONAL_MODELS, ("model over objects", "decides from", "parameters", "cost of a sequence", "reference")),
    ):
        rows = [
            (name, model.constraint, shown(model.parameters), model.cost, short(model.reference))
            for name, model in listed.items()
        ]
        if found := [row for row in rows if like in " ".join(row)]:
            print_table(headings, found)
    return 0


@app.command
def tasks(like: str = "") -> int:
    """List the tasks that `kreiss train` takes.

    Parameters
    ----------
    like
        Show only tasks whose name or description contains this text.
    """
    from kreiss.tasks import TASKS

    return _list(TASKS, like)


@app.command
def presets(like: str = "") -> int:
    """List the experiments of the papers and their rows, which `--preset`, `show` and `reproduce` take.

    Parameters
    ----------
    like
        Show only rows whose name, title or model contains this text.
    """
    from kreiss.experiments import COMPUTED, EXPERIMENTS

    for name, experiment in EXPERIMENTS.items():
        rows = [
            row
            for row in experiment.rows
            if like.lower() in f"{name}/{row.name} {experiment.title} {row.label}".lower()
        ]
        if rows:
            print(f"{name}  {experiment.title} ({experiment.place}; scales {', '.join(experiment.scales)})")
        for row in rows:
            print(f"  {name}/{row.name:24} {row.label:24} {_published(row)}".rstrip())
    for name, (place, title, command) in COMPUTED.items():
        if like.lower() in f"{name} {title}".lower():
            print(f"{name}  {title} ({place}; computed by {command})")
    return 0


def _published(row: Any) -> str:
    """The published test metrics of a row in one line."""
    return ", ".join(
        f"{number.metric} {number.value:g}" + ("" if number.error is None else f" ± {number.error:g}")
        for number in row.published
        if number.split == "test"
    )


def _list(registry: Mapping[str, type], like: str) -> int:
    for name, cls in registry.items():
        summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        if like.lower() in name or like.lower() in summary.lower():
            print(f"{name:12} {summary}")
    return 0


def show(
    name: str,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    scale: str = "paper",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Describe a model, a task, an experiment, one of its rows or `config`, with its options.

    Of a task about objects it shows a few examples, of a world first observations, in the terminal or as a picture in
    a file: kreiss show dist3 --task.held_out 95 -o dist3.png, kreiss show minigrid --env MiniGrid-MemoryS13-v0

    Parameters
    ----------
    name
        Name from `kreiss list`, or `config` for the settings of every run.
    settings
        Options of a task whose examples are shown, such as --task.colour true.
    out
        File for the examples: .png or .svg.
    scale
        Scale of a row: paper, the published set-up, or a named difference from it.
    """
    from kreiss.experiments import EXPERIMENTS, names
    from kreiss.networks import LAYERS, NETWORKS
    from kreiss.options import options_of
    from kreiss.tasks import TASKS

    if name == "config":
        return _show_config()
    if name in EXPERIMENTS:
        return _show_experiment(name)
    if name in names():
        return _show_row(name, scale)
    if name in NETWORKS:
        return _show_class("model", LAYERS.get(name, NETWORKS[name]), NETWORKS[name].options(name))
    if name in TASKS:
        _show_class("task", TASKS[name], options_of(TASKS[name]))
        return _show_examples(name, settings, out)
    raise unknown_name("name", name, ["config", *NETWORKS, *TASKS, *EXPERIMENTS, *names()])


def _show_examples(name: str, settings: tuple[str, ...], out: Path | None) -> int:
    """A few examples of a task about objects, or first observations of a world."""
    from kreiss.commands import pictures
    from kreiss.tasks import TASKS, World
    from kreiss.tasks.relational.base import Relational
    from kreiss.training.config import resolved, words
    from kreiss.training.planning import make_task

    if issubclass(TASKS[name], World):
        return _show_world(name, settings, out)
    if not issubclass(TASKS[name], Relational):
        if out is not None:
            raise InputError(
                f"`--out` needs a task about objects or a world, which can be seen; got {name}. Leave it out."
            )
        return 0
    task: Any = make_task(resolved({"task": name}, words(settings)[1]))
    if out is not None:
        print(f"examples: {pictures.to_file(task, out)}")
    else:
        print(f"\nExamples:\n{pictures.in_terminal(task)}")
    return 0


def _show_world(name: str, settings: tuple[str, ...], out: Path | None) -> int:
    from rich.console import Console

    from kreiss.commands import views
    from kreiss.errors import MissingExtra
    from kreiss.training.config import resolved, words
    from kreiss.training.planning import make_task

    try:
        world: Any = make_task(resolved({"task": name}, words(settings)[1]))
    except MissingExtra as error:
        if out is not None:
            raise
        print(f"\n{error}")
        return 0
    if out is not None:
        print(f"examples: {views.to_file(world, out)}")
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print("\nFirst observations:", *views.in_terminal(world, console.color_system is not None), sep="\n")
    return 0


def _show_experiment(name: str) -> int:
    from kreiss.catalogue import short
    from kreiss.experiments import experiment as experiment_named

    experiment = experiment_named(name)
    print(
        f"{experiment.title}\n{short(experiment.paper)}, {experiment.place}; {experiment.metric} on {experiment.split}"
    )
    for heading, text in (("claim", experiment.claim), ("note", experiment.note)):
        if text:
            print(f"{heading}: {text}")
    print("\nRows:")
    for row in experiment.rows:
        print(f"  {row.name:24} {row.label:24} {_published(row)}".rstrip())
    print("\nScales:")
    for scale, chosen in experiment.scales.items():
        print(f"  {scale}: {chosen.about}")
    return 0


def _show_row(name: str, scale: str) -> int:
    from kreiss.catalogue import short
    from kreiss.experiments import row as named
    from kreiss.studies.jobs import differences

    experiment, row = named(name)
    check_name("scale", scale, experiment.scales)
    print(
        f"{row.label}: {experiment.title}\n{short(experiment.paper)}, {experiment.place}"
        + ("; not in the paper" if row.ours else "")
    )
    for number in row.published:
        error = "" if number.error is None else f" ± {number.error:g}"
        failed = "" if number.failed is None else f", {number.failed} of {experiment.seeds} runs failed"
        print(f"published: {number.split} {number.metric} {number.value:g}{error}{failed}")
    if row.parameters:
        ours = f"; {row.counted:,} as we count" if row.counted else ""
        print(f"published parameters: {row.parameters:,.0f}{ours}")
    for text in (*row.columns, row.note, experiment.note):
        if text:
            print(f"- {text}")
    if row.quoted:
        print("\nQuoted from the paper; there are no settings to run it with.")
        return 0
    print("\nSettings:")
    for key, value in experiment.settings(row, scale).items():
        print(f"  --{key.replace('_', '-')} {value}")
    if scale != "paper":
        print(f"\nDifference of scale {scale}: {experiment.scales[scale].about}")
        for key, (paper, here) in differences(experiment, row, scale).items():
            print(f"  {key}: {paper} → {here}")
    return 0


def _show_class(section: str, cls: type, options: Mapping[str, Any]) -> int:
    from kreiss.options import NOTHING, described

    print(inspect.getdoc(cls))
    print("\nSettings:")
    own, said = cls.__doc__ or "", described(cls)
    for name, option in options.items():
        default = "" if option.default is NOTHING else f" = {option.default!r}"
        inherited = "" if f" {name}: " in own else f"  {said.get(name, '')}"  # the rest is in the text above
        print(f"  --{section}.{name}{default}{inherited}".rstrip())
    return 0


def _show_config() -> int:
    from kreiss.settings import SECTIONS, SHORT, Config, RecurrentSettings

    short = {dotted: name for name, dotted in SHORT.items()}
    for name, field in Config.model_fields.items():
        if name not in SECTIONS:
            _show_field(name, "", field)
    for section in SECTIONS:
        kind: Any = RecurrentSettings if section == "model" else Config.model_fields[section].annotation
        print(f"\n{inspect.getdoc(kind)}")
        for name, field in kind.model_fields.items():
            _show_field(f"{section}.{name}", short.get(f"{section}.{name}", ""), field)
    return 0


def _show_field(name: str, short: str, field: Any) -> None:
    also = f" (or --{short.replace('_', '-')})" if short else ""
    choices = ", ".join(get_args(field.annotation)) if get_origin(field.annotation) is Literal else ""
    text = "; ".join(part for part in (field.description, choices) if part)
    print(f"  --{name.replace('_', '-')}{also} = {field.default!r}  {text}".rstrip())
