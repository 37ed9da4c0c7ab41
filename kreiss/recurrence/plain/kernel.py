"""Calling the compiled kernel of the plain recurrence on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kreiss.recurrence.library import (
    CODES,
    expect,
    loaded,
    readable,
    readable_or_none,
    room,
    unknown_symbol,
)

POINTERS = (
    "matrix", "weight", "packed", "states", "h0", "bias", "stretch", "lengths", "x", "symbols", "last", "grad", "inner",
    "carry", "sums", "grad_inputs", "grad_bias", "grad_matrix",
)  # fmt: skip
FLAGS = ("is_double", "nonlinearity", "reverse", "backward", "first_piece", "last_piece", "wants_carry", "unused")


class Pass(ctypes.Structure):
    """`struct kreiss_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "n", "inputs", "first_step")),
        *((name, ctypes.c_int32) for name in FLAGS),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


class Chain(ctypes.Structure):
    """`struct kreiss_chain` of csrc/kernel.h."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("turn", ctypes.c_int64),
        ("passes", ctypes.c_void_p),
    )


def room_for_states(steps: int, batch: int, matrix: Tensor) -> Tensor:
    """An uninitialised (T, B, N) tensor, in large pages if it is long and the system has them."""
    return expect(matrix.new_empty(steps, batch, matrix.shape[0]))


def room_for_stretch(states: Tensor) -> Tensor:
    """An uninitialised (T, B, N/2) tensor for |h|/|z| of these states, stored for the complex modReLU."""
    return states.new_empty(*states.shape[:-1], states.shape[-1] // 2)


def _run(job: Pass, threads: int) -> None:
    if loaded().kreiss_run(ctypes.byref(job), threads):
        raise unknown_symbol(job.inputs)


def inputs_of(x: Tensor | None) -> dict[str, Tensor | None]:
    """Readable inputs under the name of the kernel argument: vectors `x` or integer `symbols`."""
    if x is None:
        return {}
    if x.is_floating_point():
        return {"x": readable(x)}
    return {"symbols": readable(x.to(torch.int64))}


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def between(tensor: Tensor | None, first: int, last: int) -> Tensor | None:
    return tensor if tensor is None or last - first == tensor.shape[0] else tensor[first:last]


def _inputs_at(inputs: dict[str, Tensor | None], first: int, steps: int) -> list[int | None]:
    """Addresses of x and of symbols for the steps from `first` on."""
    return [_address(between(inputs.get(name), first, first + steps)) for name in ("x", "symbols")]


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
        n = matrix.shape[0]
        width = 0 if weight is None else weight.shape[1]
        self.width, self.inputs, self.is_packed = width, inputs_of(x), False
        self.codes = (matrix.dtype == torch.float64, CODES[nonlinearity], reverse, False)
        self.kept = (  # alive as long as their addresses
            readable(matrix), readable_or_none(weight), room(matrix, (n + width, n)),
            readable_or_none(bias), readable_or_none(lengths),
        )  # fmt: skip
        self.addresses = tuple(map(_address, self.kept))

    def piece(
        self, first: int, h0: Tensor | None, states: Tensor, stretch: Tensor | None = None, last: Tensor | None = None
    ) -> None:
        """Fill `states` for the steps from `first` on, after the state h0 (None: zero).

        `stretch`, if given, is filled with |h|/|z| of complex numbers, which the backward pass of "cmodrelu" needs;
        `last` with the last state computed.
        """
        h0, inputs = readable_or_none(h0), _inputs_at(self.inputs, first, states.shape[0])
        matrix, weight, packed, bias, lengths = self.addresses
        flags = (*self.codes, not self.is_packed, False, False, 0)
        pieces = (states.data_ptr(), _address(h0), bias, _address(stretch), lengths, *inputs, _address(last))
        job = Pass(*states.shape, self.width, first, *flags, matrix, weight, packed, *pieces)
        _run(job, torch.get_num_threads())
        self.is_packed = True


class Backward:
    """The backward pass over one sequence, one time segment at a time.

    The kernel accumulates the gradients of U (if `weight` and x are given) and of the bias, because those products are
    too thin for a matrix library; with `sums_matrix` that of V too. They are complete after the last segment.
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
        sums_matrix: bool = False,
    ) -> None:
        n = matrix.shape[0]
        thin = x is not None and weight is not None
        self.width = weight.shape[1] if thin and weight is not None else 0
        self.inputs, self.threads = inputs_of(x), torch.get_num_threads()
        self.codes = (matrix.dtype == torch.float64, CODES[nonlinearity], reverse, True)
        self.wants_carry, self.is_packed = wants_carry, False
        self.grad_weight = matrix.new_empty(n, self.width) if thin else None
        self.grad_bias = matrix.new_empty(n) if bias else None
        self.grad_matrix = matrix.new_empty(n, n) if sums_matrix else None
        self.kept = (  # alive as long as their addresses
            readable(matrix), room(matrix, (n, n)), readable_or_none(lengths),
            matrix.new_empty(min(self.threads, batch), self.width + 1, n) if thin or bias else None,
        )  # fmt: skip
        self.addresses = tuple(map(_address, (*self.kept, self.grad_weight, self.grad_bias, self.grad_matrix)))

    def piece(
        self,
        first: int,
        states: Tensor,
        grad: Tensor | None,
        carry: Tensor,
        inner: Tensor,
        stretch: Tensor | None = None,
        before: Tensor | None = None,
        *,
        final: bool = True,
    ) -> None:
        """Steps from `first` on with these states (and their `stretch`, for "cmodrelu") and the gradients of these.

        Writes the gradient of u to `inner`, and in `carry` replaces the gradient of the next state by that of the
        previous. The gradient of V needs the state before the segment (None: zero).
        """
        states, grad, stretch = readable(states), readable_or_none(grad), readable_or_none(stretch)
        before = readable_or_none(before)
        matrix, packed, lengths, *sums = self.addresses
        inputs = _inputs_at(self.inputs, first, states.shape[0])
        flags = (*self.codes, not self.is_packed, final, self.wants_carry, 0)
        saved = (states.data_ptr(), _address(before), None, _address(stretch), lengths, *inputs, None)
        pieces = (_address(grad), inner.data_ptr(), carry.data_ptr(), *sums)
        _run(Pass(*states.shape, self.width, first, *flags, matrix, None, packed, *saved, *pieces), self.threads)
        self.is_packed = True  # and sums initialised


class Weights(NamedTuple):
    """V, U and b of one layer."""

    matrix: Tensor
    weight: Tensor
    bias: Tensor | None


class Step:
    """One update h ← φ(V h + U x; b) of stacked layers per call, on fixed buffers; allocates nothing once made.

    Args:
        layers: their weights, from the bottom.
        nonlinearity: φ of all layers.
        batch: rows of h.
        shape: of the vectors x that are read in place, without a look at anything else; (batch, inputs) by default.
    """

    def __init__(
        self, layers: Sequence[Weights], nonlinearity: str, batch: int, shape: tuple[int, ...] | None = None
    ) -> None:
        n, self.inputs = layers[0].weight.shape
        self.dtype, self.shape = layers[0].matrix.dtype, (batch, self.inputs) if shape is None else shape
        self._aligned = self.dtype.itemsize - 1
        # the new state is written beside the old one
        self.states = [layer.matrix.new_zeros(2, batch, n) for layer in layers]
        self.outputs = self.states[-1].unbind()
        self._kept = [_kept(*layer) for layer in layers]
        self._passes = (Pass * (2 * len(layers)))()
        for i in range(len(layers)):
            for turn in (0, 1):
                self._fill(self._passes[2 * i + turn], i, turn, CODES[nonlinearity])
            self._passes[2 * i].first_piece = 1  # packs V and U
        threads = min(torch.get_num_threads(), batch)
        self._chain = Chain(len(layers), threads, 0, ctypes.addressof(self._passes))
        self._address = ctypes.addressof(self._chain)
        self._run = loaded().kreiss_step

    def _fill(self, job: Pass, layer: int, turn: int, code: int) -> None:
        """The update of one layer that writes buffer `turn` and reads the other."""
        matrix, weight, bias, packed = self._kept[layer]
        states = self.states[layer]
        job.steps, job.batch, job.n, job.inputs = 1, states.shape[1], *weight.shape
        job.is_double, job.nonlinearity = int(matrix.dtype == torch.float64), code
        job.matrix, job.weight, job.packed = matrix.data_ptr(), weight.data_ptr(), packed.data_ptr()
        job.bias = None if bias is None else bias.data_ptr()
        job.states, job.h0 = states[turn].data_ptr(), states[1 - turn].data_ptr()
        job.x = self.states[layer - 1][turn].data_ptr() if layer else None

    def current(self) -> list[Tensor]:
        """The states (batch, n) that the next update starts from, from the bottom."""
        return [states[1 - self._chain.turn] for states in self.states]

    def at_once(self, x: object) -> int:
        """The buffer of the new state, from x if it can be read as it is; −1, with nothing done, if it cannot.

        Cheap tests of what is almost always so. Whatever fails one is left to code that looks closer.
        """
        if (
            type(x) is not Tensor
            or x.dtype is not self.dtype
            or x.shape != self.shape
            or x.layout is not torch.strided
            or not (x.is_cpu and x.is_contiguous())
            or x.is_neg()
            or x._is_zerotensor()  # not seen from the address: that of a part of one is not 0
        ):
            return -1
        address = x.data_ptr()
        if address & self._aligned:
            return -1
        return self._run(self._address, address, None)

    def __call__(self, x: Tensor) -> Tensor:
        """The next state of the top layer, from x (batch, inputs) or integer symbols (batch,)."""
        inputs = inputs_of(x.to(self.dtype) if x.is_floating_point() else x)  # kept until the call returns
        x_, symbols = (None if (t := inputs.get(name)) is None else t.data_ptr() for name in ("x", "symbols"))
        written = self._run(self._address, x_, symbols)
        if written < 0:
            raise unknown_symbol(self.inputs)
        return self.outputs[written]


def _kept(matrix: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Weights in the form that the kernel reads, and room to pack them."""
    n, inputs = weight.shape
    return readable(matrix), readable(weight), readable_or_none(bias), room(matrix, (n + inputs, n))
