"""The fast path: input product, recurrence and gradients as one autograd function around the kernel.

A training pass stores one buffer of states: states overwrite the inputs U x, and the backward pass works in pieces of
about 2,048 rows, each followed by one large product for the gradient of V, in the kernel or by torch. The complex
modReLU stores half as much again: |h|/|z| of every complex number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives, native
from kreiss.recurrence import products
from kreiss.recurrence.library import takes
from kreiss.recurrence.plain import kernel, reference, spare

PIECE_ROWS = 2048
SMALL_PRODUCT = 1 << 23  # multiplications for the gradient of V that the kernel does faster than a call of torch
WIDEST_INPUT = 32  # inputs of up to this many features go through the kernel, wider ones through one large product


def usable(
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor,
    h0: Tensor | None,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
) -> bool:
    """Whether the kernel supports these arguments, under ordinary first-order autograd.

    Inconsistent arguments are left to the plain loop, where torch raises the error.
    """
    if not derivatives.ordinary() or torch.is_autocast_enabled("cpu") or not takes(matrix):
        return False
    n, dtype = matrix.shape[-1], matrix.dtype
    batch = x.shape[1] if x.dim() in (2, 3) else 0
    inputs = n if weight is None else weight.shape[-1]
    features = (inputs,) if x.dim() == 3 else ()
    x_dtypes = (dtype,) if x.dim() == 3 else (torch.int64, torch.int32)
    return (
        batch > 0
        and x.shape[0] > 0
        and fits(x, (x.shape[0], batch, *features), *x_dtypes)
        and inputs > 0
        and (fits(weight, (n, inputs), dtype) if weight is not None else x.dim() == 3)
        and fits(matrix, (n, n), dtype)
        and (h0 is None or fits(h0, (batch, n), dtype))
        and (bias is None or fits(bias, (n,), dtype))
        and (lengths is None or fits(lengths, (batch,), torch.int64))
    )


def fits(tensor: Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> bool:
    """Whether this is a plain dense CPU tensor of that shape and one of those dtypes."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_cpu and tensor.layout == torch.strided
    return plain and tensor.dtype in dtypes and tensor.shape == shape


def is_thin(x: Tensor, weight: Tensor | None) -> bool:
    return weight is not None and (not x.is_floating_point() or x.shape[-1] <= WIDEST_INPUT)


def _drive(states: Tensor, x: Tensor, weight: Tensor | None) -> None:
    """Write u = U x into the buffer of states, by one large product; U = I for None."""
    if weight is None:
        states.copy_(x)
    else:
        products.write(states.view(-1, states.shape[-1]), x.flatten(0, 1), weight.mT)


