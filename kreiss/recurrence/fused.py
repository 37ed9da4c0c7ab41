"""The fast path: input product, recurrence and gradients as one autograd function around the kernel.

Memory of a training pass is one buffer of states: states are written where the inputs would have been, and the backward
pass works through pieces of about 2,048 rows, each followed by one large product for the gradient of V.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence import kernel, reference

PIECE_ROWS = 2048
WIDEST_INPUT = 32  # vectors up to this many features go through the kernel, wider ones through one large product


def usable(x: Tensor, weight: Tensor | None, matrix: Tensor, h0: Tensor) -> bool:
    """Whether the kernel computes this, and what asks for it is ordinary first-order autograd."""
    if not derivatives.ordinary() or torch.is_autocast_enabled("cpu"):
        return False
    dtype = matrix.dtype
    if dtype not in (torch.float32, torch.float64) or h0.numel() == 0 or kernel.library() is None:
        return False
    for tensor in (x, matrix if weight is None else weight, matrix, h0):
        if type(tensor) not in (Tensor, torch.nn.Parameter) or not tensor.is_cpu:
            return False
        if tensor.dtype != dtype and not (tensor is x and not x.is_floating_point()):
            return False
    return True


def _thin(x: Tensor, weight: Tensor | None) -> bool:
    return weight is not None and (not x.is_floating_point() or x.shape[-1] <= WIDEST_INPUT)


class Cell(torch.autograd.Function):
    """States and last state of h_t = φ(V h_{t−1} + U x_t; b); x may be symbols, columns of U; no U means U = I."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        matrix: Tensor,
        h0: Tensor,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
    ) -> tuple[Tensor, Tensor]:
        states = matrix.new_empty(x.shape[0], x.shape[1], len(matrix))
        if _thin(x, weight):
            kernel.forward_(states, matrix, h0, bias, lengths, nonlinearity, reverse, x, weight)
        else:
            if weight is None:
                states.copy_(x)
            else:
                torch.mm(x.flatten(0, 1), weight.mT, out=states.view(-1, len(matrix)))
            kernel.forward_(states, matrix, h0, bias, lengths, nonlinearity, reverse)
        ctx.save_for_backward(x, weight, bias, matrix, h0, lengths, states)
        ctx.nonlinearity, ctx.reverse = nonlinearity, reverse
        ctx.set_materialize_grads(False)
        return states, states[0 if reverse else -1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None and grad_last is None:
            return (None,) * 8
        work = _through_reference if torch.is_grad_enabled() else _gradients
        return (*work(ctx, grad, grad_last), None, None, None)


def _through_reference(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by the plain loop; asked for with create_graph=True."""
    x, weight, bias, matrix, h0, lengths, _ = ctx.saved_tensors
    inputs = [x, weight, bias, matrix, h0]
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad[:5]) if needed]
    states = reference.states(reference.drive(x, weight), matrix, h0, bias, lengths, ctx.nonlinearity, ctx.reverse)
    last = states[0 if ctx.reverse else -1]
    outputs, grads = zip(*[(o, g) for o, g in ((states, grad), (last, grad_last)) if g is not None], strict=True)
    found = torch.autograd.grad(outputs, [inputs[i] for i in wanted], grads, create_graph=True, allow_unused=True)
    by_position = dict(zip(wanted, found, strict=True))
    return [by_position.get(i) for i in range(5)]


def _gradients(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    """First-order gradients by the kernel."""
    x, weight, _, matrix, h0, lengths, states = ctx.saved_tensors
    need_x, need_weight, need_bias, need_matrix, _ = ctx.needs_input_grad[:5]
    steps, batch, n = states.shape
    thin = _thin(x, weight) and need_weight
    backward = kernel.Backward(
        matrix, states, lengths, ctx.nonlinearity, ctx.reverse,
        x=x if thin else None, inputs=weight.shape[1] if thin else 0, bias=need_bias,
    )  # fmt: skip
    grad_x = torch.empty(x.shape, dtype=x.dtype) if need_x else None
    grad_weight = torch.zeros_like(weight) if need_weight and not thin else None
    grad_matrix = matrix.new_zeros(n, n) if need_matrix else None
    carry = h0.new_zeros(h0.shape) if grad_last is None else grad_last.clone(memory_format=torch.contiguous_format)
    pieces = max(1, round(steps * batch / PIECE_ROWS))
    length = -(-steps // pieces)
    buffer = states.new_empty(length, batch, n)
    starts = range(0, steps, length)
    for first in starts if ctx.reverse else reversed(starts):
        last = min(first + length, steps)
        inner = buffer[: last - first]
        backward.piece(first, last, grad, carry, inner)
        rows = inner.view(-1, n)
        if grad_matrix is not None:
            _add_matrix(grad_matrix, states, h0, inner, first, last, ctx.reverse)
        if grad_weight is not None:
            grad_weight.addmm_(rows.mT, x[first:last].flatten(0, 1))
        if grad_x is not None and weight is None:
            grad_x[first:last] = inner
        elif grad_x is not None:
            torch.mm(rows, weight, out=grad_x[first:last].view(-1, weight.shape[1]))
    if thin:
        grad_weight = backward.weight_gradient()
    return [grad_x, grad_weight, backward.bias_gradient() if need_bias else None, grad_matrix, carry]


def _add_matrix(
    grad_matrix: Tensor, states: Tensor, h0: Tensor, inner: Tensor, first: int, last: int, reverse: bool
) -> None:
    """∂L/∂V += Σ_t dz_t h_{t−1}ᵀ; the first step of the sequence follows h0."""
    n = len(grad_matrix)
    edge = last == len(states) if reverse else first == 0
    if reverse:
        before, after = states[first + 1 : last + 1], inner[: len(inner) - int(edge)]
    else:
        before, after = states[max(first - 1, 0) : last - 1], inner[int(edge) :]
    if len(after):
        grad_matrix.addmm_(after.view(-1, n).mT, before.view(-1, n))
    if edge and h0.any():
        grad_matrix.addmm_(inner[-1 if reverse else 0].mT, h0)
