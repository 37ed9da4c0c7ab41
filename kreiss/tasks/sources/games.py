"""Published files of relational games: images of nine cells, taken apart into distinct cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, unknown_name
from kreiss.tasks.sources.arrays import packed_arrays

SIZE, CELL, CELLS = 36, 12, 9
FEWEST = 10  # images, so that some are left for each use
WEIGHTS = (0.2126, 0.7152, 0.0722)  # luminance of red, green and blue


@dataclass(frozen=True)
class Cells:
    """Distinct cells (K, 3, 12, 12) in bytes, which of them is where (N, 9), and the labels (N,)."""

    cells: NDArray[np.uint8]
    which: NDArray[np.int64]
    labels: NDArray[np.int64]


def names(stems: tuple[str, ...], objects: str) -> Iterator[str]:
    """How a published file of a game with these objects may be called."""
    return (f"{prefix}{stem}_{objects}.npz" for stem in stems for prefix in ("", "mini_"))


def find(folder: Path, stems: tuple[str, ...], kinds: tuple[str, ...]) -> dict[str, Path]:
    """The file of each kind of objects, of those that a folder has."""
    if not folder.is_dir():
        raise InputError(f"`path` must be a folder; got {folder}, which is not. Check the path.")
    listed = {kind: [folder / name for name in names(stems, kind) if (folder / name).is_file()] for kind in kinds}
    found = {kind: files[0] for kind, files in listed.items() if files}
    if not found:
        wanted = ", ".join(name for kind in kinds for name in names(stems, kind))
        raise InputError(f"{folder} must hold a file of the game; got none of {wanted}. Put one there.")
    return found


def read(path: Path, answers: int) -> Cells:
    """The cells and labels of a file."""
    images, labels = _read(path)
    return taken_apart(images, _classes(path, labels, answers, len(images)))


def read_left_of(path: Path) -> Cells:
    """The game left-of, from the images of the game same: these and the same turned by 180°, if luminance differs.

    The label is 1 if the darker object is in a column to the left of the other's, or below it in the same column.
    """
    images, _ = _read(path)
    images = np.concatenate([images, images[:, ::-1, ::-1]])
    light = _cells(images).max((2, 3)) @ np.array(WEIGHTS)  # (N, 9)
    objects = np.count_nonzero(light, 1)
    if (objects != 2).any():
        number = int(objects[objects != 2][0])
        raise InputError(f"images of {path} must show two objects each; got {number} in one. Give the file of `same`.")
    darkest, brightest = np.where(light, light, np.inf).argmin(1), light.argmax(1)
    (row, column), (other_row, other_column) = np.divmod(darkest, 3), np.divmod(brightest, 3)
    labels = (column < other_column) | ((column == other_column) & (row > other_row))
    both = np.arange(len(light))
    kept = light[both, darkest] != light[both, brightest]
    return taken_apart(images[kept], labels[kept].astype(np.int64))


def taken_apart(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Cells:
    """Images (N, 36, 36, 3) as their distinct cells and which of these is where."""
    cells = np.ascontiguousarray(_cells(images).transpose(0, 1, 4, 2, 3)).reshape(-1, 3 * CELL**2)
    as_one = cells.view(np.dtype((np.void, cells.shape[1])))[:, 0]
    _, first, which = np.unique(as_one, return_index=True, return_inverse=True)
    return Cells(cells[first].reshape(-1, 3, CELL, CELL), which.reshape(-1, CELLS), labels)


def _cells(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, 9, 12, 12, 3), in rows."""
    parts = images.reshape(-1, 3, CELL, 3, CELL, 3).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(-1, CELLS, CELL, CELL, 3)


def _read(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    arrays = packed_arrays(path)
    for name in ("images", "labels"):
        if name not in arrays:
            raise unknown_name(f"{path} lacks the array", name, arrays)
    images, labels = arrays["images"], arrays["labels"]
    if images.shape[1:] != (SIZE, SIZE, 3) or len(images) < FEWEST:
        raise InputError(
            f"images of {path} must be (N, {SIZE}, {SIZE}, 3) with N at least {FEWEST}; got {images.shape}. "
            "Give the file as it was published."
        )
    if images.dtype.kind not in "iuf" or not ((images >= 0) & (images <= 255) & (images % 1 == 0)).all():
        raise InputError(
            f"images of {path} must be whole numbers from 0 to 255; got others, of {images.dtype}. Give the file as it "
            "was published."
        )
    if len(np.unique(arrays.get("tasks", np.zeros(1)))) != 1:
        raise InputError(f"{path} must be of one task; got several in `tasks`. Give the file of one game.")
    return images.astype(np.uint8), labels


def _classes(path: Path, labels: NDArray[Any], answers: int, count: int) -> NDArray[np.int64]:
    """Labels (N,) below `answers`, from (N,), (N, 1) or one column for each answer."""
    fits = labels.dtype.kind in "biuf" and labels.ndim in (1, 2) and len(labels) == count
    flat = labels.reshape(count, -1) if fits else np.zeros((0, 0))
    if fits and flat.shape[1] == answers and np.isin(flat, (0, 1)).all() and (flat.sum(1) == 1).all():
        return np.asarray(flat.argmax(1), np.int64)
    if not fits or flat.shape[1] != 1 or not np.isin(flat, np.arange(answers)).all():
        raise InputError(
            f"labels of {path} must be one number below {answers} for each of {count} images; got {labels.dtype} of "
            f"shape {labels.shape}{_range(labels)}. Give the file as it was published."
        )
    return np.asarray(flat[:, 0], np.int64)


def _range(labels: NDArray[Any]) -> str:
    return f" from {labels.min():g} to {labels.max():g}" if labels.dtype.kind in "biuf" and labels.size else ""
