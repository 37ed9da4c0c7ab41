"""P = B·r(A) with the Cayley retraction, and V = P M Pᵀ with M = Λ + T, differentiated in closed form."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from kreiss import linalg
from kreiss.sets import basepoint


class Core(basepoint.Form, Protocol):
    """Computes M from the free tensors, the first of which is that of A."""

    def core(self, *free: Tensor) -> Tensor: ...

    def core_gradient(self, grad: Tensor, *free: Tensor) -> list[Tensor]: ...


class Conjugation(torch.autograd.Function):
    """V = P M Pᵀ, P = B(2X − I), X = (I − A/2)⁻¹, from the packed skew A and the free tensors of M.

    With D = PᵀGP for the gradient G of V, the gradient of M is D and that of A is X(S − Sᵀ)Xᵀ, S = DMᵀ + DᵀM, because a
    step dA changes P to P(I + XᵀdA X). Six products, three of them with the (block) lower triangular M, and no second
    inverse; at A = 0 (after a rebase) X = I and the forward pass needs no inverse either.
    """

    @staticmethod
    def forward(ctx: Any, maker: Core, base: Tensor, index: Tensor, *free: Tensor) -> Tensor:
        ctx.maker = maker
        at_base = basepoint.schur(maker, base, free)
        if at_base is not None:
            matrix, core = at_base
            ctx.save_for_backward(core, base, index, base, None, *free)
            return matrix
        core = maker.core(*free)
        x, p = _turned(base, free[0], index)
        ctx.save_for_backward(core, base, index, p, x, *free)
        return linalg.times_lower(p, core) @ p.mT  # eq. (5): V = P(Λ + T)Pᵀ

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        core, base, index, p, x, *free = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: gradients must be differentiable
            return (None, None, None, *_differentiable(ctx, base, index, free, grad))
        turns = ctx.needs_input_grad[3]
        if x is None:
            found = basepoint.schur_gradients(ctx.maker, base, core, free, grad, turns=turns)
            if found is not None:
                return (None, None, None, *([] if turns else [None]), *found)
        d = p.mT @ grad @ p
        gradients: list[Tensor | None] = [None, *ctx.maker.core_gradient(d, *free)]
        if turns:
            s = linalg.times_lower_transposed(d, core).add_(linalg.times_lower(d.mT, core))
            gradients[0] = _packed_turn(s, x, index)
        return (None, None, None, *gradients)


class Turn(torch.autograd.Function):
    """P = B(2X − I), X = (I − A/2)⁻¹, from the packed skew A; the gradient is X(D − Dᵀ)Xᵀ, D = PᵀG."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, index: Tensor, free: Tensor) -> Tensor:
        at_base = basepoint.turn(base, free)
        if at_base is not None:
            ctx.save_for_backward(base, index, free, None, None)
            return at_base
        x, p = _turned(base, free, index)
        ctx.save_for_backward(base, index, free, x, None if x is None else p)
        return p if x is not None else base.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        base, index, free, x, p = ctx.saved_tensors
        if torch.is_grad_enabled():
            q = base @ linalg.cayley(linalg.skew(free, index, len(base)) / -2)
            return None, None, *torch.autograd.grad(q, [free], grad, create_graph=True)
        gradient = basepoint.turn_gradient(base, free, grad) if x is None else None
        if gradient is None:
            gradient = _packed_turn((base if p is None else p).mT @ grad, x, index)
        return None, None, gradient


def _turned(base: Tensor, free: Tensor, index: Tensor) -> tuple[Tensor | None, Tensor]:
    """X and P; X is None, standing for I, at A = 0."""
    if not free.any():
        return None, base
    a = linalg.skew(free, index, len(base)).mul_(-0.5)
    a.diagonal().add_(1)
    x = torch.linalg.inv(a)
    c = 2 * x
    c.diagonal().sub_(1)
    return x, base @ c


def _packed_turn(s: Tensor, x: Tensor | None, index: Tensor) -> Tensor:
    """The packed X(S − Sᵀ)Xᵀ."""
    turn = s - s.mT
    if x is not None:
        turn = x @ turn @ x.mT
    return turn.view(-1).index_select(0, index)


def _differentiable(ctx: Any, base: Tensor, index: Tensor, free: list[Tensor], grad: Tensor) -> list[Tensor | None]:
    """The same gradients by plain differentiable functions."""
    q = base @ linalg.cayley(linalg.skew(free[0], index, len(base)) / -2)
    matrix = q @ ctx.maker.core(*free) @ q.mT
    needed = ctx.needs_input_grad[3:]
    inputs = [tensor for tensor, needs in zip(free, needed, strict=True) if needs]
    gradients = iter(torch.autograd.grad(matrix, inputs, grad, create_graph=True))
    return [next(gradients) if needs else None for needs in needed]
