"""Lower quasi-triangular matrices in NumPy: the real Schur form as `kreiss.Schur` reads it."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from kreiss import linalg


def lower_schur(matrix: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """W = P M Pᵀ with M lower quasi-triangular, pairs first, and det P = +1."""
    t, p = linalg.ordered_real_schur(linalg.to_numpy(matrix).T)
    core = t.T.copy()
    if np.linalg.det(p) < 0:  # so that methods restricted to rotations can represent P
        p[:, -1] *= -1
        core[-1, :] *= -1
        core[:, -1] *= -1
    return core, p


def count_pairs(core: np.ndarray) -> int:
    """Number of 2×2 blocks."""
    return sum(size == 2 for _, size in linalg.block_starts(core.T))


def equalise_diagonal(core: np.ndarray, p: np.ndarray, i: int) -> None:
    """Rotate the plane of rows i, i+1, in place, so that the two diagonal entries become equal."""
    a, b, c, d = core[i : i + 2, i : i + 2].reshape(-1)
    turn = math.atan2(d - a, b + c) / 2
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    plane = slice(i, i + 2)
    core[plane] = rotation.T @ core[plane]
    core[:, plane] = core[:, plane] @ rotation
    p[:, plane] = p[:, plane] @ rotation
    core[i, i] = core[i + 1, i + 1] = (core[i, i] + core[i + 1, i + 1]) / 2


def shear_of(upper: np.ndarray, lower: np.ndarray, across: np.ndarray) -> np.ndarray:
    """κ with e^κ·across = |upper| or e^{−κ}·across = |lower|, whichever is larger; both up to rounding of the angle.

    An angle near π has an error of 1e-16, and its sine, if it is 1e-8, a relative error of 1e-8. That error is assigned
    to the smaller entry.
    """
    larger = np.maximum(np.abs(upper), np.abs(lower))
    kappa = np.log(larger) - np.log(np.abs(across))
    return np.where(np.abs(upper) >= np.abs(lower), kappa, -kappa)


def structure(core: np.ndarray) -> tuple[int, int]:
    """Numbers of real eigenvalues ≥ 0 and of negative ones."""
    blocks = linalg.block_starts(core.T)
    real = [core[start, start] for start, size in blocks if size == 1]
    negative = sum(bool(value < 0) for value in real)
    return len(real) - negative, negative
