"""V = P M Pᵀ with P = B·r(A), differentiated in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import linalg


class Conjugation(torch.autograd.Function):
    """V = P M Pᵀ, P = B(2X − I), X = (I − A/2)⁻¹, from the packed skew A and the core M.

    With D = PᵀGP for the gradient G of V, the gradient of M is D and that of A is X(S − Sᵀ)Xᵀ, S = DMᵀ + DᵀM, because a
    step dA turns P by P(I + XᵀdA X). Six products and no second inverse; at A = 0 (just rebased) X = I and the forward
    pass needs no inverse either.
    """

    @staticmethod
    def forward(ctx: Any, free: Tensor, core: Tensor, base: Tensor, index: Tensor) -> Tensor:
        n = len(core)
        x = None
        p = base
        if free.any():
            a = linalg.skew(free, index, n).mul_(-0.5)
            a.diagonal().add_(1)
            x = torch.linalg.inv(a)
            c = 2 * x
            c.diagonal().sub_(1)
            p = base @ c
        ctx.save_for_backward(free, core, base, index, p, x)
        return (p @ core) @ p.mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        free, core, base, index, p, x = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked for with create_graph=True: gradients that can be differentiated again
            q = base @ linalg.cayley(linalg.skew(free, index, len(core)) / -2)
            wanted = [tensor for tensor, needed in zip((free, core), ctx.needs_input_grad, strict=False) if needed]
            found = iter(torch.autograd.grad(q @ core @ q.mT, wanted, grad, create_graph=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
        d = p.mT @ grad @ p
        grad_free = None
        if ctx.needs_input_grad[0]:
            s = torch.addmm(d @ core.mT, d.mT, core)
            turn = s - s.mT
            if x is not None:
                turn = x @ turn @ x.mT
            grad_free = turn.view(-1)[index]
        return grad_free, d if ctx.needs_input_grad[1] else None, None, None
