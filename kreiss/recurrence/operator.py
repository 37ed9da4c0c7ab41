"""The recurrence as one opaque torch operator, so that compiled graphs do not grow with time.

Forward keeps only the states; backward is written out. Neither is differentiable again: torch says so
with an error. Eager code uses the reference path, which is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.recurrence import fused, kernel, reference
from kreiss.recurrence.nonlinearity import through, to_bias


@torch.library.custom_op("kreiss::recur", mutates_args=())
def recur_op(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """States (T, B, N)."""
    matrix, h0 = matrix.to(u.dtype), h0.to(u.dtype)
    with torch.no_grad():
        if not fused.usable(u, matrix, matrix, h0, bias, lengths):
            return reference.states(u, matrix, h0, bias, lengths, nonlinearity, reverse)
        out = u.clone(memory_format=torch.contiguous_format)
        kernel.Forward(matrix, bias, lengths, nonlinearity, reverse).piece(0, h0, out)
        return out


@recur_op.register_fake
def _(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    return u.new_empty(u.shape)


@torch.library.custom_op("kreiss::recur_backward", mutates_args=())
def recur_backward_op(
    grad: Tensor,
    states: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to u (T, B, N), to the matrix and to h0."""
    matrix_, h0_ = matrix.to(states.dtype), h0.to(states.dtype)
    grad_u, carry = torch.zeros_like(states), torch.zeros_like(h0_)
    if fused.usable(states, matrix_, matrix_, h0_, bias, lengths):
        backward = kernel.Backward(matrix_, states.shape[1], lengths, nonlinearity, reverse, threshold=bias)
        backward.piece(0, states, grad, carry, grad_u)
    else:
        carry = _loop_back(grad, states, matrix_, carry, bias, lengths, nonlinearity, reverse, grad_u)
    before = torch.cat([states[1:], h0_[None]]) if reverse else torch.cat([h0_[None], states[:-1]])
    grad_matrix = grad_u.flatten(0, 1).mT @ before.flatten(0, 1)
    return grad_u, grad_matrix.to(matrix.dtype), carry.to(h0.dtype)


def _loop_back(
    grad: Tensor,
    states: Tensor,
    matrix: Tensor,
    carry: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    grad_u: Tensor,
) -> Tensor:
    """The backward pass in plain torch: fills the gradient of u, returns that of h0."""
    total = len(states)
    for t in range(total) if reverse else reversed(range(total)):
        back = grad[t] + carry
        inner = through(nonlinearity, back, states[t], bias)
        if lengths is not None:
            valid = (t < lengths)[:, None]
            inner = inner * valid
            carry = inner @ matrix + back * ~valid
        else:
            carry = inner @ matrix
        grad_u[t] = inner
    return carry


@recur_backward_op.register_fake
def _(
    grad: Tensor,
    states: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return states.new_empty(states.shape), matrix.new_empty(matrix.shape), h0.new_empty(h0.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, matrix, h0, bias, lengths, nonlinearity, reverse = inputs
    ctx.save_for_backward(output, matrix, h0, bias, lengths)
    ctx.nonlinearity, ctx.reverse = nonlinearity, reverse


def _backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
    states, matrix, h0, bias, lengths = ctx.saved_tensors
    grad_u, grad_matrix, grad_h0 = torch.ops.kreiss.recur_backward(
        grad.contiguous(), states, matrix, h0, bias, lengths, ctx.nonlinearity, ctx.reverse
    )
    grad_bias = None if bias is None else to_bias(ctx.nonlinearity, grad_u, states).sum((0, 1))
    return grad_u, grad_matrix, grad_h0, grad_bias, None, None, None


recur_op.register_autograd(_backward, setup_context=_setup)
