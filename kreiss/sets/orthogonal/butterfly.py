"""Products of log₂ n layers of rotations over doubling distances, as in the fast Fourier transform."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError
from kreiss.sets import initial
from kreiss.sets.orthogonal.base import Method


class Butterfly(Method):
    """P = L_m···L₁ D, layer k rotating the pairs (i, i + 2^{k−1}) (FFT-style EUNN, Jing et al. 2017).

    If n is not a power of two, rows without a partner are left unchanged. About ½ n log₂ n angles: the set is a small
    part of the orthogonal group, but every entry of P may be non-zero. D holds signs, fixed when a matrix is assigned.
    """

    signs: Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.strides = [2**k for k in range((n - 1).bit_length())]
        self.shape = (sum(len(_firsts(n, stride)) for stride in self.strides),)
        self.add_constant("places", partial(_places, n, self.strides))
        self.register_buffer("signs", torch.ones(n))

    def forward(self, free: Tensor) -> Tensor:
        # up to layer k the product has square blocks of size 2^k on its diagonal, and only those are formed
        blocks = free.new_ones(2 ** len(self.strides), 1, 1)
        layers = self._all_angles(free)
        for stride, cos, sin in zip(self.strides, layers.cos(), layers.sin(), strict=True):
            c, s = cos.view(-1, stride, 1), sin.view(-1, stride, 1)
            x, y = blocks.unflatten(0, (-1, 2)).unbind(1)
            blocks = torch.cat([torch.cat([c * x, -s * y], -1), torch.cat([s * x, c * y], -1)], -2)
        return blocks[0, : self.n, : self.n] * self.signs

    def _all_angles(self, free: Tensor) -> Tensor:
        """The angles of all layers (m, 2^{m−1}), 0 for pairs beyond n."""
        places = self.constant("places", free.device)
        every = free if places.numel() == free.numel() else torch.cat([free, free.new_zeros(1)])[places]
        return every.view(len(self.strides), 2 ** len(self.strides) // 2)

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        angles: dict[int, np.ndarray] = {stride: np.zeros(self.n) for stride in self.strides}
        signs = _unroll(linalg.to_numpy(p), 0, angles)
        free = [torch.from_numpy(angles[stride][_firsts(self.n, stride)]) for stride in self.strides]
        packed = torch.cat([*free, torch.zeros(0, dtype=torch.float64)]).to(p)
        before, self.signs = self.signs, torch.from_numpy(signs).to(device=self.signs.device)
        if not torch.allclose(self(packed), p, rtol=0, atol=max(tol, 1e-6)):
            self.signs = before
            raise InputError(
                'the matrix is not a product of butterfly layers. Use method="trivialization", "householder" or '
                '"givens", which hold any orthogonal matrix.'
            )
        return packed

    def rotations(self, angles: Tensor) -> Tensor:
        free = torch.zeros(self.shape, dtype=torch.float64, device="cpu")
        free[: len(angles)] = angles
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return free

    def random(self, generator: torch.Generator | None) -> Tensor:
        """All angles uniform, as in the paper; not Haar-distributed, for which the set is too small."""
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return initial.henaff_entries(self.shape[0], generator)


def _firsts(n: int, stride: int) -> np.ndarray:
    """The first index of each pair (i, i + stride) of one layer."""
    i = np.arange(n)
    return i[(i // stride % 2 == 0) & (i + stride < n)]


def _places(n: int, strides: list[int]) -> np.ndarray:
    """The position of the angle of each pair among the free ones, layer by layer; behind the last if there is none."""
    size = 2 ** len(strides)
    there = np.concatenate([_firsts(size, stride) + stride < n for stride in strides] or [np.zeros(0, dtype=bool)])
    return np.where(there, np.cumsum(there) - 1, there.sum())


def _unroll(p: np.ndarray, start: int, angles: dict[int, np.ndarray]) -> np.ndarray:
    """Angles of P = L·diag(A, B), layer by layer, longest distance first; returns the remaining signs.

    Rows i and i + stride of P are (c a_i, −s b_i) and (s a_i, c b_i) with unit rows a_i of A and b_i of B.
    """
    n = len(p)
    if n == 1:
        return np.where(p[0] < 0, -1.0, 1.0)
    stride = 2 ** ((n - 1).bit_length() - 1)
    pairs = n - stride
    x, y = p[:pairs, :stride], p[stride:, :stride]
    c = np.linalg.norm(x, axis=1)
    s = np.where((x * y).sum(1) < 0, -1.0, 1.0) * np.linalg.norm(y, axis=1)
    angles[stride][start : start + pairs] = np.arctan2(s, c)
    a, b = p[:stride, :stride].copy(), np.zeros((pairs, pairs))
    a[:pairs] = c[:, None] * x + s[:, None] * y
    b[:] = -s[:, None] * p[:pairs, stride:] + c[:, None] * p[stride:, stride:]
    return np.concatenate([_unroll(a, start, angles), _unroll(b, start + stride, angles)])
