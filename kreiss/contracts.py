"""The interface of a trainable network.

A separate module because both the packages that define networks and `kreiss.networks`, which builds, saves and
exports them by name, depend on it.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor

from kreiss.layers.contract.loading import CheckedLoading
from kreiss.options import Option
from kreiss.recorded import Recorded
from kreiss.settings import NetworkSettings


class Sizes(Protocol):
    """What a network needs to know about its task."""

    input_size: int
    output_size: int
    symbols: bool
    answers: Literal["every", "last"]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input after time and batch."""


class Network(Recorded, CheckedLoading):
    """Maps a batch of sequences to outputs: `forward(inputs, state, lengths) -> (outputs, state)`.

    inputs (T, B, …) have any shape after time and batch; state is what an earlier call returned, any pytree of tensors
    with the batch as their second dimension, or None; lengths (B,) are the valid steps of each sequence, or None.
    outputs are (T, B, output_size), or (B, output_size) for one answer per sequence.

    Attributes:
        Settings: the class of the settings section of such a network.
    """

    Settings: ClassVar[type[NetworkSettings]] = NetworkSettings

    @classmethod
    @abstractmethod
    def options(cls, name: str) -> dict[str, Option]:
        """Options of the model `name` in addition to the fields of `Settings`."""

    @classmethod
    @abstractmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Self:
        """Build the network described by `settings` for a task, initialised from `generator`."""

    @abstractmethod
    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Outputs and the final state."""

    @property
    def width(self) -> int:
        """Lower bound on the numbers stored per step and sequence in a pass; for memory checks."""
        return 2

    def penalty(self) -> Tensor | None:
        """A term added to the training loss, or None."""
        return None

    def carried(self, state: Any) -> Any:
        """What the next window of a long sequence starts from; by default the state itself."""
        return state

    def freeze(self) -> Self:
        """A copy for inference, without gradients."""
        return copy.deepcopy(self).requires_grad_(False).eval()
