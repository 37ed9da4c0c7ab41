"""Pure tensor functions on matrices: packed triangles, Cayley, block rotations, real Schur form, complex as real.

Nothing here knows about sets or layers. Functions used in a forward pass are plain
differentiable torch; decompositions needed once (logarithm, Schur form) use SciPy in
float64, which is imported only when one of them is called.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from kreiss import derivatives
from kreiss.errors import InputError, check_memory

# ---------------------------------------------------------------- packed triangles


def place(values: Tensor, index: Tensor, n: int) -> Tensor:
    """The n×n matrix with `values` added at the flat positions `index` and zero elsewhere.

    The backward pass is a gather, which is cheap.
    """
    return values.new_zeros(n * n).scatter_add(0, index, values).view(n, n)


def strictly_lower_index(n: int, pairs: int = 0) -> np.ndarray:
    """Flat positions, row by row, of the strictly lower triangle of an n×n matrix.

    With `pairs` > 0 the entries (1,0), (3,2), … inside the first `pairs` 2×2 diagonal blocks are
    omitted: the block-strictly lower triangle.
    """
    check_memory(f"the triangle of a {n}×{n} matrix", 9 * n * n)  # a byte mask and two int64 index arrays
    rows, columns = np.tril_indices(n, -1)
    in_block = (rows == columns + 1) & (columns % 2 == 0) & (columns < 2 * pairs)
    keep = ~in_block
    return rows[keep] * n + columns[keep]


def skew(values: Tensor, index: Tensor, n: int) -> Tensor:
    """The skew-symmetric matrix whose strictly lower triangle holds `values`."""
    lower = place(values, index, n)
    return lower - lower.mT


# ---------------------------------------------------------------- products with a triangular matrix

SPLIT = 512  # size from which skipping the zeros above the diagonal pays


def times_lower(x: Tensor, m: Tensor) -> Tensor:
    """X M for M lower triangular up to 2×2 diagonal blocks at even rows, at 5/8 of the cost of a full product."""
    n = len(m)
    if n < SPLIT:
        return x @ m
    out = x.new_empty(n, n)
    for first, last in _quarters(n):
        torch.mm(x[:, first:], m[first:, first:last], out=out[:, first:last])
    return out


def times_lower_transposed(x: Tensor, m: Tensor) -> Tensor:
    """X Mᵀ for M as in `times_lower`."""
    n = len(m)
    if n < SPLIT:
        return x @ m.mT
    out = x.new_empty(n, n)
    for first, last in _quarters(n):
        torch.mm(x[:, :last], m[first:last, :last].mT, out=out[:, first:last])
    return out


def _quarters(n: int) -> list[tuple[int, int]]:
    edges = [n * i // 8 * 2 for i in range(4)] + [n]
    return list(pairwise(edges))


# ---------------------------------------------------------------- orthogonal matrices


def cayley(a: Tensor) -> Tensor:
    """(I + A)⁻¹(I − A) = 2(I + A)⁻¹ − I, orthogonal when A is skew.

    Written with one inverse, whose backward pass needs two products and no solve.
    """
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return 2 * torch.linalg.inv(eye + a) - eye


def inverse_cayley(p: Tensor) -> Tensor:
    """The skew A with cayley(A) = P: (I + P)⁻¹(I − P), for P without the eigenvalue −1."""
    eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    a = torch.linalg.solve(eye + p, eye - p)
    return (a - a.mH) / 2


_PADE_13 = tuple(
    math.factorial(26 - k) * math.factorial(13) / (math.factorial(26) * math.factorial(k) * math.factorial(13 - k))
    for k in range(14)
)


_PADE_REACH = 5.37  # angle up to which the approximant is exact to rounding error in float64


def expm_skew(a: Tensor) -> Tensor:
    """exp(A) of a skew or skew-Hermitian matrix by the [13/13] Padé approximant of A/8·2⁻ᵏ and 3 + k squarings.

    k is 0 while the angles of exp(A) are known to stay below 43 radians. Beyond that, each further squaring, which
    doubles errors, is followed by one Newton–Schulz step, so that exp(A) stays orthogonal and its angles are as
    accurate as those of A. In exported graphs, and in compiled graphs under torch.func or forward mode, k is always 0.
    Only products and one solve are used, so derivatives of every order and vmap work, and the backward pass needs no
    exponential of twice the size. (In torch 2.13 torch.linalg.matrix_exp loses digits for norms between 0.01 and 0.1:
    the error is 2e-10 in float64 for a rotation by 0.048.)
    """
    x = a / 8
    x2 = x @ x
    # every angle θ is below (Σθ⁴)^¼ = ‖X²‖_F^½; those of a real matrix come in ± pairs, so one of each suffices
    alike = 1 if a.is_complex() else 2
    halvings = (torch.linalg.matrix_norm(x2.detach()) / (math.sqrt(alike) * _PADE_REACH**2)).log2() / 2
    if torch.compiler.is_compiling():
        if torch.compiler.is_exporting() or derivatives.forward_mode() or derivatives.transformed():
            return _pade_exp(x, x2)  # k = 0 where the operator is not supported
        k = torch.where(halvings.isfinite(), halvings.ceil().clamp_min(0), 0)[..., None, None]
        p: Tensor = squared_op(_pade_exp(x * torch.exp2(-k), x2 * torch.exp2(-2 * k)), k)
        return p
    count = _count(halvings)
    p = _pade_exp(x, x2) if count == 0 else _pade_exp(x * 0.5**count, x2 * 0.25**count)
    for _ in range(count):
        p = newton_schulz(p @ p)
    return p


def _pade_exp(x: Tensor, x2: Tensor) -> Tensor:
    """exp(8X); orthogonal, since for skew X numerator and denominator are transposes of each other."""
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    x4 = x2 @ x2
    x6 = x4 @ x2
    c = _PADE_13
    odd = x6 @ (c[13] * x6 + c[11] * x4 + c[9] * x2) + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * eye
    even = x6 @ (c[12] * x6 + c[10] * x4 + c[8] * x2) + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * eye
    odd = x @ odd
    p = torch.linalg.solve(even - odd, even + odd)
    for _ in range(3):
        p = p @ p
    return p


@torch.library.custom_op("kreiss::squared", mutates_args=())
def squared_op(p: Tensor, k: Tensor) -> Tensor:
    """P squared k times, with a Newton–Schulz step each; an operator because k is unknown at compile time."""
    return _squares(p, k)[-1].clone(memory_format=torch.contiguous_format)


def _squares(p: Tensor, k: Tensor) -> list[Tensor]:
    """P, P², P⁴, … up to the largest k; each matrix of the batch stops at its own k."""
    steps = [p]
    for i in range(int(k.max())):
        steps.append(torch.where(i < k, newton_schulz(steps[-1] @ steps[-1]), steps[-1]))
    return steps


@torch.library.custom_op("kreiss::squared_backward", mutates_args=())
def squared_backward_op(grad: Tensor, p: Tensor, k: Tensor) -> Tensor:
    """The gradient of `squared_op` with respect to P."""
    steps = _squares(p, k)
    for i in reversed(range(len(steps) - 1)):
        before = steps[i]
        square = before @ before
        turned = square.mH @ square
        back = 1.5 * grad - (grad @ turned + square @ grad.mH @ square + square @ (square.mH @ grad)) / 2
        grad = torch.where(i < k, back @ before.mH + before.mH @ back, grad)
    return grad.clone(memory_format=torch.contiguous_format)


@squared_op.register_fake
def _(p: Tensor, k: Tensor) -> Tensor:
    return p.new_empty(p.shape)


@squared_backward_op.register_fake
def _(grad: Tensor, p: Tensor, k: Tensor) -> Tensor:
    return p.new_empty(p.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _squared_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return torch.ops.kreiss.squared_backward(grad, *ctx.saved_tensors), None


squared_op.register_autograd(_squared_backward, setup_context=_keep)


def _count(halvings: Tensor) -> int:
    """The maximum rounded up, at least 0; 0 for meta and fake tensors, which have no values."""
    while torch._C._functorch.is_functorch_wrapped_tensor(halvings):  # the whole vmap batch
        halvings = torch._C._functorch.get_unwrapped(halvings)
    if halvings.is_meta or isinstance(halvings, FakeTensor):
        return 0
    most = float(halvings.max())
    return max(0, math.ceil(most)) if math.isfinite(most) else 0


def rotation_blocks(angles: Tensor, n: int) -> Tensor:
    """The n×n block-diagonal matrix of 2×2 rotations by `angles`, then ones."""
    p = torch.eye(n, dtype=angles.dtype, device=angles.device)
    even = torch.arange(0, 2 * len(angles), 2, device=angles.device)
    p[even, even] = p[even + 1, even + 1] = angles.cos()
    p[even, even + 1] = -angles.sin()
    p[even + 1, even] = angles.sin()
    return p


def skew_log(p: Tensor) -> Tensor:
    """The skew A with exp(A) = P for a rotation P (determinant +1), angles in [−π, π].

    Uses the real Schur form, which for an orthogonal matrix is block diagonal up to rounding error,
    so that pairs of eigenvalues −1 (where the principal logarithm is not real) become rotations by π.
    """
    from scipy.linalg import schur

    t, q = schur(p.detach().cpu().double().numpy(), output="real")
    n = len(t)
    generator = np.zeros((n, n))
    minus_one = []
    i = 0
    while i < n:
        if i + 1 < n and abs(t[i + 1, i]) > 1e-8:
            generator[i + 1, i] = math.atan2((t[i + 1, i] - t[i, i + 1]) / 2, (t[i, i] + t[i + 1, i + 1]) / 2)
            i += 2
        else:
            if t[i, i] < 0:
                minus_one.append(i)
            i += 1
    for first, second in zip(minus_one[::2], minus_one[1::2], strict=True):
        generator[second, first] = math.pi
    a = q @ (generator - generator.T) @ q.T
    return torch.from_numpy(a).to(p)


def orthogonality_error(p: Tensor) -> float:
    """max |PᵀP − I|, computed in float64 so that only the error of P itself counts."""
    p = p.detach().double()
    eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    return float((p.mT @ p - eye).abs().max())


MOST_PAIRS = 4  # of powers in the series of `turned`, which is then as fast as an inverse


def turned(base: Tensor, a: Tensor) -> Tensor:
    """B·(I − A/2)⁻¹(I + A/2) for a skew A that is usually small, for example after one optimiser step.

    With E = A/2 the retraction is I + 2E + 2E² + 2E³ + …. The series is truncated where the remainder is below rounding
    error; if that would take more than four pairs of powers, an inverse is used. ‖E‖² ≤ ‖E²‖_F/√2, because eigenvalues
    come in pairs.
    """
    e = a / 2
    square = e @ e
    size = math.sqrt(float(torch.linalg.matrix_norm(square)) / math.sqrt(2))
    rounding = torch.finfo(a.dtype).eps / 4
    for pairs in range(1, MOST_PAIRS + 1):
        if 2 * size ** (2 * pairs + 1) <= rounding:
            first = total = e + square
            for _ in range(1, pairs):
                total = torch.addmm(first, total, square)  # two powers more
            return torch.addmm(base, base, total, alpha=2)
    return base @ cayley(-e)


def polished(p: Tensor) -> Tensor:
    """P, corrected by one Newton–Schulz step if rounding errors have made it non-orthogonal; rarely needed.

    ‖PᵀP − I‖_F is estimated from its product with one vector of signs. In float64 that product is accurate only to
    about √n units of rounding.
    """
    n, wide = p.shape[-1], p.double()
    probe = 1 - 2 * (torch.arange(n, device=p.device) % 3 % 2).to(wide.dtype)
    off = float((wide.mT @ (wide @ probe) - probe).norm()) / math.sqrt(n)
    limit = 4 if p.dtype != torch.float64 else math.sqrt(n)
    return p if off <= limit * torch.finfo(p.dtype).eps else newton_schulz(p)


def newton_schulz(p: Tensor) -> Tensor:
    """One step towards the nearest orthogonal matrix, P(3I − PᵀP)/2; converges quadratically near it."""
    eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    return p @ (3 * eye - p.mH @ p) / 2


# ---------------------------------------------------------------- complex matrices as real ones


def real_image(c: Tensor) -> Tensor:
    """The real 2n×2n matrix that acts on pairs (re, im) as the complex n×n matrix C acts on complex numbers.

    Entry c becomes the block [[re c, −im c], [im c, re c]]; products, adjoints and inverses carry over.
    """
    rows = torch.stack([c.real, -c.imag], -1), torch.stack([c.imag, c.real], -1)
    return torch.stack(rows, 1).reshape(2 * len(c), 2 * len(c))


def complex_part(m: Tensor) -> Tensor:
    """The complex n×n matrix whose real image is nearest to the real 2n×2n matrix M."""
    n = len(m) // 2
    blocks = m.reshape(n, 2, n, 2)
    return torch.complex((blocks[:, 0, :, 0] + blocks[:, 1, :, 1]) / 2, (blocks[:, 1, :, 0] - blocks[:, 0, :, 1]) / 2)


def phases(angles: Tensor) -> Tensor:
    """e^{iθ}, as a complex tensor."""
    return torch.complex(angles.cos(), angles.sin())


def skew_hermitian(values: Tensor, index: Tensor, n: int) -> Tensor:
    """The skew-Hermitian matrix of packed `values`: real parts below the diagonal, imaginary parts, the diagonal.

    The diagonal is i√2·value (0 if omitted), so that every value changes the matrix by the same Frobenius norm: a
    gradient step on the values is then a gradient step on the matrix.
    """
    size = len(index)
    real, imaginary = skew(values[:size], index, n), place(values[size : 2 * size], index, n)
    imaginary = imaginary + imaginary.mT
    if values.shape[0] > 2 * size:
        imaginary = imaginary + math.sqrt(2) * torch.diag_embed(values[2 * size :])
    return torch.complex(real, imaginary)


def pack_skew_hermitian(a: Tensor, index: Tensor) -> Tensor:
    """The packed values of a skew-Hermitian matrix, diagonal included."""
    lower = a.reshape(-1)[index]
    return torch.cat([lower.real, lower.imag, a.diagonal().imag / math.sqrt(2)])


def unitary_log(p: Tensor) -> Tensor:
    """The skew-Hermitian A with exp(A) = P for a unitary P, eigenvalues iθ with θ in [−π, π].

    Uses the Schur form, which for a unitary matrix is diagonal up to rounding error, so that the basis is orthonormal
    even for repeated eigenvalues.
    """
    from scipy.linalg import schur

    t, q = schur(p.detach().cpu().to(torch.complex128).numpy(), output="complex")
    a = (q * (1j * np.angle(t.diagonal()))) @ q.conj().T
    return torch.from_numpy((a - a.conj().T) / 2).to(p)


# ---------------------------------------------------------------- real Schur form


def block_starts(t: np.ndarray) -> list[tuple[int, int]]:
    """(first row, size) of each diagonal block of an upper quasi-triangular matrix."""
    blocks, i = [], 0
    while i < len(t):
        size = 2 if i + 1 < len(t) and t[i + 1, i] != 0 else 1
        blocks.append((i, size))
        i += size
    return blocks


def _rank(t: np.ndarray, block: tuple[int, int]) -> int:
    """Sort key of a block: 0 for complex pairs, 1 for real eigenvalues ≥ 0, 2 for negative ones."""
    start, size = block
    return 0 if size == 2 else 1 if t[start, start] >= 0 else 2


def ordered_real_schur(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W = Q T Qᵀ, T upper quasi-triangular: complex pairs first, then real ≥ 0, then real < 0.

    2×2 blocks are standardised as in LAPACK (equal diagonal, off-diagonal entries of opposite sign).
    """
    from scipy.linalg import lapack, schur

    t, q = schur(matrix, output="real")
    for last in (0, 1):  # first move the pairs to the top, then the real eigenvalues ≥ 0 behind them
        select = np.zeros(len(t), dtype=np.int32)
        for block in block_starts(t):
            if _rank(t, block) <= last:
                select[block[0] : block[0] + block[1]] = 1
        t, q = lapack.dtrsen(select, t, q, job="N", wantq=1)[:2]
    ranks = [_rank(t, block) for block in block_starts(t)]
    if ranks != sorted(ranks):
        raise InputError(
            "the real Schur form could not be ordered: LAPACK found a complex pair and a real eigenvalue "
            "too close to exchange. Perturb the matrix by a few units in the last place."
        )
    return t, q


def eigenvalues(matrix: Tensor) -> np.ndarray[Any, Any]:
    """The eigenvalues, computed in float64 for every dtype."""
    return np.linalg.eigvals(to_numpy(matrix))


def to_numpy(matrix: Tensor) -> np.ndarray[Any, Any]:
    """A float64 NumPy copy."""
    return matrix.detach().cpu().double().numpy().copy()
