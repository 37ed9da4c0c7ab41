"""Initialisers, drawn in float64 on the CPU: block angles of orthogonal matrices, and dense matrices.

| name     | initial matrix                                                                   |
|----------|----------------------------------------------------------------------------------|
| henaff   | 2×2 rotations by s ~ U(−π, π)                          (Henaff et al. 2016)      |
| cayley   | skew blocks s = √((1−cos u)/(1+cos u)), u ~ U(0, π/2)  (Helfrich et al. 2018)    |
| random   | Haar-distributed rotation, determinant +1                                        |
| identity | the identity                                           (IRNN, Le et al. 2015)    |
| glorot   | independent N(0, 1/n) entries                          (Glorot normal)           |
| chain    | α on the first sub-diagonal: a delay line              (Orhan & Pitkow 2020)     |
| disc     | 2×2 rotations by U[0, π/2) times U[−1, 1)              (Helfrich & Ye 2020)      |
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError, check_size
from kreiss.linalg import rotation_blocks

Generator = torch.Generator | None


def uniform(size: int, low: float, high: float, generator: Generator) -> Tensor:
    """`size` float64 numbers from U[low, high)."""
    return torch.rand(size, generator=generator, dtype=torch.float64, device="cpu") * (high - low) + low


def henaff_entries(blocks: int, generator: Generator) -> Tensor:
    """Rotation angles s ~ U(−π, π)."""
    return uniform(blocks, -math.pi, math.pi, generator)


def cayley_entries(blocks: int, generator: Generator) -> Tensor:
    """Skew entries s = √((1 − cos u)/(1 + cos u)) = tan(u/2), u ~ U(0, π/2)."""
    return torch.tan(uniform(blocks, 0.0, math.pi / 2, generator) / 2)


def henaff(n: int, *, generator: Generator = None) -> Tensor:
    """Block-diagonal rotations by U(−π, π)."""
    return rotation_blocks(henaff_entries(check_size("n", n) // 2, generator), n)


def cayley(n: int, *, generator: Generator = None) -> Tensor:
    """exp of the skew blocks of Helfrich et al.: rotations by tan(u/2), u ~ U(0, π/2)."""
    return rotation_blocks(cayley_entries(check_size("n", n) // 2, generator), n)


def random(n: int, *, generator: Generator = None) -> Tensor:
    """A Haar-distributed rotation (determinant +1)."""
    gaussian = torch.randn(check_size("n", n), n, generator=generator, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(gaussian)
    q = q * r.diagonal().sign()  # makes the distribution Haar (Mezzadri 2007)
    if torch.linalg.det(q) < 0:
        q[:, 0] = -q[:, 0]
    return q


def identity(n: int, *, generator: Generator = None) -> Tensor:
    """The identity; `generator` is accepted so that all initialisers have the same signature."""
    return torch.eye(check_size("n", n), dtype=torch.float64, device="cpu")


def glorot(n: int, *, generator: Generator = None) -> Tensor:
    """Independent Gaussian entries of variance 2/(n + n)."""
    size = (check_size("n", n), n)
    return torch.randn(size, generator=generator, dtype=torch.float64, device="cpu") / math.sqrt(n)


def disc(n: int, *, generator: Generator = None) -> Tensor:
    """Blocks γ R(t), t ~ U[0, π/2), γ ~ U[−1, 1) (ENRNN paper, eq. 5); a single γ last if n is odd."""
    angles = uniform(check_size("n", n) // 2, 0.0, math.pi / 2, generator)
    scales = uniform((n + 1) // 2, -1.0, 1.0, generator)
    return rotation_blocks(angles, n) * scales.repeat_interleave(2)[:n]


def truncated_orthogonal(rows: int, columns: int, *, generator: Generator = None) -> Tensor:
    """The leading block of a Haar rotation: orthonormal rows or columns, whichever are fewer."""
    return random(max(rows, columns), generator=generator)[:rows, :columns]


def chain(n: int, *, alpha: float = 1.0, feedback: float = 0.0, generator: Generator = None) -> Tensor:
    """The delay line h_i ← α h_{i−1}, with `feedback` on the first super-diagonal."""
    if not (math.isfinite(alpha) and math.isfinite(feedback)):
        raise InputError(f"`alpha` and `feedback` must be finite; got {alpha}, {feedback}. Pass finite numbers.")
    ones = torch.ones(check_size("n", n) - 1, dtype=torch.float64, device="cpu")
    return alpha * torch.diag(ones, -1) + feedback * torch.diag(ones, 1)


def random_unitary(n: int, generator: Generator = None) -> Tensor:
    """A Haar-distributed unitary matrix, complex128."""
    gaussian = torch.randn(n, n, 2, generator=generator, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(torch.view_as_complex(gaussian))
    return q * (r.diagonal() / r.diagonal().abs())  # makes the distribution Haar (Mezzadri 2007)


def cayley_unitary(n: int, generator: Generator = None) -> tuple[Tensor, Tensor]:
    """Rotations by u ~ U(0, π/2), complex128, and phases θ ~ U[0, 2π) for their columns (Maduranga et al. 2019)."""
    core = rotation_blocks(2 * torch.atan(cayley_entries(n // 2, generator)), n)
    return core.to(torch.complex128), uniform(n, 0.0, 2 * math.pi, generator)


INITIALISERS: dict[str, Any] = {
    "henaff": henaff,
    "cayley": cayley,
    "random": random,
    "identity": identity,
    "glorot": glorot,
    "chain": chain,
    "disc": disc,
}
