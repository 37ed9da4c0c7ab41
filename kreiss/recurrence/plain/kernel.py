"""Calling the compiled kernel of the plain recurrence on tensors."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from kreiss.recurrence.library import CODES, call, expect, loaded, readable, readable_or_none, room

POINTERS = (
    "matrix", "weight", "packed", "states", "h0", "bias", "stretch", "lengths", "x", "symbols", "grad", "inner",
    "carry", "sums", "grad_inputs", "grad_bias",
)  # fmt: skip
FLAGS = ("is_double", "nonlinearity", "reverse", "backward", "first_piece", "last_piece", "wants_carry", "unused")


class Pass(ctypes.Structure):
    """`struct kreiss_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "n", "inputs", "first_step")),
        *((name, ctypes.c_int32) for name in FLAGS),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


def room_for_states(steps: int, batch: int, matrix: Tensor) -> Tensor:
    """An uninitialised (T, B, N) tensor, in large pages if it is long and the system has them."""
    return expect(matrix.new_empty(steps, batch, len(matrix)))


def room_for_stretch(states: Tensor) -> Tensor:
    """An uninitialised (T, B, N/2) tensor for |h|/|z| of these states, stored for the complex modReLU."""
    return states.new_empty(*states.shape[:-1], states.shape[-1] // 2)


def _run(job: Pass, threads: int, tensors: dict[str, Tensor | None]) -> None:
    call(loaded().kreiss_run, job, threads, tensors)


def inputs_of(x: Tensor | None) -> dict[str, Tensor | None]:
    """Readable inputs under the name of the kernel argument: vectors `x` or integer `symbols`."""
    if x is None:
        return {}
    if x.is_floating_point():
        return {"x": readable(x)}
    return {"symbols": readable(x.to(torch.int64))}


def between(tensor: Tensor | None, first: int, last: int) -> Tensor | None:
    return tensor if tensor is None or last - first == len(tensor) else tensor[first:last]


class Forward:
    """The forward pass over one sequence, one time segment at a time.

    Inputs are U x with x (T, B, I) or symbols (T, B); otherwise u is read from the buffer of states.
    """

    def __init__(
        self,
        matrix: Tensor,
        bias: Tensor | None,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        *,
        x: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self.width = 0 if weight is None else weight.shape[1]
        self.flags = [int(matrix.dtype == torch.float64), CODES[nonlinearity], int(reverse), 0, 1]
        self.tensors = {
            "matrix": readable(matrix),
            "weight": readable_or_none(weight),
            "packed": room(matrix, (len(matrix) + self.width, len(matrix))),
            "bias": readable_or_none(bias),
            "lengths": readable_or_none(lengths),
        }
        self.inputs = inputs_of(x)

    def piece(self, first: int, h0: Tensor | None, states: Tensor, stretch: Tensor | None = None) -> None:
        """Fill `states` for the steps from `first` on, after the state h0 (None: zero).

        `stretch`, if given, is filled with |h|/|z| of complex numbers, which the backward pass of "cmodrelu" needs.
        """
        job = Pass(*states.shape, self.width, first, *self.flags)
        inputs = {name: between(tensor, first, first + len(states)) for name, tensor in self.inputs.items()}
        pieces = {"states": states, "h0": readable_or_none(h0), "stretch": stretch}
        _run(job, torch.get_num_threads(), {**self.tensors, **inputs, **pieces})
        self.flags[4] = 0  # packed


class Backward:
    """The backward pass over one sequence, one time segment at a time.

    The kernel accumulates the gradients of U (if `weight` and x are given) and of the bias, because those products are
    too thin for a matrix library; they are complete after the last segment.
    """

    def __init__(
        self,
        matrix: Tensor,
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
        thin = x is not None and weight is not None
        self.width = weight.shape[1] if thin and weight is not None else 0
        self.threads = min(torch.get_num_threads(), batch)
        self.flags = [int(matrix.dtype == torch.float64), CODES[nonlinearity], int(reverse), 1, 1, 0, int(wants_carry)]
        self.grad_weight = matrix.new_empty(n, self.width) if thin else None
        self.grad_bias = matrix.new_empty(n) if bias else None
        self.tensors = {
            "matrix": readable(matrix),
            "packed": room(matrix, (n, n)),
            "lengths": readable_or_none(lengths),
            "sums": matrix.new_empty(self.threads, self.width + 1, n) if thin or bias else None,
            "grad_inputs": self.grad_weight,
            "grad_bias": self.grad_bias,
        }
        self.inputs = inputs_of(x)

    def piece(
        self,
        first: int,
        states: Tensor,
        grad: Tensor | None,
        carry: Tensor,
        inner: Tensor,
        stretch: Tensor | None = None,
        *,
        final: bool = True,
    ) -> None:
        """Steps from `first` on with these states (and their `stretch`, for "cmodrelu") and the gradients of these.

        Writes the gradient of u to `inner`, and in `carry` replaces the gradient of the next state by that of the
        previous.
        """
        self.flags[5] = final
        job = Pass(*states.shape, self.width, first, *self.flags)
        inputs = {name: between(tensor, first, first + len(states)) for name, tensor in self.inputs.items()}
        saved = {"states": readable(states), "stretch": readable_or_none(stretch)}
        pieces = {**saved, "grad": readable_or_none(grad), "inner": inner, "carry": carry}
        _run(job, self.threads, {**self.tensors, **inputs, **pieces})
        self.flags[4] = 0  # packed, and sums initialised


class Step:
    """One update h ← φ(V h + U x; b) per call, on fixed buffers; allocates nothing after construction."""

    def __init__(self, matrix: Tensor, weight: Tensor, bias: Tensor | None, nonlinearity: str, batch: int) -> None:
        n, inputs = weight.shape
        self.threads = min(torch.get_num_threads(), batch)
        self.states = matrix.new_zeros(2, batch, n)  # the new state is written beside the old one
        self._views = self.states.unbind()
        self.turn = 0
        self._kept = (readable(matrix), readable(weight), readable_or_none(bias), room(matrix, (n + inputs, n)))
        self._jobs = (self._job(0, nonlinearity), self._job(1, nonlinearity))
        self._jobs[0].first_piece = 1  # packs V and U

    def _job(self, turn: int, nonlinearity: str) -> Pass:
        """The update that writes buffer `turn` and reads the other."""
        matrix, weight, bias, packed = self._kept
        n, inputs = weight.shape
        job = Pass(1, self.states.shape[1], n, inputs, 0, int(matrix.dtype == torch.float64), CODES[nonlinearity])
        job.matrix, job.weight, job.packed = matrix.data_ptr(), weight.data_ptr(), packed.data_ptr()
        job.bias = None if bias is None else bias.data_ptr()
        job.states, job.h0 = self.states[turn].data_ptr(), self.states[1 - turn].data_ptr()
        return job

    @property
    def state(self) -> Tensor:
        """The state (batch, n) that the next update starts from."""
        return self._views[1 - self.turn]

    def __call__(self, x: Tensor) -> Tensor:
        """The next state, from x (batch, inputs) or integer symbols (batch,)."""
        job = self._jobs[self.turn]
        job.x = job.symbols = None
        _run(job, self.threads, inputs_of(x))
        job.first_piece = 0
        self.turn = 1 - self.turn
        return self.state
