"""The Kreiss constant, with lower and upper bounds.

The maximum of the resolvent norm over a circle (or line) is log-convex in the logarithm of the radius (in the abscissa)
by Hadamard's three circles (three lines) theorem. So between two radii it lies below a chord, and the constant below
the maximum of chord times weight, which converges to the constant with the square of the distance.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kreiss.analysis.arrays import ROUNDING, Array, as_square, check_positive
from kreiss.analysis.departure import eigenvalue_conditions
from kreiss.analysis.level_sets import Minimum, on_circle, on_line
from kreiss.analysis.resolvent import Resolvent
from kreiss.errors import check_name

MOST_CURVES = 400
EDGE = 1e-6  # distance from the boundary of the closest curve, if an eigenvalue lies on or near the boundary
NEAR = 1e-3  # what counts as near


@dataclass(frozen=True)
class KreissConstant:
    """K with lower ≤ K ≤ upper, up to rounding error.

    Attributes:
        lower: the largest value found.
        upper: an upper bound; infinite if the powers are unbounded.
        point: where the largest value was found; infinite if the value 1 at infinity is the largest.
    """

    lower: float
    upper: float
    point: complex


def kreiss_constant(
    matrix: Any, *, time: Literal["discrete", "continuous"] = "discrete", radius: float = 1.0, tol: float = 1e-3
) -> KreissConstant:
    """K = sup_{r>1} (r − 1) max_θ ‖(r e^{iθ}I − V)⁻¹‖, or in continuous time sup_{Re z>0} Re z ‖(zI − V)⁻¹‖.

    K ≤ max_k‖Vᵏ‖ ≤ e·n·K: it bounds how far powers grow before they decay. 1 for a contraction, infinite if an
    eigenvalue lies outside the disc (right of the axis).

    If an eigenvalue lies on the circle up to rounding error, the upper bound near the circle is the largest condition
    number of an eigenvalue. In float32 such eigenvalues lie off the circle: pass a `radius` slightly above 1.

    Args:
        matrix: V.
        time: "discrete" (powers Vᵏ) or "continuous" (the exponential of tV).
        radius: of the disc; the constant is that of V/radius. Discrete time only.
        tol: relative gap between the bounds at which to stop.

    Reference: Kreiss (1962); Trefethen and Embree (2005), §§14 and 18.

    Example:
        >>> from kreiss.analysis import kreiss_constant
        >>> found = kreiss_constant([[0.5, 4.0], [0.0, 0.5]])
        >>> 2.12 < found.lower <= found.upper < 2.13
        True
    """
    check_name("time", time, ("discrete", "continuous"))
    tol = check_positive("tol", tol)
    v = as_square(matrix)
    if time == "discrete":
        return _Search(_Discrete(v / check_positive("radius", radius)), tol).run(float(radius))
    return _Search(_Continuous(v), tol).run(1.0)


class _Discrete:
    """w = 1/|z| in (0, 1); M(w) = max‖(I − V/z)⁻¹‖ is log-convex in t = log w; weight 1 − w."""

    def __init__(self, v: Array) -> None:
        self.resolvent = Resolvent(v)
        self.excess = float(np.abs(self.resolvent.eigenvalues).max()) - 1
        self.trivial = self.resolvent.norm <= 1 + len(v) * ROUNDING  # an orthogonal matrix is a contraction too

    def far(self, target: float) -> float:
        """The t below which ‖(I − V/z)⁻¹‖ ≤ 1/(1 − w‖V‖) keeps the product below `target`."""
        return float(np.log((target - 1) / (target * self.resolvent.norm - 1)))

    def near(self) -> float:
        return float(np.log1p(-EDGE))

    def minimum(self, t: float, certify: bool) -> Minimum:
        return on_circle(self.resolvent, float(np.exp(-t)), certify=certify)

    def log_norm(self, t: float, smallest: float) -> float:
        return -t - float(np.log(smallest)) if smallest > 0 else float("inf")

    def log_weight(self, t: float) -> float:
        return float(np.log(-np.expm1(t))) if t < 0 else -float("inf")

    def peak(self, slope: float) -> float:
        """Where slope·t + log(1 − eᵗ) is largest."""
        return float(np.log(slope / (1 + slope))) if slope > 0 else -float("inf")


class _Continuous:
    """x = Re z > 0; M(x) = max‖(zI − V)⁻¹‖ is log-convex in x; weight x. t = −x increases towards the axis."""

    def __init__(self, v: Array) -> None:
        self.resolvent = Resolvent(v)
        self.excess = float(self.resolvent.eigenvalues.real.max())
        self.abscissa = float(np.linalg.eigvalsh((v + v.conj().T) / 2)[-1])
        self.trivial = self.abscissa <= 0

    def far(self, target: float) -> float:
        """The t below which ‖(zI − V)⁻¹‖ ≤ 1/(x − ω), ω the numerical abscissa, keeps the product below `target`."""
        return -target * self.abscissa / (target - 1)

    def near(self) -> float:
        return -EDGE * self.resolvent.norm

    def minimum(self, t: float, certify: bool) -> Minimum:
        return on_line(self.resolvent, -t, certify=certify)

    def log_norm(self, t: float, smallest: float) -> float:
        return -float(np.log(smallest)) if smallest > 0 else float("inf")

    def log_weight(self, t: float) -> float:
        return float(np.log(-t)) if t < 0 else -float("inf")

    def peak(self, slope: float) -> float:
        """Where slope·t + log(−t) is largest."""
        return -1 / slope if slope > 0 else -float("inf")


@dataclass(frozen=True)
class _End:
    """An evaluated curve: its t, and a bound on log M there."""

    t: float
    log_norm: float


class _Search:
    """Branch and bound over curves; the lower bound comes from evaluated points, the upper bound from chords."""

    def __init__(self, plane: _Discrete | _Continuous, tol: float) -> None:
        self.plane = plane
        self.tol = tol
        self.lower = 1.0  # the value at infinity
        self.point = complex(np.inf)

    def run(self, scale: float) -> KreissConstant:
        plane = self.plane
        noise = 64 * ROUNDING * max(plane.resolvent.norm, 1.0)
        if plane.trivial:
            return KreissConstant(1.0, 1.0, self.point)
        if plane.excess > noise:
            return KreissConstant(float("inf"), float("inf"), complex(self._outermost()) * scale)
        edge, last = (1.0, 0.0) if plane.excess < -NEAR else (self._edge_bound(), plane.near())
        self._climb(last)
        if last < 0 and edge > self.lower * (1 + self.tol) and plane.excess < -EDGE:
            edge, last = 1.0, 0.0
        upper = self._close(last)
        return KreissConstant(self.lower, max(upper, edge), self.point * scale)

    def _outermost(self) -> complex:
        values = self.plane.resolvent.eigenvalues
        size = np.abs(values) if isinstance(self.plane, _Discrete) else values.real
        return complex(values[int(size.argmax())])

    def _edge_bound(self) -> float:
        """A bound between the boundary and the curve next to it, if no eigenvalue lies outside.

        ‖(z − V)⁻¹‖ ≤ Σ κ_i/|z − λ_i|. The distance of z from the nearest eigenvalue is at least the sum of both
        distances from the boundary, that from any other at least |λ_i − λ_j|/2. The condition number of the
        eigenvectors is also a bound.
        """
        matrix = self.plane.resolvent.matrix
        conditions = eigenvalue_conditions(matrix)
        gaps = np.abs(conditions.eigenvalues[:, None] - conditions.eigenvalues)
        np.fill_diagonal(gaps, np.inf)
        discrete = isinstance(self.plane, _Discrete)
        width = EDGE * (1.0 if discrete else self.plane.resolvent.norm)
        inside = np.maximum(1 - np.abs(conditions.eigenvalues) if discrete else -conditions.eigenvalues.real, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = conditions.numbers * width / (width + inside) + (2 * width * conditions.numbers / gaps).sum(1)
        largest = float(np.nan_to_num(bounds, nan=np.inf).max())
        return min(largest, float(np.linalg.cond(np.linalg.eig(matrix)[1])))

    def _look(self, t: float, certify: bool) -> _End:
        """Evaluate one curve, and update the lower bound."""
        minimum = self.plane.minimum(t, certify)
        weight = self.plane.log_weight(t)
        if minimum.value > 0 and np.isfinite(weight):
            value = float(np.exp(weight + self.plane.log_norm(t, minimum.value)))
            if value > self.lower:
                self.lower, self.point = value, minimum.point
        return _End(t, self.plane.log_norm(t, minimum.bound))

    def _climb(self, last: float) -> None:
        """Find a good lower bound first: a local maximum near the best of a few curves."""
        from scipy.optimize import minimize_scalar  # here, because it is slow to import

        start = min(self.plane.far(1.0 + 1e-3), 2 * last - 1e-3)
        grid = -np.geomspace(max(-start, 1e-6), max(-last, 1e-7), 16)
        best = int(np.argmax([self._height(float(t)) for t in grid]))
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 15)])
        minimize_scalar(
            lambda t: -self._height(t), bounds=(low, high), method="bounded", options={"xatol": 1e-4 * (high - low)}
        )

    def _height(self, t: float) -> float:
        return self.plane.log_weight(t) + self._look(t, certify=False).log_norm

    def _close(self, last: float) -> float:
        """Halve the interval with the highest chord until none exceeds the lower bound by more than `tol`."""
        first = self.plane.far(max(self.lower, 1 + self.tol / 2) * (1 + self.tol / 4))
        ends = [self._look(t, certify=True) for t in (min(first, last - 1e-9), last)]
        heap = [(-self._chord(*ends), 0, ends[0], ends[1])]
        floor = self.lower
        for count in range(1, MOST_CURVES):
            bound, _, left, right = heap[0]
            if -bound <= np.log(self.lower) + np.log1p(self.tol):
                break
            middle = self._look((left.t + right.t) / 2, certify=True)
            heapq.heapreplace(heap, (-self._chord(left, middle), 2 * count, left, middle))
            heapq.heappush(heap, (-self._chord(middle, right), 2 * count + 1, middle, right))
        tail = max(floor, 1 + self.tol / 2) * (1 + self.tol / 4)  # beyond `first`
        return max(float(np.exp(-heap[0][0])), tail, self.lower)

    def _chord(self, left: _End, right: _End) -> float:
        """The maximum of log weight plus chord between two curves."""
        if not (np.isfinite(left.log_norm) and np.isfinite(right.log_norm)):
            return float("inf")
        slope = (right.log_norm - left.log_norm) / (right.t - left.t)
        t = min(max(self.plane.peak(slope), left.t), right.t)
        return left.log_norm + slope * (t - left.t) + self.plane.log_weight(t)
