"""Plots of sequences of objects: the images with the answer, and matrices of relations with the images along them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array
from kreiss.report.plots.matrices import _axes
from kreiss.report.style import DIVERGING, GREY, SEQUENTIAL, canvas, style


def shown(image: Array) -> Array:
    """An image (channels, height, width) as matplotlib draws it, with a grey frame."""
    picture = np.clip(np.asarray(image, dtype=float).transpose(1, 2, 0), 0, 1)
    return np.pad(picture, ((1, 1), (1, 1), (0, 0)), constant_values=0.6)


def drawn(images: Array, titles: Sequence[str], across: int) -> Any:
    """Sequences of images (B, T, channels, height, width): boards where T is the square of `across`, else lines."""
    return boards(images, titles, across) if across**2 == images.shape[1] else sequences(images, titles)


def sequences(images: Array, titles: Sequence[str]) -> Any:
    """Sequences of images (B, T, channels, height, width), one to a line, each with a title on the left."""
    figure, axes = canvas(len(images), 1, size=(1.2 + 0.62 * images.shape[1], 0.75 * len(images)), squeeze=False)
    with style():
        for panel, line, title in zip(axes[:, 0], images, titles, strict=True):
            panel.imshow(np.concatenate([shown(image) for image in line], 1), interpolation="nearest")
            panel.set(xticks=[], yticks=[])
            panel.set_ylabel(title, rotation=0, ha="right", va="center")
            panel.grid(False)
            for spine in panel.spines.values():
                spine.set_visible(False)
    return figure


def boards(images: Array, titles: Sequence[str], across: int) -> Any:
    """Sequences of images as boards with `across` images to a row, four boards to a line, each with a title."""
    lines = -(-len(images) // 4)
    figure, axes = canvas(lines, 4, size=(7.2, 2.0 * lines), squeeze=False)
    with style():
        for panel in axes.flat:
            panel.axis("off")
        for panel, board, title in zip(axes.flat, images, titles, strict=False):
            rows = [board[start : start + across] for start in range(0, len(board), across)]
            panel.imshow(
                np.concatenate([np.concatenate([shown(image) for image in row], 1) for row in rows]),
                interpolation="nearest",
            )  # fmt: skip
            panel.set_title(title)
    return figure


def relation_matrix(
    matrix: Array, images: Array, axes: Any = None, *, title: str = "", bar: bool = True, limit: float | None = None
) -> Any:
    """A matrix of relations (T, T) with the objects along its axes.

    Args:
        matrix: R, zero above the diagonal, or D, antisymmetric.
        images: the objects (T, channels, height, width).
        axes: where to draw.
        title: a heading.
        bar: whether to add the colour bar.
        limit: largest size of a difference that is drawn, for several matrices with one colour bar.
    """
    axes = _axes(axes, size=(4.6, 4.2))
    signed = is_signed(matrix) or limit is not None
    with style():
        largest = max(float(np.abs(matrix).max()) if limit is None else limit, 1e-12)
        above = np.triu(np.ones(matrix.shape, bool), 1)
        drawn = matrix if signed else np.where(above & (matrix == 0), np.nan, matrix)
        image = axes.imshow(
            drawn, cmap=DIVERGING if signed else SEQUENTIAL, vmin=-largest if signed else 0,
            vmax=largest if signed else 1, interpolation="nearest",
        )  # fmt: skip
        if bar:
            axes.figure.colorbar(image, ax=axes, shrink=0.8, label="difference" if signed else "similarity, softmax")
        axes.grid(False)
        axes.set(xticks=[], yticks=[], title=title)
        for place, picture in enumerate(images):
            _thumbnail(axes, shown(picture), place, len(images))
        for spine in axes.spines.values():
            spine.set_color(GREY)
    return axes


def is_signed(matrices: Array) -> bool:
    """Whether there are differences among them; similarities are never below zero."""
    return bool(matrices.size) and float(matrices.min()) < -1e-6 * max(float(np.abs(matrices).max()), 1e-30)


def _thumbnail(axes: Any, picture: Array, place: int, count: int) -> None:
    """An object below its column and left of its row."""
    step = 1 / count
    side = 0.9 * step
    low = 0.05 * step + place * step
    for left, bottom in ((low, -step), (-step, 1 - low - side)):
        inset = axes.inset_axes((left, bottom, side, side))
        inset.imshow(picture, interpolation="nearest")
        inset.axis("off")
