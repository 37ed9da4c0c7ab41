"""The interface of a task: batches by number, a loss, metrics that add up, and a baseline without memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from kreiss.preprocessing import Preprocessing

Totals = dict[str, tuple[float, float]]

HIGHER = ("accuracy", "segsnr", "stoi", "pesq", "reward", "success")  # metrics that are better when higher


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of one update or one piece of an evaluation.

    Args:
        inputs: (T, B, …) with `input_shape` after time and batch, or a `kreiss.pooled.Pooled` that stands for such a
            tensor; integers (T, B) below input_size for symbols.
        targets: one answer per step (T, B, …), or per sequence (B, …) if the task has one answer at the end.
        lengths: valid steps of each sequence (B,), or None where all are.
        carries: whether the final state of the previous batch is carried into this one (truncated backpropagation).
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    carries: bool = False


class Problem(ABC):
    """What every task has, whether it gives batches (`Task`) or episodes (`kreiss.tasks.worlds.World`)."""

    input_size: int
    output_size: int
    symbols: bool = False  # whether inputs are integers below input_size
    answers: Literal["every", "last"] = "every"  # whether there is a target at every step, or one per sequence
    metric: str = "loss"  # the metric that chooses the best checkpoint and is shown
    higher_is_better: bool = False
    naive: str = "without memory"  # what the baseline is called
    settings: ClassVar[dict[str, Any]] = {}  # defaults of a run on it, by dotted name, where they are its own

    def is_higher_better(self, metric: str) -> bool:
        """Whether a metric is better when higher; one at another delay, `accuracy@400`, is as the metric itself."""
        return self.higher_is_better if metric == self.metric else metric.split("@")[0] in HIGHER

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input after time and batch: (input_size,) for vectors, () for symbols, or any other."""
        return () if self.symbols else (self.input_size,)

    def for_run(self, seed: int) -> Self:
        """The task as a run with this seed sees it; by default the same for all."""
        return self

    # option that may be the path of user data → names of data sets that it may be instead
    paths: ClassVar[dict[str, tuple[str, ...]]] = {}

    @classmethod
    def is_path(cls, option: str, value: object) -> bool:
        """Whether the value of an option in `paths` names the user's file or folder."""
        return value not in cls.paths[option]

    def data_files(self) -> list[Path]:
        """The user's files of the data, in a fixed order; none for generated data and known data sets."""
        return []

    def preprocessing(self) -> Preprocessing | None:
        """What is done to raw data, recorded with the network so that it can predict; None if data are generated."""
        return None

    def check_packages(self) -> None:  # noqa: B027
        """Raise if a package that an evaluation needs is missing; called before the first update."""

    def updates_per_epoch(self, batch: int) -> int | None:
        """Updates in one pass through the training data; None if data are generated without end."""
        return None

    def entries(self, split: Literal["train", "valid", "test"], batch: int) -> int:
        """Steps × sequences of the largest batch, if that is known in advance; else 0."""
        return 0

    @abstractmethod
    def baseline(self) -> dict[str, float]:
        """Metrics of the best network without memory, in closed form where there is one."""


class Task(Problem):
    """Data, loss and metrics of one problem; independent of the model.

    Training data are a function of (update, batch size, seed) alone, so that a run can be resumed at any update, by
    any number of workers, with the same data. Held-out data are fixed: they do not depend on the seed of the run,
    unless `for_run` says so.
    """

    @abstractmethod
    def train(self, update: int, batch: int, seed: int) -> Batch:
        """The batch of one update (from 0), the same at every call."""

    @abstractmethod
    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        """All of a fixed held-out set, in batches of at most `batch` sequences."""

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The mean loss, differentiable. `output` is (T, B, output_size), or (B, output_size) for `answers="last"`."""

    @abstractmethod
    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """(sum, count) of each metric, so that metrics do not depend on the batch size."""

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Metrics from the totals of all batches: sum / count."""
        return {name: total / count for name, (total, count) in totals.items()}
