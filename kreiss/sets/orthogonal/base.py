"""The contract of a method: how free parameters become an orthogonal matrix.

Each method has one free tensor of `shape`, and `forward(free) -> P`, `inverse(P, tol) -> free` (P float64,
orthogonal to `tol`), `rotations(angles) -> free` for a start at 2×2 rotations down the diagonal. Fixed parts (a
base point, signs) are buffers.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from kreiss.sets import initial
from kreiss.sets.base import Packed


class Method(Packed):
    """A map from free numbers onto orthogonal matrices."""

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
        """Free numbers of the float64 matrix `p`, orthogonal to `tol`; may set the method's fixed parts."""

    @abstractmethod
    def rotations(self, angles: Tensor) -> Tensor:
        """Free numbers (float64) of 2×2 rotations by `angles` down the diagonal."""

    def random(self, generator: torch.Generator | None) -> Tensor:
        """Free numbers of a Haar distributed rotation, where the method holds all rotations."""
        return self.inverse(initial.random(self.n, generator=generator))

    def angle_of_skew(self, entry: Tensor) -> Tensor:
        """The rotation angle that this method makes of a 2×2 skew block with entry `entry`."""
        return entry
