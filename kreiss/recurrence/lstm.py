"""The LSTM recurrence; h may be cut off from the gradient on its way into the gates.

    z_t = V h_{t−1} + u_t,   c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g),   h_t = σ(o) ⊙ tanh(c_t)

Weights have torch's rows, i, f, g, o. Inside, z_t = (o, i, f, g): the three sigmoids are then one slice, and so are the
three gates whose gradient comes through c. `run_lstm` chooses the path: a hand-written backward pass in eager code,
plain autograd for other derivatives and for packed sequences, a scan under torch.export.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence.plain.reference import drive
from kreiss.recurrence.unroll import Step, settled, unroll


def run_lstm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    matrix: Tensor,
    first: tuple[Tensor, Tensor],
    cut: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run an LSTM over a sequence.

    Args:
        x: (T, B, I), T ≥ 1, or symbols (T, B).
        weight, matrix, bias: U (4N, I), V (4N, N) and b (4N,), rows in torch's order.
        first: h_0 and c_0 (B, N).
        cut: (T,), steps at which the gradient does not pass from the gates to h_{t−1}; none by default.
        lengths: (B,), valid steps of each sequence.

    Returns:
        States h (T, B, N), and the last h and c (B, N).
    """
    u, v = inner_drive(x, weight, bias), inner_rows(matrix)
    h0, c0 = (part.to(u.dtype) for part in first)
    if torch.compiler.is_exporting():  # without gradients: those of a scan are unreliable
        out, c = states(u.detach(), v.detach(), h0.detach(), c0.detach(), None, None)
    elif lengths is None and takes(u, v, h0, c0):
        out, c = LSTMRecurrence.apply(u, v, h0, c0, None if cut is None else cut.cpu())
    else:
        out, c = states(u, v, h0, c0, cut, lengths)
    return out, (out[-1].clone(), c)  # changing the outputs in place must not change the state


def takes(*tensors: Tensor) -> bool:
    """Whether the hand-written backward passes apply: ordinary derivatives, one dtype, no autocast."""
    device = tensors[0].device.type
    same = len({tensor.dtype for tensor in tensors}) == 1
    return derivatives.ordinary() and same and device != "meta" and not torch.is_autocast_enabled(device)


# ---------------------------------------------------------------- the order of gates


