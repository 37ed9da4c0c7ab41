"""The contract of a learner: what a session trains, whatever its data come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn


@dataclass
class Now:
    """What is known at an update."""

    update: int
    loss: float
    norm: float


class Learner(ABC):
    """Makes updates one after another, measures itself, and gives and takes all it needs to resume.

    A session (`kreiss.training.session`) is given one and does the rest: run folder, checkpoints, records, trackers,
    progress display, resuming. A learner restored from what `kept` gave must continue bit for bit as if it had never
    stopped.

    Attributes:
        model: what is trained; the session keeps its best state and writes it.
        metric: the one that chooses the best state.
        updates: made so far.
        seconds: spent so far, counted by the session.
        last_good: says where the last good checkpoint is, for messages; set by the session.
    """

    model: nn.Module
    metric: str
    updates: int = 0
    seconds: float = 0.0
    last_good: Callable[[], str] = staticmethod(lambda: "No checkpoint was written")

    @abstractmethod
    def update(self) -> Now:
        """Make one update."""

    @abstractmethod
    def evaluate(self, split: Literal["valid", "test"]) -> dict[str, float]:
        """Metrics on held-out data."""

    @abstractmethod
    def observe(self, metrics: dict[str, float]) -> bool:
        """Take note of a validation; whether it is the best so far."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether there is no update left to make."""

    @abstractmethod
    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that decides how this continues, as tensors and JSON; all processes have to ask together."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` gave; the model has its tensors already."""

    # ------------------------------------------------------------ with defaults

    def log(self, now: Now) -> dict[str, Any]:
        """The record of training since the last one."""
        return {"loss": now.loss}

    def baseline(self) -> dict[str, float]:
        """Metrics that a network without memory reaches; none where that is not known."""
        return {}

    def checksum(self) -> str | None:
        """Of the user's data; None where there are none."""
        return None

    @property
    def healthy(self) -> bool:
        """Whether the last update was finite, so that the state before it is known to be good."""
        return True

    def check_finite(self) -> None:  # noqa: B027
        """Raise if something that is kept is not finite."""
