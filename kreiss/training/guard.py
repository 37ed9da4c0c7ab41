"""Non-finite numbers stop a run or skip an update; Ctrl-C ends it between two updates."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn

from kreiss.errors import Diverged

MANY = 100  # skipped updates in a row after which a run has diverged
HALVINGS = 40  # of fp16's loss scale, from 2¹⁶ to below the smallest fp16 number


class Guard:
    """Watches loss and gradients.

    Args:
        on_nan: "stop" or "skip".
    """

    def __init__(self, on_nan: str) -> None:
        self.on_nan = on_nan
        self.in_a_row = 0
        self.skipped = 0

    def lets_pass(
        self,
        update: int,
        loss: float,
        norm: float,
        model: nn.Module,
        last_good: Callable[[], str],
        scaled: bool = False,
    ) -> bool:
        """Whether the update may be made; an error where the run has to stop.

        Args:
            update: its number, from 1.
            loss: training loss.
            norm: of all gradients together.
            model: searched for the first gradient that is not finite.
            last_good: says where the last good checkpoint is.
            scaled: whether a gradient scaler also skips updates that overflow, and halves its scale.
        """
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return True
        self.in_a_row += 1
        self.skipped += 1
        if scaled and math.isfinite(loss) and self.in_a_row < HALVINGS:
            return True
        if self.on_nan == "skip" and self.in_a_row < MANY:
            return False
        what = f"the loss must be finite; got {loss}" if not math.isfinite(loss) else _gradient(model, norm)
        also = f" after {self.in_a_row} skipped updates in a row" if self.in_a_row > 1 else ""
        remedy = "lower the learning rate or clip gradients (--clip-norm 1)"
        raise Diverged(
            f"{what} at update {update}{also}. {last_good()}; {remedy}"
            + ("." if self.on_nan == "skip" else ", or pass --on-nan skip.")
        )


@contextmanager
def computable(update: int, last_good: Callable[[], str]) -> Iterator[None]:
    """Report divergence when weights are so large that a matrix made of them cannot be inverted."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise Diverged(
            f"recurrent matrices must be finite; got one that could not be computed at update {update}. {last_good()}; "
            "lower the learning rate or clip gradients (--clip-norm 1)."
        ) from error


def check_finite(named: Iterable[tuple[str, Tensor]], update: int, last_good: Callable[[], str]) -> None:
    """Raise if weights or moments of the optimiser are not finite: they would stay so."""
    for name, tensor in named:
        if not torch.isfinite(tensor).all():
            raise Diverged(
                f"{name} must be finite; got NaN or Inf after update {update}. {last_good()}; lower the learning rate, "
                "raise --optimiser.eps, or clip gradients (--clip-norm 1)."
            )


def _gradient(model: nn.Module, norm: float) -> str:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name} must be finite; got NaN or Inf"
    return f"the norm of all gradients must be finite; got {norm}"


class Interruption:
    """Turns the first Ctrl-C or SIGTERM into a flag, so that no update is cut in two; a second one acts as usual."""

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
