"""Layers of rotations of neighbouring rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_size
from kreiss.sets import initial
from kreiss.sets.meshes import layer_sizes
from kreiss.sets.orthogonal.base import Method


class Givens(Method):
    """P = D·L_m···L₁, layers of 2×2 rotations of neighbours (tunable EUNN, Jing et al. 2017).

    Odd layers rotate the pairs (0,1), (2,3), …, even layers (1,2), (3,4), … . m = n layers (the
    default) have n(n−1)/2 angles and, with signs D, reach every orthogonal matrix (Clements et al.
    2016).
    """

    signs: Tensor

    def __init__(self, n: int, layers: int | None = None) -> None:
        count = n if layers is None else check_size("layers", layers)
        super().__init__(n, layers=count)
        self.layers = count
        self.sizes = layer_sizes(n, self.layers)
        self.shape = (sum(self.sizes),)
        self.register_buffer("signs", torch.ones(n))

    def forward(self, free: Tensor) -> Tensor:
        p = torch.eye(self.n, dtype=free.dtype, device=free.device)
        cosines, sines = free.cos().split(self.sizes), free.sin().split(self.sizes)
        for k, (c, s) in enumerate(zip(cosines, sines, strict=True)):
            first, pairs = k % 2, self.sizes[k]
            x = p[first : first + 2 * pairs].view(pairs, 2, self.n)
            c, s = c[:, None], s[:, None]
            top, bottom = c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]
            mixed = torch.stack([top, bottom], dim=1).view(2 * pairs, self.n)
            p = torch.cat([p[:first], mixed, p[first + 2 * pairs :]])
        return self.signs[:, None] * p

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        try:
            angles, signs = self._decompose(p, 1e-14)
        except InputError:  # treat entries within the tolerance as 0: rounding errors may look like rotations
            angles, signs = self._decompose(p, tol)
        self.signs = torch.from_numpy(signs).to(self.signs.device)
        return torch.from_numpy(angles).to(p)

    def _decompose(self, p: Tensor, negligible: float) -> tuple[np.ndarray, np.ndarray]:
        gates, signs = _givens_gates(linalg.to_numpy(p), negligible)
        return _schedule(gates, self.n, self.layers), signs

    def rotations(self, angles: Tensor) -> Tensor:
        free = torch.zeros(self.shape, dtype=torch.float64, device="cpu")
        free[: len(angles)] = angles
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return free

    def random(self, generator: torch.Generator | None) -> Tensor:
        if self.layers >= self.n:
            return super().random(generator)
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return initial.henaff_entries(self.shape[0], generator)


def _givens_gates(u: np.ndarray, negligible: float) -> tuple[list[tuple[int, float]], np.ndarray]:
    """U = D·G_k···G₁ as rotations (row, angle) in the order applied, and the signs D.

    Clements' scheme: anti-diagonals of the lower triangle are eliminated alternately from the right
    and from the left, which keeps the mesh n layers deep.
    """
    n = len(u)
    right: list[tuple[int, float]] = []
    left: list[tuple[int, float]] = []
    for i in range(1, n):
        for j in range(i):
            if i % 2:
                row, k = n - 1 - j, i - 1 - j  # zero u[row, k] by mixing columns k, k+1
                angle = _zeroing_angle(u[row, k], u[row, k + 1], negligible)
                _mix(u.T, k, angle)
                right.append((k, angle))
            else:
                row, k = n - i + j, j  # zero u[row, k] by mixing rows row−1, row
                angle = -_zeroing_angle(u[row, k], u[row - 1, k], negligible)
                _mix(u, row - 1, angle)
                left.append((row - 1, -angle))
    signs = np.sign(u.diagonal()).astype(np.float64)
    # U = (left gates)·D·(right gates); moving D to the front reverses a gate between unlike signs.
    moved = [(k, angle * signs[k] * signs[k + 1]) for k, angle in left]
    return right + moved[::-1], signs


def _zeroing_angle(entry: float, other: float, negligible: float) -> float:
    """The angle whose rotation moves `entry` into `other`; 0 if it is negligible."""
    return math.atan2(entry, other) if abs(entry) > negligible else 0.0


def _mix(u: np.ndarray, k: int, angle: float) -> None:
    """Rotate rows k and k+1 of u by `angle`, in place."""
    c, s = math.cos(angle), math.sin(angle)
    u[k], u[k + 1] = c * u[k] - s * u[k + 1], s * u[k] + c * u[k + 1]


def _schedule(gates: list[tuple[int, float]], n: int, layers: int) -> np.ndarray:
    """Angles of the layered mesh, each gate in the first layer of its parity that is still free."""
    sizes = [(n - k % 2) // 2 for k in range(layers)]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    angles, busy = np.zeros(sum(sizes)), np.zeros(n, dtype=int)
    for row, angle in gates:
        if angle == 0:
            continue
        layer = int(max(busy[row], busy[row + 1]))
        layer += (layer - row) % 2
        if layer >= layers:
            raise InputError(
                f"the matrix needs more than layers={layers} layers of rotations. Use layers={n}, which holds any."
            )
        angles[starts[layer] + row // 2] = angle
        busy[row] = busy[row + 1] = layer + 1
    return angles
