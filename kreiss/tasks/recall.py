"""Shared by the tasks that recall symbols at the end: cross-entropy over all steps, accuracy of the recall."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Literal, Self

from torch import Tensor

from kreiss.errors import InputError, check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.generated import DELAYS, Generated, stream
from kreiss.tasks.losses import classified, cross_entropy, surprise

SYMBOLS = 8
LENGTH = 10


class Recall(Generated):
    """Ten symbols from an alphabet of eight, to be recalled in the last ten steps.

    The loss is the mean cross-entropy over all steps, the accuracy is that of the last ten.

    Transfer: with `test_delays` the test set holds further parts at other delays, and their metrics are named after
    them, `accuracy@400`.

    With `shortest` every training batch has a delay of its own between that and T, uniform in its logarithm: what a
    network learns at short delays helps it at long ones, and most batches cost less.

    Args:
        delay: T.
        test_delays: other delays to test at, as "200,400" or (200, 400).
        shortest: delay of the shortest training batches; 0 trains at T alone.
        others: as in `Generated`.
    """

    symbols = True
    extra = 2 * LENGTH  # steps beyond T

    def __init__(
        self,
        delay: int,
        test_delays: str | int | tuple[int, ...] | list[int],
        shortest: int,
        *,
        sequences: int,
        valid_sequences: int,
        test_sequences: int,
    ) -> None:
        super().__init__(sequences=sequences, valid_sequences=valid_sequences, test_sequences=test_sequences)
        self.delay = check_size("delay", delay)
        self.test_delays = tuple(other for other in delays(test_delays) if other != self.delay)
        self.shortest = check_size("shortest", shortest, minimum=0)
        if self.shortest > self.delay:
            raise InputError(
                f"`shortest` must be at most the delay; got shortest={shortest} and delay={delay}. Lower it."
            )
        if self.shortest and self.sequences:
            raise InputError(
                f"`shortest` must be 0 with a fixed training set, whose sequences have one delay; got "
                f"shortest={shortest} and sequences={sequences}. Leave one out."
            )

    @property
    def steps(self) -> int:
        """Length of a sequence."""
        return self.delay + self.extra

    def at(self, delay: int) -> Self:
        """The same task at another delay, to test a network there."""
        other = copy.copy(self)
        other.delay, other.test_delays, other.shortest = check_size("delay", delay), (), 0
        other._validation = None  # drawn at this delay
        return other

    def entries(self, split: Literal["train", "valid", "test"], batch: int) -> int:
        others = [self.at(other).entries(split, batch) for other in self.test_delays] if split == "test" else []
        return max(super().entries(split, batch), *others, 0)

    def train(self, update: int, batch: int, seed: int) -> Batch:
        if not self.shortest:
            return super().train(update, batch, seed)
        return self.at(self._delay(update, seed)).train(update, batch, seed)

    def _delay(self, update: int, seed: int) -> int:
        """The delay of a training batch, uniform in its logarithm from `shortest` to `delay`."""
        share = stream(DELAYS, seed, check_size("update", update, minimum=0)).random()
        return round(self.shortest * (self.delay / self.shortest) ** share)

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        yield from super().held_out(split, batch)
        for other in self.test_delays if split == "test" else ():
            yield from self.at(other).held_out(split, batch)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over all steps."""
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """Cross-entropy over all steps, hits over the last ten; another delay, known by its length, names its own."""
        recalled = classified(output[-LENGTH:], batch.targets[-LENGTH:])
        delay = len(output) - self.extra
        name = f"@{delay}" if delay in self.test_delays else ""
        return {f"loss{name}": surprise(output, batch.targets), f"accuracy{name}": recalled["accuracy"]}

    def baseline(self) -> dict[str, float]:
        """A network without memory knows when the symbols are due but not which: 10 ln 8 over all steps."""
        named = {"": self.delay, **{f"@{delay}": delay for delay in self.test_delays}}
        losses = {f"loss{name}": LENGTH * math.log(SYMBOLS) / (delay + self.extra) for name, delay in named.items()}
        return {**losses, **{f"accuracy{name}": 1 / SYMBOLS for name in named}}


def delays(value: str | int | tuple[int, ...] | list[int], name: str = "test_delays") -> tuple[int, ...]:
    """Delays from "200,400", 200 or (200, 400)."""
    if isinstance(value, str):
        try:
            value = [int(part) for part in value.split(",") if part.strip()]
        except ValueError:
            raise InputError(
                f"`{name}` must be whole numbers separated by commas; got {value!r}. Pass for example 200,400."
            ) from None
    return tuple(check_size(name, part) for part in ([value] if isinstance(value, int) else value))
