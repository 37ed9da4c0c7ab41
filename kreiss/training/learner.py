"""The interface of a learner: what a session trains, whatever its data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn


@dataclass
class Now:
    """Loss and gradient norm of an update, and what else is to be shown."""

    update: int
    loss: float
    norm: float
    words: tuple[str, ...] = ()


class Learner(ABC):
    """Makes updates, evaluates, and saves and restores everything needed to resume.

    A session (`kreiss.training.session`) is given one and does the rest: run folder, checkpoints, records, trackers,
    progress display, resuming. A learner restored from what `kept` gave must continue bit for bit as if it had never
    stopped.

    Attributes:
        kind: its name in checkpoints.
        model: what is trained; the session keeps its best state and writes it.
        metric: the one that chooses the best state.
        updates: made so far.
        seconds: spent so far, counted by the session.
        last_good: says where the last good checkpoint is, for messages; set by the session.
    """

    kind: str
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
        """Record a validation; returns whether it is the best so far."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether there is no update left to make."""

    @abstractmethod
    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything needed to resume, as tensors and JSON; all processes must call this together.

        The model's tensors are under `kreiss.training.checkpoint.model_tensors`; the JSON holds `updates` and
        `seconds`.
        """

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` returned; the model already has its tensors."""

    # ------------------------------------------------------------ with defaults

    def log(self, now: Now) -> dict[str, Any]:
        """The record of training since the last one."""
        return {"loss": now.loss}

    def baseline(self) -> dict[str, float]:
        """Metrics of a network without memory; empty if unknown."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What a report says of the run besides its records; written when the run starts."""
        return {}

    def checksum(self) -> str | None:
        """Checksum of the user's data; None if there are none."""
        return None

    @property
    def healthy(self) -> bool:
        """Whether the last update was finite, so that the state before it is known to be good."""
        return True

    @property
    def solved(self) -> bool:
        """Whether it is done because a validation was good enough."""
        return False

    def check_finite(self) -> None:  # noqa: B027
        """Raise if something to be saved is not finite."""

    def close(self) -> None:  # noqa: B027
        """Free what it holds beside memory, such as processes."""
