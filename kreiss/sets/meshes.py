"""Factorization of unitary matrices into layers of 2×2 rotations with phases, in NumPy."""

from __future__ import annotations

import cmath
import math

import numpy as np

from kreiss.errors import InputError, check_memory

Gate = tuple[int, float, float]  # row, θ, φ: [[e^{iφ}cos θ, −sin θ], [e^{iφ}sin θ, cos θ]] on rows row, row + 1


def layer_sizes(n: int, layers: int) -> list[int]:
    """Number of rotations in each layer of a mesh of neighbours."""
    check_memory(f"{layers} layers of rotations", 16 * n * layers)
    return [(n - k % 2) // 2 for k in range(layers)]


def mesh_angles(u: np.ndarray, layers: int, negligible: float) -> tuple[np.ndarray, np.ndarray]:
    """(θ, φ) of all rotations (2, count), and the phases of D, with U = D·L_m···L₁."""
    n = len(u)
    gates, phases = _gates(u.copy(), negligible)
    starts = np.concatenate([[0], np.cumsum(layer_sizes(n, layers))]).astype(int)
    angles, busy = np.zeros((2, starts[-1])), np.zeros(n, dtype=int)
    for row, theta, phi in gates:
        layer = int(max(busy[row], busy[row + 1]))
        layer += (layer - row) % 2
        if layer >= layers:
            raise InputError(
                f"the matrix needs more than capacity={layers} layers of rotations. Use capacity={n}, which holds any."
            )
        angles[:, starts[layer] + row // 2] = theta, phi
        busy[row] = busy[row + 1] = layer + 1
    return angles, phases


def _gates(u: np.ndarray, negligible: float) -> tuple[list[Gate], np.ndarray]:
    """U = D·G_k···G₁ as gates in the order applied, and the phases of D; overwrites U.

    Clements' scheme: anti-diagonals of the lower triangle are eliminated alternately from the right and from the left,
    which keeps the mesh n layers deep.
    """
    n = len(u)
    right: list[Gate] = []
    left: list[Gate] = []
    for i in range(1, n):
        for j in range(i):
            if i % 2:
                row, k = n - 1 - j, i - 1 - j  # zero u[row, k] by mixing columns k, k+1 with the inverse of a gate
                if abs(u[row, k]) > negligible:
                    right.append((k, *_angles(u[row, k], u[row, k + 1])))
                    u[:, k : k + 2] = u[:, k : k + 2] @ _block(*right[-1][1:]).conj().T
            else:
                row, k = n - i + j, j  # zero u[row, k] by mixing rows row−1, row with a gate
                if abs(u[row, k]) > negligible:
                    left.append((row - 1, *_angles(-u[row, k], u[row - 1, k])))
                    u[row - 1 : row + 1] = _block(*left[-1][1:]) @ u[row - 1 : row + 1]
    phases = np.angle(u.diagonal())
    # U = (left gates)⁻¹·D·(right gates); D is moved to the front by
    # G(θ, φ)⁻¹ diag(e^{iα}, e^{iβ}) = diag(−e^{i(β−φ)}, e^{iβ}) G(θ, α − β + π)
    for row, theta, phi in reversed(left):
        alpha, beta = phases[row], phases[row + 1]
        right.append((row, theta, alpha - beta + math.pi))
        phases[row] = beta - phi + math.pi
    return right, phases


def _angles(entry: complex, other: complex) -> tuple[float, float]:
    """(θ, φ) with entry·e^{−iφ}·cos θ = other·sin θ."""
    return math.atan2(abs(entry), abs(other)), cmath.phase(entry) - cmath.phase(other)


def _block(theta: float, phi: float) -> np.ndarray:
    c, s, turn = math.cos(theta), math.sin(theta), cmath.exp(1j * phi)
    return np.array([[turn * c, -s], [turn * s, c]])


# ---------------------------------------------------------------- butterflies


def butterfly_firsts(n: int, stride: int) -> np.ndarray:
    """The first index of each pair (i, i + stride) of one layer."""
    i = np.arange(n)
    return i[(i // stride % 2 == 0) & (i + stride < n)]


def butterfly_angles(p: np.ndarray, strides: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(θ, φ) of all rotations (2, count), layer by layer, and the phases of D, if P is such a product."""
    n = len(p)
    angles = {stride: np.zeros((2, n)) for stride in strides}
    phases = _unroll(p, 0, angles)
    packed = [angles[stride][:, butterfly_firsts(n, stride)] for stride in strides]
    return np.concatenate([*packed, np.zeros((2, 0))], 1), phases


def _unroll(p: np.ndarray, start: int, angles: dict[int, np.ndarray]) -> np.ndarray:
    """Fill `angles` for P = D·L·diag(A, B), longest distance first; returns the phases of D.

    Rows i and i + stride of P are (c a_i, −s b_i) and d(s a_i, c b_i) with unit rows a_i of A and b_i of B and a phase
    d. Phases α of A and β of B left over by the layers below become φ = α − β of the rotation, and β of its two
    rows.
    """
    n = len(p)
    if n == 1:
        return np.angle(p[0])
    stride = 2 ** ((n - 1).bit_length() - 1)
    pairs = n - stride
    x, y = p[:pairs, :stride], p[stride:, :stride]
    c, s, overlap = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1), (x.conj() * y).sum(1)
    d = np.where(np.abs(overlap) > 1e-12, np.exp(1j * np.angle(overlap)), 1)
    a, b = p[:stride, :stride].copy(), np.zeros((pairs, pairs), dtype=p.dtype)
    a[:pairs] = c[:, None] * x + (s * d.conj())[:, None] * y
    b[:] = -s[:, None] * p[:pairs, stride:] + (c * d.conj())[:, None] * p[stride:, stride:]
    alpha, beta = _unroll(a, start, angles), _unroll(b, start + stride, angles)
    angles[stride][:, start : start + pairs] = np.arctan2(s, c), alpha[:pairs] - beta
    return np.concatenate([beta, alpha[pairs:], np.angle(d) + beta])
