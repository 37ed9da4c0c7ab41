"""All n×n matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.errors import check_square
from kreiss.sets.base import Free_, Set
from kreiss.sets.initial import INITIALISERS


class Free(Set):
    """Every real n×n matrix: no constraint, n² free parameters.

    Args:
        n: size of the matrix.

    Example:
        >>> import kreiss
        >>> every = kreiss.Free(3)
        >>> (weight,) = every.initial("identity")
        >>> every(weight).shape
        torch.Size([3, 3])
    """

    roles = ("weight",)
    initialisers = ("glorot", "henaff", "cayley", "random", "identity", "chain")

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.shapes = ((n, n),)

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        return free[0]

    def right_inverse(self, matrix: Tensor) -> Free_:
        return (self._fit(matrix),)

    def error(self, *free: Tensor) -> float:
        return 0.0

    def _fit(self, matrix: Tensor, tol: float | None = None) -> Tensor:
        return check_square(matrix, self.n)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        return (INITIALISERS[name](self.n, generator=generator),)
