"""Tasks on a finite set of sequences held in memory: shuffled in every epoch, held-out parts in a fixed order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, check_size
from kreiss.tasks.base import Batch, Task
from kreiss.tasks.generated import full_batches, shuffled

Split = Literal["train", "valid", "test"]


def divided(count: int, valid: float, test: float) -> dict[Split, NDArray[Any]]:
    """Members of each split: a fixed shuffle, then parts of the given shares, each of at least one."""
    order = np.random.RandomState(0).permutation(count)  # a stream that NumPy promises never to change
    return in_order(order, valid, test)


def in_order(order: NDArray[Any], valid: float, test: float) -> dict[Split, NDArray[Any]]:
    """Members of each split, cut from `order` without shuffling: training first, then validation, then test."""
    held = [max(round(len(order) * share), 1) for share in (valid, test)]
    start = len(order) - sum(held)
    if start < 1:
        raise InputError(
            f"a split needs at least one sequence for each of train, valid and test; got {len(order)} in all. "
            "Give more or shorter sequences."
        )
    return {"train": order[:start], "valid": order[start : start + held[0]], "test": order[start + held[0] :]}


class Stored(Task):
    """A finite set of sequences.

    An epoch takes all full batches of a shuffle that depends on (seed, epoch) alone; members left after the last
    full batch are dropped in that epoch, as with `drop_last` of torch's loader.
    """

    splits: dict[Split, NDArray[Any]]  # the members of each part

    @abstractmethod
    def assemble(self, members: NDArray[Any]) -> Batch:
        """The sequences with these indices."""

    def updates_per_epoch(self, batch: int) -> int:
        return full_batches(len(self.splits["train"]), batch)

    def train(self, update: int, batch: int, seed: int) -> Batch:
        members = self.splits["train"]
        return self.assemble(members[shuffled(len(members), seed, update, batch)])

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        members = self.splits[split]
        for start in range(0, len(members), check_size("batch", batch)):
            yield self.assemble(members[start : start + batch])
