"""The real Schur form V = PΘPᵀ, ordered and with its gauge fixed, and the split into a normal and a non-normal part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack, schur

from kreiss.analysis.arrays import Array, as_square

TIE = 1e-9  # moduli closer than this fraction of the norm count as equal, so that rounding does not decide the order


@dataclass(frozen=True)
class SchurForm:
    """V = PΘPᵀ with Θ = Λ + T lower block-triangular: mode j feeds mode i where i > j.

    Attributes:
        vectors: P, orthogonal; its columns are the Schur modes.
        form: Θ, with 2×2 blocks [[a, −b], [c, a]], b, c > 0, for complex pairs.
        starts: first row of each block.
        sizes: 1 or 2, the size of each block.
        error: ‖V − PΘPᵀ‖_F / ‖V‖_F.
        ordered: whether every exchange of blocks succeeded; if not, two eigenvalues were too close to separate.
    """

    vectors: Array
    form: Array
    starts: Array
    sizes: Array
    error: float
    ordered: bool

    @property
    def eigenvalues(self) -> Array:
        """One eigenvalue per block, with imaginary part ≥ 0."""
        return np.array([_eigenvalue(self.form, s, size) for s, size in zip(self.starts, self.sizes, strict=True)])

    @property
    def moduli(self) -> Array:
        """γ of each block."""
        return np.abs(self.eigenvalues)

    @property
    def angles(self) -> Array:
        """θ of each block, in [0, π]."""
        return np.abs(np.angle(self.eigenvalues))

    @property
    def diagonal(self) -> Array:
        """Λ: the blocks as scaled rotations, the nearest normal ones with the same eigenvalues."""
        diagonal = np.zeros_like(self.form)
        for start, size, value in zip(self.starts, self.sizes, self.eigenvalues, strict=True):
            block = slice(start, start + size)
            diagonal[block, block] = value.real if size == 1 else [[value.real, -value.imag], [value.imag, value.real]]
        return diagonal

    @property
    def coupling(self) -> Array:
        """T: the rest, the entries below the blocks and the shear inside them."""
        return self.form - self.diagonal

    @property
    def normal_part(self) -> Array:
        """PΛPᵀ."""
        return self.vectors @ self.diagonal @ self.vectors.T

    @property
    def nonnormal_part(self) -> Array:
        """PTPᵀ."""
        return self.vectors @ self.coupling @ self.vectors.T


def real_schur(matrix: Any) -> SchurForm:
    """The ordered real Schur form of a real matrix.

    V = P(Λ + T)Pᵀ, P orthogonal, Λ of 1×1 and 2×2 blocks, T lower triangular. Modes are ordered by decreasing modulus
    of their eigenvalue, equal moduli by increasing angle. The gauge is fixed: in a block the lower entry is positive
    and the larger; in a block that is a scaled rotation, which commutes with rotations, the second mode is zero where
    the plane is largest; the largest entry of the first mode is positive.

    Reference: Kerg et al. (2019), eqs. (1) and (4); Kerg (2022), §2.3.2.

    Example:
        >>> import numpy as np
        >>> from kreiss.analysis import real_schur
        >>> found = real_schur([[0.0, 2.0], [0.5, 0.0]])
        >>> found.eigenvalues.real.round(12).tolist()
        [1.0, -1.0]
        >>> bool(np.allclose(found.vectors @ found.form @ found.vectors.T, [[0.0, 2.0], [0.5, 0.0]]))
        True
    """
    v = as_square(matrix, real=True)
    upper, p = schur(v.T, output="real")  # Vᵀ = P Θᵀ Pᵀ
    upper, p, ordered = _sorted_blocks(upper, p)
    form = np.tril(upper.T, 1)
    starts, sizes = _blocks(upper)
    for start, size in zip(starts, sizes, strict=True):
        _fix_gauge(form, p, int(start), int(size))
    scale = float(np.linalg.norm(v))
    error = float(np.linalg.norm(p @ form @ p.T - v)) / scale if scale else 0.0
    return SchurForm(p, form, starts, sizes, error, ordered)


def _blocks(upper: Array) -> tuple[Array, Array]:
    """First rows and sizes of the diagonal blocks of an upper quasi-triangular matrix."""
    below = np.append(np.diag(upper, -1) != 0, False)
    second = np.append(False, below[:-1])
    starts = np.flatnonzero(~second)
    return starts, 1 + below[starts].astype(int)


def _eigenvalue(form: Array, start: int, size: int) -> complex:
    if size == 1:
        return complex(form[start, start])
    inside = form[start : start + 2, start : start + 2]
    return complex(inside[0, 0], np.sqrt(abs(inside[0, 1])) * np.sqrt(abs(inside[1, 0])))


def _wanted_order(upper: Array) -> Array:
    """Indices of the blocks in sorted order."""
    starts, sizes = _blocks(upper)
    values = np.array([_eigenvalue(upper, s, size) for s, size in zip(starts, sizes, strict=True)])
    moduli, angles = np.abs(values), np.abs(np.angle(values))
    angles[moduli <= TIE * np.linalg.norm(upper)] = 0.0  # the angle of zero is rounding error
    falling = np.argsort(-moduli, kind="stable")
    steps = -np.diff(moduli[falling]) > TIE * float(np.linalg.norm(upper))
    group = np.empty(len(values), dtype=int)
    group[falling] = np.append(0, np.cumsum(steps))
    return np.lexsort((np.round(angles, 7), group))


def _sorted_blocks(upper: Array, p: Array) -> tuple[Array, Array, bool]:
    """Sort the blocks, by LAPACK exchanges of neighbours."""
    order = list(_wanted_order(upper))
    ordered = True
    for place in range(len(order)):
        here = order[place]
        if here == place:
            continue
        starts, _ = _blocks(upper)
        moved, q, info = lapack.dtrexc(upper, p, starts[here] + 1, starts[place] + 1)
        if info or len(_blocks(moved)[0]) != len(starts):  # too close to exchange, or a pair split into two
            ordered = False
            continue
        upper, p = moved, q
        order[place + 1 :] = [other + 1 if place <= other < here else other for other in order[place + 1 :]]
    return upper, p, ordered


def _fix_gauge(form: Array, p: Array, start: int, size: int) -> None:
    """Fix the signs and, inside a pair, the rotation, in place."""
    plane = slice(start, start + size)
    if size == 2:
        b, c = form[start, start + 1], form[start + 1, start]
        if abs(abs(b) - abs(c)) <= 1e-10 * (abs(b) + abs(c)):
            _apply(form, p, plane, _aligning_turn(p[:, plane]))
        elif abs(b) > abs(c):
            _apply(form, p, plane, np.array([[0.0, 1.0], [1.0, 0.0]]))
    first = p[:, start]
    if first[_largest(first)] < 0:
        _apply(form, p, plane, -np.eye(size))
    if size == 2 and form[start + 1, start] < 0:
        _apply(form, p, plane, np.diag([1.0, -1.0]))


def _largest(vector: Array) -> int:
    """The first index of the largest modulus, up to rounding error."""
    size = np.abs(vector)
    return int(np.flatnonzero(size >= size.max() * (1 - 1e-6))[0])


def _aligning_turn(plane: Array) -> Array:
    """The rotation of two modes after which the second is zero where the plane is largest."""
    row = _largest(np.linalg.norm(plane, axis=1))
    x, y = plane[row] / np.linalg.norm(plane[row])
    return np.array([[x, -y], [y, x]])


def _apply(form: Array, p: Array, plane: slice, turn: Array) -> None:
    p[:, plane] = p[:, plane] @ turn
    form[:, plane] = form[:, plane] @ turn
    form[plane] = turn.T @ form[plane]