class Recurrence(torch.autograd.Function):
    """States and last state of h_t = φ(V h_{t−1} + U x_t; b); symbols x select columns of U; None for U means U = I."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        matrix: Tensor,
        h0: Tensor | None,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        states = kernel.room_for_states(x.shape[0], x.shape[1], matrix)
        last = matrix.new_empty(states.shape[1:])
        stretch = kernel.room_for_stretch(states) if nonlinearity == "cmodrelu" and differentiable else None
        if is_thin(x, weight):
            run = kernel.Forward(matrix, bias, lengths, nonlinearity, reverse, x=x, weight=weight)
        else:
            _drive(states, x, weight)
            run = kernel.Forward(matrix, bias, lengths, nonlinearity, reverse)
        run.piece(0, h0, states, stretch, last)
        ctx.save_for_backward(x, weight, bias, matrix, h0, lengths, states, stretch)
        ctx.nonlinearity, ctx.reverse = nonlinearity, reverse
        ctx.set_materialize_grads(False)
        return states, last

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None and grad_last is None:
            return (None,) * 9
        work = _through_reference if torch.is_grad_enabled() else _gradients
        return (*work(ctx, grad, grad_last), None, None, None, None)


def _through_reference(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    """Differentiable gradients by the plain loop, for create_graph=True."""
    x, weight, bias, matrix, h0, lengths, *_ = ctx.saved_tensors
    inputs = [x, weight, bias, matrix, h0]
    h0 = reference.zero_state(x, weight) if h0 is None else h0
    positions = [i for i, needed in enumerate(ctx.needs_input_grad[:5]) if needed]
    states = reference.states(reference.drive(x, weight), matrix, h0, bias, lengths, ctx.nonlinearity, ctx.reverse)
    last = states[0 if ctx.reverse else -1]
    outputs, grads = zip(*[(o, g) for o, g in ((states, grad), (last, grad_last)) if g is not None], strict=True)
    gradients = torch.autograd.grad(
        outputs, [inputs[i] for i in positions], grads, create_graph=True, allow_unused=True
    )
    by_position = dict(zip(positions, gradients, strict=True))
    return [by_position.get(i) for i in range(5)]


def _gradients(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> list[Tensor | None]:
    """First-order gradients by the kernel, from all stored states."""
    x, weight, _, matrix, h0, lengths, states, stretch = ctx.saved_tensors
    steps, batch = states.shape[:2]
    pieces = pieces_of(steps, max(1, round(steps * batch / PIECE_ROWS)), ctx.reverse)
    sums = _Sums(ctx, x, weight, matrix, lengths, batch)
    carry = new_carry(matrix, batch, grad_last)
    for first, last in pieces:
        grad_now, stretch_now = (kernel.between(tensor, first, last) for tensor in (grad, stretch))
        start, end = (first + 1, last + 1) if ctx.reverse else (first - 1, last - 1)
        previous = states[start:end] if start >= 0 and end <= steps else None  # h0 comes before the first
        sums.piece(first, states[first:last], grad_now, carry, stretch_now, previous, h0)
    return sums.gradients(carry)


def new_carry(matrix: Tensor, batch: int, grad_last: Tensor | None) -> Tensor:
    """The external gradient of the last state, in a new buffer."""
    if grad_last is None:
        return matrix.new_zeros(batch, matrix.shape[0])
    return grad_last.clone(memory_format=torch.contiguous_format)


def pieces_of(steps: int, count: int, reverse: bool) -> list[tuple[int, int]]:
    """[first, last) of each time segment, in the order of the backward pass."""
    length = -(-steps // count)
    pieces = [(first, min(first + length, steps)) for first in range(0, steps, length)]
    return pieces if reverse else pieces[::-1]


class _Sums:
    """Gradients accumulated over time segments, and a buffer that the segments share."""

    def __init__(
        self,
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        matrix: Tensor,
        lengths: Tensor | None,
        batch: int,
    ) -> None:
        need_x, need_weight, need_bias, self.need_matrix, self.need_h0 = ctx.needs_input_grad[:5]
        small = x.shape[0] * batch * matrix.numel() <= SMALL_PRODUCT
        self.x, self.weight, self.steps, self.reverse = x, weight, x.shape[0], ctx.reverse
        thin = need_weight and is_thin(x, weight)
        self.backward = kernel.Backward(
            matrix, batch, lengths, ctx.nonlinearity, ctx.reverse,
            x=x if thin else None, weight=weight, bias=need_bias, wants_carry=self.need_h0,
            sums_matrix=self.need_matrix and (small or native.is_fast()),
        )  # fmt: skip
        self.grad_x = torch.empty(x.shape, dtype=x.dtype) if need_x else None
        self.grad_weight = torch.zeros_like(weight) if weight is not None and need_weight and not thin else None
        self.grad_matrix = self.backward.grad_matrix
        self.by_kernel = self.grad_matrix is not None
        self.buffer: Tensor | None = None

    def piece(
        self,
        first: int,
        states: Tensor,
        grad: Tensor | None,
        carry: Tensor,
        stretch: Tensor | None,
        previous: Tensor | None,
        h0: Tensor | None = None,
    ) -> None:
        """Accumulate the gradients of one segment.

        `previous` has the state before each step; None for the segment that starts from h0 (None: zero).
        """
        length, batch, n = states.shape
        last = first + length
        if self.buffer is None or self.buffer.shape[0] < length:
            self.buffer = spare.take(states)
        inner = self.buffer if self.buffer.shape[0] == length else self.buffer[:length]
        final = last == self.steps if self.reverse else first == 0
        before = h0 if previous is None else previous[-1 if self.reverse else 0]
        self.backward.piece(first, states, grad, carry, inner, stretch, before, final=final)
        if self.grad_weight is not None:
            products.add(self.grad_weight, inner.view(-1, n).mT, self.x[first:last].flatten(0, 1))
        if self.grad_x is not None:
            if self.weight is None:
                self.grad_x[first:last] = inner
            else:
                products.write(self.grad_x[first:last].view(length * batch, -1), inner.view(-1, n), self.weight)
        if self.need_matrix and not self.by_kernel:
            if previous is not None:
                self._add_matrix(inner, previous)
            else:
                self._add_matrix(*((inner[:-1], states[1:]) if self.reverse else (inner[1:], states[:-1])))
                if h0 is not None:
                    self._add_matrix(inner[-1 if self.reverse else 0], h0)

    def _add_matrix(self, inner: Tensor, previous: Tensor) -> None:
        """∂L/∂V += Σ_t dz_t h_{t−1}ᵀ, by torch."""
        n = inner.shape[-1]
        inner, previous = inner.view(-1, n).mT, previous.view(-1, n)
        if self.grad_matrix is None:
            self.grad_matrix = torch.mm(inner, previous)
        else:
            self.grad_matrix.addmm_(inner, previous)

    def gradients(self, carry: Tensor) -> list[Tensor | None]:
        """Gradients of x, U, b, V and h0."""
        if self.buffer is not None:
            spare.give(self.buffer)
        grad_weight = self.backward.grad_weight if self.grad_weight is None else self.grad_weight
        return [self.grad_x, grad_weight, self.backward.grad_bias, self.grad_matrix, carry if self.need_h0 else None]


class LastState(torch.autograd.Function):
    """The last state alone, storing about 2√T states: every √T-th is stored, the others are recomputed."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        matrix: Tensor,
        h0: Tensor | None,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
    ) -> Tensor:
        ctx.nonlinearity, ctx.reverse = nonlinearity, reverse
        steps, batch, n = x.shape[0], x.shape[1], matrix.shape[0]
        enough = max(1, round(steps * batch / (2 * PIECE_ROWS)))  # more pieces would only make their products smaller
        ctx.pieces = pieces_of(steps, min(math.isqrt(steps), enough), reverse)
        run = _Again(x, weight, bias, matrix, lengths, nonlinearity, reverse)
        starts = matrix.new_zeros(len(ctx.pieces), batch, n)  # the state before each piece, in the order of `pieces`
        h = starts[-1] if h0 is None else starts[-1].copy_(h0)
        for i in reversed(range(len(ctx.pieces))):
            first, last = ctx.pieces[i]
            h = run.states(first, last, starts[i].copy_(h))[0 if reverse else -1]
        ctx.save_for_backward(x, weight, bias, matrix, h0, lengths, starts)
        ctx.held = [run]  # with the states of the last piece, the first that the backward pass needs
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return (*_through_reference(ctx, None, grad_last), None, None, None)
        x, weight, bias, matrix, _, lengths, starts = ctx.saved_tensors
        try:  # popping is atomic: of several threads on a retained graph one takes it, the others recompute
            run: _Again = ctx.held.pop()
        except IndexError:
            run = _Again(x, weight, bias, matrix, lengths, ctx.nonlinearity, ctx.reverse)
        sums = _Sums(ctx, x, weight, matrix, lengths, x.shape[1])
        carry = new_carry(matrix, x.shape[1], grad_last)
        for (first, last), h in zip(ctx.pieces, starts, strict=True):
            states = run.states(first, last, h)
            sums.piece(first, states, None, carry, run.stretch(last - first), run.before(last - first))
        return (*sums.gradients(carry), None, None, None)


