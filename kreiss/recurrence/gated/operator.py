"""The gated recurrence as one opaque torch operator, so that compiled graphs do not grow with time.

Second derivatives raise an error. Eager code supports them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.recurrence.gated import fused, loop

NEEDED = (True, False, True, True, True, True, True)  # all but those of input weights, which the operator does not have


@torch.library.custom_op("kreiss::gated", mutates_args=())
def gated_op(
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
    """States (T, B, N), and c, r, g and V h of every step (T, B, 4N); inputs are u, s side by side (T, B, 3N)."""
    matrix, gates, h0 = (tensor.to(driven.dtype) for tensor in (matrix, gates, h0))
    with torch.no_grad():
        if fused.usable(driven, None, matrix, gates, h0, bias, gate_bias, lengths):
            return fused.forward(driven, None, bias, gate_bias, matrix, gates, h0, lengths, nonlinearity, reverse)
        return loop.forward(driven, matrix, gates, h0, bias, gate_bias, lengths, nonlinearity, reverse)


@gated_op.register_fake
def _(
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
    rows, n = driven.shape[:-1], matrix.shape[-1]
    return driven.new_empty(*rows, n), driven.new_empty(*rows, 4 * n)


@torch.library.custom_op("kreiss::gated_backward", mutates_args=())
def gated_backward_op(
    grad: Tensor,
    states: Tensor,
    kept: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of [u, s], V, W, h0, b and d."""
    matrix_, gates_, h0_ = (tensor.to(states.dtype) for tensor in (matrix, gates, h0))
    driven = kept[..., : 3 * len(matrix)]  # as large as the inputs, whose numbers the gradient does not need
    if not fused.usable(driven, None, matrix_, gates_, h0_, None, None, lengths):
        return loop.backward(grad, states, kept, matrix, gates, h0, lengths, nonlinearity, reverse)
    found = fused.gradients(
        NEEDED, driven, None, matrix_, gates_, h0_, lengths, states, kept, grad, None, nonlinearity, reverse
    )
    to_driven, _, to_bias, to_gate_bias, to_matrix, to_gates, to_h0 = (
        None if tensor is None else tensor.contiguous() for tensor in found
    )
    outputs = (to_driven, to_matrix, to_gates, to_h0, to_bias, to_gate_bias)
    likes = (states, matrix, gates, h0, states, states)
    a, b, c, d, e, f = (_own(tensor, like) for tensor, like in zip(outputs, likes, strict=True))
    return a, b, c, d, e, f


def _own(tensor: Tensor | None, like: Tensor) -> Tensor:
    """The gradient in the dtype of its tensor, in memory of its own, as an operator must return it."""
    assert tensor is not None
    return tensor.to(like.dtype) if tensor.dtype != like.dtype else tensor.clone() if tensor._is_view() else tensor


@gated_backward_op.register_fake
def _(
    grad: Tensor,
    states: Tensor,
    kept: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    n = matrix.shape[-1]
    inputs = states.new_empty(*states.shape[:-1], 3 * n)
    weights = (tensor.new_empty(tensor.shape) for tensor in (matrix, gates, h0))
    v, w, first = weights
    return inputs, v, w, first, states.new_empty(n), states.new_empty(2 * n)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, matrix, gates, h0, bias, gate_bias, lengths, nonlinearity, reverse = inputs
    ctx.save_for_backward(*output, matrix, gates, h0, lengths)
    ctx.bias_dtypes = [None if tensor is None else tensor.dtype for tensor in (bias, gate_bias)]
    ctx.nonlinearity, ctx.reverse = nonlinearity, reverse


def _backward(ctx, grad: Tensor, _: Tensor):  # type: ignore[no-untyped-def]
    *grads, to_bias, to_gate_bias = torch.ops.kreiss.gated_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.nonlinearity, ctx.reverse
    )
    biases = [
        None if dtype is None else tensor.to(dtype)
        for tensor, dtype in zip((to_bias, to_gate_bias), ctx.bias_dtypes, strict=True)
    ]
    return *grads, *biases, None, None, None


gated_op.register_autograd(_backward, setup_context=_setup)
