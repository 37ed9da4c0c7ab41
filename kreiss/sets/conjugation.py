"""V = P M Pᵀ with P = B·r(A) and M = Λ + T, differentiated in closed form."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from kreiss import linalg


class Core(Protocol):
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
        core = maker.core(*free)
        x, p = None, base
        if free[0].any():
            a = linalg.skew(free[0], index, len(base)).mul_(-0.5)
            a.diagonal().add_(1)
            x = torch.linalg.inv(a)
            c = 2 * x
            c.diagonal().sub_(1)
            p = base @ c
        ctx.maker = maker
        ctx.save_for_backward(core, base, index, p, x, *free)
        return linalg.times_lower(p, core) @ p.mT  # eq. (5): V = P(Λ + T)Pᵀ

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        core, base, index, p, x, *free = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: gradients must be differentiable
            return (None, None, None, *_differentiable(ctx, base, index, free, grad))
        d = p.mT @ grad @ p
        gradients: list[Tensor | None] = [None, *ctx.maker.core_gradient(d, *free)]
        if ctx.needs_input_grad[3]:
            s = linalg.times_lower_transposed(d, core).add_(linalg.times_lower(d.mT, core))
            turn = s - s.mT
            if x is not None:
                turn = x @ turn @ x.mT
            gradients[0] = turn.view(-1).index_select(0, index)
        return (None, None, None, *gradients)


def _differentiable(ctx: Any, base: Tensor, index: Tensor, free: list[Tensor], grad: Tensor) -> list[Tensor | None]:
    """The same gradients by plain differentiable functions."""
    q = base @ linalg.cayley(linalg.skew(free[0], index, len(base)) / -2)
    matrix = q @ ctx.maker.core(*free) @ q.mT
    needed = ctx.needs_input_grad[3:]
    inputs = [tensor for tensor, needs in zip(free, needed, strict=True) if needs]
    gradients = iter(torch.autograd.grad(matrix, inputs, grad, create_graph=True))
    return [next(gradients) if needs else None for needs in needed]
