"""Plots of runs: losses and eigenvalues during training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kreiss.report.plots.matrices import SHADE, _axes, spans_a_decade
from kreiss.report.style import COLOURS, GREY, canvas, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]


def losses(runs: Mapping[str, Records], axes: Any = None, *, without: float | None = None, metric: str = "loss") -> Any:
    """Losses, or another metric, against updates: training as a thin line, validation as dots.

    Args:
        runs: the records of each run, by name.
        axes: where to draw.
        without: loss without memory, drawn as a dashed line.
        metric: what is drawn.
    """
    axes = _axes(axes)
    with style():
        for (name, records), colour in zip(runs.items(), COLOURS * 3, strict=False):
            train = [record for record in records if "split" not in record and metric in record]
            axes.plot(*_curve(train, metric), color=colour, linewidth=0.6)
            axes.plot(*_curve(validations(records), metric), "o-", color=colour, markersize=3, label=name)
        if without is not None:
            axes.axhline(without, color=GREY, linestyle="--", label="without memory")
        axes.set(xlabel="update", ylabel=metric, title="training (thin) and validation (dots)")
        values = [record[metric] for records in runs.values() for record in records if metric in record]
        if metric == "loss" and spans_a_decade(np.array(values)):
            axes.set_yscale("log")
        axes.legend(fontsize=8)
    return axes


def moduli(runs: Mapping[str, Records], axes: Any = None) -> Any:
    """The range of |λ| against updates, with the mean; none for gated networks, which have several matrices."""
    axes = _axes(axes)
    with style():
        for (name, records), colour in zip(runs.items(), COLOURS * 3, strict=False):
            known = [record for record in validations(records) if "modulus_min" in record]
            if known:
                updates, low = _curve(known, "modulus_min")
                high = _curve(known, "modulus_max")[1]
                axes.fill_between(updates, low, high, color=colour, alpha=SHADE, linewidth=0)
                axes.plot(*_curve(known, "modulus_mean"), color=colour, marker=".", label=name)
        axes.set(xlabel="update", ylabel="|λ|", title="smallest to largest |λ|, and mean")
        if axes.lines:
            axes.legend(fontsize=8)
    return axes


def comparison(runs: Mapping[str, Records], without: float) -> Figure:
    """Losses and moduli of several runs side by side."""
    figure, axes = canvas(1, 2, size=(10, 4))
    losses(runs, axes[0], without=without)
    moduli(runs, axes[1])
    result: Figure = figure
    return result


def validations(records: Records) -> Records:
    """The records of validations."""
    return [record for record in records if record.get("split") == "valid"]


def _curve(records: Records, name: str) -> tuple[list[int], list[float]]:
    return [record["update"] for record in records], [record[name] for record in records]
