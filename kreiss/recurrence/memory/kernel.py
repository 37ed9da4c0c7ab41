"""Calling the compiled kernel of recurrences with memory on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from kreiss.recurrence.library import CODES, loaded, readable, readable_or_none, room
from kreiss.recurrence.memory.parts import Kind, Weights

BLOCK = 6  # rows that a thread of the forward pass takes together
NUMBERS = ("steps", "batch", "n", "gates", "short_slots", "relevant", "past", "first_row", "rows")
FLAGS = ("is_double", "nonlinearity", "backward", "lstm", "rule", "block")
POINTERS = (
    "joint", "key", "score", "threshold", "gate", "packed", "states", "gate_values", "cells", "macro", "log_sums",
    "admitted", "lengths", "steps_before", "h_before", "c_before", "query_before", "relevant_before",
    "short_before", "times_before", "reads", "surprise", "scores", "times", "members", "keys", "queries",
    "grad_states", "grad_keys", "inner", "grad_scores", "grad_query_after", "grad_h", "grad_c", "grad_query",
    "sums",
)  # fmt: skip

Tensors = dict[str, Tensor | None]  # by their names in `struct kreiss_memory_pass`


class Pass(ctypes.Structure):
    """`struct kreiss_memory_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in NUMBERS),
        ("mixing", ctypes.c_double),
        *((name, ctypes.c_int32) for name in FLAGS),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


class Memory:
    """What both passes share: weights, the memory before the pass, and what the forward pass stores.

    Args:
        slots: ν and ρ; ν is the room for all states where the memory is not screened.
        kept: what is stored, and the state before the pass.
    """

    def __init__(self, weights: Weights, kind: Kind, slots: tuple[int, int], kept: Tensors) -> None:
        self.weights, self.kind, self.slots, self.kept = weights, kind, slots, kept
        self.states, self.macro = self._there("states"), self._there("macro")
        steps, batch, n = self.states.shape
        self.shape = steps, batch, n
        before = (kept["short_before"], kept["relevant_before"])
        self.past = sum(tensor.shape[1] for tensor in before if tensor is not None)
        self._weights: Tensors = {
            "joint": torch.cat([weights.recurrent, weights.query]), "key": readable(weights.key),
            "score": readable(weights.score), "threshold": readable_or_none(weights.threshold),
            "gate": readable_or_none(weights.gate),
        }  # fmt: skip

    def _there(self, name: str) -> Tensor:
        tensor = self.kept[name]
        assert tensor is not None
        return tensor

    @property
    def learned(self) -> bool:
        """Whether scores are differentiated."""
        return self.kind.rule is not None and self.kind.rule.learned

    # ------------------------------------------------------------ running

    def forward(self, changed: Mapping[str, Tensor | None]) -> None:
        """Fill what is stored; `changed` is the memory that is not differentiated."""
        threads = min(torch.get_num_threads(), self.shape[1])
        block = min(BLOCK, -(-self.shape[1] // threads))
        keys = self.states.new_empty(threads, block, sum(self.slots), self.shape[2])
        self._run(0, self.shape[1], threads, block, {**changed, "keys": keys}, backward=False)

    def backward(self, first_row: int, rows: int, tensors: Mapping[str, Tensor | None]) -> Tensor:
        """The gradients of `rows` sequences from `first_row` on; returns that of v."""
        threads = min(torch.get_num_threads(), rows)
        sums = self.states.new_empty(threads, self.shape[2])
        self._run(first_row, rows, threads, 0, {**tensors, "sums": sums}, backward=True)
        return sums[0]

    def _run(
        self, first_row: int, rows: int, threads: int, block: int, tensors: Mapping[str, Tensor | None], backward: bool
    ) -> None:
        """Call the kernel; tensors are contiguous, and this frame keeps them alive until it returns."""
        kind, n = self.kind, self.shape[2]
        rule = 0 if kind.rule is None else kind.rule.code
        wide = (kind.gates + 1) * n
        packed = room(self.states, (wide, n) if backward else (n, wide), (n, n))
        is_double = self.states.dtype == torch.float64
        job = Pass(
            *self.shape, kind.gates, *self.slots, self.past, first_row, rows, kind.mixing,
            is_double, CODES[kind.nonlinearity], backward, kind.lstm, rule, block,
        )  # fmt: skip
        for name, tensor in {**self._weights, **self.kept, **tensors, "packed": packed}.items():
            if tensor is not None and tensor.numel():
                setattr(job, name, tensor.data_ptr())
        loaded().kreiss_run_memory(ctypes.byref(job), threads)

    # ------------------------------------------------------------ after the pass

    def last_cell(self) -> Tensor | None:
        """c after the pass."""
        return self._last(self._there("cells")) if self.kind.lstm else None

    def last_query(self) -> Tensor:
        """The query of the next step: s of the last."""
        return self._last(self.macro)

    def _last(self, tensor: Tensor) -> Tensor:
        """Of every sequence, the tensor (T, B, N) at its last step."""
        lengths = self.kept["lengths"]
        return tensor[-1].clone() if lengths is None else tensor[lengths - 1, torch.arange(tensor.shape[1])]

    def stored_before(self, now: slice) -> Tensor:
        """The memory before the pass (rows, past, N) of some sequences."""
        kept = (self.kept[name] for name in ("relevant_before", "short_before"))
        return torch.cat([tensor[now] for tensor in kept if tensor is not None], 1)
