"""The nearest normal and the nearest orthogonal matrix, in the Frobenius norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import schur

from kreiss.analysis.arrays import ROUNDING, Array, as_square
from kreiss.errors import InputError

SWEEPS = 200


@dataclass(frozen=True)
class Nearest:
    """The nearest matrix of a kind.

    Attributes:
        matrix: the nearest matrix M.
        distance: ‖V − M‖_F.
        error: for an orthogonal M, its estimated rounding error; for a normal M, the change of the distance in the last
            sweep.
    """

    matrix: Array
    distance: float
    error: float


def nearest_orthogonal(matrix: Any) -> Nearest:
    """The orthogonal (unitary) factor of the polar decomposition, nearest in every unitarily invariant norm.

    Example:
        >>> from kreiss.analysis import nearest_orthogonal
        >>> nearest_orthogonal([[2.0, 0.0], [0.0, -3.0]]).matrix.tolist()
        [[1.0, 0.0], [0.0, -1.0]]
    """
    v = as_square(matrix)
    left, sizes, right = np.linalg.svd(v)
    if sizes[-1] <= len(v) * ROUNDING * sizes[0]:
        raise InputError(
            f"`matrix` must be regular for its nearest orthogonal matrix to be unique; got a smallest singular value "
            f"of {sizes[-1]:.3g}. Perturb it to choose among the nearest."
        )
    # the condition number of the factor is 2/(σ_n + σ_{n−1})
    gap = 2 / (sizes[-1] + sizes[-2]) if len(v) > 1 else 0.0
    error = ROUNDING * float(sizes[0] * gap)
    return Nearest(left @ right + 0.0, float(np.linalg.norm(sizes - 1)), error)


def nearest_normal(matrix: Any, *, sweeps: int = SWEEPS) -> Nearest:
    """A normal matrix near V: Q diag(Q*VQ) Q* with the unitary Q that makes the diagonal largest.

    Sweeps of plane rotations, each optimal for its plane, starting from the Schur basis; the distance never exceeds
    Henrici's departure. The result is a local minimum of the distance, not provably the global one. For a real matrix
    it may be complex.

    Reference: Ruhe (1987), Closest normal matrix finally found!
    """
    v = as_square(matrix)
    form, q = schur(v, output="complex")
    off = _off_diagonal(form)
    change = 0.0
    for _ in range(sweeps):
        _sweep(form, q)
        change, off = off - _off_diagonal(form), _off_diagonal(form)
        if change <= 1e-14 * (1 + off):
            break
    normal = (q * np.diag(form)) @ q.conj().T
    if not np.iscomplexobj(v) and np.abs(normal.imag).max() <= 1e-12 * (1 + np.abs(normal.real).max()):
        normal = normal.real
    return Nearest(normal, float(np.linalg.norm(v - normal)), float(change))


def _off_diagonal(form: Array) -> float:
    return float(np.linalg.norm(form - np.diag(np.diag(form))))


def _sweep(form: Array, q: Array) -> None:
    """One best rotation for every pair of rows, in place."""
    n = len(form)
    for i in range(n - 1):
        for j in range(i + 1, n):
            turn = _best_rotation(form[i, i], form[i, j], form[j, i], form[j, j])
            if turn is not None:
                rows = [i, j]
                form[:, rows] = form[:, rows] @ turn
                form[rows] = turn.conj().T @ form[rows]
                q[:, rows] = q[:, rows] @ turn


def _best_rotation(a: complex, b: complex, c: complex, d: complex) -> Array | None:
    """The unitary U that makes Σ|diag(U*BU)|² of a 2×2 block largest; None if there is nothing to gain.

    The difference of the diagonal entries is linear in the unit vector n to which U rotates the third axis, so its
    squared modulus is a quadratic form in n, largest at the top eigenvector.
    """
    components = np.array([(b + c) / 2, 1j * (b - c) / 2, (a - d) / 2])  # in the Pauli matrices
    quadratic = np.real(np.outer(components, components.conj()))
    values, vectors = np.linalg.eigh(quadratic)
    if values[-1] - quadratic[2, 2] <= 1e-15 * values[-1]:
        return None
    x, y, z = vectors[:, -1] * (1.0 if vectors[2, -1] >= 0 else -1.0)
    half = np.arccos(np.clip(z, -1, 1)) / 2
    phase = np.exp(1j * np.arctan2(y, x))
    cos, sin = np.cos(half), np.sin(half)
    return np.array([[cos, -sin * phase.conjugate()], [sin * phase, cos]])
