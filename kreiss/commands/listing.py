"""`kreiss list` and `kreiss show`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import cyclopts

from kreiss.errors import check_name, unknown_name

app = cyclopts.App(name="list", help="List models, tasks, and presets: the experiments of the papers.")


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
    """List the experiments of the papers and their rows, which `--preset`, `show` and `reproduce` take.

    Parameters
    ----------
    like
        Only those whose name, title or model holds this text.
    """
    from kreiss.experiments import COMPUTED, EXPERIMENTS

    for name, made in EXPERIMENTS.items():
        rows = [row for row in made.rows if like.lower() in f"{name}/{row.name} {made.title} {row.label}".lower()]
        if rows:
            print(f"{name}  {made.title} ({made.place}; scales {', '.join(made.scales)})")
        for row in rows:
            print(f"  {name}/{row.name:24} {row.label:24} {_published(row)}".rstrip())
    for name, (place, title, command) in COMPUTED.items():
        if like.lower() in f"{name} {title}".lower():
            print(f"{name}  {title} ({place}; computed by {command})")
    return 0


def _published(row: Any) -> str:
    """The printed numbers of a row in a few words."""
    return ", ".join(
        f"{number.metric} {number.value:g}" + ("" if number.error is None else f" ± {number.error:g}")
        for number in row.published
        if number.split == "test"
    )


def _list(registry: Mapping[str, type], like: str) -> int:
    for name, made in registry.items():
        summary = (inspect.getdoc(made) or "").split("\n\n")[0].replace("\n", " ")
        if like.lower() in name or like.lower() in summary.lower():
            print(f"{name:12} {summary}")
    return 0


def show(name: str, *, scale: str = "paper") -> int:
    """Show what a model, a task, an experiment, one of its rows or `config` is and what it can be told.

    Parameters
    ----------
    name
        From `kreiss list`; `config` for the settings of every run.
    scale
        Of an experiment: the published set-up, or a named difference from it.
    """
    from kreiss.experiments import EXPERIMENTS, names
    from kreiss.layers import LAYERS
    from kreiss.networks.recurrent import SET_BY_NETWORK
    from kreiss.tasks import TASKS

    if name == "config":
        return _show_config()
    if name in EXPERIMENTS:
        return _show_experiment(name)
    if name in names():
        return _show_row(name, scale)
    if name in LAYERS:
        return _show_class("model", LAYERS[name], SET_BY_NETWORK)
    if name in TASKS:
        return _show_class("task", TASKS[name], ())
    raise unknown_name("name", name, ["config", *LAYERS, *TASKS, *EXPERIMENTS, *names()])


def _show_experiment(name: str) -> int:
    from kreiss.catalogue import short
    from kreiss.experiments import experiment

    made = experiment(name)
    print(f"{made.title}\n{short(made.paper)}, {made.place}; {made.metric} on {made.split}")
    for heading, text in (("claim", made.claim), ("note", made.note)):
        if text:
            print(f"{heading}: {text}")
    print("\nRows:")
    for row in made.rows:
        print(f"  {row.name:24} {row.label:24} {_published(row)}".rstrip())
    print("\nScales:")
    for scale, chosen in made.scales.items():
        print(f"  {scale}: {chosen.about}")
    return 0


def _show_row(name: str, scale: str) -> int:
    from kreiss.catalogue import short
    from kreiss.experiments import row as named
    from kreiss.studies.jobs import differences

    made, row = named(name)
    check_name("scale", scale, made.scales)
    print(f"{row.label}: {made.title}\n{short(made.paper)}, {made.place}" + ("; not in the paper" if row.ours else ""))
    for number in row.published:
        error = "" if number.error is None else f" ± {number.error:g}"
        failed = "" if number.failed is None else f", {number.failed} of {made.seeds} runs failed"
        print(f"published: {number.split} {number.metric} {number.value:g}{error}{failed}")
    if row.parameters:
        ours = f"; {row.counted:,} as we count" if row.counted else ""
        print(f"published parameters: {row.parameters:,.0f}{ours}")
    for text in (*row.columns, row.note, made.note):
        if text:
            print(f"- {text}")
    print("\nSettings:")
    for key, value in made.settings(row, scale).items():
        print(f"  --{key.replace('_', '-')} {value}")
    if scale != "paper":
        print(f"\nDifference of scale {scale}: {made.scales[scale].about}")
        for key, (paper, here) in differences(made, row, scale).items():
            print(f"  {key}: {paper} → {here}")
    return 0


def _show_class(section: str, made: type, own: tuple[str, ...]) -> int:
    from kreiss.options import NOTHING, options_of

    print(inspect.getdoc(made))
    print("\nSettings:")
    for name, option in options_of(made, without=own).items():
        default = "" if option.default is NOTHING else f" = {option.default!r}"
        print(f"  --{section}.{name}{default}")
    return 0


def _show_config() -> int:
    from kreiss.settings import SECTIONS, SHORT, Config

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
