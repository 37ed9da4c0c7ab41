"""Figures of the thesis' chapter on memory: attention maps, gradients, memory against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kreiss.report import plots
from kreiss.report.style import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = ("RNN", "LSTM", "MemRNN", "SAB", "RelLSTM")  # of Fig. 4.2
SIZES = (3, 8, 18, 25)  # of ρ and of ν in Fig. B.1


class Reading(NamedTuple):
    """What a network read in one sequence."""

    record: Any  # of `layer.attention(x)`
    symbols: Sequence[str] | None = None  # of each step


class Measured(NamedTuple):
    """One network of Fig. 4.2."""

    flow: Any  # `GradientFlow`
    growth: Any  # `MemoryGrowth`
    points: Sequence[tuple[int, float, float]]  # (T, bytes, mean log₁₀ gradient)


def attention_maps(**readings: Reading) -> Figure:
    """Thesis, Figs. 4.1, B.5, B.7, B.8, B.9: the attention map of one sequence for every task."""
    fig, axes = canvas(1, len(readings), size=(6.0 * len(readings), 5.2), squeeze=False)
    for panel, (name, reading) in zip(axes[0], readings.items(), strict=True):
        plots.attention_map(reading.record, panel, symbols=reading.symbols, title=name)
    figure: Figure = fig
    return figure


def gradients_and_memory(**networks: Measured | None) -> Figure:
    """Thesis, Fig. 4.2: gradients from the end, memory against T, and one against the other; None was not run."""
    fig, axes = canvas(1, 3, size=(14.0, 4.0))
    every = {name: networks.get(name) for name in (*COMPARED, *networks)}
    plots.gradients_from_end(_each(every, "flow"), axes[0], title="gradients of the last ten answers")
    plots.memory_growth(_each(every, "growth"), axes[1])
    plots.trade_off(_each(every, "points"), axes[2])
    figure: Figure = fig
    return figure


def _each(networks: Mapping[str, Measured | None], part: str) -> dict[str, Any]:
    return {name: None if found is None else getattr(found, part) for name, found in networks.items()}


def gradients_by_size(**flows: Any) -> Figure:
    """Thesis, Fig. B.1: gradients from the end, for several ρ (roles rho3, rho8, …) and several ν (roles nu3, …)."""
    fig, axes = canvas(1, 2, size=(9.8, 4.0))
    for panel, (key, letter) in zip(axes, (("rho", "ρ"), ("nu", "ν")), strict=True):
        of = {f"{letter} = {name.removeprefix(key)}": flow for name, flow in flows.items() if name.startswith(key)}
        plots.gradients_from_end(of, panel, title=f"RelLSTM, by {letter}")
    figure: Figure = fig
    return figure