class _Again:
    """Recomputes the states of a time segment from its initial state, in a buffer that the segments share."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        matrix: Tensor,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
    ) -> None:
        self.x, self.weight, self.reverse = x, weight, reverse
        self.thin = is_thin(x, weight)
        inputs: dict[str, Tensor | None] = {"x": x, "weight": weight} if self.thin else {}
        self.run = kernel.Forward(matrix, bias, lengths, nonlinearity, reverse, **inputs)
        self.buffer = matrix.new_empty(0)
        self.stretches: Tensor | None = None  # beside the buffer, for the complex modReLU
        self.complex = nonlinearity == "cmodrelu"
        self.held = (0, 0)  # the steps whose states are in the buffer

    def states(self, first: int, last: int, h: Tensor) -> Tensor:
        """States of steps [first, last) after (in reverse: before) the state h."""
        length = last - first
        if self.buffer.shape[0] <= length:
            self.buffer = h.new_empty(length + 1, *h.shape)
            self.stretches = kernel.room_for_stretch(self.buffer) if self.complex else None
        states = self.buffer[:length] if self.reverse else self.buffer[1 : length + 1]
        if self.held != (first, last):
            self.buffer[length if self.reverse else 0] = h
            if not self.thin:
                _drive(states, self.x[first:last], self.weight)
            self.run.piece(first, h, states, self.stretch(length))
            self.held = (first, last)
        return states

    def stretch(self, length: int) -> Tensor | None:
        """|h|/|z| of the last computed steps, for the complex modReLU."""
        return None if self.stretches is None else self.stretches[:length]

    def before(self, length: int) -> Tensor:
        """The state before each of the last computed steps."""
        return self.buffer[1 : length + 1] if self.reverse else self.buffer[:length]
