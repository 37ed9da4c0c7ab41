"""`kreiss list` and `kreiss show`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import cyclopts

app = cyclopts.App(name="list", help="List models, tasks and presets.")


@app.command
def models(like: str = "") -> int:
    """List the networks that `--model` takes: constraint, number of parameters, cost per time step and reference.

    N is hidden_size and I input_size; m reflections; s the size of the part that forgets and q = N − s; b angles; r
    rotations. N complex units are 2N real numbers of the state.

    Parameters
    ----------
    like
        Only those whose row holds this text.
    """
    from rich.console import Console
    from rich.table import Table

    from kreiss.catalogue import MODELS, short, shown

    table = Table("model", "constraint", "parameters", "cost of a step", "reference")
    for name, model in MODELS.items():
        row = (name, model.constraint, shown(model.parameters), model.cost, short(model.reference))
        if like in " ".join(row):
            table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


@app.command
def tasks(like: str = "") -> int:
    """List the tasks that `kreiss train` takes.

    Parameters
    ----------
    like
        Only those whose name or description holds this text.
    """
    from kreiss.tasks import TASKS

    return _list(TASKS, like)


@app.command
def presets(like: str = "") -> int:
    """List the settings that `--preset` takes.

    Parameters
    ----------
    like
        Only those whose name or settings hold this text.
    """
    from kreiss.training.presets import PRESETS

    for name, settings in PRESETS.items():
        said = "  ".join(f"--{key} {value}" for key, value in settings.items())
        if like in name or like in said:
            print(f"{name:14} {said}")
    return 0


def _list(registry: Mapping[str, type], like: str) -> int:
    for name, made in registry.items():
        summary = (inspect.getdoc(made) or "").split("\n\n")[0].replace("\n", " ")
        if like.lower() in name or like.lower() in summary.lower():
            print(f"{name:12} {summary}")
    return 0


def show(name: str) -> int:
    """Show what a model, a task, a preset or `config` is and what it can be told.

    Parameters
    ----------
    name
        From `kreiss list`; `config` for the settings of every run.
    """
    from kreiss.errors import unknown_name
    from kreiss.layers import REGISTRY
    from kreiss.tasks import TASKS
    from kreiss.training.config import LAYER_OWN
    from kreiss.training.presets import PRESETS

    if name == "config":
        return _show_config()
    if name in PRESETS:
        print("\n".join(f"{key}: {value}" for key, value in PRESETS[name].items()))
        return 0
    if name in REGISTRY:
        return _show_class("model", REGISTRY[name], LAYER_OWN)
    if name in TASKS:
        return _show_class("task", TASKS[name], ())
    raise unknown_name("name", name, ["config", *REGISTRY, *TASKS, *PRESETS])


def _show_class(section: str, made: type, own: tuple[str, ...]) -> int:
    from kreiss.training.options import NOTHING, options_of

    print(inspect.getdoc(made))
    print("\nSettings:")
    for name, option in options_of(made, without=own).items():
        default = "" if option.default is NOTHING else f" = {option.default!r}"
        print(f"  --{section}.{name}{default}")
    return 0


def _show_config() -> int:
    from kreiss.training.config import SECTIONS, SHORT, Config

    short = {dotted: name for name, dotted in SHORT.items()}
    for name, field in Config.model_fields.items():
        if name not in SECTIONS:
            _show_field(name, "", field)
    for section in SECTIONS:
        fields: Any = Config.model_fields[section].annotation
        print(f"\n{inspect.getdoc(fields)}")
        for name, field in fields.model_fields.items():
            _show_field(f"{section}.{name}", short.get(f"{section}.{name}", ""), field)
    return 0


def _show_field(name: str, short: str, field: Any) -> None:
    also = f" (or --{short.replace('_', '-')})" if short else ""
    choices = ", ".join(get_args(field.annotation)) if get_origin(field.annotation) is Literal else ""
    said = "; ".join(part for part in (field.description, choices) if part)
    print(f"  --{name.replace('_', '-')}{also} = {field.default!r}  {said}".rstrip())
