"""Eigenvalues through training, moving: one panel per run, one frame per recorded spectrum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kreiss.errors import InputError, MissingExtra
from kreiss.report.style import COLOURS, GREY, canvas, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Spectra = Mapping[int, Sequence[complex]]  # eigenvalues by update
DOTS = 90  # per inch
SHORT, LONG = 80, 1500  # milliseconds of a frame and of the last one
MOST = 80  # frames
SHADES = 16  # colours: an animation of few is small


def last_frame(**runs: Spectra) -> Figure:
    """The eigenvalues of each run at its last update."""
    return list(_frames(runs, [max(_updates(runs))]))[-1]


def write(runs: Mapping[str, Spectra], path: Path) -> Path:
    """Write the animation as GIF.

    Args:
        runs: name → eigenvalues by update.
        path: of the file.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtra("an animation", "images", "pillow") from error
    updates = _updates(runs)
    shown = [updates[i] for i in np.unique(np.linspace(0, len(updates) - 1, MOST).round().astype(int))]
    frames = [Image.fromarray(_pixels(figure)) for figure in _frames(runs, shown)]
    palette = frames[-1].quantize(SHADES)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=others, duration=[SHORT] * len(others) + [LONG], loop=0)
    return path


def _updates(runs: Mapping[str, Spectra]) -> list[int]:
    """The updates at which every run has a spectrum."""
    common = sorted(set.intersection(*(set(spectra) for spectra in runs.values())))
    if not common:
        raise InputError(
            f"runs must have recorded their spectra at the same updates; got {', '.join(runs)}, which have none in "
            "common. Train them with the same --eval-every, and with models that have a recurrent matrix."
        )
    return common


def _frames(runs: Mapping[str, Spectra], updates: Sequence[int]) -> Iterator[Figure]:
    """The same figure again and again, its points moved to the next update."""
    figure, axes = canvas(1, len(runs), size=(3.6 * len(runs), 3.8), squeeze=False, sharex=True, sharey=True)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 181))
    edge = 1.05 * max(1.0, *(float(np.abs(runs[name][update]).max()) for name in runs for update in updates))
    with style():
        points = {}
        for panel, name in zip(axes[0], runs, strict=True):
            panel.plot(circle.real, circle.imag, color=GREY, linewidth=0.8, linestyle="--")
            (points[name],) = panel.plot([], [], ".", color=COLOURS[1], markersize=5)
            panel.set(title=name, aspect="equal", xlim=(-edge, edge), ylim=(-edge, edge))
        label = figure.supxlabel("", fontsize=10)
        for update in updates:
            for name, drawn in points.items():
                values = np.asarray(runs[name][update])
                drawn.set_data(values.real, values.imag)
            label.set_text(f"eigenvalues of the recurrent matrix, update {update}")
            yield figure


def _pixels(figure: Figure) -> np.ndarray[Any, Any]:
    """A figure on white, as (height, width, 3) bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with style():
        figure.set_facecolor("white")
        figure.set_dpi(DOTS)
        drawn = FigureCanvasAgg(figure)
        drawn.draw()
        figure.set_layout_engine("none")  # of the first frame for all: nothing jumps
        return np.asarray(drawn.buffer_rgba())[..., :3].copy()
