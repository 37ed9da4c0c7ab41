"""Transient growth of the powers of a matrix: norms, random initial states, entries."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array, as_square, check_horizon
from kreiss.analysis.generators import Seed
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class TransientGrowth:
    """Result of `transient_growth`.

    Attributes:
        norms: ‖Vᵏ‖₂ for k = 0 … horizon.
        peak: the largest norm.
        time: the k at which it is reached.
        input: the initial state of norm 1 that grows most by then.
        readout: the direction, of norm 1, of that state at the peak.
    """

    norms: Array
    peak: float
    time: int
    input: Array
    readout: Array


@dataclass(frozen=True)
class SphereTransients:
    """Statistics over random initial states on the unit sphere, one entry per step from 0.

    Attributes:
        norm_mean, norm_deviation: of the norm of the state.
        unit_mean, unit_deviation: of the standard deviation across units, over starts.
        start_mean, start_deviation: of the standard deviation across starts, over units.
    """

    norm_mean: Array
    norm_deviation: Array
    unit_mean: Array
    unit_deviation: Array
    start_mean: Array
    start_deviation: Array


def transient_growth(matrix: Any, horizon: int) -> TransientGrowth:
    """max_{k ≤ horizon} ‖Vᵏ‖₂, its time, and the optimal input and readout directions.

    Example:
        >>> from kreiss.analysis import delay_line, transient_growth
        >>> found = transient_growth(delay_line(4, 2.0), 10)
        >>> found.peak, found.time, abs(found.input).round(12).tolist()
        (8.0, 3, [1.0, 0.0, 0.0, 0.0])
    """
    v = as_square(matrix)
    norms, time = [1.0], 0
    power = best = np.eye(len(v), dtype=v.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(1, check_horizon(horizon) + 1):
            power = power @ v
            if not np.isfinite(power).all():
                raise InputError(
                    f"the powers of the matrix must stay finite; got overflow at step {k}. Pass a shorter `horizon`."
                )
            norms.append(float(np.linalg.norm(power, 2)))
            if norms[-1] > norms[time]:
                best, time = power, k
    left, _, right = np.linalg.svd(best)
    return TransientGrowth(np.array(norms), norms[time], time, right[0].conj(), left[:, 0])


def sphere_transients(matrix: Any, horizon: int, *, starts: int = 1000, seed: Seed = 0) -> SphereTransients:
    """h_k = Vᵏh₀ from random starts on the unit sphere: norms, spread across units and spread across starts.

    Reference: Kerg et al. (2019), §3.1 and Fig. 1(b), whose caption has the deviation across units, averaged over
    starts; the authors' notebook computes the deviation across starts, averaged over units.
    """
    v = as_square(matrix, real=True)
    h = np.random.default_rng(seed).standard_normal((len(v), check_size("starts", starts)))
    h /= np.linalg.norm(h, axis=0)
    rows = []
    for _ in range(check_horizon(horizon) + 1):
        statistics = np.linalg.norm(h, axis=0), h.std(axis=0), h.std(axis=1)
        rows.append([number for values in statistics for number in (values.mean(), values.std())])
        h = v @ h
    return SphereTransients(*np.array(rows).T)


@dataclass(frozen=True)
class PowerGrowth:
    """Growth of ‖Vᵗ‖₂ at late times, as C·ρᵗ·t^degree.

    Attributes:
        rate: ρ, the spectral radius.
        degree: the exponent of t; 0 for a normal matrix, s − 1 for a largest Jordan block of size s.
        change: change of the degree at the last doubling of time, an estimate of its error.
    """

    rate: float
    degree: float
    change: float


def power_growth(matrix: Any, *, rate: float | None = None, doublings: int = 12) -> PowerGrowth:
    """The degree of polynomial growth of powers relative to ρᵗ, from the slope of log(‖Vᵗ‖/ρᵗ) against log t.

    Args:
        matrix: V.
        rate: ρ, if known more accurately than computed eigenvalues, as for a Jordan block.
        doublings: the slope is measured between t = 2^(doublings − 1) and 2^doublings.

    Reference: Kerg et al. (2019), §3.3 and Prop. 2.
    """
    v = as_square(matrix)
    rho = float(abs(np.linalg.eigvals(v)).max()) if rate is None else float(rate)
    if not rho > 0:
        raise InputError(f"powers must not vanish; got a spectral radius of {rho:.3g}. Nilpotent powers end at zero.")
    power, logs = v / rho, []
    for _ in range(check_size("doublings", doublings, 3)):
        logs.append(np.log2(np.linalg.norm(power, 2)))
        power = power @ power
        if not np.isfinite(power).all():
            break
    slopes = np.diff(logs)
    return PowerGrowth(rho, float(slopes[-1]), float(abs(slopes[-1] - slopes[-2])))


def power_polynomial(distance: int, time: int) -> list[int]:
    """Coefficients of 1, x, x², … in (Aᵗ)_ij, j − i = `distance`, for A_ii = 1, A_ij = x above the diagonal.

    A = I + x·S/(1 − S) with S the shift, so that the coefficient of xˡ is C(t, l)·C(distance − 1, l − 1): a polynomial
    in t of degree l, which is Prop. 2 with its constant.

    Reference: Kerg et al. (2019), Prop. 2.

    Example:
        >>> from kreiss.analysis import power_polynomial
        >>> power_polynomial(2, 5)
        [0, 5, 10]
    """
    k, t = check_size("distance", distance), check_size("time", time)
    return [0] + [comb(t, degree) * comb(k - 1, degree - 1) for degree in range(1, k + 1)]
