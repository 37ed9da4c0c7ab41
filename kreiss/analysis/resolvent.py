"""Smallest singular values of zI − V at many points z at once.

V is made triangular once. Off the diagonal zI − T is then the same matrix at every point, so a triangular solve for
thousands of points is a matrix product, and Lanczos iteration on the inverse runs for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import schur

from kreiss.analysis.arrays import ROUNDING, Array

SMALL = 12  # below this size plain singular values are quicker
CHUNK = 400_000  # numbers of one block of vectors: a few megabytes, so that they stay near the processor
LEAF = 16  # rows of a triangular solve that are taken one by one
LONGEST = 400  # Lanczos steps
CONVERGED = 1e-5  # relative residual; the singular value is then right to its square over the relative gap


class Resolvent:
    """σ_min(zI − V) = 1/‖(zI − V)⁻¹‖ for any points z.

    Args:
        matrix: V, a square array.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        self.real = not np.iscomplexobj(matrix)
        self.norm = float(np.linalg.norm(matrix, 2))
        form, _ = schur(matrix, output="complex")
        self.upper = np.ascontiguousarray(np.triu(form))
        self.lower = np.ascontiguousarray(self.upper.conj().T)
        self.band = max((k for k in range(len(form)) if np.diag(form, k).any()), default=0)  # few in a delay line
        self.eigenvalues = np.diag(form).copy()
        departure = float(np.linalg.norm(np.triu(form, 1)))
        self.normal = departure <= 4 * ROUNDING * np.sqrt(len(form)) * float(np.linalg.norm(form))

    def smallest(self, points: Array) -> Array:
        """σ_min(zI − V), of the shape of `points`."""
        z = np.asarray(points, dtype=np.complex128)
        flat = z.ravel()
        if self.real:  # conjugate points have equal values
            flat = np.where(flat.imag < 0, flat.conj(), flat)
        scale = 1e-14 * (self.norm + float(np.abs(flat).max(initial=0.0)))
        keys = np.round(flat / (scale or 1.0))  # σ_min moves by less than the point does, so these count as one
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        return self._distinct(flat[first])[back].reshape(z.shape)

    def _distinct(self, z: Array) -> Array:
        if self.normal:
            return np.abs(z[:, None] - self.eigenvalues).min(1)
        if len(self.matrix) <= SMALL or len(z) < 4:
            return self._direct(z)
        width = max(1, CHUNK // len(self.matrix))
        return np.concatenate([_Lanczos(self, z[i : i + width]).run() for i in range(0, len(z), width)])

    def _direct(self, z: Array) -> Array:
        eye = np.eye(len(self.matrix))
        width = max(1, CHUNK // self.matrix.size)
        parts = [
            np.linalg.svd(z[i : i + width, None, None] * eye - self.matrix, compute_uv=False)[:, -1]
            for i in range(0, len(z), width)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def solve(self, pivots: Array, vectors: Array) -> None:
        """(zI − T)⁻¹(zI − T)⁻* applied to one vector per point, (n, points), in place.

        Args:
            pivots: 1/(z − λ) by row and point: a product takes a third of the time of a quotient.
            vectors: what it is applied to.
        """
        _forward(self.lower, pivots, vectors, 0, len(vectors), self.band)
        _backward(self.upper, pivots, vectors, 0, len(vectors), self.band)


def _backward(upper: Array, pivots: Array, b: Array, low: int, high: int, band: int) -> None:
    """Rows low…high of (z − T)x = b for upper triangular T, in place, halving so that most work is in products."""
    if high - low <= LEAF or band <= LEAF:
        for i in range(high - 1, low - 1, -1):
            end = min(high, i + 1 + band)
            if i + 1 < end:
                b[i] += upper[i, i + 1 : end] @ b[i + 1 : end]
            b[i] *= pivots[i]
        return
    middle = (low + high) // 2
    _backward(upper, pivots, b, middle, high, band)
    b[low:middle] += upper[low:middle, middle:high] @ b[middle:high]
    _backward(upper, pivots, b, low, middle, band)


def _forward(lower: Array, pivots: Array, b: Array, low: int, high: int, band: int) -> None:
    """The same for lower triangular T."""
    if high - low <= LEAF or band <= LEAF:
        for i in range(low, high):
            begin = max(low, i - band)
            if begin < i:
                b[i] += lower[i, begin:i] @ b[begin:i]
            b[i] *= pivots[i].conj()
        return
    middle = (low + high) // 2
    _forward(lower, pivots, b, low, middle, band)
    b[middle:high] += lower[middle:high, low:middle] @ b[low:middle]
    _forward(lower, pivots, b, middle, high, band)


@dataclass
class _Top:
    """The largest eigenvalue of each tridiagonal matrix, and the squared last entry of its eigenvector.

    Where it is not settled yet the value is a bound above.
    """

    value: Array
    last: Array
    settled: Array


class _Lanczos:
    """Lanczos iteration for the largest eigenvalue of ((zI − T)*(zI − T))⁻¹ at many z; converged points leave."""

    def __init__(self, resolvent: Resolvent, z: Array) -> None:
        self.resolvent = resolvent
        with np.errstate(all="ignore"):  # a point on an eigenvalue, see `run`
            self.pivots = 1 / (z - resolvent.eigenvalues[:, None])
        self.active = np.arange(len(z))
        self.found = np.zeros(len(z))
        n = len(resolvent.upper)
        # mostly the Schur vector of the nearest eigenvalue, which is the answer itself for a normal matrix
        start = np.random.default_rng(0).standard_normal((n, 1)) / np.sqrt(n) * np.ones(len(z)) + 0j
        start[np.abs(z[:, None] - resolvent.eigenvalues).argmin(1), np.arange(len(z))] += 2.0
        self.q = start / np.linalg.norm(start, axis=0)
        self.before = np.zeros_like(self.q)
        self.alpha: list[Array] = []
        self.beta: list[Array] = []
        self.bound = np.zeros(len(z))  # no Ritz value is above it

    def run(self) -> Array:
        """1/√(largest eigenvalue) of each point."""
        with np.errstate(all="ignore"):  # a point on an eigenvalue overflows, and its σ_min is zero
            for step in range(LONGEST):
                residual = self._step()
                if step > 6 and step % 3 and step < LONGEST - 1:  # looking costs as much as a step or two
                    continue
                top = _largest(self.alpha, self.beta, self.bound)
                self.bound = top.value
                size = 1 / np.sqrt(top.value)
                converged = top.settled & ~(residual * np.sqrt(top.last) > CONVERGED * top.value)
                done = converged | (step == LONGEST - 1)
                self.found[self.active[done]] = np.where(np.isfinite(size), size, 0.0)[done]
                self._keep(~done)
                if not len(self.active):
                    break
        return self.found

    def _step(self) -> Array:
        """One more vector; returns its length before it was made 1."""
        new = self.q.copy()
        self.resolvent.solve(self.pivots, new)
        if self.beta:
            self.before *= self.beta[-1]
            new -= self.before
        alpha = _dots(self.q, new)
        np.multiply(self.q, alpha, out=self.before)
        new -= self.before
        norm = np.sqrt(_dots(new, new))
        new *= 1 / norm
        self.before, self.q = self.q, new
        self.bound = _two_by_two(self.bound, self.beta[-1], alpha) if self.beta else alpha
        self.alpha.append(alpha)
        self.beta.append(norm)
        return norm

    def _keep(self, keep: Array) -> None:
        if keep.all():
            return
        self.active = self.active[keep]
        left = np.flatnonzero(keep)  # take, unlike a mask, leaves rows in one piece
        self.pivots = np.take(self.pivots, left, 1)
        self.q, self.before = np.take(self.q, left, 1), np.take(self.before, left, 1)
        self.alpha, self.beta = [a[keep] for a in self.alpha], [b[keep] for b in self.beta]
        self.bound = self.bound[keep]


def _dots(a: Array, b: Array) -> Array:
    """Re a*b of each pair of columns, on the real numbers that lie behind complex ones."""
    n, m = a.shape
    x, y = a.view(a.real.dtype).reshape(n, m, 2), b.view(b.real.dtype).reshape(n, m, 2)
    found: Array = np.einsum("ijk,ijk->jk", x, y).sum(1)
    return found


def _two_by_two(a: Array, b: Array, d: Array) -> Array:
    """The larger eigenvalue of [[a, b], [b, d]]: where a bounds the Ritz values so far, a bound for the next."""
    return (a + d) / 2 + np.hypot((a - d) / 2, b)


def _largest(alpha: list[Array], beta: list[Array], bound: Array) -> _Top:
    """Laguerre's method from a bound above, on the characteristic polynomial.

    Its logarithmic derivatives come from the pivots d_i = α_i − x − β²/d_{i−1} of T − x and their derivatives.
    """
    degree = len(alpha)
    x = bound * (1 + 1e-14)
    for _ in range(12):
        pivot, slope, bend = alpha[0] - x, np.full_like(x, -1.0), np.zeros_like(x)
        first = slope / pivot
        second = first * first
        for a, b in zip(alpha[1:], beta, strict=False):
            ratio = (b / pivot) ** 2
            bend = ratio * (bend - 2 * slope * slope / pivot)
            slope = ratio * slope - 1.0
            pivot = a - x - ratio * pivot
            part = slope / pivot
            first = first + part
            second = second + part * part - bend / pivot
        root = np.sqrt(np.maximum((degree - 1) * (degree * second - first * first), 0.0))
        change = degree / (first + root)
        moving = np.isfinite(change) & (np.abs(change) > 1e-11 * np.abs(x))
        x = np.where(moving, x - change, x)
        if not moving.any():
            break
    return _Top(x, -1 / slope, ~moving)  # the residue of (T − x)⁻¹ in its last entry
