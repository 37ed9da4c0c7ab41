"""A picture of several runs: losses on the way, and the moduli of eigenvalues."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from kreiss.errors import MissingExtra

# told apart by people who see colours differently (Okabe & Ito)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

Records = list[dict[str, Any]]


def draw(runs: dict[str, Records], without: float, path: Path) -> Path:
    """Save losses against updates, and the range of |λ| against updates, of each run.

    Args:
        runs: the records of each, by name.
        without: loss without memory, a dashed line.
        path: of the picture; its ending says in which form.
    """
    try:
        figure_of = import_module("matplotlib.figure").Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("the picture", "plots", "matplotlib") from error
    figure = figure_of(figsize=(10, 4), layout="constrained")
    losses, moduli = figure.subplots(1, 2)
    for (name, records), colour in zip(runs.items(), COLOURS, strict=False):
        _losses(losses, name, records, colour)
        _moduli(moduli, name, records, colour)
    losses.axhline(without, color="grey", linestyle="--", label="without memory")
    losses.set(xlabel="update", ylabel="loss", yscale="log", title="training (thin) and validation (dots)")
    moduli.set(xlabel="update", ylabel="|λ|", title="smallest to largest |λ|, and mean")
    losses.legend()
    if moduli.lines:  # gated networks have no single recurrent matrix
        moduli.legend()
    figure.savefig(path, dpi=150)
    return path


def _losses(axes: Any, name: str, records: Records, colour: str) -> None:
    train = [record for record in records if "split" not in record]
    valid = [record for record in records if record.get("split") == "valid"]
    axes.plot(*_curve(train, "loss"), color=colour, linewidth=0.6)
    axes.plot(*_curve(valid, "loss"), "o-", color=colour, markersize=3, label=name)


def _moduli(axes: Any, name: str, records: Records, colour: str) -> None:
    known = [record for record in records if record.get("split") == "valid" and "modulus_min" in record]
    if known:
        updates, low = _curve(known, "modulus_min")
        axes.fill_between(updates, low, _curve(known, "modulus_max")[1], color=colour, alpha=0.2)
        axes.plot(*_curve(known, "modulus_mean"), color=colour, label=name)


def _curve(records: Records, name: str) -> tuple[list[int], list[float]]:
    return [record["update"] for record in records], [record[name] for record in records]
