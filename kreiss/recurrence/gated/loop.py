"""The gated recurrence in torch with a hand-written backward pass, for where the kernel does not apply."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss.recurrence.gated.reference import gated_step, states
from kreiss.recurrence.nonlinearity import SLOPE
from kreiss.recurrence.unroll import settled, unroll

Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.no_grad()
def forward(
    driven: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    gate_bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """States (T, B, N), and c, r, g and V h of every step (T, B, 4N), as the backward pass needs them."""
    dtype = driven.dtype
    first, step = h0.to(dtype), gated_step(matrix.to(dtype), gates.to(dtype), bias, gate_bias, nonlinearity, keep=True)
    (out, kept), last = unroll(step, driven, first, lengths=lengths, reverse=reverse)
    return settled(out, first, last, lengths, reverse), kept


def backward(
    grad: Tensor,
    h: Tensor,
    kept: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Six:
    """Gradients of [u, s] (T, B, 3N), V, W, h0, b and d."""
    n = h.shape[-1]
    both, first = torch.cat([gates, matrix]).to(h.dtype), h0.to(h.dtype)
    before = torch.cat([h[1:], first[None]]) if reverse else torch.cat([first[None], h[:-1]])
    valid = () if lengths is None else ((torch.arange(len(h), device=h.device)[:, None] < lengths)[..., None],)

    def step_back(now: tuple[Tensor, ...], carry: Tensor) -> tuple[Tensor, Tensor]:
        grad_h, previous, stored, *mask = now
        candidate, reset, keep, product = stored.split(n, -1)
        back = grad_h + carry
        here = back * mask[0] if mask else back
        dz = here * (1 - keep) * SLOPE[nonlinearity](candidate)
        to_reset = dz * product * reset * (1 - reset)
        to_keep = here * (previous - candidate) * keep * (1 - keep)
        inner = torch.cat([dz, to_reset, to_keep, dz * reset], -1)  # of u, s and V h
        carry = torch.addmm(here * keep, inner[:, n:], both)
        return inner, carry + (back - here) if mask else carry

    inner, carry = unroll(step_back, (grad, before, kept, *valid), torch.zeros_like(first), reverse=not reverse)
    product = inner[..., n:].flatten(0, 1).mT @ before.flatten(0, 1)
    grad_driven = inner[..., : 3 * n].contiguous()
    grad_u, grad_s = grad_driven.split([n, 2 * n], -1)
    along = grad_u * kept[..., :n].sign() if nonlinearity == "modrelu" else grad_u  # sign(z) = sign(c)
    return (
        grad_driven,
        product[2 * n :].to(matrix.dtype),
        product[: 2 * n].to(gates.dtype),
        carry.to(h0.dtype),
        along.sum((0, 1)),
        grad_s.sum((0, 1)),
    )


class GatedRecurrence(torch.autograd.Function):
    """All states in eager code; second derivatives use the plain loop."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        out, kept = forward(*inputs)
        ctx.save_for_backward(*inputs[:7], out, kept)
        ctx.nonlinearity, ctx.reverse = inputs[7:]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        driven, matrix, gates, h0, bias, gate_bias, lengths, h, kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            inputs = (driven, matrix, gates, h0, bias, gate_bias)
            again = states(*inputs, lengths, ctx.nonlinearity, ctx.reverse)
            positions = [i for i, needed in enumerate(ctx.needs_input_grad[:6]) if needed]
            gradients = torch.autograd.grad(again, [inputs[i] for i in positions], grad, create_graph=True)
            by_position = dict(zip(positions, gradients, strict=True))
            return *(by_position.get(i) for i in range(6)), None, None, None
        *grads, to_bias, to_gate_bias = backward(
            grad, h, kept, matrix, gates, h0, lengths, ctx.nonlinearity, ctx.reverse
        )
        return (
            *grads,
            None if bias is None else to_bias,
            None if gate_bias is None else to_gate_bias,
            *(None, None, None),
        )
