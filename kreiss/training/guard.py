"""Numbers that are not finite stop a run, or are stepped over; Ctrl-C ends it between two updates."""

from __future__ import annotations

import math
import signal
import threading
from types import FrameType
from typing import Any, Self

import torch
from torch import nn

from kreiss.errors import Diverged

MANY = 100  # skipped updates in a row after which nothing good is to be expected


class Guard:
    """Watches loss and gradients.

    Args:
        on_nan: "stop" or "skip".
    """

    def __init__(self, on_nan: str) -> None:
        self.on_nan = on_nan
        self.in_a_row = 0
        self.skipped = 0

    def lets_pass(self, update: int, loss: float, norm: float, model: nn.Module, last_good: str) -> bool:
        """Whether the update may be made; an error where the run has to stop.

        Args:
            update: its number, from 1.
            loss: training loss.
            norm: of all gradients together.
            model: whose gradients are looked through for the first that is not finite.
            last_good: where the last checkpoint lies, in words.
        """
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return True
        self.in_a_row += 1
        self.skipped += 1
        if self.on_nan == "skip" and self.in_a_row < MANY:
            return False
        what = f"the loss must be finite; got {loss}" if not math.isfinite(loss) else _gradient(model, norm)
        also = f" after {self.in_a_row} skipped updates in a row" if self.on_nan == "skip" else ""
        remedy = "lower the learning rate or clip gradients (--clip-norm 1)"
        raise Diverged(
            f"{what} at update {update}{also}. {last_good}; {remedy}"
            + ("." if self.on_nan == "skip" else ", or pass --on-nan skip.")
        )


def _gradient(model: nn.Module, norm: float) -> str:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name} must be finite; got NaN or Inf"
    return f"the norm of all gradients must be finite; got {norm}"


class Interruption:
    """Turns the first Ctrl-C or SIGTERM into a flag, so that no update is cut in two; a second one is as ever."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *reason: object) -> None:
        self._restore()
