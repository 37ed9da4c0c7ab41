"""The interface of a method: how free parameters give an orthogonal matrix.

Each method has one free tensor of `shape`, and `forward(free) -> P`, `inverse(P, tol) -> free` (P float64,
orthogonal up to `tol`), `rotations(angles) -> free` for an initial matrix of 2×2 rotations on the diagonal. Fixed
parts (a base point, signs) are buffers.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from kreiss.sets import initial
from kreiss.sets.base import Packed


class Method(Packed):
    """A map from free parameters to orthogonal matrices."""

    shape: tuple[int, ...]

    def __init__(self, n: int, **options: str | int) -> None:
        super().__init__()
        self.n = n
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())

    @abstractmethod
    def forward(self, free: Tensor) -> Tensor:
        """The orthogonal matrix."""

    @abstractmethod
    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        """Free parameters of the float64 matrix `p`, orthogonal up to `tol`; may set the fixed parts of the method."""

    @abstractmethod
    def rotations(self, angles: Tensor) -> Tensor:
        """Free parameters (float64) of the block-diagonal matrix of 2×2 rotations by `angles`."""

    def random(self, generator: torch.Generator | None) -> Tensor:
        """Free parameters of a Haar-distributed rotation, if the method reaches all rotations."""
        return self.inverse(initial.random(self.n, generator=generator))

    def angle_of_skew(self, entry: Tensor) -> Tensor:
        """The rotation angle to which this method maps a 2×2 skew block with entry `entry`."""
        return entry
