"""The spectral radius of a matrix and its gradient, with the dominant eigenpair tracked from step to step.

Tracking: a few leading eigenvalues by Arnoldi's method, started from the previous vectors, then one step of two-sided
inverse iteration at the largest. If this does not converge or leaves a residual, the full decomposition is computed.
"""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kreiss import derivatives, linalg
from kreiss.sets.blas import one_thread

FOLLOW_FROM = 96
"""Smaller matrices are decomposed in full, which is as fast."""

RESIDUAL = 1e-9
"""Largest accepted residual of an eigenpair, relative to the Frobenius norm of the matrix."""

ILL_CONDITIONED = 1e4
"""Condition number ‖v‖‖u‖/|v*u| above which an eigenvalue counts as (nearly) multiple."""

LEADING, KRYLOV, RESTARTS = 6, 60, 40
"""Number of eigenvalues, subspace size and maximal number of restarts of Arnoldi's method."""


ONE_THREAD_BELOW = 512
"""Smaller matrices are treated in one thread: more would wait for those of torch longer than they work."""


class Dominant(NamedTuple):
    """Spectral radius, its gradient (None where it does not exist), and the next starting vector."""

    radius: float
    slope: np.ndarray | None
    start: np.ndarray


def dominant(t: np.ndarray, start: np.ndarray | None = None) -> Dominant:
    """The dominant eigenvalue of the float64 matrix `t`, tracked from `start` if given."""
    with one_thread() if len(t) < ONE_THREAD_BELOW else nullcontext():
        return _dominant(t, start)


def _dominant(t: np.ndarray, start: np.ndarray | None) -> Dominant:
    if start is not None and len(t) >= FOLLOW_FROM and np.isfinite(start).all() and start.any():
        eigenpair = _followed(t, start)
        if eigenpair is not None:
            return eigenpair
    return _decomposed(t)


def _decomposed(t: np.ndarray) -> Dominant:
    """By a full decomposition; among eigenvalues of equal modulus, the one with the largest real part."""
    from scipy.linalg import eig

    values, left, right = eig(t, left=True, right=True)
    moduli = np.abs(values)
    ties = np.flatnonzero(moduli >= moduli.max() * (1 - 1e-12))
    best = ties[np.lexsort((values[ties].imag, values[ties].real))[-1]]
    leading = right[:, np.argsort(-moduli)[:LEADING]]
    return _with_gradient(values[best], right[:, best], left[:, best], _next_start(leading))


def _followed(t: np.ndarray, start: np.ndarray) -> Dominant | None:
    """By Arnoldi's method from `start` and inverse iteration; None if the result is unreliable."""
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, eigs

    try:
        values, leading = eigs(t, k=LEADING, which="LM", v0=start, ncv=KRYLOV, maxiter=RESTARTS, tol=1e-8)
    except (ArpackError, ArpackNoConvergence):
        return None
    best = int(np.argmax(np.abs(values)))
    return _polished(t, values[best], leading[:, best], _next_start(leading))


def _polished(t: np.ndarray, value: complex, right: np.ndarray, start: np.ndarray) -> Dominant | None:
    """Both eigenvectors by inverse iteration with one factorisation, if their residuals are small."""
    from scipy.linalg import LinAlgWarning, lu_factor, lu_solve

    shift = value.real if value.imag == 0 else value
    u = right.real if value.imag == 0 else right
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", LinAlgWarning)  # a near-singular shift is intended
        factors = lu_factor(t - shift * (1 + 1e-11) * np.eye(len(t)), check_finite=False)
        u = _unit(lu_solve(factors, u, check_finite=False))
        v = _unit(lu_solve(factors, u, trans=2, check_finite=False))
        v = _unit(lu_solve(factors, v, trans=2, check_finite=False))
        exact = (v.conj() @ t @ u) / (v.conj() @ u)  # two-sided Rayleigh quotient
        residuals = np.linalg.norm(t @ u - exact * u), np.linalg.norm(v.conj() @ t - exact * v.conj())
    limit = RESIDUAL * np.linalg.norm(t)
    if not (max(residuals) <= limit and abs(exact - value) <= 1e-5 * abs(value)):
        return None
    return _with_gradient(exact, u, v, start)


def _with_gradient(value: complex, u: np.ndarray, v: np.ndarray, start: np.ndarray) -> Dominant:
    """The gradient of |λ| from right and left eigenvectors; none for a multiple eigenvalue or λ = 0."""
    radius, overlap = abs(value), np.vdot(v, u)
    lengths = np.linalg.norm(u) * np.linalg.norm(v)
    if radius == 0 or not np.isfinite(radius) or abs(overlap) * ILL_CONDITIONED < lengths:
        return Dominant(float(radius), None, start)
    s = np.outer(v.conj(), u) / overlap  # ENRNN paper, Prop. 3.2: S = v̄ uᵀ / v*u
    c = value.real * s.real + value.imag * s.imag  # C = α Re S + β Im S
    return Dominant(float(radius), c / radius, start)  # ∂ρ/∂T = C / ρ


def _unit(x: np.ndarray) -> np.ndarray:
    return x / (np.linalg.norm(x) or 1.0)


def _next_start(leading: np.ndarray) -> np.ndarray:
    """All leading vectors and a little of every direction, so that no eigenvalue that becomes dominant is missed."""
    everywhere = np.cos(math.sqrt(2) * np.arange(1, len(leading) + 1) ** 2)
    return _unit(_unit(leading.real.sum(1) + leading.imag.sum(1)) + 0.1 * _unit(everywhere))


# ---------------------------------------------------------------- for autograd


def plain_radius(t: Tensor) -> Tensor:
    """The spectral radius in plain torch: every order of derivative, forward mode and vmap."""
    return torch.linalg.eigvals(t).abs().amax(-1)


class Radius(torch.autograd.Function):
    """A precomputed spectral radius with its gradient; recomputed in plain torch for second derivatives."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, radius: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(t, slope)
        return radius.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        t, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            (again,) = torch.autograd.grad(plain_radius(t), t, grad, create_graph=True)
            return again, None, None
        return grad * slope, None, None


@torch.library.custom_op("kreiss::spectral_radius", mutates_args=())
def radius_op(t: Tensor) -> tuple[Tensor, Tensor]:
    """Spectral radius and gradient as one opaque operator, for torch.compile and torch.export."""
    eigenpair = dominant(linalg.to_numpy(t))
    return _as_tensors(eigenpair, t)


@radius_op.register_fake
def _(t: Tensor) -> tuple[Tensor, Tensor]:
    return t.new_empty(()), t.new_empty(t.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(output[1])


def _backward(ctx, grad: Tensor, _: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    (slope,) = ctx.saved_tensors
    return grad * slope


radius_op.register_autograd(_backward, setup_context=_setup)


def _as_tensors(eigenpair: Dominant, like: Tensor) -> tuple[Tensor, Tensor]:
    slope = torch.zeros_like(like) if eigenpair.slope is None else torch.from_numpy(eigenpair.slope).to(like)
    return like.new_tensor(eigenpair.radius), slope


def spectral_radius(t: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """ρ(T), differentiable, and the next starting vector (None if the eigenpair is not tracked)."""
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        radius: Tensor = radius_op(t)[0]
        return radius, None
    if t.is_meta or not derivatives.ordinary():
        return plain_radius(t), None
    eigenpair = dominant(linalg.to_numpy(t), None if start is None else linalg.to_numpy(start))
    with torch.no_grad():
        radius, slope = _as_tensors(eigenpair, t)
    return Radius.apply(t, radius, slope), torch.from_numpy(eigenpair.start)
