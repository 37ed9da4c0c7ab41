"""Findings about a training run: losses, and the evolution of the spectrum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kreiss.report import plots
from kreiss.report.findings import Finding, View, eigenvalue_points, percent, ranged
from kreiss.report.plots.runs import Records, validations
from kreiss.report.style import canvas
from kreiss.tasks.base import HIGHER

MOST_FRAMES = 8  # drawn side by side
MOST_VIEWED = 60  # that the slider of a page goes through


def run_findings(
    records: Records,
    spectra: Mapping[int, Sequence[complex]],
    without: float | None = None,
    metric: str = "loss",
    naive: str = "without memory",
) -> Iterator[Finding]:
    """The training of a run, and frames of its spectrum if there are eigenvalues.

    Args:
        records: of the run.
        spectra: eigenvalues by update.
        without: the metric of the baseline.
        metric: of validations: the loss, or the reward in a world.
        naive: what the baseline is called.
    """
    if validations(records):
        yield _training(records, without, metric, naive)
    if len(spectra) > 1:
        yield _frames({update: np.asarray(values) for update, values in sorted(spectra.items())})


def _training(records: Records, without: float | None, metric: str, naive: str) -> Finding:
    rows = validations(records)
    best = (max if metric in HIGHER else min)(rows, key=lambda row: float(row[metric]))
    beside = "" if without is None else f"; {naive} it is {without:.4g}"
    sentence = (
        f"In {rows[-1]['update']} updates the validation {metric} went from {rows[0][metric]:.4g} (update "
        f"{rows[0]['update']}) to {rows[-1][metric]:.4g}; the best is {best[metric]:.4g} at update "
        f"{best['update']}{beside}."
    )
    known = [row for row in rows if "departure" in row]
    if known:
        first, last = known[0], known[-1]
        sentence += (
            f" The largest modulus went from {first['modulus_max']:.4g} to {last['modulus_max']:.4g}, the departure "
            f"from normality {_from_to(first['departure'], last['departure'])}."
        )
    numbers = {
        "updates": rows[-1]["update"], "best_update": best["update"], f"best_{metric}": best[metric],
        f"{metric}_without_memory": without, "validations": rows,
    }  # fmt: skip

    def draw() -> Any:
        figure, axes = canvas(1, 2 if known else 1, size=(9.4 if known else 5.2, 3.6), squeeze=False)
        plots.losses({"validation": records}, axes[0, 0], without=without, metric=metric)
        if known:
            plots.moduli({"mean |λ|": records}, axes[0, 1])
        return figure

    return Finding("training", "Training", sentence, numbers, draw)


def _from_to(first: float, last: float) -> str:
    rounding = 1e-5
    return "stayed 0" if max(first, last) < rounding else f"from {first:.3g} to {last:.3g}"


def _frames(spectra: Mapping[int, np.ndarray[Any, Any]]) -> Finding:
    updates = list(spectra)
    (first, start), (last, end) = (updates[0], spectra[updates[0]]), (updates[-1], spectra[updates[-1]])
    inside = [float((np.abs(values) < 0.99).mean()) for values in (start, end)]
    sentence = (
        f"From update {first} to {last} the eigenvalues moved by {_distance(start, end):.3g} on average. Initially "
        f"their moduli were {ranged(np.abs(start))}, with {percent(inside[0])} of them below 0.99; finally they are "
        f"{ranged(np.abs(end))}, with {percent(inside[1])} below 0.99."
    )
    numbers = {
        "mean_move": _distance(start, end),
        "share_below_0.99_first": inside[0],
        "share_below_0.99_last": inside[1],
        "eigenvalues": {
            str(update): [[value.real, value.imag] for value in values] for update, values in spectra.items()
        },
    }
    frames = {update: spectra[update] for update in _evenly(updates, MOST_FRAMES)}
    draw = lambda: plots.spectrum_frames(frames)  # noqa: E731
    view = View(
        {f"update {update}": eigenvalue_points(spectra[update]) for update in _evenly(updates, MOST_VIEWED)},
        slider="update",
    )
    return Finding("spectrum-frames", "The spectrum through training", sentence, numbers, draw, view)


def _evenly(updates: Sequence[int], count: int) -> list[int]:
    """At most `count` of the updates, the first and the last among them."""
    return [updates[i] for i in np.unique(np.linspace(0, len(updates) - 1, count).round().astype(int))]


def _distance(first: np.ndarray[Any, Any], last: np.ndarray[Any, Any]) -> float:
    """The mean distance between eigenvalues, matched to minimise the total distance."""
    from scipy.optimize import linear_sum_assignment

    ways = np.abs(first[:, None] - last[None, :])
    return float(ways[linear_sum_assignment(ways)].mean())
