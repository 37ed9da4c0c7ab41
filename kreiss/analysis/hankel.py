"""Hankel singular values of a linear network, and balanced truncation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kreiss.analysis.arrays import ROUNDING, Array, as_array, as_columns, as_square
from kreiss.analysis.gramians import check_convergent, controllability, observability
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class HankelSingularValues:
    """Result of `hankel_singular_values`.

    Attributes:
        values: σ, largest first, one per unit; those below rounding error relative to the largest are noise.
        balanced: (V, U, W) in balanced coordinates, where both Gramians are diag(σ); without the noise.
    """

    values: Array
    balanced: tuple[Array, Array, Array]

    def truncated(self, order: int) -> tuple[Array, Array, Array]:
        """(V, U, W) of the `order` units with the largest σ, by balanced truncation.

        For an infinite horizon it is stable, and its transfer function has an error of at most `bound(order)` at any
        frequency.
        """
        v, u, w = self.balanced
        if check_size("order", order) > len(v):
            raise InputError(
                f"`order` must be at most {len(v)}, the number of singular values above rounding; got order={order}. "
                "Keep fewer units."
            )
        return v[:order, :order], u[:order], w[:, :order]

    def bound(self, order: int) -> float:
        """Twice the sum of the σ omitted by a truncation to `order` units."""
        return 2 * float(self.values[check_size("order", order) :].sum())


def hankel_singular_values(matrix: Any, inputs: Any, outputs: Any, horizon: int | None = None) -> HankelSingularValues:
    """σ_i = √λ_i(W_c W_o) of h ← Vh + Ux, y = Wh: how much each balanced direction carries from past input to output.

    They are the singular values of the block Hankel matrix with blocks W V^{i+j} U. The product of the Gramians is
    never formed: with square roots W_c = RRᵀ and W_o = QQᵀ, they are the singular values of QᵀR.

    Symbols: V `matrix`, U `inputs` (one column per input), W `outputs` (one row per output).

    Args:
        matrix: V.
        inputs: U, such as `layer.weight_ih_l0`.
        outputs: W, such as the weight of a readout.
        horizon: number of steps, and of blocks of the Hankel matrix; infinite by default, which needs a spectral radius
            below 1.

    Reference: Moore (1981); Laub et al. (1987) for the computation; Al-Saggaf and Franklin (1987) for the bound.

    Example:
        >>> from kreiss.analysis import delay_line, hankel_singular_values
        >>> hankel_singular_values(delay_line(3, 1.0), [1, 0, 0], [0, 0, 1]).values.round(12).tolist()
        [1.0, 1.0, 1.0]
    """
    v = as_square(matrix)
    if horizon is None:
        check_convergent(v, "the Hankel matrix")
    u, w = as_columns(inputs, len(v), what="inputs"), np.atleast_2d(as_array("outputs", outputs))
    reach, seen = controllability(v, u, horizon).root, observability(v, w, horizon).root
    left, values, right = np.linalg.svd(seen.conj().T @ reach)
    rank = int((values > len(v) * ROUNDING * values[0]).sum())
    scale = np.sqrt(values[:rank])
    into = (left[:, :rank] / scale).conj().T @ seen.conj().T  # the inverse of `back`; maps h to balanced coordinates
    back = reach @ right[:rank].conj().T / scale
    return HankelSingularValues(values, (into @ v @ back, into @ u, w @ back))
