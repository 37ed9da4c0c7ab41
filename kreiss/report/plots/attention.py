"""Plots of networks with memory: who read whom, who was kept, gradients from the end, memory against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kreiss.analysis import GradientFlow
from kreiss.analysis.arrays import Array, as_array
from kreiss.report.plots.matrices import _axes
from kreiss.report.plots.networks import GRADIENT
from kreiss.report.style import COLOURS, GREY, style

MOST_LABELS = 45  # ticks that can be told apart along one axis
MANY = 80  # steps up to which symbols are written in full size


def attention_map(
    record: Any, axes: Any = None, *, sequence: int = 0, symbols: Sequence[str] | None = None, title: str = ""
) -> Any:
    """Attention weights of one sequence: the row is the step that reads, the column the past step that is read.

    Args:
        record: what `layer.attention(x)` returns.
        axes: where to draw.
        sequence: which one of the batch.
        symbols: what each step had as input, written along the axes.
        title: a heading.
    """
    axes = _axes(axes, size=(5.6, 5.0))
    dense = as_array("weights", record.dense(sequence))
    start = int(record.start[sequence])
    with style():
        from matplotlib.colors import PowerNorm

        shown = np.where(dense != 0, np.abs(dense), np.nan)  # what is not read stays blank
        # the first steps have little to read, so that their weights are large without meaning much
        largest = max(float(np.abs(dense[len(dense) // 4 :]).max()), 1e-6)
        label = "size of the weight" if (dense < 0).any() else "attention weight"  # those of SAB have signs
        # the root of the weight, so that uniform attention over many states is not all dark
        image = axes.imshow(
            shown, norm=PowerNorm(0.5, vmin=0, vmax=largest), interpolation="nearest",
            aspect="equal", extent=(-0.5, dense.shape[1] - 0.5, start + len(dense) - 0.5, start - 0.5),
        )  # fmt: skip
        axes.figure.colorbar(image, ax=axes, shrink=0.8, label=label, extend="max")
        axes.grid(False)
        axes.set(xlabel="past step that is read", ylabel="step that reads", title=title or "attention")
        _symbols(axes, symbols, start)
    return axes


def kept_strip(
    record: Any, axes: Any = None, *, sequence: int = 0, symbols: Sequence[str] | None = None, title: str = ""
) -> Any:
    """Who was in memory when: a bar per screened state, at its step, from the step it entered to the step it left.

    The axes are those of `attention_map`. The grey band is the short-term memory.

    Args:
        record, axes, sequence, symbols, title: see `attention_map`.
    """
    axes = _axes(axes, size=(5.6, 5.0))
    start, length = int(record.start[sequence]), len(record.past)
    end, short = start + length, record.past.shape[-1] - record.relevant
    with style():
        steps = np.arange(start, end + 1)
        axes.fill_betweenx(
            steps - 0.5, np.maximum(steps - short, 0) - 0.5, steps - 0.5, step="post", color=GREY, alpha=0.35,
            linewidth=0, label="short-term memory",
        )  # fmt: skip
        stays = [stay for stay in record.stays() if stay.sequence == sequence]
        for kind, colour, label in ((False, COLOURS[5], "kept, then replaced"), (True, COLOURS[0], "kept to the end")):
            bars = [stay for stay in stays if (stay.left is None) == kind]
            heights = [(end if stay.left is None else stay.left) - stay.entered for stay in bars]
            axes.bar(
                [stay.past for stay in bars], heights,
                bottom=[stay.entered - 0.5 for stay in bars], width=0.9, color=colour, label=label if bars else None,
            )  # fmt: skip
        axes.set(
            xlim=(-0.5, end - 0.5), ylim=(end - 0.5, start - 0.5), aspect="equal", xlabel="past step that is kept",
            ylabel="step", title=title or "what was kept",
        )  # fmt: skip
        axes.grid(False)
        axes.legend(fontsize=8, loc="upper right")
        _symbols(axes, symbols, start)
    return axes


def _symbols(axes: Any, symbols: Sequence[str] | None, start: int) -> None:
    """Write symbols along both axes; if there are too many, only the rare ones, which carry information."""
    if symbols is None:
        return
    places = shown_places(symbols)
    size = 8 if len(symbols) <= MANY else 6
    names = [symbols[i] for i in places]
    axes.set_xticks([start + i for i in places], names, fontsize=size)
    axes.set_yticks([start + i for i in places], names, fontsize=size)
    axes.tick_params(length=2)


def shown_places(symbols: Sequence[str]) -> list[int]:
    """Steps whose symbol is written: all that fit, else those that are not the most frequent symbol, else some."""
    if len(symbols) <= MOST_LABELS:
        return list(range(len(symbols)))
    blank = max(set(symbols), key=list(symbols).count)
    rare = [i for i, symbol in enumerate(symbols) if symbol != blank]
    chosen = rare if rare else list(range(len(symbols)))
    return [chosen[i] for i in np.unique(np.linspace(0, len(chosen) - 1, min(MOST_LABELS, len(chosen))).astype(int))]


def gradients_from_end(flows: Mapping[str, GradientFlow | None], axes: Any = None, *, title: str = "") -> Any:
    """‖∂L/∂h_t‖ over batch and units, against the number of steps before the end, as the thesis draws it.

    Args:
        flows: name → gradients; None for a network that was not run.
        axes: where to draw.
        title: a heading.
    """
    axes = _axes(axes)
    with style():
        for (name, flow), colour in zip(flows.items(), COLOURS * 3, strict=False):
            if flow is None:
                axes.plot([], [], color=GREY, linestyle=":", label=f"{name}: not run")
                continue
            total = as_array("norms", flow.total)[1:]
            axes.plot(np.arange(len(total)), np.where(total > 0, total, np.nan)[::-1], color=colour, label=name)
        axes.set(xlabel="steps before the end", ylabel=GRADIENT, yscale="log", title=title or "gradients")
        axes.legend(fontsize=8)
    return axes


def memory_growth(found: Mapping[str, Any], axes: Any = None) -> Any:
    """Peak memory against length, a `kreiss.bench.growth.MemoryGrowth` per network; None for one that was not run."""
    axes = _axes(axes)
    with style():
        for (name, growth), colour in zip(found.items(), COLOURS * 3, strict=False):
            if growth is None:
                axes.plot([], [], color=GREY, linestyle=":", label=f"{name}: not run")
                continue
            memory = [peak / 2**20 for peak in growth.peaks]
            axes.plot(growth.lengths, memory, "o-", color=colour)
            axes.annotate(
                f"{name}, T^{growth.exponent:.1f}", (growth.lengths[-1], memory[-1]), color=colour, fontsize=8,
                xytext=(6, -3), textcoords="offset points",
            )  # fmt: skip
        axes.margins(x=0.35, y=0.1)
        axes.set(xlabel="steps T of the sequence", ylabel="peak memory, MiB", yscale="log", title="memory")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, loc="upper left")
    return axes


def trade_off(points: Mapping[str, Sequence[tuple[int, float, float]] | None], axes: Any = None) -> Any:
    """Mean log gradient norm against peak memory: name → (T, bytes, mean of log₁₀‖∂L/∂h_t‖)."""
    axes = _axes(axes)
    with style():
        for (name, rows), colour in zip(points.items(), COLOURS * 3, strict=False):
            if rows is None:
                axes.plot([], [], color=GREY, linestyle=":", label=f"{name}: not run")
                continue
            memory: Array = np.array([row[1] for row in rows]) / 2**20
            axes.plot(memory, [row[2] for row in rows], "o-", color=colour, linewidth=0.8, label=name)
            for (length, _, norm), at in zip(rows, memory, strict=True):
                axes.annotate(f"{length}", (at, norm), fontsize=7, xytext=(3, 3), textcoords="offset points")
        axes.set(xlabel="peak memory, MiB", ylabel=f"mean log₁₀ {GRADIENT}", xscale="log", title="trade-off, by T")
        axes.legend(fontsize=8)
    return axes
