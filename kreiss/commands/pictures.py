"""Examples of tasks about objects, drawn with characters or into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreiss.errors import InputError

if TYPE_CHECKING:
    from kreiss.tasks.relational.base import Relational

IN_TERMINAL, IN_FILE = 2, 6  # examples
WIDTH = 12  # columns of an image in a terminal
HALVES = " ▄▀█"  # nothing, the lower half, the upper half, all of a character


def in_terminal(task: Relational) -> str:
    """Examples in half blocks, a row of objects to a line, each with its answer."""
    images, answers = _examples(task, IN_TERMINAL)
    lines = []
    for sequence, answer in zip(images, answers, strict=True):
        rows = [_blocks(image) for image in sequence]
        for start in range(0, len(rows), task.across):
            lines += [" ".join(parts) for parts in zip(*rows[start : start + task.across], strict=True)]
        lines += [f"answer {answer} of 0 to {task.output_size - 1}", ""]
    return "\n".join(lines)


def to_file(task: Relational, path: Path) -> Path:
    """Examples as a picture in a file."""
    from kreiss.report.plots.objects import drawn
    from kreiss.report.style import style

    if path.suffix not in (".png", ".svg"):
        raise InputError(f"`--out` must end in .png or .svg; got {path}. Change its name.")
    images, answers = _examples(task, IN_FILE)
    figure = drawn(images, [f"answer {answer}" for answer in answers], task.across)
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path, dpi=150, facecolor="white", bbox_inches="tight")
    return path


def _examples(task: Relational, count: int) -> tuple[Any, list[int]]:
    """Training sequences (count, T, channels, height, width) and their answers."""
    batch = task.train(0, count, 0)
    inputs: Any = batch.inputs
    return inputs.expanded().transpose(0, 1).numpy(), batch.targets.tolist()


def _blocks(image: Any) -> list[str]:
    """An image as lines of characters: dark is drawn, two pixels above one another to a character."""
    import numpy as np

    # glyphs are dark on white, games are bright on black: what differs from the corner is drawn
    grey = np.abs(np.asarray(image) - np.asarray(image)[:, :1, :1]).max(0)
    side = 2 * (WIDTH // 2)
    edges = [np.linspace(0, size, side + 1).astype(int) for size in grey.shape]
    cells = np.add.reduceat(np.add.reduceat(grey, edges[0][:-1], 0), edges[1][:-1], 1)
    area = np.diff(edges[0])[:, None] * np.diff(edges[1])
    drawn = cells / area > 0.25
    return ["".join(HALVES[2 * upper + lower] for upper, lower in zip(*pair, strict=True)) for pair in _pairs(drawn)]


def _pairs(drawn: Any) -> list[tuple[list[int], list[int]]]:
    return [(drawn[i].astype(int).tolist(), drawn[i + 1].astype(int).tolist()) for i in range(0, len(drawn) - 1, 2)]
