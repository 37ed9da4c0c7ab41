"""Learning curves of several runs, in one panel or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kreiss.report.style import COLOURS, canvas, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ("-", "--", ":", "-.")
MOST_COLUMNS = 3  # of panels


def look(number: int) -> dict[str, str]:
    """Colour and line of a curve by its number: no two of the first 24 are alike."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number // len(COLOURS) % len(LINES)]}


def losses(**curves: Any) -> Figure:
    """Cross-entropy against updates.

    Args:
        curves: name → (updates, losses); names such as "T = 100: LSTM" put the curve in the panel "T = 100".
    """
    return _panels(curves, "loss", log=True)


def accuracies(**curves: Any) -> Figure:
    """Accuracy against updates.

    Args:
        curves: name → (updates, accuracies), as in `losses`.
    """
    return _panels(curves, "accuracy", log=False)


def _panels(curves: dict[str, Any], metric: str, *, log: bool) -> Figure:
    panels: dict[str, dict[str, Any]] = {}
    for name, curve in curves.items():
        title, colon, label = name.rpartition(": ")
        panels.setdefault(title if colon else "", {})[label] = curve
    columns = min(len(panels), MOST_COLUMNS)
    fig, axes = canvas(-(-len(panels) // columns), columns, squeeze=False)
    with style():
        for panel in axes.flat[len(panels) :]:
            panel.set_axis_off()
        for panel, (title, some) in zip(axes.flat, panels.items(), strict=False):
            for number, (label, (updates, values)) in enumerate(some.items()):
                panel.plot(updates, values, label=label, **look(number))
            panel.set(title=title, xlabel="updates", ylabel=f"validation {metric}", yscale="log" if log else "linear")
            panel.legend(fontsize=7)
    figure: Figure = fig
    return figure
