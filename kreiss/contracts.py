"""The contract of a network: what can be trained.

It stands in a file of its own because rooms on both sides need it: those that hold networks, and `kreiss.networks`,
which knows all of them by name, builds, saves and exports them.
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
    """What a network has to know of its task."""

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
    outputs are (T, B, output_size), or (B, output_size) where there is one answer per sequence.

    Attributes:
        Settings: the section of settings that tells such a network.
    """

    Settings: ClassVar[type[NetworkSettings]] = NetworkSettings

    @classmethod
    @abstractmethod
    def options(cls, name: str) -> dict[str, Option]:
        """Options that settings may give beside the fields of `Settings`, for the model called `name`."""

    @classmethod
    @abstractmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Self:
        """The network of the settings for a task, with initial values from `generator`."""

    @abstractmethod
    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Outputs and the state at the end."""

    @property
    def width(self) -> int:
        """Numbers per step and sequence that a pass keeps at least; for checks of memory."""
        return 2

    def penalty(self) -> Tensor | None:
        """What the network adds to the training loss; None for nothing."""
        return None

    def freeze(self) -> Self:
        """A copy for inference, without gradients."""
        return copy.deepcopy(self).requires_grad_(False).eval()
