"""The fast path: input product, gated recurrence and gradients as one autograd function around the kernel.

A training pass stores five numbers per state: h, c, r, g and V h. The last four overwrite the inputs u and s. The
backward pass works in pieces, each followed by one large product for the gradients of V and W. Without gradients the
forward pass works in pieces too, and stores the states alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence import products
from kreiss.recurrence.gated import kernel, reference
from kreiss.recurrence.library import takes
from kreiss.recurrence.plain.fused import fits, is_thin, new_carry, pieces_of
from kreiss.recurrence.plain.reference import drive

PIECE_ROWS = 1024


def usable(
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor | None,
    bias: Tensor | None,
    gate_bias: Tensor | None,
    lengths: Tensor | None,
) -> bool:
    """Whether the kernel supports these arguments, under ordinary first-order autograd.

    Inconsistent arguments are left to the plain loop, where torch raises the error.
    """
    if not derivatives.ordinary() or torch.is_autocast_enabled("cpu") or not takes(matrix):
        return False
    n, dtype = matrix.shape[-1], matrix.dtype
    batch = x.shape[1] if x.dim() in (2, 3) else 0
    inputs = 3 * n if weight is None else weight.shape[-1]
    features = (inputs,) if x.dim() == 3 else ()
    x_dtypes = (dtype,) if x.dim() == 3 else (torch.int64, torch.int32)
    return (
        batch > 0
        and fits(x, (x.shape[0], batch, *features), *x_dtypes)
        and inputs > 0
        and (fits(weight, (3 * n, inputs), dtype) if weight is not None else x.dim() == 3)
        and fits(matrix, (n, n), dtype)
        and fits(gates, (2 * n, n), dtype)
        and (h0 is None or fits(h0, (batch, n), dtype))
        and (bias is None or fits(bias, (n,), dtype))
        and (gate_bias is None or fits(gate_bias, (2 * n,), dtype))
        and (lengths is None or fits(lengths, (batch,), torch.int64))
    )


class Recurrence(torch.autograd.Function):
    """States and last state; symbols x select columns of [U; S]; None for [U; S] means that x is [u, s]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        gate_bias: Tensor | None,
        matrix: Tensor,
        gates: Tensor,
        h0: Tensor | None,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        states, kept = forward(
            x, weight, bias, gate_bias, matrix, gates, h0, lengths, nonlinearity, reverse, keep=differentiable
        )
        if differentiable:
            ctx.save_for_backward(x, weight, bias, gate_bias, matrix, gates, h0, lengths, states, kept)
        ctx.nonlinearity, ctx.reverse = nonlinearity, reverse
        ctx.set_materialize_grads(False)
        return states, states[0 if reverse else -1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None and grad_last is None:
            return (None,) * 11
        work = _through_reference if torch.is_grad_enabled() else _by_kernel
        return (*work(ctx, grad, grad_last), None, None, None, None)


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    gate_bias: Tensor | None,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    *,
    keep: bool = True,
) -> tuple[Tensor, Tensor]:
    """States (T, B, N), and c, r, g and V h (T, B, 4N) of every step, or without `keep` of some."""
    steps, batch, thin = x.shape[0], x.shape[1], is_thin(x, weight)
    pieces = pieces_of(steps, 1 if keep else _count(steps, batch), not reverse)
    states = kernel.new_rows(steps, batch, matrix, 1)
    kept = kernel.new_rows(max(last - first for first, last in pieces), batch, matrix, 4)
    inputs: dict[str, Tensor | None] = {"x": x, "weight": weight} if thin else {}
    run = kernel.Forward(matrix, gates, bias, gate_bias, lengths, nonlinearity, reverse, **inputs)
    before = h0
    for first, last in pieces:
        now = kept[: last - first]
        if not thin:
            _drive(now[..., : 3 * len(matrix)], x[first:last], weight)
        run.piece(first, before, states[first:last], now)
        before = states[first if reverse else last - 1]
    return states, kept


def _count(steps: int, batch: int) -> int:
    return max(1, round(steps * batch / PIECE_ROWS))


def _drive(to: Tensor, x: Tensor, weight: Tensor | None) -> None:
    """Write u and s, by one large product; x itself where [U; S] is None."""
    if weight is None:
        to.copy_(x)
    else:
        rows = to.flatten(0, 1)
        assert rows.data_ptr() == to.data_ptr()  # a view
        products.write(rows, x.flatten(0, 1), weight.mT)


