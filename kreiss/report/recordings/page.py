"""A recording as one HTML file, with a slider; without scripts all steps are shown one below the other."""

from __future__ import annotations

import base64
import html
import struct
import zlib

import numpy as np

from kreiss.analysis.arrays import Array
from kreiss.report.page import whole
from kreiss.report.recordings.episode import Look, Recording

LOOKS = 5  # past steps that are shown beside a step
TIME = 300  # width of the bars of attention, in the units of their picture
HEIGHT = 50

STYLE = """
.player { display: flex; flex-wrap: wrap; gap: .6rem; align-items: center; margin: 1rem 0; }
.player[hidden] { display: none; }
.player input { flex: 1 1 12rem; accent-color: var(--link); }
.player input:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.step { display: flex; flex-wrap: wrap; gap: 1rem 1.6rem; margin: 0 0 2rem; }
.step[hidden] { display: none; }
.step > * { flex: 1 1 20rem; min-width: 0; margin-top: 0; }
.world { width: 100%; height: auto; max-height: 26rem; image-rendering: pixelated; }
.looks { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .6rem; }
.looks li { width: 5rem; text-align: center; font-size: .85rem; }
.looks svg { width: 100%; height: auto; image-rendering: pixelated; }
.bars { width: 100%; height: auto; }
.bars path { stroke: var(--link); }
.bars line { stroke: var(--line); }
.numbers { display: flex; flex-wrap: wrap; gap: .6rem 2rem; align-items: flex-start; }
.chances caption { text-align: left; }
.chances td:last-child { width: 6rem; }
.chances .share { display: block; height: .6rem; background: var(--link); }
h2 { margin-top: .4rem; }
"""

SCRIPT = """
const steps = [...document.querySelectorAll('.step')];
const player = document.querySelector('.player');
const slider = player.querySelector('input'), start = player.querySelector('button');
const told = player.querySelector('output');
let clock = null;
const show = (number) => {
  slider.value = number;
  steps.forEach((step, place) => { step.hidden = place !== number; });
  told.textContent = number === steps.length - 1 && slider.dataset.end ? 'end' : `step ${number}`;
};
const stop = () => { clearInterval(clock); clock = null; start.textContent = 'Play'; };
slider.addEventListener('input', () => { stop(); show(Number(slider.value)); });
start.addEventListener('click', () => {
  if (clock !== null) { stop(); return; }
  if (Number(slider.value) === steps.length - 1) show(0);
  start.textContent = 'Pause';
  clock = setInterval(() => {
    const next = Number(slider.value) + 1;
    if (next < steps.length) show(next); else stop();
  }, 400);
});
player.hidden = false;
show(0);
"""


def page(recording: Recording) -> bytes:
    """The page: every picture once, and a section for each step."""
    places, drawn = _distinct(recording.pictures)
    height, width = recording.pictures[0].shape[:2]
    images = "".join(
        f'<image id="world-{number}" width="{width}" height="{height}" href="{_address(picture)}"/>'
        for number, picture in enumerate(drawn)
    )
    view = _View(places, width, height)
    sections = [_step(recording, step, view) for step in range(len(recording.actions))]
    whole_episode = len(recording.pictures) > len(recording.actions)
    if whole_episode:
        sections.append(_end(recording, view))
    player = f"""<svg width="0" height="0" aria-hidden="true" style="position: absolute"><defs>{images}</defs></svg>
<div class="player" hidden><button type="button">Play</button>
<input type="range" min="0" max="{len(sections) - 1}" value="0" aria-label="Step of the episode"
{'data-end="yes"' if whole_episode else ""}><output>step 0</output></div>"""
    content = whole(
        recording.title, recording.sentence(), [], [player, *sections], "One episode of a trained agent.",
        style=STYLE, script=SCRIPT,
    )  # fmt: skip
    return content.encode()


class _View:
    """Draws pictures that are on the page once, at any size, as often as needed."""

    def __init__(self, places: list[int], width: int, height: int) -> None:
        self.places, self.width, self.height = places, width, height

    def svg(self, step: int, kind: str, label: str) -> str:
        return (
            f'<svg class="{kind}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{html.escape(label, quote=True)}"><use href="#world-{self.places[step]}"/></svg>'
        )


