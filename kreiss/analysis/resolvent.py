"""Smallest singular values of zI − V at many points z at once.

V is reduced to triangular form once. Off the diagonal zI − T is then the same at every point, so a triangular solve for
thousands of points is a matrix product, and Lanczos iteration on the inverse runs for all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import schur

from kreiss.analysis.arrays import ROUNDING, Array

SMALL = 12  # below this size a plain singular value decomposition is faster
CHUNK = 400_000  # numbers per block of vectors: a few megabytes, to fit in the cache
LEAF = 16  # rows of a triangular solve that are solved one by one
LONGEST = 400  # Lanczos steps
CONVERGED = 1e-5  # relative residual; the error of the singular value is its square over the relative gap


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
        keys = np.round(flat / (scale or 1.0))  # σ_min changes by less than z, so these are treated as equal
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

    def solve(self, pivots: Array, mirrored: Array, vectors: Array) -> None:
        """(zI − T)⁻¹(zI − T)⁻* applied to one vector per point, (n, points), in place.

        Args:
            pivots: 1/(z − λ) by row and point: a product takes a third of the time of a division.
            mirrored: their conjugates.
            vectors: the right-hand sides.
        """
        _forward(self.lower, mirrored, vectors, 0, len(vectors), self.band)
        _backward(self.upper, pivots, vectors, 0, len(vectors), self.band)


def _backward(upper: Array, pivots: Array, b: Array, low: int, high: int, band: int) -> None:
    """Rows low…high of (z − T)x = b for upper triangular T, in place, recursively so that most work is in products."""
    if high - low <= LEAF or band <= LEAF:
        for i in range(high - 1, low - 1, -1):
            end = min(high, i + 1 + band)
            if i + 1 < end:
                b[i] += _weighted(upper[i, i + 1 : end], b[i + 1 : end])
            b[i] *= pivots[i]
        return
    middle = (low + high) // 2
    _backward(upper, pivots, b, middle, high, band)
    b[low:middle] += upper[low:middle, middle:high] @ b[middle:high]
    _backward(upper, pivots, b, low, middle, band)


def _weighted(weights: Array, rows: Array) -> Array:
    """Σ wᵢ rowᵢ; a single row, as in a delay line, is faster without BLAS."""
    total: Array = weights[0] * rows[0] if len(weights) == 1 else weights @ rows
    return total


def _forward(lower: Array, pivots: Array, b: Array, low: int, high: int, band: int) -> None:
    """The same for lower triangular T."""
    if high - low <= LEAF or band <= LEAF:
        for i in range(low, high):
            begin = max(low, i - band)
            if begin < i:
                b[i] += _weighted(lower[i, begin:i], b[begin:i])
            b[i] *= pivots[i]
        return
    middle = (low + high) // 2
    _forward(lower, pivots, b, low, middle, band)
    b[middle:high] += lower[middle:high, low:middle] @ b[low:middle]
    _forward(lower, pivots, b, middle, high, band)


@dataclass
class _Top:
    """The largest eigenvalue of each tridiagonal matrix, and the squared last entry of its eigenvector.

    Where not converged, the value is an upper bound.
    """

    value: Array
    last: Array
    settled: Array


class _Lanczos:
    """Lanczos iteration for the largest eigenvalue of ((zI − T)*(zI − T))⁻¹ at many z; converged points are removed."""

    def __init__(self, resolvent: Resolvent, z: Array) -> None:
        self.resolvent = resolvent
        with np.errstate(all="ignore"):  # a point on an eigenvalue, see `run`
            self.pivots = 1 / (z - resolvent.eigenvalues[:, None])
        self.mirrored = self.pivots.conj()
        self.active = np.arange(len(z))
        self.found = np.zeros(len(z))
        n = len(resolvent.upper)
        # mostly the Schur vector of the nearest eigenvalue, which is exact for a normal matrix
        start = np.random.default_rng(0).standard_normal((n, 1)) / np.sqrt(n) * np.ones(len(z)) + 0j
        start[np.abs(z[:, None] - resolvent.eigenvalues).argmin(1), np.arange(len(z))] += 2.0
        self.q = start / np.linalg.norm(start, axis=0)
        self.before = np.zeros_like(self.q)
        self.alpha: list[Array] = []
        self.beta: list[Array] = []
        self.bound = np.zeros(len(z))  # upper bound on the Ritz values

    def run(self) -> Array:
        """1/√(largest eigenvalue) of each point."""
        with np.errstate(all="ignore"):  # a point on an eigenvalue overflows, and its σ_min is zero
            for step in range(LONGEST):
                residual = self._step()
                if step > 6 and step % 3 and step < LONGEST - 1:  # the test costs as much as a step or two
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
        """Compute one more vector; returns its norm before normalisation."""
        new = self.q.copy()
        self.resolvent.solve(self.pivots, self.mirrored, new)
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
        left = np.flatnonzero(keep)  # unlike a mask, take keeps rows contiguous
        self.pivots, self.mirrored = np.take(self.pivots, left, 1), np.take(self.mirrored, left, 1)
        self.q, self.before = np.take(self.q, left, 1), np.take(self.before, left, 1)
        self.alpha, self.beta = [a[keep] for a in self.alpha], [b[keep] for b in self.beta]
        self.bound = self.bound[keep]


def _dots(a: Array, b: Array) -> Array:
    """Re a*b of each pair of columns, on the underlying real numbers."""
    n, m = a.shape
    x, y = a.view(a.real.dtype).reshape(n, m, 2), b.view(b.real.dtype).reshape(n, m, 2)
    products: Array = np.einsum("ijk,ijk->jk", x, y).sum(1)
    return products


def _two_by_two(a: Array, b: Array, d: Array) -> Array:
    """The larger eigenvalue of [[a, b], [b, d]]: if a bounds the Ritz values so far, it bounds the next ones."""
    return (a + d) / 2 + np.hypot((a - d) / 2, b)


def _largest(alpha: list[Array], beta: list[Array], bound: Array) -> _Top:
    """Laguerre's method from an upper bound, on the characteristic polynomial.

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
