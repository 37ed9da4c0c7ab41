"""Pseudospectra, and the pseudospectral radius and abscissa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array, as_array, as_square, check_positive
from kreiss.analysis.level_sets import on_circle, on_line
from kreiss.analysis.resolvent import Resolvent
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class Pseudospectrum:
    """σ_min(zI − V) at points of the plane; the ε-pseudospectrum is where it is at most ε.

    Attributes:
        points: z.
        smallest: σ_min(zI − V), of the same shape; accurate to about 1e-10 of ‖V‖, below which values are meaningless.
        eigenvalues: of V.
    """

    points: Array
    smallest: Array
    eigenvalues: Array

    @property
    def resolvent_norm(self) -> Array:
        """‖(zI − V)⁻¹‖, infinite at an eigenvalue."""
        with np.errstate(divide="ignore"):
            return 1 / self.smallest

    def inside(self, epsilon: float) -> Array:
        """Which points lie in the ε-pseudospectrum."""
        return self.smallest <= check_positive("epsilon", epsilon)


def pseudospectrum(matrix: Any, grid: Any = 100) -> Pseudospectrum:
    """σ_min(zI − V) on a grid: eigenvalues of all V + E with ‖E‖ ≤ ε are where it is at most ε.

    Args:
        matrix: V.
        grid: complex points of any shape; or a pair of real axes (x, y), for points of shape (len(y), len(x)); or
            the number of points per side of a square that contains the eigenvalues and the unit circle.

    Reference: Trefethen and Embree (2005).

    Example:
        >>> from kreiss.analysis import jordan, pseudospectrum
        >>> found = pseudospectrum(jordan(2), [2.0, 0.0, 1.0j])
        >>> found.smallest.round(6).tolist()
        [1.561553, 0.0, 0.618034]
    """
    v = as_square(matrix)
    resolvent = Resolvent(v)
    points = _points(grid, resolvent)
    return Pseudospectrum(points, resolvent.smallest(points), resolvent.eigenvalues)


def _points(grid: Any, resolvent: Resolvent) -> Array:
    if not isinstance(grid, tuple) and np.ndim(grid) == 0 and not np.iscomplexobj(grid):
        side = check_size("grid", grid, 2)
        reach = 1.25 * max(1.0, float(np.abs(resolvent.eigenvalues).max()))
        half = np.linspace(0, reach, side) if side % 2 else np.linspace(reach / side, reach, side // 2)
        y = np.linspace(-reach, reach, side) if side % 2 else np.concatenate([-half[::-1], half])
        return np.linspace(-reach, reach, side) + 1j * y[:, None]
    if isinstance(grid, tuple) and len(grid) == 2:
        x, y = (as_array("grid", axis) for axis in grid)
        if x.ndim == 1 and y.ndim == 1 and x.size and y.size and not np.iscomplexobj(x) and not np.iscomplexobj(y):
            return x + 1j * y[:, None]
        raise InputError(
            f"`grid` must be a pair of real vectors when it is a tuple; got shapes {x.shape} and {y.shape}. "
            "Pass (x, y), or one array of complex points."
        )
    points = as_array("grid", grid)
    if not points.size:
        raise InputError("`grid` must hold at least one point; got none. Pass complex points.")
    return points.astype(np.complex128)


def resolvent_norm(matrix: Any, z: complex) -> float:
    """‖(zI − V)⁻¹‖₂, infinite at an eigenvalue."""
    smallest = float(Resolvent(as_square(matrix)).smallest(np.array([z]))[0])
    return 1 / smallest if smallest > 0 else float("inf")


@dataclass(frozen=True)
class Reach:
    """How far the ε-pseudospectrum reaches.

    Attributes:
        value: the largest modulus, or real part, in it.
        point: where.
        error: relative accuracy of the value.
    """

    value: float
    point: complex
    error: float


def pseudospectral_radius(matrix: Any, epsilon: float) -> Reach:
    """The largest modulus of a z with σ_min(zI − V) ≤ ε: the largest spectral radius of V + E with ‖E‖₂ ≤ ε.

    Every circle between the spectral radius and this radius meets the ε-pseudospectrum, so the radius is a root in one
    variable; each circle is searched with an exhaustive eigenvalue test.

    Example:
        >>> from kreiss.analysis import pseudospectral_radius
        >>> round(pseudospectral_radius([[0.5, 0.0], [0.0, -0.25]], 0.1).value, 6)
        0.6
    """
    v = as_square(matrix)
    epsilon = check_positive("epsilon", epsilon)
    resolvent = Resolvent(v)
    inner = float(np.abs(resolvent.eigenvalues).max())
    outer = resolvent.norm + 1.001 * epsilon  # σ_min ≥ |z| − ‖V‖ there
    radius = _root(lambda r: on_circle(resolvent, r).value - epsilon, inner, outer)
    return Reach(radius, on_circle(resolvent, radius).point, 1e-6)


def pseudospectral_abscissa(matrix: Any, epsilon: float) -> Reach:
    """The largest Re z with σ_min(zI − V) ≤ ε, for continuous time."""
    v = as_square(matrix)
    epsilon = check_positive("epsilon", epsilon)
    resolvent = Resolvent(v)
    inner = float(resolvent.eigenvalues.real.max())
    outer = float(np.linalg.eigvalsh((v + v.conj().T) / 2)[-1]) + 1.001 * epsilon
    abscissa = _root(lambda x: on_line(resolvent, x).value - epsilon, inner, outer)
    return Reach(abscissa, on_line(resolvent, abscissa).point, 1e-6)


def _root(difference: Any, inner: float, outer: float) -> float:
    from scipy.optimize import brentq  # here, because it is slow to import

    low = inner + 1e-12 * max(abs(inner), 1e-3)
    if difference(low) >= 0:  # ε is below the rounding error of the eigenvalue
        return inner
    return float(brentq(difference, low, outer, xtol=1e-12, rtol=1e-10))