def _step(recording: Recording, step: int, view: _View) -> str:
    name = recording.names[recording.actions[step]]
    rows = {
        "action": name,
        "reward": f"{recording.rewards[step]:.3g}",
        "reward so far": f"{recording.rewards[: step + 1].sum():.3g}",
        "value": f"{recording.values[step]:.3f}",
    }
    table = "".join(f"<tr><th scope='row'>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in rows.items())
    attention = "" if recording.attention is None else _attention(recording, step, view)
    return f"""<section class="step" aria-label="Step {step}"><figure>{view.svg(step, "world", f"step {step}")}</figure>
<div><h2>Step {step}</h2>{attention}
<div class="numbers"><table><tbody>{table}</tbody></table>{_chances(recording, step)}</div></div></section>"""


def _end(recording: Recording, view: _View) -> str:
    last = len(recording.actions)
    return f"""<section class="step" aria-label="End"><figure>{view.svg(last, "world", "the end")}</figure>
<div><h2>End</h2><p>Reward {recording.total:.3g} in {last} steps.</p></div></section>"""


def _chances(recording: Recording, step: int) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th><td>{chance:.1%}</td>"
        f'<td><span class="share" style="width: {100 * chance:.1f}%"></span></td></tr>'
        for name, chance in zip(recording.names, recording.chances[step].tolist(), strict=True)
    )
    return f'<table class="chances"><caption>Chances of the actions</caption><tbody>{rows}</tbody></table>'


def _attention(recording: Recording, step: int, view: _View) -> str:
    """The past steps that are read most, as small pictures, and the weights of all."""
    looks = recording.looks(step, LOOKS)
    if not looks:
        return "<p>It looks back at nothing.</p>"
    items = "".join(f"<li>{view.svg(look.past, 'past', _named(look))}{_named(look)}</li>" for look in looks)
    return f'<p>It looks back at:</p><ul class="looks">{items}</ul>{_bars(recording, step)}'


def _named(look: Look) -> str:
    return f"step {look.past}, {look.weight:.0%}"


def _bars(recording: Recording, step: int) -> str:
    """A bar for the weight of every past step, along the whole episode."""
    assert recording.attention is not None
    count = len(recording.actions)
    each = TIME / count
    row = recording.attention[step]
    lines = "".join(
        f"M{(past + 0.5) * each:.1f} {HEIGHT}v{-HEIGHT * row[past]:.1f}" for past in np.flatnonzero(row >= 0.005)
    )
    now = (step + 0.5) * each
    return f"""<svg class="bars" viewBox="0 0 {TIME} {HEIGHT + 14}" role="img" aria-label="Attention to each past step">
<line x1="0" x2="{TIME}" y1="{HEIGHT}" y2="{HEIGHT}"/><path d="{lines}" stroke-width="{max(0.6 * each, 0.5):.2f}"/>
<line x1="{now:.1f}" x2="{now:.1f}" y1="0" y2="{HEIGHT}" stroke-dasharray="2 2"/>
<text x="0" y="{HEIGHT + 11}" font-size="9" fill="currentColor">step 0</text>
<text x="{TIME}" y="{HEIGHT + 11}" font-size="9" fill="currentColor" text-anchor="end">step {count - 1}</text></svg>"""


# ---------------------------------------------------------------- pictures


def _distinct(pictures: list[Array]) -> tuple[list[int], list[Array]]:
    """Which of the distinct pictures is where, and these."""
    known: dict[bytes, int] = {}
    places = [known.setdefault(picture.tobytes(), len(known)) for picture in pictures]
    return places, [pictures[places.index(number)] for number in range(len(known))]


def _address(picture: Array) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def png(picture: Array) -> bytes:
    """A picture (height, width, 3) of bytes as a PNG file, so that a page needs no package that writes them."""
    height, width, _ = picture.shape
    rows = np.pad(picture.reshape(height, -1), ((0, 0), (1, 0)))  # each row starts with its filter, 0 for none
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),  # 8 bits, colour
        (b"IDAT", zlib.compress(rows.astype(np.uint8).tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
