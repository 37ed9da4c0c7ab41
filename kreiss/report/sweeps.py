"""Plots of hyperparameter searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kreiss.report.style import SEQUENTIAL, canvas, save, style


def parallel_coordinates(trials: Sequence[Any], path: Path) -> Path:
    """Parallel coordinates: one line per finished trial, coloured by its value. Returns the path of the SVG.

    Args:
        trials: of Optuna, or anything with `params` and `value`.
        path: of the files, without suffix.
    """
    done = [trial for trial in trials if trial.value is not None and trial.params]
    names = list(done[0].params)
    axes_values = {name: sorted({trial.params[name] for trial in done}, key=_rank) for name in names}
    values = [trial.value for trial in done]
    low, span = min(values), (max(values) - min(values)) or 1.0
    figure, axes = canvas(size=(2.0 * (len(names) + 1), 4.0))
    with style():
        from matplotlib import colormaps

        for trial in sorted(done, key=lambda trial: -trial.value):
            heights = [_height(axes_values[name], trial.params[name]) for name in names]
            share = (trial.value - low) / span
            axes.plot([*heights, share], color=colormaps[SEQUENTIAL](share), linewidth=1.2, alpha=0.8)
        for place, name in enumerate(names):
            for choice in axes_values[name]:
                height = _height(axes_values[name], choice)
                axes.annotate(_text(choice), (place, height), fontsize=7, xytext=(3, 0), textcoords="offset points")
        for share in (0.0, 1.0):
            axes.annotate(f"{low + share * span:.4g}", (len(names), share), fontsize=7)
        axes.set_xticks(range(len(names) + 1), [*(name.partition(".")[2] or name for name in names), "value"])
        axes.set_yticks([])
        axes.grid(axis="x")
    return save(figure, path)[0]


def _rank(value: Any) -> tuple[bool, Any]:
    return (isinstance(value, str), value)


def _height(choices: Sequence[Any], value: Any) -> float:
    return choices.index(value) / max(len(choices) - 1, 1)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