def inner_rows(tensor: Tensor) -> Tensor:
    """Rows i, f, g, o (4N, …) in the order o, i, f, g."""
    return tensor.roll(len(tensor) // 4, 0)


def inner_drive(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """u = U x + b (T, B, 4N) in the order o, i, f, g."""
    u = drive(x, inner_rows(weight))
    return u if bias is None else u + inner_rows(bias).to(u.dtype)


# ---------------------------------------------------------------- one step, and the plain loop


def cell(z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h_t and c_t from z_t = (o, i, f, g) and c_{t−1}."""
    o, i, f, g = z.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _plain_step(matrix: Tensor) -> Step:
    transposed = matrix.mT

    def step(now: tuple[Tensor, ...], state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        u, *cut = now
        h, c = state
        if cut:
            h = torch.where(cut[0], h.detach(), h)
        h, c = cell(u + h @ transposed, c)
        return h, (h, c)

    return step


def states(
    u: Tensor, matrix: Tensor, h0: Tensor, c0: Tensor, cut: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """All h (T, B, N) and the last c (B, N), in plain torch; u and V in the order o, i, f, g."""
    inputs = (u,) if cut is None else (u, cut.to(u.device))
    out, (h, c) = unroll(_plain_step(matrix.to(u.dtype)), inputs, (h0, c0), lengths=lengths)
    return settled(out, h0, h, lengths, reverse=False), c


# ---------------------------------------------------------------- with a hand-written backward pass


def by_gate(z: Tensor) -> tuple[Tensor, ...]:
    """Views (T, B, N) of each of the gates o, i, f, g in (T, B, 4N)."""
    return z.unflatten(-1, (4, -1)).unbind(-2)


def activated(z: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The parts of z (T, B, 4N) that pass through a sigmoid and through tanh."""
    return z[..., : 3 * n], z[..., 3 * n :]


@torch.no_grad()
def _forward(u: Tensor, matrix: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h, c (T, B, N) and gates (T, B, 4N) of every step."""
    n, transposed = h0.shape[-1], matrix.mT.contiguous()
    z, cells = torch.empty_like(u, memory_format=torch.contiguous_format), u.new_empty(*u.shape[:2], n)

    def step(now: tuple[Tensor, ...], state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        u, z, sigmoids, tanh, o, i, f, g, new = now
        h, c = state
        torch.addmm(u, h, transposed, out=z)
        sigmoids.sigmoid_()
        tanh.tanh_()
        torch.mul(f, c, out=new).addcmul_(i, g)
        h = new.tanh().mul_(o)
        return h, (h, new)

    h, _ = unroll(step, (u, z, *activated(z, n), *by_gate(z), cells), (h0, c0))
    return h, cells, z


def slopes(z: Tensor, c: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
    """What the gradient of h_t and c_t is multiplied by, for all steps at once.

    Returns:
        ∂h_t/∂c_t (T, B, N), and (T, B, 4, N): ∂h_t/∂o, then ∂c_t/∂(i, f, g).
    """
    o, i, f, g = by_gate(z)
    reached = c.tanh()
    before = torch.cat([c0[None], c[:-1]])
    parts = (reached * o * (1 - o), g * i * (1 - i), before * f * (1 - f), i * (1 - g * g))
    return o * (1 - reached * reached), torch.stack(parts, 2)


def _backward(
    grad: Tensor | None, grad_c: Tensor | None, saved: tuple[Tensor, ...], cut: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, V, h_0 and c_0."""
    matrix, h0, c0, h, c, z = saved
    through, by_gates = slopes(z, c, c0)
    dz = torch.empty_like(by_gates)
    grad = torch.zeros_like(h) if grad is None else grad

    def step_back(now: tuple[Tensor, ...], carry: tuple[Tensor, Tensor]) -> tuple[tuple[()], tuple[Tensor, Tensor]]:
        grad, through, to_o, to_rest, f, row, d_o, d_rest, *cut = now
        dh, dc = grad + carry[0], carry[1]
        dc = torch.addcmul(dc, dh, through)
        torch.mul(to_o, dh, out=d_o)
        torch.mul(to_rest, dc.unsqueeze(1), out=d_rest)
        return (), (nothing if cut and cut[0] else row @ matrix, dc * f)

    nothing = torch.zeros_like(h0)
    rows, f = dz.flatten(2), by_gate(z)[2]
    inputs = (grad, through, by_gates[:, :, 0], by_gates[:, :, 1:], f, rows, dz[:, :, 0], dz[:, :, 1:])
    first = nothing, nothing if grad_c is None else grad_c
    _, (grad_h0, grad_c0) = unroll(step_back, inputs if cut is None else (*inputs, cut), first, reverse=True)
    before = torch.cat([h0[None], h[:-1]])
    return rows, rows.flatten(0, 1).mT @ before.flatten(0, 1), grad_h0, grad_c0


class LSTMRecurrence(torch.autograd.Function):
    """All h and the last c for eager code; second derivatives use the plain loop."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, matrix: Tensor, h0: Tensor, c0: Tensor, cut: Tensor | None) -> Any:
        h, c, z = _forward(u, matrix, h0, c0)
        ctx.save_for_backward(u, matrix, h0, c0, h, c, z)
        ctx.set_materialize_grads(False)
        ctx.cut = cut
        return h, c[-1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_c: Tensor | None) -> tuple[Tensor | None, ...]:
        u, *saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return *gradients_again(ctx, states, (u, *saved[:3]), (ctx.cut, None), (grad, grad_c)), None
        return *_backward(grad, grad_c, tuple(saved), ctx.cut), None


def gradients_again(ctx: Any, run: Any, inputs: tuple[Any, ...], rest: tuple[Any, ...], grads: Any) -> list[Any]:
    """Gradients of the inputs that need them, differentiable: through the plain loop `run`."""
    places = [i for i, needed in enumerate(ctx.needs_input_grad[: len(inputs)]) if needed]
    reached = [(out, grad) for out, grad in zip(run(*inputs, *rest), grads, strict=True) if grad is not None]
    found = torch.autograd.grad(
        [out for out, _ in reached], [inputs[i] for i in places], [grad for _, grad in reached],
        create_graph=True, allow_unused=True,
    )  # fmt: skip
    by_place = dict(zip(places, found, strict=True))
    return [by_place.get(i) for i in range(len(inputs))]
