"""Progress of a run on the terminal: one table, live or in plain lines; JSON lines; or nothing."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live as LiveScreen
from rich.text import Text

from kreiss.settings import SHORT, Config
from kreiss.training.config import changed, written
from kreiss.training.learner import Now

REFRESH = 0.2  # seconds between changes of the live row; drawing it costs milliseconds
SAY = 10.0  # seconds between rows of plain lines
GLANCE_SHARE = 0.02  # of the run time at most for spectra, each an eigendecomposition
LONGEST = 2.0  # seconds that the live row may wait for its spectrum; where one costs more the row has none
MODULI = ("min", "mean", "max")


class Display:
    """Shows nothing; the base class of the others.

    Args:
        steps: updates of the whole run.
        metric: name of the task's own metric.
        baseline: that metric of the baseline.
        glance: gives summary statistics of the spectrum.

    Attributes:
        best: the metric at its best validation so far, set by the session.
        naive: what the baseline is called, set by the session.
        naive: what the baseline is called.
        tells: which settings are printed at the start: "changed" ones, "all", or "none".
    """

    best: float | None = None
    naive: str = "without memory"
    tells = "changed"

    def __init__(self, steps: int, metric: str, baseline: float | None, glance: Callable[[], dict[str, float]]) -> None:
        self.steps = steps
        self.metric = metric
        self.baseline = baseline
        self.glance = glance

    def start(self, config: Config, where: str, update: int) -> None:
        """The run starts, or resumes at `update`."""

    def show(self, now: Now) -> None:
        """An update was made; called for every one, so it must cost next to nothing."""

    def record(self, record: dict[str, Any]) -> None:
        """A record was written."""

    def say(self, text: str) -> None:
        """A message to the user."""

    def finished(self, where: str) -> None:
        """The run has finished, in this folder."""

    def close(self) -> None:
        """The run has ended."""


class JsonLines(Display):
    """Every record as one line of JSON."""

    def start(self, config: Config, where: str, update: int) -> None:
        self._print({"event": "started", "update": update, "out": where, "config": config.model_dump(mode="json")})

    def record(self, record: dict[str, Any]) -> None:
        self._print(record)

    def say(self, text: str) -> None:
        self._print({"event": "note", "message": text})

    def _print(self, content: dict[str, Any]) -> None:
        print(json.dumps(content), flush=True)


class Plain(Display):
    """A table of lines, for files and pipes: one row per validation, and one now and then between them.

    Every number of a row is of the update that the row begins with.
    """

    console: Console
    _now: Now | None = None

    def start(self, config: Config, where: str, update: int) -> None:
        self.console = Console(highlight=False)
        clock = time.monotonic()
        self._has_spectrum = bool(self.glance())
        self._began = self._said = time.monotonic()
        self._first, self._cost = update, self._began - clock
        if self.tells != "none":
            self.say(written(config).rstrip() if self.tells == "all" else command(config))
        again = f" from update {update}" if update else ""
        without = "" if self.baseline is None else f"; {self.metric} {self.naive} {self.baseline:.4g}"
        self.say(f"run {where}: {self.steps} updates{again} on {config.device}{without}")
        self.console.print(self._line([name for name, _ in self._columns()]), style="bold", **WHOLE)

    def show(self, now: Now) -> None:
        self._now = now
        if time.monotonic() - self._said >= SAY:
            self._said = time.monotonic()
            self.console.print(self._row(now), **WHOLE)

    def record(self, record: dict[str, Any]) -> None:
        if record.get("split") == "test":
            self.say(evaluation_words(record, self.metric, self.baseline, self.naive))
        elif "split" in record:
            self.console.print(self._row(self._now, record), **WHOLE)
            self._said = time.monotonic()

    def say(self, text: str) -> None:
        """Print text, on a terminal folded at words; a pipe gets it whole."""
        self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)

    def finished(self, where: str) -> None:
        if self.tells != "none":
            self.console.print(f"saved to {where}; next: kreiss analyze {shlex.quote(where)}", markup=False, **WHOLE)

    # ------------------------------------------------------------ the table

    def _columns(self) -> list[tuple[str, int]]:
        """Headings and widths; a network without a recurrent matrix has no column of moduli."""
        moduli = [("|λ| min mean  max", 17)] if self._has_spectrum else []
        valid = f"valid {self.metric}"
        update = max(6, len(str(self.steps)))
        return [("update", update), ("loss", 8), (valid, max(10, len(valid))), ("best", 8), *moduli, ("left", 7)]

    def _line(self, cells: list[str], others: tuple[str, ...] = ()) -> str:
        """Cells under their headings, then as many of the other numbers, each with its name, as fit."""
        line = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, self._columns(), strict=True))
        for other in others:
            line += f"  {other}" if len(line) + 2 + len(other) <= self.console.width else ""
        return line

    def _row(self, now: Now | None, record: dict[str, Any] | None = None, spectrum: bool = True) -> str:
        """The row of an update, with its validation if there was one."""
        update = record["update"] if record else now.update if now else 0
        look = record or (self.glance() if self._has_spectrum and spectrum else {})
        loss = f"{now.loss:.4g}" if now and now.update == update else ""
        valid = f"{record[self.metric]:.4g}" if record else ""
        best = "" if self.best is None else f"{self.best:.4g}"
        cells = [str(update), loss, valid, best]
        cells += [moduli(look)] if self._has_spectrum else []
        others = others_of(record, self.metric) if record else (*now.words, f"‖∇‖ {now.norm:.2g}") if now else ()
        return self._line([*cells, self._left(update)], others)

    def _left(self, update: int) -> str:
        """Hours, minutes and seconds until the last update at the rate so far."""
        made = update - self._first
        seconds = round((time.monotonic() - self._began) / made * (self.steps - update)) if made > 0 else None
        if seconds is None:
            return ""
        minutes, hours = seconds // 60 % 60, seconds // 3600
        return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


class Live(Plain):
    """The same table with one more row that changes with the updates."""

    _shown = 0.0
    _screen: LiveScreen | None = None

    def start(self, config: Config, where: str, update: int) -> None:
        super().start(config, where, update)
        period = max(REFRESH, self._cost / GLANCE_SHARE)
        self._looks = period <= LONGEST
        self._period = period if self._looks else REFRESH
        self._screen = LiveScreen(Text(), console=self.console, auto_refresh=False, transient=True)
        self._screen.start()

    def show(self, now: Now) -> None:
        self._now = now
        if time.monotonic() - self._shown >= self._period:
            self._shown = time.monotonic()
            assert self._screen is not None
            self._screen.update(Text(self._row(now, spectrum=self._looks)), refresh=True)

    def record(self, record: dict[str, Any]) -> None:
        if "split" in record and self._screen is not None:
            self._screen.update(Text(), refresh=True)  # the row below is of an earlier update
        super().record(record)

    def close(self) -> None:
        if self._screen is not None:
            self._screen.stop()


# ---------------------------------------------------------------- words

WHOLE: dict[str, Any] = {"soft_wrap": True}  # a line that fits, or must stay in one piece


def command(config: Config) -> str:
    """The settings that differ from their defaults, as the command that gives them."""
    short = {dotted: name for name, dotted in SHORT.items()}
    words = ["kreiss", "train", config.task.name, "--model", config.model.name]
    known = {"device": config.device, "eval_every": max((config.steps or 0) // 10, 1)}  # where nothing else is said
    for name, value in changed(config).items():
        if name not in ("task.name", "model.name") and value != known.get(name):
            shown = value if isinstance(value, str) else json.dumps(value)
            words += [f"--{short.get(name, name).replace('_', '-')}", shown]
    return " ".join(shlex.quote(word) for word in words)


def evaluation_words(record: dict[str, Any], metric: str, baseline: float | None, naive: str) -> str:
    """All of an evaluation: "test loss 0.0123 (without memory 0.1733)  accuracy 0.99  |λ| 0.98 0.99 1.00"."""
    without = "" if baseline is None else f" ({naive} {baseline:.4g})"
    spectrum = f"|λ| {moduli(record)}" if moduli(record) else ""
    parts = [f"{record['split']} {metric} {record[metric]:.4g}{without}", *others_of(record, metric), spectrum]
    return "  ".join(part for part in parts if part)


def others_of(record: dict[str, Any], metric: str) -> tuple[str, ...]:
    """The numbers of an evaluation besides its metric and moduli, each with its name."""
    known = ("split", "update", metric, "seconds", *(f"modulus_{which}" for which in MODULI))
    return tuple(f"{name} {value:.4g}" for name, value in record.items() if name not in known)


def moduli(numbers: dict[str, Any]) -> str:
    """Smallest, mean and largest |λ|: "0.980 0.990 1.000"; empty if there are none."""
    if "modulus_min" not in numbers:
        return ""
    return " ".join(f"{numbers[f'modulus_{which}']:.3f}" for which in MODULI)


def choose(kind: str) -> type[Display]:
    """The display for "auto", "brief", "verbose", "live", "plain", "json" or "quiet"."""
    shown = {"live": Live, "plain": Plain, "json": JsonLines, "quiet": Display}
    if kind in shown:
        return shown[kind]
    console = Console()
    return Live if console.is_terminal or console.is_jupyter else Plain


def opened(kind: str, *of: Any) -> Display:
    """A display of a kind; "brief" says nothing of settings and folder, for several runs in a row."""
    display = choose(kind)(*of)
    display.tells = {"brief": "none", "verbose": "all"}.get(kind, "changed")
    return display
