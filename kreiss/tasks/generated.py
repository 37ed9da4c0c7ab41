"""Tasks whose sequences are drawn from a generator: fresh at every update, or a fixed set of given size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import check_memory, check_size
from kreiss.tasks.base import Batch, Task

Drawn = tuple[NDArray[Any], ...]

# purposes of random numbers; no two share a stream
FRESH, FIXED, VALID, TEST, ORDER, ACTIONS, DELAYS = range(7)


def stream(purpose: int, *key: int) -> np.random.Generator:
    """The generator of one purpose and key, independent of all others and of earlier draws."""
    return np.random.default_rng([purpose, *(number % 2**64 for number in key)])


@lru_cache(maxsize=4)  # one shuffle serves a whole epoch
def _order(count: int, seed: int, epoch: int) -> NDArray[Any]:
    return stream(ORDER, seed, epoch).permutation(count)


def shuffled(count: int, seed: int, update: int, batch: int) -> NDArray[Any]:
    """The members of a training set of `count` in the batch of an update; the set is reshuffled in every epoch."""
    check_size("update", update, minimum=0)
    epoch, place = divmod(update, full_batches(count, batch))
    return _order(count, seed, epoch)[place * batch : (place + 1) * batch]


def full_batches(count: int, batch: int) -> int:
    """Updates per epoch; members left after the last full batch are dropped in that epoch."""
    return max(count // check_size("batch", batch), 1)


class Generated(Task):
    """Sequences from a generator.

    A subclass defines how to draw the random part of sequences (`draw`) and how to make a batch of it (`assemble`).
    Each sequence of a fixed set, training or held out, has its own generator, so a set does not depend on the batch
    size.

    Args:
        sequences: size of a fixed training set, reshuffled in every epoch; 0 draws fresh data at every update.
        valid_sequences: size of the validation set.
        test_sequences: size of the test set.
    """

    def __init__(self, *, sequences: int, valid_sequences: int, test_sequences: int) -> None:
        self.sequences = check_size("sequences", sequences, minimum=0)
        self.valid_sequences = check_size("valid_sequences", valid_sequences)
        self.test_sequences = check_size("test_sequences", test_sequences)
        self._validation: Drawn | None = None
        check_memory("the order of the training set", 8 * self.sequences)
        check_memory("the validation set", 200 * self.valid_sequences)  # each drawn by its own generator

    @property
    def steps(self) -> int:
        """Length of a sequence."""
        return 1

    def entries(self, split: Literal["train", "valid", "test"], batch: int) -> int:
        sizes = {"train": self.sequences or batch, "valid": self.valid_sequences, "test": self.test_sequences}
        return self.steps * min(check_size("batch", batch), sizes[split])

    def _check_memory(self, split: Literal["train", "valid", "test"], batch: int) -> None:
        check_memory(f"a batch of {batch} sequences of {self.steps} steps", 8 * self.entries(split, batch))

    @abstractmethod
    def draw(self, count: int, source: np.random.Generator) -> Drawn:
        """The random part of `count` sequences, each array with `count` rows."""

    @abstractmethod
    def assemble(self, *drawn: NDArray[Any]) -> Batch:
        """The sequences whose random part was drawn."""

    def updates_per_epoch(self, batch: int) -> int | None:
        """Full batches in the fixed training set; None for fresh data."""
        return full_batches(self.sequences, batch) if self.sequences else None

    def train(self, update: int, batch: int, seed: int) -> Batch:
        self._check_memory("train", batch)
        if self.sequences:
            return self._fixed((FIXED, seed), shuffled(self.sequences, seed, update, batch))
        source = stream(FRESH, seed, check_size("update", update, minimum=0), check_size("batch", batch))
        return self.assemble(*self.draw(batch, source))

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        self._check_memory(split, batch)
        purpose, count = (VALID, self.valid_sequences) if split == "valid" else (TEST, self.test_sequences)
        for start in range(0, count, check_size("batch", batch)):
            end = min(start + batch, count)
            if split == "test":
                yield self._fixed((purpose,), range(start, end))
                continue
            if self._validation is None:  # used repeatedly, so drawn once
                self._validation = self._drawn((purpose,), range(count))
            yield self.assemble(*(part[start:end] for part in self._validation))

    def _fixed(self, key: tuple[int, ...], members: Iterable[int]) -> Batch:
        return self.assemble(*self._drawn(key, members))

    def _drawn(self, key: tuple[int, ...], members: Iterable[int]) -> Drawn:
        drawn = [self.draw(1, stream(*key, int(member))) for member in members]
        return tuple(np.concatenate(parts) for parts in zip(*drawn, strict=True))
