"""What a task is: batches by number, a loss, metrics that add up, and what a network without memory would reach."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

Totals = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of one update or one piece of an evaluation.

    Args:
        inputs: (T, B, …) with `input_shape` after time and batch; integers (T, B) below input_size for symbols.
        targets: one answer per step (T, B, …), or per sequence (B, …) where the task asks at the end only.
        lengths: valid steps of each sequence (B,), or None where all are.
        carries: whether the state left by the batch before goes on into this one (truncated backpropagation).
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    carries: bool = False


class Task(ABC):
    """Data, loss and metrics of one problem; knows no model.

    Training data are a function of (update, batch size, seed) alone, so that a run can be taken up at any update, by
    any number of workers, and see what it would have seen. Held-out data are fixed: they depend on no seed of the run.
    """

    input_size: int
    output_size: int
    symbols: bool = False  # whether inputs are integers below input_size
    answers: Literal["every", "last"] = "every"  # whether there is a target at every step, or one per sequence
    metric: str = "loss"  # the metric that chooses the best checkpoint and is shown
    higher_is_better: bool = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input after time and batch: (input_size,) for vectors, () for symbols, or any other."""
        return () if self.symbols else (self.input_size,)

    # option that may name a file or folder of the user's → names of data sets that it may hold instead
    paths: ClassVar[dict[str, tuple[str, ...]]] = {}

    def data_files(self) -> list[Path]:
        """Files of the user's that the data come from, in a fixed order; none where they are generated or known."""
        return []

    def check_packages(self) -> None:  # noqa: B027
        """Raise if a package is missing that an evaluation needs; asked before the first update."""

    def updates_per_epoch(self, batch: int) -> int | None:
        """Updates that go once through the training data; None where data are generated without end."""
        return None

    def entries(self, split: Literal["train", "valid", "test"], batch: int) -> int:
        """Steps × sequences of the largest batch, where that is known before one is made; 0 elsewhere."""
        return 0

    @abstractmethod
    def train(self, update: int, batch: int, seed: int) -> Batch:
        """The batch of one update (from 0), the same whenever it is asked for."""

    @abstractmethod
    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        """All of a fixed held-out set, in pieces of at most `batch` sequences."""

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The mean loss, differentiable. `output` is (T, B, output_size), or (B, output_size) for `answers="last"`."""

    @abstractmethod
    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """(sum, count) of each metric, so that pieces of any size add up to the same metrics."""

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Metrics from the totals of all pieces: sum / count."""
        return {name: total / count for name, (total, count) in totals.items()}

    @abstractmethod
    def baseline(self) -> dict[str, float]:
        """Metrics of the best network without memory, in closed form where there is one."""
