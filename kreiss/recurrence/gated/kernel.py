"""Calling the compiled kernel of the gated recurrence on tensors."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from kreiss.recurrence.library import CODES, call, expect, loaded, readable, readable_or_none, room
from kreiss.recurrence.plain.kernel import FLAGS, between, inputs_of

POINTERS = (
    "matrix", "gates", "weight", "packed", "states", "kept", "h0", "bias", "gate_bias", "lengths", "x", "symbols",
    "grad", "inner", "carry", "sums", "grad_inputs", "grad_bias",
)  # fmt: skip


class Pass(ctypes.Structure):
    """`struct kreiss_gated_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "n", "inputs", "first_step")),
        *((name, ctypes.c_int32) for name in FLAGS),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


def _run(job: Pass, threads: int, tensors: dict[str, Tensor | None]) -> None:
    call(loaded().kreiss_run_gated, job, threads, tensors)


def new_rows(steps: int, batch: int, matrix: Tensor, parts: int) -> Tensor:
    """An uninitialised (T, B, parts·N) tensor, in large pages if it is long and the system has them."""
    return expect(matrix.new_empty(steps, batch, parts * len(matrix)))


class Forward:
    """The forward pass over one sequence, one time segment at a time.

    Inputs are [U; S] x with x (T, B, I) or symbols (T, B); otherwise u and s are read from `kept`.
    """

    def __init__(
        self,
        matrix: Tensor,
        gates: Tensor,
        bias: Tensor | None,
        gate_bias: Tensor | None,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        *,
        x: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        n, self.width = len(matrix), 0 if weight is None else weight.shape[1]
        self.flags = [int(matrix.dtype == torch.float64), CODES[nonlinearity], int(reverse), 0, 1]
        self.tensors = {
            "matrix": readable(matrix),
            "gates": readable(gates),
            "weight": readable_or_none(weight),
            "packed": room(matrix, (n, 2 * n), (n, n), (self.width, 3 * n)),
            "bias": readable_or_none(bias),
            "gate_bias": readable_or_none(gate_bias),
            "lengths": readable_or_none(lengths),
        }
        self.inputs = inputs_of(x)

    def piece(self, first: int, h0: Tensor | None, states: Tensor, kept: Tensor) -> None:
        """Fill `states` for the steps from `first` on, after the state h0 (None: zero); `kept` with c, r, g, V h."""
        job = Pass(*states.shape, self.width, first, *self.flags)
        inputs = {name: between(tensor, first, first + len(states)) for name, tensor in self.inputs.items()}
        pieces = {"states": states, "kept": kept, "h0": readable_or_none(h0)}
        _run(job, torch.get_num_threads(), {**self.tensors, **inputs, **pieces})
        self.flags[4] = 0  # packed


class Backward:
    """The backward pass over one sequence, one time segment at a time.

    The kernel accumulates the gradients of [U; S] (if `weight` and x are given) and of [b; d], because those products
    are too thin for a matrix library; they are complete after the last segment.
    """

    def __init__(
        self,
        matrix: Tensor,
        gates: Tensor,
        batch: int,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        *,
        x: Tensor | None = None,
        weight: Tensor | None = None,
        bias: bool = False,
        wants_carry: bool = True,
    ) -> None:
        n = len(matrix)
        self.width = 0 if weight is None or x is None else weight.shape[1]
        self.threads = min(torch.get_num_threads(), batch)
        self.flags = [int(matrix.dtype == torch.float64), CODES[nonlinearity], int(reverse), 1, 1, 0, int(wants_carry)]
        self.grad_weight = matrix.new_empty(3 * n, self.width) if self.width else None
        self.grad_bias = matrix.new_empty(3 * n) if bias else None
        summed = bias or self.width
        self.tensors = {
            "matrix": readable(matrix),
            "gates": readable(gates),
            "packed": room(matrix, (2 * n, n), (n, n)),
            "lengths": readable_or_none(lengths),
            "sums": matrix.new_empty(self.threads, self.width + 1, 3 * n) if summed else None,
            "grad_inputs": self.grad_weight,
            "grad_bias": self.grad_bias,
        }
        self.inputs = inputs_of(x) if self.width else {}

    def piece(
        self,
        first: int,
        h0: Tensor | None,
        states: Tensor,
        kept: Tensor,
        grad: Tensor | None,
        carry: Tensor,
        inner: Tensor,
        *,
        final: bool = True,
    ) -> None:
        """Gradients of u, s and V h for the steps from `first` on, which follow the state h0 (None: zero).

        Writes them to `inner`, and in `carry` replaces the gradient of the next state by that of the previous.
        """
        self.flags[5] = final
        job = Pass(*states.shape, self.width, first, *self.flags)
        inputs = {name: between(tensor, first, first + len(states)) for name, tensor in self.inputs.items()}
        saved = {"states": readable(states), "kept": readable(kept), "h0": readable_or_none(h0)}
        pieces = {**saved, "grad": readable_or_none(grad), "inner": inner, "carry": carry}
        _run(job, self.threads, {**self.tensors, **inputs, **pieces})
        self.flags[4] = 0  # packed, and sums initialised
