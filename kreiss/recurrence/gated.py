"""The gated recurrence, the same for every set of matrices.

    r_t, g_t = sigmoid(W h_{t−1} + s_t),   c_t = φ(r_t ⊙ V h_{t−1} + u_t; b),   h_t = g_t ⊙ h_{t−1} + (1 − g_t) ⊙ c_t

`run_gated` chooses the path as `kreiss.recurrence.run_plain` does: a hand-written backward pass in eager code, plain
autograd for other derivatives, one opaque operator under torch.compile, a scan under torch.export.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence.nonlinearity import APPLY, SLOPE
from kreiss.recurrence.unroll import Step, settled, unroll


def run_gated(
    u: Tensor,
    s: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    *,
    nonlinearity: str,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the gated recurrence over a sequence.

    Args:
        u: inputs of the candidate (T, B, N), T ≥ 1.
        s: inputs of the gates r and g (T, B, 2N).
        matrix: V (N, N).
        gates: W (2N, N), the rows of r, then those of g.
        others: see `kreiss.recurrence.recur`.

    Returns:
        States (T, B, N) and the last state computed (B, N).
    """
    if torch.compiler.is_exporting():  # without gradients: those of a scan are unreliable
        u, s, matrix, gates, h0 = (tensor.detach() for tensor in (u, s, matrix, gates, h0))
        out = states(u, s, matrix, gates, h0, None if bias is None else bias.detach(), None, nonlinearity, reverse)
    elif torch.compiler.is_compiling() and not derivatives.forward_mode():
        out = gated_op(u, s, matrix, gates, h0, bias, lengths, nonlinearity, reverse)[0]
    elif derivatives.ordinary() and _one_dtype(u, s, matrix, gates, h0):
        out = GatedRecurrence.apply(u, s, matrix, gates, h0, bias, lengths, nonlinearity, reverse)
    else:
        out = states(u, s, matrix, gates, h0, bias, lengths, nonlinearity, reverse)
    return out, out[0] if reverse else out[-1]


def _one_dtype(*tensors: Tensor) -> bool:
    device = tensors[0].device.type
    same = len({tensor.dtype for tensor in tensors}) == 1
    return same and device != "meta" and not torch.is_autocast_enabled(device)


# ---------------------------------------------------------------- one step, and the plain loop


def _gated_step(matrix: Tensor, gates: Tensor, bias: Tensor | None, nonlinearity: str, *, keep: bool) -> Step:
    """One time step of the state; with `keep` it also returns V h_{t−1}, the gates and the candidate."""
    n, both = len(matrix), torch.cat([matrix, gates]).mT  # one product for all three
    phi = APPLY[nonlinearity]

    def step(now: tuple[Tensor, Tensor], h: Tensor) -> tuple[Any, Tensor]:
        u, s = now
        products = h @ both
        opened = (s + products[..., n:]).sigmoid()
        candidate = phi(opened[..., :n] * products[..., :n] + u, bias)
        share = opened[..., n:]
        new = share * h + (1 - share) * candidate
        return (new, products[..., :n], opened, candidate) if keep else new, new

    return step


