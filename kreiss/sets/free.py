"""All n×n matrices, or several stacked."""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.errors import check_size, check_square
from kreiss.sets.base import Free_, Set
from kreiss.sets.initial import INITIALISERS


class Free(Set):
    """Every real n×n matrix: no constraint, n² free parameters.

    Args:
        n: size of the matrix.
        blocks: n×n matrices stacked vertically, such as the four gates of an LSTM.

    Example:
        >>> import kreiss
        >>> every = kreiss.Free(3)
        >>> (weight,) = every.initial("identity")
        >>> every(weight).shape
        torch.Size([3, 3])
    """

    roles = ("weight",)
    initialisers = ("glorot", "henaff", "cayley", "random", "identity", "chain")

    def __init__(self, n: int, blocks: int = 1) -> None:
        super().__init__(n)
        self.blocks = check_size("blocks", blocks)
        self.shapes = ((self.blocks * n, n),)

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        return free[0]

    def right_inverse(self, matrix: Tensor) -> Free_:
        return (self._fit(matrix),)

    def error(self, *free: Tensor) -> float:
        return 0.0

    def _fit(self, matrix: Tensor, tol: float | None = None) -> Tensor:
        if self.blocks > 1 and isinstance(matrix, Tensor) and tuple(matrix.shape) == self.shapes[0]:
            return torch.cat([check_square(block, self.n) for block in matrix.split(self.n)])
        return check_square(matrix, self.n)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        return (torch.cat([INITIALISERS[name](self.n, generator=generator) for _ in range(self.blocks)]),)
