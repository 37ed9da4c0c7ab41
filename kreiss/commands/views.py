"""First observations of worlds, drawn with characters or into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreiss.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kreiss.tasks.worlds.base import Array, World

IN_TERMINAL, IN_FILE = 2, 6  # episodes
WIDTH = 36  # columns of a picture in a terminal
SHADES = "█▓▒░ "  # from dark to bright, on a screen without colours
FEW = 12  # numbers of an observation that are written out


def in_terminal(world: World, colours: bool) -> list[RenderableType]:
    """What an observation is, the actions, and first observations with what the world then looks like."""
    about: list[RenderableType] = [_described(world)]
    try:
        return about + [part for view in _views(world, IN_TERMINAL) for part in (view[1], _drawn(view[0], colours))]
    except InputError as error:  # an environment that does not draw
        return [*about, str(error)]


def to_file(world: World, path: Path) -> Path:
    """First observations as a picture in a file."""
    from kreiss.report.style import canvas, style

    if path.suffix not in (".png", ".svg"):
        raise InputError(f"`--out` must end in .png or .svg; got {path}. Change its name.")
    views = _views(world, IN_FILE)
    height, width = views[0][0].shape[:2]
    columns = 3
    figure, axes = canvas(-(-len(views) // columns), columns, size=(9.0, 6.0 * height / width + 1.2), squeeze=False)
    with style():
        for panel, (picture, title) in zip(axes.flat, views, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set_title(title, fontsize=8)
            panel.set_axis_off()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
    return path


def _described(world: World) -> str:
    image, others = world.layout.image, world.layout.others
    parts = ["an image of " + " × ".join(map(str, image))] if image else []
    parts += [f"{others} numbers"] if others else []
    return f"An observation is {' and '.join(parts)}. Actions: {', '.join(world.action_names)}."


def _views(world: World, count: int) -> list[tuple[Array, str]]:
    """The starts of so many training episodes: a picture and the observation in words."""
    from kreiss.tasks.worlds.base import TRAIN

    environments = world.visible(count, (TRAIN, 0))
    try:
        seen = environments.start()
        return [(environments.picture(index), _title(index, numbers)) for index, numbers in enumerate(seen)]
    finally:
        environments.close()


def _title(index: int, numbers: Array) -> str:
    words = f", observed as {' '.join(f'{number:.3g}' for number in numbers)}" if len(numbers) <= FEW else ""
    return f"start of episode {index}{words}"


def _drawn(picture: Array, colours: bool) -> RenderableType:
    """A picture in half blocks of its colours, or in shades."""
    from rich.text import Text

    height = 2 * max(1, round(WIDTH * picture.shape[0] / picture.shape[1] / 2))
    cells = _shrunk(picture, height, WIDTH)
    upper, lower = cells[::2], cells[1::2]
    if not colours:
        level = ((upper + lower).mean(-1) / 2 / 256 * len(SHADES)).astype(int)
        return Text("\n".join("".join(SHADES[number] for number in row) for row in level) + "\n")
    text = Text()
    for above, below in zip(upper, lower, strict=True):
        for first, second in zip(above, below, strict=True):
            text.append("▀", style=f"{_hex(first)} on {_hex(second)}")
        text.append("\n")
    return text


def _shrunk(picture: Array, height: int, width: int) -> Array:
    """The mean colours of a grid of cells."""
    import numpy as np

    rows, columns = (
        np.linspace(0, size, min(count, size) + 1).astype(int)
        for size, count in zip(picture.shape[:2], (height, width), strict=True)
    )
    sums = np.add.reduceat(np.add.reduceat(picture.astype(float), rows[:-1], 0), columns[:-1], 1)
    means: Array = sums / (np.diff(rows)[:, None] * np.diff(columns))[..., None]
    return means


def _hex(colour: Any) -> str:
    return "#" + "".join(f"{round(float(part)):02x}" for part in colour)
