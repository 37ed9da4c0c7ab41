"""What `kreiss figure` does: find or train the networks that a figure needs, draw it, write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Small and short: they show the kind of structure, not the published values; the figure says so.
SHORT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "copy": (
        "nnrnn",
        "copy",
        {"task.delay": 50, "model.hidden_size": 64, "steps": 1500, "batch": 10, "lr": 5e-4, "orthogonal_lr": 1e-5},
    ),
    "characters": (
        "nnrnn",
        "characters",
        {"model.hidden_size": 128, "steps": 600, "batch": 32, "lr": 2e-3, "orthogonal_lr": 2e-4},
    ),
    "psmnist": ("nnrnn", "pixels", {"model.hidden_size": 64, "steps": 300, "batch": 50, "lr": 1e-3}),
    "enrnn": ("enrnn", "adding", {"task.length": 50, "model.hidden_size": 40, "steps": 1500, "batch": 50, "lr": 1e-3}),
}


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


def _filled(name: str, given: dict[str, str], train: bool) -> tuple[dict[str, Any], str]:
    """Every role of a figure with what it needs, and a note where networks were trained for it."""
    from kreiss.report.figures import FIGURES

    wanted = FIGURES[name].roles
    if "runs" in wanted:
        return _runs(name, given), ""
    roles: dict[str, Any] = {role: _found("kreiss", "load")(path) for role, path in given.items()}
    notes = []
    for role in wanted:
        if role in SHORT and role not in roles and train:
            roles[role], said = _trained(role)
            notes.append(said)
    if "enrnn" in roles:
        roles["inputs"], roles["long"] = _adding_batch(), _long_units(roles["enrnn"])
    return roles, "; ".join(notes)


def _runs(name: str, given: dict[str, str]) -> dict[str, Any]:
    """Curves from the records of runs, or gradients of the networks they left."""
    if name == "003/fig6":
        read: Callable[[Path], list[dict[str, Any]]] = _found("kreiss.training", "read_records")
        curves = {}
        for label, path in given.items():
            rows = [row for row in read(Path(path)) if row.get("split") == "valid"]
            curves[label] = ([row["update"] for row in rows], [row["loss"] for row in rows])
        return curves
    from kreiss.analysis import GradientHistory
    from kreiss.report.network_findings import random_inputs

    histories = {}
    for label, path in given.items():
        from kreiss.analysis import dynamics

        system = dynamics(_found("kreiss", "load")(path))
        history = GradientHistory()
        history.add(0, system, random_inputs(system), lambda outputs: outputs[-1].sum())
        histories[label] = history
    return histories


def _trained(role: str) -> tuple[Any, str]:
    model, task, settings = SHORT[role]
    run = _found("kreiss", "fit")(model, task, settings, show="quiet")
    said = f"{role}: {settings['model.hidden_size']} units, {settings['steps']} updates, scaled down"
    return run.model, said


def _adding_batch() -> Any:
    return _found("kreiss.tasks", "Adding")(50).train(0, 8, 0).inputs


def _long_units(network: Any) -> int:
    from kreiss.analysis.network.dynamics import recurrent_layer

    layer: Any = recurrent_layer(network)
    return int(getattr(layer, "long_size", layer.hidden_size // 2))


def _found(module: str, name: str) -> Any:
    """A public name, looked up when it is used so that theory needs no torch."""
    from importlib import import_module

    return getattr(import_module(module), name)
