"""The minimum of σ_min(zI − V) on a circle or a vertical line, verified by an eigenvalue test over the whole curve.

σ_min takes the value s on the curve exactly where a matrix of twice the size has an eigenvalue on the curve (Byers
1988; Boyd and Balakrishnan 1990). A minimum found by search is accepted if no slightly smaller value is attained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvals

from kreiss.analysis.arrays import Array
from kreiss.analysis.resolvent import Resolvent

MARGIN = 1e-6  # relative distance below a minimum at which the curve is tested, so that eigenvalues keep clear of it
NEAR = 1e-2  # relative distance from the curve up to which an eigenvalue is considered


@dataclass(frozen=True)
class Curve:
    """A curve in the plane with its test.

    Args:
        point: position on the curve (angle or height) → z.
        positions: where to search first.
        crossings: a value s → candidates for positions with σ_min = s, including all such positions.
    """

    point: Callable[[Array], Array]
    positions: Array
    crossings: Callable[[float], Array]


@dataclass(frozen=True)
class Minimum:
    """The smallest value found, a lower bound, and where it was found."""

    value: float
    bound: float
    point: complex


def on_circle(resolvent: Resolvent, radius: float, *, certify: bool = True) -> Minimum:
    """min over θ of σ_min(r e^{iθ} I − V)."""
    span = np.pi if resolvent.real else 2 * np.pi
    angles = np.append(np.angle(resolvent.eigenvalues), np.linspace(0, span, 33))
    curve = Curve(
        lambda angle: radius * np.exp(1j * angle),
        np.unique(np.abs(angles) if resolvent.real else angles),
        lambda value: _circle_crossings(resolvent.matrix, radius, value),
    )
    return _minimum(resolvent, curve, certify)


def on_line(resolvent: Resolvent, abscissa: float, *, certify: bool = True) -> Minimum:
    """min over y of σ_min((x + iy)I − V)."""
    reach = 1.1 * resolvent.norm + abs(abscissa)
    heights = np.append(resolvent.eigenvalues.imag, np.linspace(0 if resolvent.real else -reach, reach, 33))
    curve = Curve(
        lambda height: abscissa + 1j * height,
        np.unique(np.abs(heights) if resolvent.real else heights),
        lambda value: _line_crossings(resolvent.matrix, abscissa, value),
    )
    return _minimum(resolvent, curve, certify)


def _minimum(resolvent: Resolvent, curve: Curve, certify: bool) -> Minimum:
    positions = curve.positions
    values = resolvent.smallest(curve.point(positions))
    best, value = _polished(resolvent, curve, positions, values)
    while certify and value > 0:
        level = value * (1 - MARGIN)
        crossings = curve.crossings(level)
        if not len(crossings):
            break
        tried = np.unique(np.append(crossings, (crossings[1:] + crossings[:-1]) / 2))
        values = resolvent.smallest(curve.point(tried))
        if values.min() >= value * (1 - MARGIN / 2):
            break  # near the curve, not on it
        best, value = _polished(resolvent, curve, tried, values)
    return Minimum(value, value * (1 - MARGIN), complex(curve.point(np.array(best))))


def _polished(resolvent: Resolvent, curve: Curve, positions: Array, values: Array) -> tuple[float, float]:
    """The best position, refined to a local minimum."""
    from scipy.optimize import minimize_scalar  # here, because it is slow to import

    i = int(values.argmin())
    low, high = positions[max(i - 1, 0)], positions[min(i + 1, len(positions) - 1)]
    if low == positions[i] or high == positions[i]:  # an end point: search beyond it as far as its neighbour
        step = max(high - low, 1e-3)
        low, high = positions[i] - step, positions[i] + step
    search = minimize_scalar(
        lambda position: float(resolvent.smallest(curve.point(np.array([position])))[0]),
        bounds=(float(low), float(high)),
        method="bounded",
        options={"xatol": 1e-4 * float(high - low)},
    )
    return (float(search.x), float(search.fun)) if search.fun < values[i] else (float(positions[i]), float(values[i]))


def _circle_crossings(v: Array, radius: float, value: float) -> Array:
    """Angles at which σ_min(r e^{iθ}I − V) ≈ value.

    (z − V)x = s y and (z̄ − V*)y = s x with z̄ = r²/z form a pencil M − zN; z = r(1 + μ)/(1 − μ) reduces it to a matrix.
    """
    n = len(v)
    eye, zero = np.eye(n), np.zeros((n, n))
    m = np.block([[v, value * eye], [zero, radius**2 * eye]])
    k = np.block([[eye, zero], [value * eye, v.conj().T]])
    try:
        mu = eigvals(np.linalg.solve(m + radius * k, m - radius * k))
        z = radius * (1 + mu) / np.where(mu == 1, 1e-300, 1 - mu)
    except np.linalg.LinAlgError:  # σ_min(−r − V) = value exactly
        z = eigvals(m, k)
    z = z[np.isfinite(z)]
    return np.unique(np.angle(z[np.abs(np.abs(z) - radius) <= NEAR * radius]))


def _line_crossings(v: Array, abscissa: float, value: float) -> Array:
    """Heights at which σ_min((x + iy)I − V) ≈ value: imaginary eigenvalues of a Hamiltonian matrix."""
    n = len(v)
    shifted = v - abscissa * np.eye(n)
    hamiltonian = np.block([[shifted, value * np.eye(n)], [-value * np.eye(n), -shifted.conj().T]])
    spectrum = eigvals(hamiltonian)
    scale = float(np.abs(spectrum).max())
    return np.unique(spectrum.imag[np.abs(spectrum.real) <= NEAR * scale])
