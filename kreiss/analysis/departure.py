"""How far a matrix is from normal: Henrici's departure, normal energy, condition numbers of eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eig, schur

from kreiss.analysis.arrays import ROUNDING, Array, as_square


@dataclass(frozen=True)
class Normality:
    """Result of `normality`.

    Attributes:
        departure: Henrici's √(‖V‖²_F − Σ|λ|²); zero for a normal matrix.
        index: departure / ‖V‖_F, from 0 for normal to 1 for nilpotent matrices.
        normal_energy: Σ|λ|² / ‖V‖²_F; 1 for a normal matrix.
        commutator: ‖VVᵀ − VᵀV‖_F / ‖V‖²_F.
        condition: the largest condition number of an eigenvalue; 1 for normal, infinite for defective.
        error: estimated relative error of the departure, from those condition numbers.
    """

    departure: float
    index: float
    normal_energy: float
    commutator: float
    condition: float
    error: float


@dataclass(frozen=True)
class EigenvalueConditions:
    """Eigenvalues, by decreasing modulus, and their sensitivity to perturbations of the matrix.

    Attributes:
        eigenvalues: λ_i.
        numbers: ‖x_i‖‖y_i‖ / |y_i*x_i| ≥ 1 with right and left eigenvectors x, y; infinite if defective.
        errors: error of each from rounding the matrix: number · rounding · ‖V‖₂.
    """

    eigenvalues: Array
    numbers: Array
    errors: Array


def henrici(matrix: Any) -> float:
    """Henrici's departure from normality √(‖V‖²_F − Σ|λ|²) = ‖T‖_F, from the Schur form.

    The difference of squares would lose half of the digits; the Schur form does not. Values below the rounding error of
    the Schur form are returned as zero.

    Reference: Henrici (1962); Kerg (2022), §2.3.1.

    Example:
        >>> from kreiss.analysis import delay_line, henrici
        >>> henrici([[0.0, -1.0], [1.0, 0.0]]), henrici(delay_line(2, 3.0))
        (0.0, 3.0)
    """
    v = as_square(matrix)
    if np.iscomplexobj(v):
        departure = float(np.linalg.norm(np.triu(schur(v, output="complex")[0], 1)))
    else:
        departure = _real_departure(v)
    return departure if departure > _noise(v) else 0.0


def _real_departure(v: Array) -> float:
    """‖T‖_F, where a block [[a, −b], [c, a]] contributes |b − c|, its off-diagonal entry in the complex form."""
    form = schur(v, output="real")[0]
    above = np.triu(form, 1)
    pairs = np.flatnonzero(np.diag(form, -1))
    above[pairs, pairs + 1] = np.abs(form[pairs, pairs + 1]) - np.abs(form[pairs + 1, pairs])
    return float(np.linalg.norm(above))


def _noise(v: Array) -> float:
    return 4 * ROUNDING * np.sqrt(len(v)) * float(np.linalg.norm(v))


def normality(matrix: Any) -> Normality:
    """Henrici's departure, its relative index, the normal energy, and error estimates.

    Example:
        >>> from kreiss.analysis import delay_line, normality
        >>> found = normality(delay_line(10, 0.9, diagonal=0.5))
        >>> round(found.normal_energy, 3), round(found.index, 3)
        (0.255, 0.863)
    """
    v = as_square(matrix)
    norm = float(np.linalg.norm(v))
    departure = henrici(v)
    conditions = eigenvalue_conditions(v)
    index = departure / norm if norm else 0.0
    squares = norm**2 or 1.0
    moved = float((np.abs(conditions.eigenvalues) * conditions.errors).sum())
    return Normality(
        departure=departure,
        index=index,
        normal_energy=1.0 - index**2,
        commutator=float(np.linalg.norm(v @ v.conj().T - v.conj().T @ v)) / squares,
        condition=float(conditions.numbers.max()),
        error=min(1.0, moved / departure**2) if departure else 0.0,
    )


def eigenvalue_conditions(matrix: Any) -> EigenvalueConditions:
    """Condition number of each eigenvalue, 1 over the cosine between its left and right eigenvector."""
    v = as_square(matrix)
    values, left, right = eig(v, left=True, right=True)
    cosines = np.abs((left.conj() * right).sum(0))  # LAPACK's eigenvectors have length 1
    numbers = np.full(len(v), np.inf)
    np.divide(1.0, cosines, out=numbers, where=cosines > ROUNDING)
    numbers = np.maximum(numbers, 1.0)
    order = np.lexsort((np.abs(np.angle(values)), -np.round(np.abs(values), 12)))
    values, numbers = values[order], numbers[order]
    scale = ROUNDING * float(np.linalg.norm(v, 2))
    errors = np.minimum(numbers * scale, (scale or 1.0) ** (1 / len(v)) * (1 + np.abs(values)))
    return EigenvalueConditions(values, numbers, errors)
