"""Products of reflections."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_memory, check_size
from kreiss.sets.orthogonal.base import Method


class Householder(Method):
    """P = H₁(v₁)···H_m(v_m) D, v_k = (0, …, 0, 1, free) (oRNN, Mhammedi et al. 2017).

    With m = n − 1 reflections (the default) and signs D these are all orthogonal matrices, and
    n(n−1)/2 parameters are exactly their dimension. The product is formed as I − V S⁻¹ Vᵀ with
    S = ½diag(VᵀV) + striu(VᵀV): a triangular solve instead of m reflections.
    """

    index: Tensor
    signs: Tensor

    def __init__(self, n: int, reflections: int | None = None) -> None:
        count = max(n - 1, 1) if reflections is None else check_size("reflections", reflections)
        super().__init__(n, reflections=count)
        self.m = count
        if self.m > max(n - 1, 1):
            raise InputError(
                f"`reflections` must be at most n − 1 = {n - 1}; got reflections={reflections}. "
                "More reflections than that add no matrices."
            )
        self.shape = (self.m * (2 * n - self.m - 1) // 2,)
        self.add_constant("index", partial(_reflection_index, n, self.m))
        self.register_buffer("signs", torch.ones(n))

    def forward(self, free: Tensor) -> Tensor:
        index = self.constant("index", free.device)
        below = free.new_zeros(self.n * self.m).scatter_add(0, index, free).view(self.n, self.m)
        v = below + torch.eye(self.n, self.m, dtype=free.dtype, device=free.device)
        gram = v.mT @ v
        s = gram.triu(1) + torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1) / 2)
        eye = torch.eye(self.n, dtype=free.dtype, device=free.device)
        return (eye - v @ torch.linalg.solve_triangular(s, v.mT, upper=True)) * self.signs

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        # n − 1 reflections reach any orthogonal matrix, so the signs may be chosen for the best scaling
        # of the vectors. With fewer reflections the signs are part of the definition of the set.
        return self._reflect(p, None if self.m == max(self.n - 1, 1) else self.signs.to(p), tol)

    def rotations(self, angles: Tensor) -> Tensor:
        # A rotation is two reflections: m of them rotate m // 2 planes and fix the others.
        return self._reflect(linalg.rotation_blocks(angles[: (self.m + 1) // 2], self.n), None, 1e-9)

    def random(self, generator: torch.Generator | None) -> Tensor:
        if self.m == max(self.n - 1, 1):
            return super().random(generator)
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        v = torch.randn(self.n, self.m, generator=generator, dtype=torch.float64, device="cpu")
        return (v / v.diagonal()).reshape(-1)[self.constant("index", v.device)]

    def _reflect(self, p: Tensor, signs: Tensor | None, tol: float) -> Tensor:
        """Reflect the columns of P one by one onto ±e_k; the vectors used are the free parameters."""
        rest, v = p.clone(), torch.zeros(self.n, self.m, dtype=p.dtype, device=p.device)
        for k in range(self.m):
            x = rest[k:, k].clone()
            x[0] -= signs[k] if signs is not None else (-1.0 if x[0] >= 0 else 1.0)
            if x[0].abs() < 1e-10:
                raise InputError(self._too_few())
            v[k:, k] = x / x[0]
            w = v[k:, k]
            rest[k:] -= torch.outer(w, (2 / (w @ w)) * (w @ rest[k:]))
        new_signs = rest.diagonal().sign()
        if not torch.allclose(rest, (new_signs if signs is None else signs).diag(), rtol=0, atol=max(tol, 1e-6)):
            raise InputError(self._too_few())
        self.signs = new_signs.to(self.signs.device)
        return v.reshape(-1)[self.constant("index", v.device)]

    def _too_few(self) -> str:
        return (
            f"the matrix is not a product of reflections={self.m} reflections with this set's signs. "
            f"Use reflections={self.n - 1}, which holds any orthogonal matrix."
        )


def _reflection_index(n: int, m: int) -> np.ndarray:
    """Flat positions in an n×m matrix of the entries below the diagonal, column by column."""
    check_memory(f"{m} reflections of {n} entries", 9 * n * m)
    columns, rows = np.triu_indices(m, 1, n)
    return rows * m + columns
