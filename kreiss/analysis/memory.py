"""Fisher memory: the information that a state driven by signal and noise holds about the signal k steps ago."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kreiss.analysis.arrays import ROUNDING, Array, as_array, as_square, as_vector, check_horizon
from kreiss.analysis.gramians import DOUBLINGS, accumulated_root, check_convergent, stacked_root
from kreiss.errors import InputError

LONGEST_CURVE = 20_000
NEGLIGIBLE = 1e-20  # relative to the total: where a curve is truncated


@dataclass(frozen=True)
class FisherMemory:
    """Result of `fisher_memory`.

    Attributes:
        curve: J(k), k = 0, 1, …: Fisher information that the state holds about the signal k steps ago.
        total: J_tot = Σ J(k), in closed form UᵀJ⁽ˢ⁾U; over the steps of a finite horizon.
        rest: the remainder beyond the end of the curve; total = curve.sum() + rest.
        spatial: J⁽ˢ⁾ = Σ (Vᵏ)ᵀ C⁻¹ Vᵏ, whose quadratic form is the total for any source.
        covariance: C, the covariance of the state under noise alone.
        error: estimated relative error of the total, from recomputation with entries changed in their last digit.
    """

    curve: Array
    total: float
    rest: float
    spatial: Array
    covariance: Array
    error: float
    _signals: Array  # R⁻¹VᵏU, one column per step, with C = RRᵀ

    def matrix(self, steps: int | None = None) -> Array:
        """The Fisher memory matrix J_kl = (VᵏU)ᵀ C⁻¹ (VˡU) for k, l < steps; off the diagonal it is interference."""
        signals = self._signals if steps is None else self._signals[:, : check_horizon(steps)]
        return signals.conj().T @ signals

    def best_source(self) -> tuple[float, Array]:
        """The largest total of any source of norm 1, and that source: the top eigenpair of J⁽ˢ⁾."""
        values, vectors = np.linalg.eigh(self.spatial)
        return float(values[-1]), vectors[:, -1]

    def first_below(self, share: float) -> int:
        """The first k with J(k) below `share` of J(0), though it may rise again; else the length of the curve."""
        below = np.flatnonzero(self.curve < share * self.curve[0])
        return int(below[0]) if len(below) else len(self.curve)

    def below(self, share: float) -> int:
        """The first k from which J(k) stays below `share` of J(0); else the length of the curve."""
        above = np.flatnonzero(self.curve >= share * self.curve[0])
        return int(above[-1]) + 1 if len(above) else 0


def fisher_memory(matrix: Any, source: Any, *, noise: Any = 1.0, horizon: int | None = None) -> FisherMemory:
    """The Fisher memory curve J(k) = Uᵀ(Vᵏ)ᵀ C⁻¹ VᵏU with C = Σ_k Vᵏ N (Vᵏ)ᵀ.

    C may have a condition number of 1e24, so that solving with it fails: a square root R is accumulated by QR, and
    J(k) = ‖R⁻¹VᵏU‖². In the coordinates R⁻¹h the network is a contraction, whose powers are summed by doubling.

    Symbols: V `matrix`, U `source`, N `noise` (a number ε means εI, a vector its diagonal).

    Args:
        matrix: V, real, with spectral radius below 1 unless a horizon is given.
        source: U, through which the scalar signal enters.
        noise: covariance of the noise that enters at every step.
        horizon: number of steps since the network was at rest, over which signal and noise are summed; infinite by
            default.

    Reference: Ganguli et al. (2008); Kerg et al. (2019), eq. (3) and supplement eq. (7); Kerg (2022), §2.6.

    Example:
        >>> import numpy as np
        >>> from kreiss.analysis import delay_line, fisher_memory
        >>> round(fisher_memory(delay_line(100, 1.05), np.eye(100)[0]).total, 8)
        12.08727212
    """
    v = as_square(matrix, real=True)
    u = as_vector(source, len(v))
    root = noise_root(noise, len(v))
    if horizon is None:
        check_convergent(v, "Fisher memory")
    else:
        horizon = check_horizon(horizon)
    whitened = _whitened(v, u, root, horizon)
    spatial_root = _spatial_root(whitened, horizon)
    total = float(np.sum((spatial_root @ whitened.signal) ** 2))
    signals = _signals(whitened, total, horizon)
    curve = np.sum(signals**2, axis=0)
    last = whitened.dynamics @ signals[:, -1]
    rest = float(np.sum((spatial_root @ last) ** 2)) if horizon is None else 0.0
    inverse = solve_triangular(whitened.root, np.eye(len(v)), lower=True)
    outer = spatial_root @ inverse
    return FisherMemory(
        curve, total, rest, outer.T @ outer, whitened.root @ whitened.root.T,
        _estimated_error(v, u, root, horizon, total), signals,
    )  # fmt: skip


def noise_root(noise: Any, n: int) -> Array:
    """S with SSᵀ the covariance given by a number, a diagonal or a matrix."""
    covariance = as_array("noise", noise)
    if np.iscomplexobj(covariance):
        raise InputError("`noise` must be real; got complex numbers. Pass a covariance.")
    if covariance.shape not in ((), (n,), (n, n)):
        raise InputError(
            f"`noise` must be a number, a vector of length {n} or a covariance of shape ({n}, {n}); "
            f"got shape {covariance.shape}. Pass one of these."
        )
    if covariance.ndim < 2:
        diagonal = np.broadcast_to(covariance, n)
        if diagonal.min() <= 0:
            raise InputError(f"`noise` must be positive; got {diagonal.min():.3g}. Pass the variance of the noise.")
        return np.diag(np.sqrt(diagonal))
    asymmetry = np.abs(covariance - covariance.T).max()
    if asymmetry > 1e-10 * np.abs(covariance).max():
        raise InputError(
            f"`noise` must be a symmetric covariance; got an asymmetry of {asymmetry:.3g}. Pass (N + Nᵀ)/2."
        )
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= n * ROUNDING * abs(values[-1]):
        raise InputError(
            f"`noise` must be positive definite; got a smallest eigenvalue of {values[0]:.3g}, so the covariance is "
            "singular and some direction has no noise. Add a small multiple of the identity."
        )
    return vectors * np.sqrt(values)


@dataclass(frozen=True)
class _Whitened:
    """The network in coordinates R⁻¹h, in which the noise of the state is white."""

    root: Array  # R
    dynamics: Array  # R⁻¹VR
    signal: Array  # R⁻¹U


def _whitened(v: Array, u: Array, noise: Array, horizon: int | None) -> _Whitened:
    root = accumulated_root(v, noise, horizon)  # eq. (7): C = RRᵀ
    return _Whitened(root, solve_triangular(root, v @ root, lower=True), solve_triangular(root, u, lower=True))


def _spatial_root(whitened: _Whitened, horizon: int | None) -> Array:
    """X with XᵀX = Σ (Aᵏ)ᵀAᵏ, A the whitened dynamics."""
    n = len(whitened.root)
    if horizon is not None:
        return accumulated_root(whitened.dynamics.T, np.eye(n), horizon).T
    root, power = np.eye(n), whitened.dynamics.T
    for _ in range(DOUBLINGS):
        more = power @ root
        root = stacked_root(root, more)
        if np.abs(more).max() <= ROUNDING / 64:
            break
        power = power @ power
    return root.T


def _signals(whitened: _Whitened, total: float, horizon: int | None) -> Array:
    """AᵏR⁻¹U for k = 0, 1, …, up to the horizon or until negligible; many steps per product."""
    longest = LONGEST_CURVE if horizon is None else horizon
    block, power = whitened.signal[:, None], whitened.dynamics
    while block.shape[1] < min(256, longest):
        block = np.hstack([block, power @ block])
        power = power @ power
    blocks = [block]
    while len(blocks) * block.shape[1] < longest and np.sum(blocks[-1][:, -1] ** 2) > NEGLIGIBLE * total:
        blocks.append(power @ blocks[-1])
    signals = np.hstack(blocks)[:, :longest]
    if horizon is not None:
        missing = horizon - signals.shape[1]
        return np.hstack([signals, np.zeros((len(signals), missing))])
    seen = np.flatnonzero(np.sum(signals**2, axis=0) > NEGLIGIBLE * total)
    return signals[:, : int(seen[-1]) + 1]


def _estimated_error(v: Array, u: Array, noise: Array, horizon: int | None, total: float) -> float:
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(2):
        changed = v * (1 + ROUNDING * rng.choice([-1.0, 1.0], v.shape))
        whitened = _whitened(changed, u, noise, horizon)
        again = float(np.sum((_spatial_root(whitened, horizon) @ whitened.signal) ** 2))
        worst = max(worst, abs(again - total) / total)
    return 10 * worst + ROUNDING


def delay_line_memory(alpha: float, horizon: int) -> Array:
    """J(k) = aᵏ(a − 1)/(a^{k+1} − 1), a = α², of a delay line with entries α and its source at the first unit, ε = 1.

    Reference: Ganguli et al. (2008). Kerg et al. (2019) have √α on the sub-diagonal, hence a = α.
    """
    a = float(alpha) ** 2
    k = np.arange(check_horizon(horizon))
    if a == 1:
        return 1.0 / (k + 1)
    return np.where(a > 1, (1 - 1 / a) / (1 - a ** -(k + 1.0)), a**k * (1 - a) / (1 - a ** (k + 1.0)))


def memory_lower_bound(matrix: Any, horizon: int | None = None) -> Array:
    """The lower bound of Prop. 1 on J(k), k < n, of a strictly lower triangular matrix, source at unit 1, ε = 1.

    J(k) ≥ aᵏ(a − 1)/(a^{k+1} − 1) / σ^{2(n−1)}, √a the equal entries of the sub-diagonal, σ the norm of the unit
    triangular A with Θ = DA, D the delay line.

    Reference: Kerg et al. (2019), Prop. 1, eq. (4), and supplement eq. (6).
    """
    theta = as_square(matrix, real=True)
    n = len(theta)
    below = np.diag(theta, -1)
    if np.triu(theta).any() or n < 2 or not np.allclose(below, below[0], rtol=1e-12) or below[0] <= 0:
        raise InputError(
            "`matrix` must be strictly lower triangular with equal positive entries on its sub-diagonal; "
            "got a different matrix. Prop. 1 covers only these; use fisher_memory for the curve itself."
        )
    a = np.vstack([theta[1:] / below[0], np.eye(n)[-1:]])  # eq. (6): Θ = DA
    sigma = float(np.linalg.norm(a, 2))
    steps = n if horizon is None else min(n, check_horizon(horizon))
    return delay_line_memory(float(below[0]), steps) / sigma ** (2 * (n - 1))  # eq. (4)


def amplification_bound(matrix: Any, source: Any, horizon: int) -> Array:
    """J(k) ≤ 1/Σ_{m≤k} A_m⁻¹ with A_m = ‖VᵐU‖²: the bound for this amplification, ε = 1, ‖U‖ = 1.

    A delay line attains it. Reference: Ganguli et al. (2008); Kerg (2022), §2.6.
    """
    v = as_square(matrix, real=True)
    h = as_vector(source, len(v))
    h = h / np.linalg.norm(h)
    squares = []
    for _ in range(check_horizon(horizon)):
        squares.append(float(h @ h))
        h = v @ h
    with np.errstate(divide="ignore"):
        return 1 / np.cumsum(1 / np.array(squares))