def _through_reference(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    """Differentiable gradients by the plain loop, for create_graph=True."""
    x, weight, bias, gate_bias, matrix, gates, h0, lengths, *_ = ctx.saved_tensors
    inputs = [x, weight, bias, gate_bias, matrix, gates, h0]
    h0 = matrix.new_zeros(x.shape[1], len(matrix)) if h0 is None else h0
    positions = [i for i, needed in enumerate(ctx.needs_input_grad[:7]) if needed]
    states = reference.states(
        drive(x, weight), matrix, gates, h0, bias, gate_bias, lengths, ctx.nonlinearity, ctx.reverse
    )
    last = states[0 if ctx.reverse else -1]
    outputs, grads = zip(*[(o, g) for o, g in ((states, grad), (last, grad_last)) if g is not None], strict=True)
    gradients = torch.autograd.grad(
        outputs, [inputs[i] for i in positions], grads, create_graph=True, allow_unused=True
    )
    by_position = dict(zip(positions, gradients, strict=True))
    return [by_position.get(i) for i in range(7)]


def _by_kernel(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    x, weight, _, _, matrix, gates, h0, lengths, states, kept = ctx.saved_tensors
    return gradients(
        ctx.needs_input_grad[:7], x, weight, matrix, gates, h0, lengths, states, kept, grad, grad_last,
        ctx.nonlinearity, ctx.reverse,
    )  # fmt: skip


def gradients(
    needs: tuple[bool, ...],
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    kept: Tensor,
    grad: Tensor | None,
    grad_last: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> list[Tensor | None]:
    """First-order gradients of x, [U; S], b, d, V, W and h0, as far as needed, by the kernel."""
    steps, batch, _ = states.shape
    sums = _Sums(needs, x, weight, matrix, gates, lengths, nonlinearity, reverse)
    carry = new_carry(matrix, batch, grad_last)
    for first, last in pieces_of(steps, _count(steps, batch), reverse):
        at = last if reverse else first - 1  # of the state before the piece
        final = not 0 <= at < steps
        before = h0 if final else states[at]
        grad_now = None if grad is None else grad[first:last]
        inner = sums.buffer(last - first)
        sums.kernel.piece(first, before, states[first:last], kept[first:last], grad_now, carry, inner, final=final)
        sums.add(first, inner, states[first:last], before)
    return sums.gradients(carry)


class _Sums:
    """Gradients accumulated over time segments, and a buffer that the segments share."""

    def __init__(
        self,
        needs: tuple[bool, ...],
        x: Tensor,
        weight: Tensor | None,
        matrix: Tensor,
        gates: Tensor,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
    ) -> None:
        need_x, need_weight, *self.need_biases, self.need_matrix, self.need_gates, self.need_h0 = needs
        self.x, self.weight, self.matrix, self.reverse = x, weight, matrix, reverse
        thin = need_weight and is_thin(x, weight)
        self.kernel = kernel.Backward(
            matrix, gates, x.shape[1], lengths, nonlinearity, reverse,
            x=x if thin else None, weight=weight, bias=any(self.need_biases), wants_carry=self.need_h0,
        )  # fmt: skip
        self.grad_x = torch.empty(x.shape, dtype=x.dtype) if need_x else None
        self.grad_weight = torch.zeros_like(weight) if weight is not None and need_weight and not thin else None
        n = len(matrix)
        self.grad_both = matrix.new_zeros(3 * n, n) if self.need_matrix or self.need_gates else None  # of [W; V]
        self._buffer: Tensor | None = None

    def buffer(self, length: int) -> Tensor:
        if self._buffer is None or len(self._buffer) < length:
            self._buffer = kernel.new_rows(length, self.x.shape[1], self.matrix, 4)
        return self._buffer[:length]

    def add(self, first: int, inner: Tensor, states: Tensor, before: Tensor | None) -> None:
        """Add one segment: the gradients of u, s and V h times what they were multiplied by."""
        n, last = len(self.matrix), first + len(inner)
        to_inputs = inner[..., : 3 * n].flatten(0, 1)
        if self.grad_weight is not None:
            products.add(self.grad_weight, to_inputs.mT, self.x[first:last].flatten(0, 1))
        if self.grad_x is not None:
            if self.weight is None:
                self.grad_x[first:last] = inner[..., : 3 * n]
            else:
                products.write(self.grad_x[first:last].view(len(to_inputs), -1), to_inputs, self.weight)
        if self.grad_both is None:
            return
        earliest, others = (inner[-1], inner[:-1]) if self.reverse else (inner[0], inner[1:])
        if before is not None:
            products.add(self.grad_both, earliest[:, n:].mT, before)
        if len(others):
            rest = states[1:] if self.reverse else states[:-1]
            products.add(self.grad_both, others[..., n:].flatten(0, 1).mT, rest.flatten(0, 1))

    def gradients(self, carry: Tensor) -> list[Tensor | None]:
        """Gradients of x, [U; S], b, d, V, W and h0."""
        n = len(self.matrix)
        grad_weight = self.kernel.grad_weight if self.grad_weight is None else self.grad_weight
        biases = (None, None) if self.kernel.grad_bias is None else self.kernel.grad_bias.split([n, 2 * n])
        gates, matrix = (None, None) if self.grad_both is None else self.grad_both.split([2 * n, n])
        return [
            self.grad_x,
            grad_weight,
            *(bias if needed else None for bias, needed in zip(biases, self.need_biases, strict=True)),
            matrix if self.need_matrix else None,
            gates if self.need_gates else None,
            carry if self.need_h0 else None,
        ]
