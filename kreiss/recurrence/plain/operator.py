"""The recurrence as one opaque torch operator, so that compiled graphs do not grow with time.

The forward pass stores only the states and, for the complex modReLU, |h|/|z|; the backward pass is hand-written.
Second derivatives raise an error. Eager code uses the reference path, which supports them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.recurrence.nonlinearity import stretch, through
from kreiss.recurrence.plain import fused, kernel, reference
from kreiss.recurrence.unroll import unroll


def states(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """All states (T, B, N), by the operator."""
    out: Tensor = recur_op(u, matrix, h0, bias, lengths, nonlinearity, reverse)[0]
    return out


@torch.library.custom_op("kreiss::recur", mutates_args=())
def recur_op(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """States (T, B, N), and |h|/|z| of complex numbers (T, B, N/2); an empty tensor for real ones."""
    matrix, h0 = matrix.to(u.dtype), h0.to(u.dtype)
    pairs = nonlinearity == "cmodrelu"
    with torch.no_grad():
        if not fused.usable(u, matrix, matrix, h0, bias, lengths):
            out = reference.states(u, matrix, h0, bias, lengths, nonlinearity, reverse)
            z = u + _before(out, h0, reverse) @ matrix.mT if pairs else u
            return out, stretch(z, bias).contiguous() if pairs else u.new_empty(0)
        out = u.clone(memory_format=torch.contiguous_format)
        stretched = kernel.room_for_stretch(out) if pairs else u.new_empty(0)
        kernel.Forward(matrix, bias, lengths, nonlinearity, reverse).piece(0, h0, out, stretched if pairs else None)
        return out, stretched


def _before(states: Tensor, h0: Tensor, reverse: bool) -> Tensor:
    """The state before each step."""
    return torch.cat([states[1:], h0[None]]) if reverse else torch.cat([h0[None], states[:-1]])


@recur_op.register_fake
def _(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    pairs = (*u.shape[:-1], u.shape[-1] // 2)
    return u.new_empty(u.shape), u.new_empty(pairs if nonlinearity == "cmodrelu" else (0,))


@torch.library.custom_op("kreiss::recur_backward", mutates_args=())
def recur_backward_op(
    grad: Tensor,
    states: Tensor,
    kept: Tensor,
    matrix: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u (T, B, N), of the matrix, of h0 and of a bias."""
    matrix_, h0_ = matrix.to(states.dtype), h0.to(states.dtype)
    stretched = kept if nonlinearity == "cmodrelu" else None
    if fused.usable(states, matrix_, matrix_, h0_, None, lengths):
        grad_u, carry = states.new_zeros(states.shape), h0_.new_zeros(h0_.shape)  # contiguous
        backward = kernel.Backward(matrix_, states.shape[1], lengths, nonlinearity, reverse, bias=True)
        backward.piece(0, states, grad, carry, grad_u, stretched)
        grad_bias = backward.grad_bias
        assert grad_bias is not None
    else:
        grad_u, carry, grad_bias = _loop_back(grad, states, stretched, matrix_, lengths, nonlinearity, reverse)
    grad_matrix = grad_u.flatten(0, 1).mT @ _before(states, h0_, reverse).flatten(0, 1)
    return grad_u, grad_matrix.to(matrix.dtype), carry.to(h0.dtype), grad_bias


def _loop_back(
    grad: Tensor,
    states: Tensor,
    stretched: Tensor | None,
    matrix: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass in plain torch: gradients of u, of h0 and of the bias."""
    wide = torch.promote_types(states.dtype, torch.float32)  # for sums over time
    valid = torch.arange(len(states), device=states.device)[:, None] < lengths if lengths is not None else None
    optional = [] if stretched is None else [stretched]
    masks = [] if valid is None else [valid[..., None]]

    def step_back(now: tuple[Tensor, ...], state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        (grad_h, h, *rest), (carry, grad_bias) = now, state
        back = grad_h + carry
        inner, to_bias = through(nonlinearity, back, h, rest[0] if optional else None)
        if masks:
            inner, to_bias = torch.where(rest[-1], inner, 0.0), torch.where(rest[-1], to_bias, 0.0)
            carry = inner @ matrix + back * ~rest[-1]
        else:
            carry = inner @ matrix
        return inner, (carry, grad_bias + to_bias.sum(0))

    first = (states.new_zeros(states.shape[1:]), states.new_zeros(states.shape[-1], dtype=wide))
    grad_u, (carry, grad_bias) = unroll(step_back, (grad, states, *optional, *masks), first, reverse=not reverse)
    return grad_u, carry, grad_bias.to(states.dtype)


@recur_backward_op.register_fake
def _(
    grad: Tensor,
    states: Tensor,
    kept: Tensor,
    matrix: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bias = states.new_empty(states.shape[-1])
    return states.new_empty(states.shape), matrix.new_empty(matrix.shape), h0.new_empty(h0.shape), bias


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, matrix, h0, bias, lengths, nonlinearity, reverse = inputs
    ctx.save_for_backward(*output, matrix, h0, lengths)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.nonlinearity, ctx.reverse = nonlinearity, reverse


def _backward(ctx, grad: Tensor, _: Tensor):  # type: ignore[no-untyped-def]
    gradients = torch.ops.kreiss.recur_backward(grad.contiguous(), *ctx.saved_tensors, ctx.nonlinearity, ctx.reverse)
    grad_u, grad_matrix, grad_h0, grad_bias = gradients
    grad_bias = None if ctx.bias_dtype is None else grad_bias.to(ctx.bias_dtype)
    return grad_u, grad_matrix, grad_h0, grad_bias, None, None, None


recur_op.register_autograd(_backward, setup_context=_setup)
