"""Layers whose recurrence is not that of `torch.nn.RNN`."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from torch import nn

from kreiss.errors import InputError
from kreiss.layers.base import RecurrentLayer


class UnlikeTorch(RecurrentLayer):
    """A recurrent layer that no `torch.nn.RNN` computes: there is no way from it or to it."""

    @classmethod
    def from_torch(cls, rnn: nn.RNN, **options: Any) -> Self:
        """Refuses, with a sentence: the recurrence is another one."""
        if not isinstance(rnn, nn.RNN):
            raise TypeError(f"`rnn` must be a torch.nn.RNN; got {type(rnn).__name__}. Pass the layer itself.")
        raise InputError(
            f"{cls.__name__} must be made anew; got a torch.nn.RNN, which computes another recurrence. "
            "Use RNN.from_torch or NNRNN.from_torch."
        )

    def to_torch(self) -> NoReturn:
        """Refuses, with a sentence: torch has no layer of this recurrence."""
        raise InputError(
            f"to_torch must be called on a layer that torch.nn.RNN computes; got {type(self).__name__}, whose "
            "recurrence is another one. Use freeze() for a plain layer instead."
        )