def states(
    u: Tensor,
    s: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """All states (T, B, N), in plain torch."""
    first, step = h0.to(u.dtype), _gated_step(matrix, gates, bias, nonlinearity, keep=False)
    out, last = unroll(step, (u, s), first, lengths=lengths, reverse=reverse)
    return settled(out, first, last, lengths, reverse)


# ---------------------------------------------------------------- with a hand-written backward pass


@torch.library.custom_op("kreiss::gated", mutates_args=())
def gated_op(
    u: Tensor,
    s: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, V h, gates and candidates of every step, as the backward pass needs them."""
    return _forward(u, s, matrix, gates, h0, bias, lengths, nonlinearity, reverse)


@torch.no_grad()
def _forward(
    u: Tensor,
    s: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, step = h0.to(u.dtype), _gated_step(matrix.to(u.dtype), gates.to(u.dtype), bias, nonlinearity, keep=True)
    (out, *rest), last = unroll(step, (u, s), first, lengths=lengths, reverse=reverse)
    products, opened, candidates = rest
    return settled(out, first, last, lengths, reverse), products, opened, candidates


@gated_op.register_fake
def _(
    u: Tensor,
    s: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return u.new_empty(u.shape), u.new_empty(u.shape), s.new_empty(s.shape), u.new_empty(u.shape)


@torch.library.custom_op("kreiss::gated_backward", mutates_args=())
def gated_backward_op(
    grad: Tensor,
    h: Tensor,
    products: Tensor,
    opened: Tensor,
    candidates: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, s, V, W and h0."""
    return _backward(
        grad, h, products, opened, candidates, matrix, gates, h0, lengths, nonlinearity, reverse
    )  # fmt: skip


def _backward(
    grad: Tensor,
    h: Tensor,
    products: Tensor,
    opened: Tensor,
    candidates: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    n = h.shape[-1]
    both, first = torch.cat([matrix, gates]).to(h.dtype), h0.to(h.dtype)
    before = torch.cat([h[1:], first[None]]) if reverse else torch.cat([first[None], h[:-1]])
    slopes = SLOPE[nonlinearity](candidates)
    valid = () if lengths is None else ((torch.arange(len(h), device=h.device)[:, None] < lengths)[..., None],)

    def step_back(now: tuple[Tensor, ...], carry: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        grad_h, previous, product, gate, candidate, slope, *mask = now
        back = grad_h + carry
        here = back * mask[0] if mask else back
        reset, keep = gate[:, :n], gate[:, n:]
        dz = here * (1 - keep) * slope
        to_reset = dz * product * reset * (1 - reset)
        to_keep = here * (previous - candidate) * keep * (1 - keep)
        inner = torch.cat([dz * reset, to_reset, to_keep], -1)  # of [V h; W h + s]
        carry = torch.addmm(here * keep, inner, both)
        return (dz, inner), carry + (back - here) if mask else carry

    inputs = (grad, before, products, opened, candidates, slopes, *valid)
    (grad_u, inner), carry = unroll(step_back, inputs, torch.zeros_like(first), reverse=not reverse)
    rows, previous = inner.flatten(0, 1), before.flatten(0, 1)
    grad_matrix, grad_gates = rows[:, :n].mT @ previous, rows[:, n:].mT @ previous
    grad_s = inner[..., n:].contiguous()
    return grad_u, grad_s, grad_matrix.to(matrix.dtype), grad_gates.to(gates.dtype), carry.to(h0.dtype)


@gated_backward_op.register_fake
def _(
    grad: Tensor,
    h: Tensor,
    products: Tensor,
    opened: Tensor,
    candidates: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    like = (h, opened, matrix, gates, h0)
    u, s, v, w, first = (tensor.new_empty(tensor.shape) for tensor in like)
    return u, s, v, w, first


def _bias_gradient(grad_u: Tensor, candidates: Tensor, nonlinearity: str) -> Tensor:
    """A modReLU bias acts along sign(z) = sign(c), an ordinary bias like u."""
    return (grad_u * candidates.sign() if nonlinearity == "modrelu" else grad_u).sum((0, 1))


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, _, matrix, gates, h0, bias, lengths, nonlinearity, reverse = inputs
    ctx.save_for_backward(*output, matrix, gates, h0, lengths)
    ctx.has_bias, ctx.nonlinearity, ctx.reverse = bias is not None, nonlinearity, reverse


def _op_backward(ctx, grad: Tensor, *_: Tensor):  # type: ignore[no-untyped-def]
    h, products, opened, candidates, matrix, gates, h0, lengths = ctx.saved_tensors
    grads = torch.ops.kreiss.gated_backward(
        grad.contiguous(), h, products, opened, candidates, matrix, gates, h0, lengths, ctx.nonlinearity, ctx.reverse
    )
    grad_bias = _bias_gradient(grads[0], candidates, ctx.nonlinearity) if ctx.has_bias else None
    return *grads, grad_bias, None, None, None


gated_op.register_autograd(_op_backward, setup_context=_setup)


class GatedRecurrence(torch.autograd.Function):
    """The gated recurrence for eager code; second derivatives use the plain loop."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        saved: tuple[Tensor, ...] = _forward(*inputs)
        ctx.save_for_backward(*inputs[:7], *saved)
        ctx.nonlinearity, ctx.reverse = inputs[7:]
        return saved[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, s, matrix, gates, h0, bias, lengths, h, products, opened, candidates = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            inputs = (u, s, matrix, gates, h0, bias)
            again = states(*inputs, lengths, ctx.nonlinearity, ctx.reverse)
            positions = [i for i, needed in enumerate(ctx.needs_input_grad[:6]) if needed]
            gradients = torch.autograd.grad(again, [inputs[i] for i in positions], grad, create_graph=True)
            by_position = dict(zip(positions, gradients, strict=True))
            return *(by_position.get(i) for i in range(6)), None, None, None
        grads = _backward(
            grad, h, products, opened, candidates, matrix, gates, h0, lengths, ctx.nonlinearity, ctx.reverse
        )
        grad_bias = None if bias is None else _bias_gradient(grads[0], candidates, ctx.nonlinearity)
        return *grads, grad_bias, None, None, None
