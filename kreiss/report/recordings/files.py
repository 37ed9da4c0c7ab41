"""A recording as a file: the ending of its name says which form."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kreiss.errors import InputError, MissingExtra
from kreiss.report.recordings.episode import Recording
from kreiss.report.recordings.page import page
from kreiss.report.style import COLOURS, GREY, canvas, style
from kreiss.storage.files import write_whole

if TYPE_CHECKING:
    from PIL.Image import Image

    from kreiss.analysis.arrays import Array

COLUMNS = 8  # steps in a strip
LOOKS = 4  # past steps in a frame of a GIF
WIDTH, LINE, PAUSE = 320, 16, 400  # pixels of a GIF, pixels of its text, milliseconds of a frame


def write(recording: Recording, path: Path) -> Path:
    """Write a recording to `path`."""
    form = check_form(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, form(recording))
    return path


def check_form(path: Path) -> Callable[[Recording], bytes]:
    """What makes the bytes of a file of this name."""
    if path.suffix not in FORMS:
        raise InputError(f"`--out` must end in {', '.join(FORMS)}; got {path}. Change its name.")
    return FORMS[path.suffix]


# ---------------------------------------------------------------- GIF


def gif(recording: Recording) -> bytes:
    """The world at every step, with what the agent does and the past steps that it reads."""
    try:
        import PIL.Image
    except ModuleNotFoundError as error:
        raise MissingExtra("a GIF", "images", "PIL") from error
    drawn = [PIL.Image.fromarray(picture) for picture in recording.pictures]
    frames = [_frame(recording, drawn, step) for step in range(len(drawn))]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=PAUSE, loop=0)
    return content.getvalue()


def _frame(recording: Recording, drawn: list[Image], step: int) -> Image:
    """One frame: the picture, a line of text, and small pictures of the past steps with their weights."""
    import PIL.Image
    import PIL.ImageDraw

    world = _scaled(drawn[step], WIDTH)
    side = WIDTH // LOOKS
    small = world.height * side // WIDTH
    attends = recording.attention is not None
    frame = PIL.Image.new("RGB", (WIDTH, world.height + LINE + attends * (small + LINE)), "white")
    frame.paste(world, (0, 0))
    pen = PIL.ImageDraw.Draw(frame)
    pen.text((4, world.height + 2), _said(recording, step), fill="black")
    if attends and step < len(recording.actions):
        for place, look in enumerate(recording.looks(step, LOOKS)):
            top = world.height + LINE
            frame.paste(_scaled(drawn[look.past], side - 2), (place * side, top))
            pen.text((place * side + 2, top + small + 1), f"{look.past}: {look.weight:.0%}", fill="black")
    return frame


def _scaled(image: Image, width: int) -> Image:
    return image.resize((width, image.height * width // image.width), 0)  # 0: the nearest pixel


def _said(recording: Recording, step: int) -> str:
    if step == len(recording.actions):
        return f"end: reward {recording.total:.3g}"
    action = recording.names[recording.actions[step]]
    return f"{step}: {action}, reward {recording.rewards[step]:.3g}, value {recording.values[step]:.2f}"


# ---------------------------------------------------------------- strip


def strip(recording: Recording) -> bytes:
    """Some steps side by side; below each the attention over past steps, and below all of them the expected reward."""
    count = len(recording.actions)
    chosen = np.unique(np.linspace(0, count - 1, COLUMNS).round().astype(int))
    attends = recording.attention is not None
    most = 0.0 if recording.attention is None else float(recording.attention[chosen].max())
    top = min(1.0, np.ceil(10 * most) / 10) or 1.0  # of all panels, so that small weights are seen and can be compared
    height, width = recording.pictures[0].shape[:2]
    inches = min(max(1.5, 0.75 * width / height), 2.4)  # of a column
    size = (inches * len(chosen), inches * height / width + 1.3 * attends + 2.2)
    heights = [inches * height / width, *([1.3] * attends), 1.6]
    figure, axes = canvas(len(heights), len(chosen), size=size, squeeze=False, gridspec_kw={"height_ratios": heights})
    with style():
        for column, step in enumerate(chosen):
            world = axes[0, column]
            world.imshow(recording.pictures[step], interpolation="nearest")
            world.set_axis_off()
            world.set_title(f"{step}: {recording.names[recording.actions[step]]}", fontsize=8)
            if recording.attention is not None:
                below = axes[1, column]
                wide = max(1.0, count / 50)  # a bar that can be seen
                below.bar(np.arange(count), recording.attention[step], width=wide, color=COLOURS[0])
                below.set(xlim=(-wide, count - 0.5), ylim=(0, top), yticks=[0, top] if column == 0 else [])
                below.tick_params(labelsize=7)
        if attends:
            axes[1, 0].set_ylabel("attention", fontsize=8)
            axes[1, len(chosen) // 2].set_xlabel("past step", fontsize=8)
        for panel in axes[-1]:
            panel.remove()
        _expected(recording, figure.add_subplot(axes[-1, 0].get_gridspec()[-1, :]), chosen)
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150, facecolor="white")
    return content.getvalue()


def _expected(recording: Recording, axes: Any, chosen: Array) -> None:
    """Value and reward at every step; those that are shown above are marked."""
    mark = "o" if len(recording.values) == 1 else None  # a line of one step would not be seen
    axes.plot(recording.values, marker=mark, color=COLOURS[0], label="value")
    axes.plot(recording.rewards, marker=mark, color=COLOURS[1], label="reward")
    for step in chosen:
        axes.axvline(step, color=GREY, linewidth=0.5)
    axes.set(xlabel="step")
    axes.legend(fontsize=7)


FORMS: dict[str, Callable[[Recording], bytes]] = {".html": page, ".gif": gif, ".png": strip}
