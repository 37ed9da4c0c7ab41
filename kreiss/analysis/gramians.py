"""Gramians Σ Vᵏ B Bᵀ (Vᵏ)ᵀ by their square roots, so that small directions stay accurate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from kreiss.analysis.arrays import ROUNDING, Array, as_columns, as_square, check_horizon, spectral_radius
from kreiss.errors import InputError

DOUBLINGS = 60  # 2⁶⁰ steps: more than any spectral radius below 1 in float64 needs


@dataclass(frozen=True)
class Gramian:
    """A Gramian W = RRᵀ.

    Attributes:
        matrix: W.
        root: R, lower triangular.
        condition: condition number of W with its diagonal scaled to 1; above 1/rounding its small directions are
            unreliable.
        error: estimated relative error of the small directions, rounding · √condition, at most 1.
    """

    matrix: Array
    root: Array
    condition: float
    error: float


def controllability(matrix: Any, inputs: Any, horizon: int | None = None) -> Gramian:
    """Σ_{k<horizon} Vᵏ B Bᵀ (Vᵏ)ᵀ: how far unit input through the columns of B can drive the state.

    Args:
        matrix: V.
        inputs: B, one column per input.
        horizon: number of steps; infinite by default, which needs a spectral radius below 1.

    Example:
        >>> from kreiss.analysis import controllability
        >>> controllability([[0.5]], [1.0]).matrix.round(12).tolist()
        [[1.333333333333]]
    """
    v = as_square(matrix)
    return _packed(accumulated_root(v, as_columns(inputs, len(v), what="inputs"), horizon))


def observability(matrix: Any, outputs: Any, horizon: int | None = None) -> Gramian:
    """Σ_{k<horizon} (Vᵏ)ᵀ Cᵀ C Vᵏ: how visible a state is in the outputs C h, one row of C per output."""
    v = as_square(matrix)
    rows = np.atleast_2d(np.asarray(outputs)) if np.ndim(outputs) == 1 else outputs
    columns = as_columns(np.asarray(rows).T if not hasattr(rows, "detach") else rows.mT, len(v), what="outputs")
    return _packed(accumulated_root(v.conj().T, columns.conj(), horizon))


def _packed(root: Array) -> Gramian:
    scale = np.linalg.norm(root, axis=1)
    scaled = root / np.where(scale > 0, scale, 1.0)[:, None]
    condition = float(np.linalg.cond(scaled)) ** 2 if scale.all() else float("inf")
    return Gramian(root @ root.conj().T, root, condition, min(1.0, ROUNDING * np.sqrt(condition)))


def check_convergent(v: Array, what: str) -> None:
    """Raise if the sum of the powers of V does not converge."""
    radius = spectral_radius(v)
    if radius >= 1:
        raise InputError(
            f"{what} over all time needs a spectral radius below 1; got {radius:.6g}. "
            "Pass a finite `horizon`, or scale the matrix."
        )


def accumulated_root(v: Array, root: Array, horizon: int | None = None) -> Array:
    """Lower triangular R with RRᵀ = Σ_{k<horizon} Vᵏ S Sᵀ (Vᵏ)ᵀ, S being `root`; by doubling the number of terms.

    QR of the stacked roots avoids forming the sum, whose condition number is the square of that of the root. It is
    rowwise stable, so bad scaling of the state does no harm.
    """
    if horizon is None:
        check_convergent(v, "the sum")
        return _all_terms(v, root)
    return _some_terms(v, root, check_horizon(horizon))


def _all_terms(v: Array, root: Array) -> Array:
    root, power = stacked_root(root), v
    for _ in range(DOUBLINGS):
        more = power @ root
        size = np.linalg.norm(root, axis=1, keepdims=True)
        settled = bool((np.abs(more) <= ROUNDING / 64 * size).all())
        root = stacked_root(root, more)
        if settled:
            return root
        power = power @ power
    return root


def _some_terms(v: Array, root: Array, horizon: int) -> Array:
    """Binary powers: the sum of m terms is that of a, plus Vᵃ times that of m − a."""
    power, block = v, stacked_root(root)
    total: Array | None = None
    with np.errstate(over="ignore", invalid="ignore"):
        while True:
            if horizon & 1:
                total = block if total is None else stacked_root(block, power_applied(power, total))
            horizon >>= 1
            if not horizon:
                break
            block = stacked_root(block, power @ block)
            power = power @ power
    assert total is not None
    return total


def power_applied(power: Array, root: Array) -> Array:
    """Vᵐ R; raises on overflow."""
    product = power @ root
    if not np.isfinite(product).all():
        raise InputError("the powers of the matrix must stay finite; got overflow. Pass a shorter `horizon`.")
    return product


def stacked_root(*roots: Array) -> Array:
    """The lower triangular R with RRᵀ the sum of the given SSᵀ."""
    side = np.hstack(roots)
    if not np.isfinite(side).all():
        raise InputError("the powers of the matrix must stay finite; got overflow. Pass a shorter `horizon`.")
    n = len(side)
    if side.shape[1] < n:
        side = np.hstack([side, np.zeros((n, n - side.shape[1]))])
    return qr(side.conj().T, mode="r")[0][:n].conj().T
