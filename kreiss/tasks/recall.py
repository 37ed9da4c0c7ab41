"""Shared by the tasks that recall symbols at the end: cross-entropy over all steps, accuracy of the recall."""

from __future__ import annotations

import math

from torch import Tensor

from kreiss.errors import InputError, check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.generated import Generated
from kreiss.tasks.losses import classified, cross_entropy, surprise

SYMBOLS = 8
LENGTH = 10


class Recall(Generated):
    """Ten symbols from an alphabet of eight, to be recalled in the last ten steps.

    The loss is the mean cross-entropy over all steps, the accuracy is that of the last ten.
    """

    symbols = True
    delay: int

    @property
    def steps(self) -> int:
        """Length of a sequence."""
        return self.delay + 2 * LENGTH

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over all steps."""
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """Cross-entropy over all steps, hits over the last ten."""
        recalled = classified(output[-LENGTH:], batch.targets[-LENGTH:])
        return {"loss": surprise(output, batch.targets), "accuracy": recalled["accuracy"]}

    def baseline(self) -> dict[str, float]:
        """A network without memory knows when the symbols are due but not which: 10 ln 8 over all steps."""
        return {"loss": LENGTH * math.log(SYMBOLS) / self.steps, "accuracy": 1 / SYMBOLS}


def delays(value: str | int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    """Delays from "200,400", 200 or (200, 400)."""
    if isinstance(value, str):
        try:
            value = [int(part) for part in value.split(",") if part.strip()]
        except ValueError:
            raise InputError(
                f"`test_delays` must be whole numbers separated by commas; got {value!r}. Pass for example 200,400."
            ) from None
    return tuple(check_size("test_delays", part) for part in ([value] if isinstance(value, int) else value))
