"""The interface of a trainable network.

A separate module because both the packages that define networks and `kreiss.networks`, which builds, saves and
exports them by name, depend on it.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor

import kreiss.prediction as prediction
from kreiss.layers.contract.loading import CheckedLoading
from kreiss.options import Option
from kreiss.preprocessing import Answers, Preprocessing
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
        preprocessing: what was done to the raw data that it was trained on; saved and loaded with it.
    """

    Settings: ClassVar[type[NetworkSettings]] = NetworkSettings
    preprocessing: Preprocessing | None = None

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

    def predict(self, data: Any) -> Answers | list[Answers]:
        """The answers to raw data, which are preprocessed as those of the training were.

        Args:
            data: one sequence: rows (T, D), a DataFrame, a dict of columns, the path of a table; the path of a sound
                or (rate, samples); a text. Several sequences: an array (N, T, D), a list of such, or a table with the
                column that told sequences apart in training.

        Returns:
            The answers to the sequence, or a list of them for several.

        Example:
            >>> import numpy as np, kreiss
            >>> from kreiss.tasks import Sequence
            >>> table = {"x": np.arange(90.0), "label": ["low"] * 45 + ["high"] * 45}
            >>> run = kreiss.fit("rnn", Sequence(table, targets="label", window=9), hidden=4, steps=2, show="quiet")
            >>> answers = run.model.predict({"x": [1.0, 2.0, 3.0]})
            >>> answers.names, answers.numbers.shape
            (('high', 'low'), (3, 2))
        """
        return prediction.predict(self, data)

    def generate(
        self, prompt: str = "\n", length: int = 200, *, temperature: float = 1.0, seed: int | None = None
    ) -> Iterator[str]:
        """Text that goes on after a prompt, character by character, from a network of characters.

        Args:
            prompt: the beginning, which is not repeated.
            length: number of characters; of bytes, if the text has others than ASCII.
            temperature: divides the logits; 0 takes the most probable character.
            seed: of the draws; a new one by default.
        """
        return prediction.generate(self, prompt, length, temperature, seed)
