"""Progress of a run on the terminal: a live line, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live as LiveScreen
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from kreiss.settings import Config
from kreiss.training.config import written
from kreiss.training.learner import Now

REFRESH = 0.2  # seconds; drawing a line costs milliseconds
GLANCE = 5.0  # seconds between spectra, each an eigendecomposition
GLANCE_SHARE = 0.02  # of the run time, at most
SAY = 10.0  # seconds between plain lines


class Display:
    """Shows nothing; the base class of the others.

    Args:
        steps: updates of the whole run.
        metric: name of the task's own metric.
        baseline: that metric without memory.
        glance: gives summary statistics of the spectrum.
    """

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
    """Occasional lines, for files and pipes."""

    console: Console
    tells_settings = True
    _last = 0.0

    def start(self, config: Config, where: str, update: int) -> None:
        self.console = Console(soft_wrap=True, highlight=False)
        if self.tells_settings:
            self.console.print(written(config).rstrip(), markup=False)
        self.console.print(f"run: {where}; {self.steps} updates" + (f", from update {update}" if update else ""))

    def show(self, now: Now) -> None:
        if time.monotonic() - self._last >= SAY:
            self._last = time.monotonic()
            self.say(f"update {now.update}/{self.steps}  loss {now.loss:.5g}  gradient {now.norm:.3g}{now.words}")

    def record(self, record: dict[str, Any]) -> None:
        if "split" in record:
            self.say(evaluation_line(record, self.metric, self.baseline))

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)


class Live(Plain):
    """A progress bar with rate, time left and loss; below it the metric against its baseline and the spectrum.

    These two are measured less often than the loss, so each shows the update it is from.
    """

    _shown = 0.0
    _looked = 0.0
    _looking = 0.0  # seconds spent on the spectrum
    _screen: LiveScreen | None = None

    def start(self, config: Config, where: str, update: int) -> None:
        super().start(config, where, update)
        self._began = time.monotonic()
        self._metric = self._spectrum = ""
        self._progress = Progress(
            BarColumn(24), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), TextColumn("{task.description}")
        )
        self._bar = self._progress.add_task("", total=self.steps, completed=update)
        self._screen = LiveScreen(self._progress, console=self.console, auto_refresh=False)
        self._screen.start()

    def show(self, now: Now) -> None:
        clock = time.monotonic()
        if clock - self._shown < REFRESH and now.update < self.steps:
            return
        self._shown = clock
        assert self._screen is not None
        if clock - self._looked >= GLANCE and self._looking <= GLANCE_SHARE * (clock - self._began):
            self._look(clock, now.update)
        loss = f"loss {now.loss:.4g}  ‖∇‖ {now.norm:.2g}{now.words}"
        self._progress.update(self._bar, completed=now.update, description=loss)
        below = "  ".join(part for part in (self._metric, self._spectrum) if part)
        self._screen.update(Group(self._progress, Text(below)), refresh=True)

    def _look(self, clock: float, update: int) -> None:
        self._spectrum = at_update(spectrum_words(self.glance()), update)
        self._looked = time.monotonic()
        self._looking += self._looked - clock

    def record(self, record: dict[str, Any]) -> None:
        if "split" in record:
            self._metric = at_update(metric_words(record, self.metric, self.baseline), record["update"])
            self._spectrum = at_update(spectrum_words(record), record["update"])
        super().record(record)

    def close(self) -> None:
        if self._screen is not None:
            self._screen.stop()


class BriefPlain(Plain):
    """Without the settings, for several runs in a row."""

    tells_settings = False


class BriefLive(Live):
    """Without the settings, for several runs in a row."""

    tells_settings = False


class Rate(ProgressColumn):
    """Updates per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


def metric_words(record: dict[str, Any], metric: str, baseline: float | None) -> str:
    """ "valid loss 0.0123 (without memory 0.1733)"."""
    without = "" if baseline is None else f" (without memory {baseline:.4g})"
    return f"{record['split']} {metric} {record[metric]:.4g}{without}"


def evaluation_line(record: dict[str, Any], metric: str, baseline: float | None) -> str:
    """All of an evaluation in one line."""
    known = ("split", "update", metric, "modulus_min", "modulus_mean", "modulus_max", "departure", "seconds")
    others = [f"{name} {value:.4g}" for name, value in record.items() if name not in known]
    parts = [metric_words(record, metric, baseline), *others, spectrum_words(record)]
    return f"update {record['update']}  " + "  ".join(part for part in parts if part)


def spectrum_words(numbers: dict[str, float]) -> str:
    """ "|λ| 0.98 0.99 1  departure 0.3"."""
    if "modulus_min" not in numbers:
        return ""
    moduli = " ".join(f"{numbers[f'modulus_{which}']:.3f}" for which in ("min", "mean", "max"))
    return f"|λ| {moduli}  departure {numbers['departure']:.3g}"


def at_update(words: str, update: int) -> str:
    """ "|λ| 0.98 0.99 1  departure 0.3 at update 40"; empty for no words."""
    return f"{words} at update {update}" if words else ""


def choose(kind: str) -> type[Display]:
    """The display for "auto", "brief", "live", "plain", "json" or "quiet"."""
    shown = {"live": Live, "plain": Plain, "json": JsonLines, "quiet": Display}
    if kind in shown:
        return shown[kind]
    console = Console()
    terminal = console.is_terminal or console.is_jupyter
    if kind == "brief":
        return BriefLive if terminal else BriefPlain
    return Live if terminal else Plain
