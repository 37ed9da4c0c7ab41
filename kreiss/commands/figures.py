"""What `kreiss figure` does: find or train the networks that a figure needs, draw it, write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Settings = dict[str, Any]

# The same for all that are compared: P slower than the rest, T decaying, which it does where a task has no use for it.
ALIKE: Settings = {"hidden": 128, "orthogonal_lr": 1e-4, "optimiser.coupling_decay": 0.1, "optimiser.radius": 1e-4}

# role → (model, task, settings). Small and short: they show the kind of structure and not the published values.
SHORT: dict[str, tuple[str, str, Settings]] = {
    "copy": ("nnrnn", "copy", {**ALIKE, "task.delay": 50, "steps": 2000, "lr": 5e-4}),
    "characters": ("nnrnn", "characters", {**ALIKE, "steps": 800, "batch": 32, "lr": 2e-3, "optimiser.clip_norm": 1.0}),
    "psmnist": ("nnrnn", "pixels", {**ALIKE, "task.permutation": 0, "steps": 600, "batch": 50, "lr": 1e-3}),
    "enrnn": (
        "enrnn",
        "adding",
        {"task.length": 50, "hidden": 40, "model.short": 16, "steps": 1500, "batch": 50, "lr": 1e-3},
    ),
}
SPLITS = (0, 8, 16, 24, 32)  # short-term units of forty, for 003 Fig. 6
CLAMPED: dict[str, str | float] = {
    "γ free": "free",
    "γ = 1": 1.0,
    "γ = 0.958": 0.958,
}  # for App. A Fig. 3 of the thesis


def show_list() -> int:
    """Print every figure with what it needs."""
    from kreiss.report.figures import FIGURES

    for name, figure in FIGURES.items():
        needs = f"  needs {', '.join(figure.roles)}" if figure.roles else ""
        print(f"{name:<18} {figure.about}{needs}")
    return 0


def make(name: str, networks: Sequence[str], out: Path, *, train: bool = False) -> int:
    """Draw a figure and write it as SVG and PNG."""
    from kreiss.errors import check_name
    from kreiss.report.figures import FIGURES, figure
    from kreiss.report.style import save

    check_name("figure", name, FIGURES)
    given = dict(_pair(entry) for entry in networks)
    roles, note = _filled(name, given, train)
    out.mkdir(parents=True, exist_ok=True)
    for path in save(figure(name, note=note, **roles), out / name.replace("/", "-")):
        print(path)
    return 0


def _pair(entry: str) -> tuple[str, str]:
    from kreiss.errors import InputError

    role, equals, path = entry.partition("=")
    if not (role and equals and path):
        raise InputError(f"a network must be given as ROLE=PATH; got {entry!r}. Write, for example, copy=runs/one.")
    return role, path


def _filled(name: str, given: dict[str, str], train: bool) -> tuple[Settings, str]:
    """Every role of a figure with what it needs, and a note where networks were trained for it."""
    from kreiss.report.figures import FIGURES

    wanted = FIGURES[name].roles
    if "runs" in wanted:
        return _compared(name, given, train)
    roles: Settings = {role: _found("kreiss", "load")(path) for role, path in given.items()}
    short = [role for role in wanted if train and role in SHORT and role not in roles]
    roles.update({role: trained(role).model for role in short})
    if "enrnn" in roles:
        roles["inputs"] = _found("kreiss.tasks", "Adding")(50).train(0, 8, 0).inputs
        roles["long"] = long_units(roles["enrnn"])
    return roles, "; ".join(map(said, short))


def trained(role: str, **other: Any) -> Any:
    """The short run of a role, with some settings changed."""
    model, task, settings = SHORT[role]
    return _found("kreiss", "fit")(model, task, {**settings, **other}, show="quiet")


def said(role: str) -> str:
    """How short the run of a role is."""
    settings = SHORT[role][2]
    return f"{role}: {settings['hidden']} units, {settings['steps']} updates, scaled down"


def long_units(network: Any) -> int:
    """How many of the units of an ENRNN are long-term ones; they come first."""
    from kreiss.analysis.network.dynamics import recurrent_layer

    layer: Any = recurrent_layer(network)
    return int(layer.sets["l0"].long)


def _compared(name: str, given: dict[str, str], train: bool) -> tuple[Settings, str]:
    """What the figures that compare runs need: curves of errors, or histories of gradients."""
    if name == "003/fig6":
        records = {label: _found("kreiss.training", "read_records")(Path(path)) for label, path in given.items()}
        if train and not given:
            records = {f"{40 - s} / {s}": trained("enrnn", **{"model.short": s}).records for s in SPLITS}
        return {label: _curve(rows) for label, rows in records.items()}, said("enrnn") if train and not given else ""
    if train and not given:
        return {label: gradient_history(radius) for label, radius in CLAMPED.items()}, said("characters")
    return {label: _last_gradients(path) for label, path in given.items()}, ""


def _curve(records: list[Settings]) -> tuple[list[int], list[float]]:
    rows = [row for row in records if row.get("split") == "valid"]
    return [row["update"] for row in rows], [row["loss"] for row in rows]


def gradient_history(radius: str | float, moments: int = 5) -> Any:
    """Gradients on characters at several moments of a short training, with γ free or clamped."""
    from functools import partial

    from kreiss.analysis import GradientHistory

    task = _found("kreiss.tasks", "Characters")()
    batch = task.train(0, 8, 1)
    settings = SHORT["characters"][2]
    model: Any = _found("kreiss", "NNRNN")(task.input_size, settings["hidden"], radius=radius)
    history = GradientHistory()
    for moment in range(moments):
        run = _found("kreiss", "fit")(
            model, task, {**settings, "steps": settings["steps"] // moments, "seed": moment}, show="quiet"
        )
        model = run.model
        update = (moment + 1) * settings["steps"] // moments
        history.add(update, model, batch.inputs, partial(_loss, task, model, batch))
    return history


def _loss(task: Any, network: Any, batch: Any, hidden: Any) -> Any:
    return task.loss(network.read(hidden, batch.lengths), batch)


def _last_gradients(path: str) -> Any:
    """Gradients of a network that is given, as a history of one moment: of its loss where it is a run's."""
    from kreiss.analysis import GradientHistory, dynamics
    from kreiss.commands.sources import drive_of
    from kreiss.report.network_findings import Drive, random_inputs

    network = _found("kreiss", "load")(path)
    system = dynamics(network).time_first()
    drive = drive_of(network, Path(path))[0] or Drive(random_inputs(system), "random input")
    history = GradientHistory()
    history.add(0, system, drive.inputs, drive.loss or (lambda outputs: outputs[-1].sum()))
    return history


def _found(module: str, name: str) -> Any:
    """A public name, looked up when it is used so that theory needs no torch."""
    from importlib import import_module

    return getattr(import_module(module), name)
