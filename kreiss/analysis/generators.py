"""Test matrices: delay lines, Θ of the nnRNN paper, Grcar, Jordan, random normal and non-normal matrices."""

from __future__ import annotations

import numpy as np

from kreiss.analysis.arrays import Array, check_positive
from kreiss.errors import InputError, check_size

Seed = int | np.random.Generator | None


def delay_line(n: int, alpha: float, beta: float = 0.0, diagonal: float = 0.0, *, feedback: float = 0.0) -> Array:
    """Θ_ij = d δ_{i,j} + α δ_{i,j+1} + β Σ_{k≥2} δ_{i,j+k} + f δ_{i,j−1}: a chain of modes, each feeding the next.

    Symbols: α `alpha` on the sub-diagonal, β `beta` in the rest of the lower triangle, d `diagonal`; f `feedback` on
    the super-diagonal, by which each mode feeds the previous one.

    With feedback (and β = d = 0) a line is stable and amplifies for α < 1 and 1 − α < f < 1/(4α): αf < 1/4 keeps its
    eigenvalues 2√(αf) cos(kπ/(n + 1)) inside the unit circle, α + f > 1 lets a signal grow along the line. The signal
    then lasts longer than the n steps after which a line without feedback is empty.

    Reference: Kerg et al. (2019), eq. (2). With feedback: Ganguli et al. (2008); Kerg (2022), §2.6, where the entries
    are written √α and √β.

    Example:
        >>> from kreiss.analysis import delay_line
        >>> delay_line(3, 2.0, 0.5).tolist()
        [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.5, 2.0, 0.0]]
    """
    n = check_size("n", n)
    theta = np.tril(np.full((n, n), float(beta)), -2)  # eq. (2)
    forward, back = float(alpha) * np.eye(n, k=-1), float(feedback) * np.eye(n, k=1)  # Kerg (2022), §2.6
    return theta + forward + back + float(diagonal) * np.eye(n)


def grcar(n: int, bands: int = 3) -> Array:
    """The Grcar matrix: −1 below the diagonal, 1 on it and on `bands` super-diagonals; very sensitive eigenvalues."""
    n, bands = check_size("n", n), check_size("bands", bands, 0)
    return -np.eye(n, k=-1) + sum((np.eye(n, k=k) for k in range(bands + 1)), np.zeros((n, n)))


def jordan(n: int, eigenvalue: float = 0.0, coupling: float = 1.0) -> Array:
    """A Jordan block: `eigenvalue` on the diagonal, `coupling` above it."""
    n = check_size("n", n)
    return float(eigenvalue) * np.eye(n) + float(coupling) * np.eye(n, k=1)


def triangular_ones(n: int, x: float) -> Array:
    """A_ii = 1, A_ij = x for j > i: the matrix of Prop. 2 of Kerg et al. (2019)."""
    n = check_size("n", n)
    return np.eye(n) + np.triu(np.full((n, n), float(x)), 1)


def random_gaussian(n: int, gain: float = 1.0, seed: Seed = None) -> Array:
    """Independent Gaussian entries of variance gain²/n, so that the spectral radius is near `gain`."""
    n, gain = check_size("n", n), check_positive("gain", gain)
    return np.random.default_rng(seed).standard_normal((n, n)) * gain / np.sqrt(n)


def random_orthogonal(n: int, seed: Seed = None) -> Array:
    """A Haar-distributed orthogonal matrix."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((check_size("n", n),) * 2))
    return q * np.sign(np.diag(r))  # the signs make the distribution Haar (Mezzadri 2007)


def random_normal(n: int, radius: float = 1.0, seed: Seed = None) -> Array:
    """A real normal matrix with spectral radius `radius`: rotations by random angles, scaled, in a random basis."""
    return random_schur(n, radius, 0.0, seed)


def random_schur(n: int, radius: float = 1.0, coupling: float = 0.1, seed: Seed = None) -> Array:
    """P(Λ + T)Pᵀ: random eigenvalues of modulus up to `radius`, Gaussian T of scale `coupling`, P orthogonal.

    Reference: Kerg et al. (2019), eq. (5), with T block-strictly lower triangular so that Λ keeps the eigenvalues.
    """
    n, radius = check_size("n", n), check_positive("radius", radius)
    if coupling < 0:
        raise InputError(f"`coupling` must be at least 0; got coupling={coupling}. Pass the scale of the entries of T.")
    rng = np.random.default_rng(seed)
    pairs = n // 2
    moduli = radius * rng.uniform(0.3, 1.0, pairs + n % 2)
    moduli[-1] = radius
    theta = np.tril(coupling * rng.standard_normal((n, n)), -1)
    for i, angle in enumerate(rng.uniform(0, np.pi, pairs)):
        cos, sin = moduli[i] * np.cos(angle), moduli[i] * np.sin(angle)
        theta[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
    if n % 2:
        theta[-1, -1] = moduli[-1]
    p = random_orthogonal(n, rng)
    return p @ theta @ p.T  # eq. (5)
