"""The numerical range (field of values) {x*Vx : ‖x‖ = 1}, its radius and its abscissa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigvals

from kreiss.analysis.arrays import Array, as_square
from kreiss.errors import check_size

MARGIN = 1e-9


@dataclass(frozen=True)
class NumericalRange:
    """Result of `numerical_range`.

    Attributes:
        boundary: points of its boundary, in order; the range is approximately their convex hull.
        radius: the largest modulus in it; ‖Vᵏ‖ ≤ 2·radiusᵏ.
        radius_bound: an upper bound on the moduli in it.
        abscissa: its largest real part, the largest initial growth rate of solutions of h' = Vh.
    """

    boundary: Array
    radius: float
    radius_bound: float
    abscissa: float


def numerical_range(matrix: Any, points: int = 128) -> NumericalRange:
    """The set of all x*Vx with ‖x‖ = 1, a convex set that contains the eigenvalues; for normal V their convex hull.

    Example:
        >>> from kreiss.analysis import jordan, numerical_range
        >>> round(numerical_range(jordan(2)).radius, 9)
        0.5
    """
    v = as_square(matrix)
    angles = np.linspace(0, 2 * np.pi, check_size("points", points, 3), endpoint=False)
    boundary = np.array([_support(v, angle)[1] for angle in angles])
    radius, bound = _radius(v, angles)
    return NumericalRange(boundary, radius, bound, numerical_abscissa(v))


def numerical_abscissa(matrix: Any) -> float:
    """The largest eigenvalue of (V + V*)/2."""
    v = as_square(matrix)
    return float(np.linalg.eigvalsh((v + v.conj().T) / 2)[-1])


def numerical_radius(matrix: Any) -> float:
    """The largest modulus in the numerical range."""
    return numerical_range(matrix, 16).radius


def _support(v: Array, angle: float) -> tuple[float, complex]:
    """The largest Re(e^{−iθ}w) in the range, and a w that attains it."""
    turned = np.exp(-1j * angle) * v
    values, vectors = np.linalg.eigh((turned + turned.conj().T) / 2)
    x = vectors[:, -1]
    return float(values[-1]), complex(x.conj() @ v @ x)


def _radius(v: Array, angles: Array) -> tuple[float, float]:
    """The maximum of the support over all angles: the level is raised until the support no longer crosses it."""
    best = max(max(abs(point), value) for value, point in (_support(v, angle) for angle in angles))
    if best == 0:
        return 0.0, 0.0
    for _ in range(50):
        level = best * (1 + MARGIN)
        crossings = _crossings(v, level)
        tried = np.append(crossings, (crossings + np.roll(crossings, -1)) / 2)
        largest = max((abs(_support(v, angle)[1]) for angle in tried), default=0.0)
        if largest <= best * (1 + MARGIN / 2):
            return best, level
        best = largest
    return best, float("inf")


def _crossings(v: Array, level: float) -> Array:
    """Angles at which an eigenvalue of the Hermitian part of e^{−iθ}V is approximately `level`: a quadratic pencil."""
    n = len(v)
    eye, zero = np.eye(n), np.zeros((n, n))
    # z²V* − 2·level·z + V with z = e^{iθ}
    a = np.block([[zero, eye], [-v, 2 * level * eye]])
    b = np.block([[eye, zero], [zero, v.conj().T]])
    z = eigvals(a, b)
    z = z[np.isfinite(z)]
    return np.sort(np.angle(z[np.abs(np.abs(z) - 1) <= 1e-2]))
