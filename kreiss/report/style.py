"""The common style of all plots: colour-blind safe colours, SVG and PNG, text in the colour of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreiss.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours without black and yellow, which vanish on a dark or a light page
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#888888"
SEQUENTIAL = "cividis"  # perceptually uniform and colour-blind safe
DIVERGING = "RdBu_r"
INK = "#2b2b2b"  # of text and axes; a page replaces it with the colour of its own text

SETTINGS: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": "medium",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 10,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "image.cmap": SEQUENTIAL,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "kreiss",  # reproducible files
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def style() -> Iterator[None]:
    """Context with the matplotlib style of this package, without a window."""
    try:
        import matplotlib
        import matplotlib.figure
        from cycler import cycler
    except ModuleNotFoundError as error:
        raise MissingExtra("a picture", "plots", "matplotlib") from error
    settings: Any = {**SETTINGS, "axes.prop_cycle": cycler(color=COLOURS)}
    with matplotlib.rc_context(settings):
        yield


def _layout() -> Any:
    """A layout with padding, so that labels do not touch a neighbouring colour bar."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=0.1)


def canvas(rows: int = 1, columns: int = 1, *, size: tuple[float, float] | None = None, **options: Any) -> Any:
    """A figure and its axes, created without pyplot, so that no global state remains."""
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=size or (4.6 * columns, 3.4 * rows), layout=_layout())
        return figure, figure.subplots(rows, columns, **options)


def mosaic(layout: str, *, size: tuple[float, float], polar: str = "") -> Any:
    """A figure and its axes by letter, those in `polar` with polar axes."""
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout=_layout())
        kinds: Any = {letter: {"projection": "polar"} for letter in polar if letter in layout}
        return figure, figure.subplot_mosaic(layout, per_subplot_kw=kinds)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png, the latter on white."""
    with style():
        vector, raster = (path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png"))  # names may have dots
        figure.savefig(vector, metadata={"Date": None})
        figure.set_layout_engine("none")  # already laid out; a second time would take as long again
        figure.savefig(raster, dpi=150, facecolor="white")
    return [vector, raster]
