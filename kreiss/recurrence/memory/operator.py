"""A recurrence with memory as one opaque operator for torch.compile, so that compile time does not grow with length.

It takes and returns tensors alone; an empty one stands for what a recurrence does not have. Screening rules of the
user's own have no operator: they are unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kreiss.recurrence.library import library
from kreiss.recurrence.memory import fused
from kreiss.recurrence.memory.gradients import Gradients
from kreiss.recurrence.memory.kernel import Memory, Tensors
from kreiss.recurrence.memory.parts import Candidate, Kind, Weights

STORED = ("macro", "log_sums", "admitted", "gate_values", "cells")
FULL = -1  # in place of the code of a rule
LEARNED = 4  # KREISS_LEARNED of csrc/kernel.h
Gradient = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
    Tensor,
]  # fmt: skip
Result = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]  # fmt: skip


@dataclass
class Coded:
    """A screening rule of the kernel, by its code."""

    code: int | None
    learned: bool

    def score(self, candidate: Candidate) -> Tensor:
        raise NotImplementedError("the kernel scores candidates of this rule")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_there() -> bool:
    return library() is not None


def usable(weights: Weights, kind: Kind) -> bool:
    """Whether the operator supports these arguments, in code that is being compiled."""
    coded = kind.rule is None or kind.rule.code is not None
    plain = weights.score.dtype in (torch.float32, torch.float64) and weights.score.device.type == "cpu"
    return coded and plain and not torch.is_autocast_enabled("cpu") and _is_there()


def _parts(code: int, lstm: bool, nonlinearity: str, mixing: float, short: Tensor, scores: Tensor, steps: int) -> Any:
    """The kind of cell, and ν and ρ."""
    kind = Kind(lstm, nonlinearity, mixing, None if code == FULL else Coded(code, code == LEARNED))
    return kind, (short.shape[1] + steps, 0) if code == FULL else (short.shape[1], scores.shape[1])


@torch.library.custom_op("kreiss::memory", mutates_args=())
def memory_op(
    x: Tensor, weight: Tensor, bias: Tensor | None, recurrent: Tensor, query_weight: Tensor, key_weight: Tensor,
    score: Tensor, threshold: Tensor | None, gate: Tensor | None, h: Tensor, c: Tensor | None, query: Tensor,
    short: Tensor, relevant: Tensor, scores: Tensor, steps: Tensor, times: Tensor, reads: Tensor, surprise: Tensor,
    lengths: Tensor | None, code: int, lstm: bool, nonlinearity: str, mixing: float,
) -> Result:  # fmt: skip
    """Outputs, c, query, members, times, scores, reads, surprise, and what the backward pass needs."""
    weights = Weights(recurrent, query_weight, key_weight, score, threshold, gate)
    kind, slots = _parts(code, lstm, nonlinearity, mixing, short, scores, len(x))
    screened = code != FULL
    before = fused.Before(steps, times, scores, reads, surprise) if screened else fused.Before(steps)
    kept = fused.kept_tensors(x, weight, bias, weights, [h, c, query, short, relevant], before, lengths, kind)
    memory = Memory(weights, kind, slots, kept)
    after = fused.memory_after(memory, before)
    memory.forward(after)
    cell = memory.last_cell()
    out = (kept["states"], h.new_empty(0) if cell is None else cell, memory.last_query(), *after.values())
    missing = [h.new_empty(0) if kept.get(name) is None else kept[name] for name in STORED]
    return *out, *missing  # type: ignore[return-value]


@memory_op.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, recurrent: Tensor, query_weight: Tensor, key_weight: Tensor,
    score: Tensor, threshold: Tensor | None, gate: Tensor | None, h: Tensor, c: Tensor | None, query: Tensor,
    short: Tensor, relevant: Tensor, scores: Tensor, steps: Tensor, times: Tensor, reads: Tensor, surprise: Tensor,
    lengths: Tensor | None, code: int, lstm: bool, nonlinearity: str, mixing: float,
) -> Result:  # fmt: skip
    length, batch, n = x.shape[0], x.shape[1], score.shape[0]
    new = score.new_empty
    like = [tensor.new_empty(tensor.shape) for tensor in (scores, reads, surprise)]
    whole, integers = new(length, batch, n), torch.int64
    cells = (new(length, batch, 4 * n), new(length, batch, n)) if lstm else (new(0), new(0))
    return (
        whole, new(batch, n) if lstm else new(0), new(batch, n), new(scores.shape, dtype=integers),
        new(scores.shape, dtype=integers), *like, new(length, batch, n), new(length, batch),
        new(length, batch, dtype=torch.int32), *cells,
    )  # type: ignore[return-value]  # fmt: skip


@torch.library.custom_op("kreiss::memory_backward", mutates_args=())
def memory_backward_op(
    grad: Tensor | None, grad_cell: Tensor | None, grad_query: Tensor | None,
    x: Tensor, weight: Tensor, recurrent: Tensor, query_weight: Tensor, key_weight: Tensor, score: Tensor,
    threshold: Tensor | None, gate: Tensor | None, h: Tensor, c: Tensor | None, query: Tensor, short: Tensor,
    relevant: Tensor, scores: Tensor, steps: Tensor, times: Tensor, lengths: Tensor | None,
    states: Tensor, macro: Tensor, log_sums: Tensor, admitted: Tensor, gate_values: Tensor,
    cells: Tensor, code: int, lstm: bool, nonlinearity: str, mixing: float,
) -> Gradient:  # fmt: skip
    """Gradients of x, U, b, the weights, and h, c, query, short-term memory, relevant set and scores before."""
    weights = Weights(recurrent, query_weight, key_weight, score, threshold, gate)
    kind, slots = _parts(code, lstm, nonlinearity, mixing, short, scores, len(x))
    before = fused.Before(steps, times if code != FULL else None)
    stored = dict(zip(STORED, (macro, log_sums, admitted, gate_values, cells), strict=True))
    kept: Tensors = {**fused.given_tensors([h, c, query, short, relevant], before, lengths), "states": states}
    memory = Memory(weights, kind, slots, {**kept, **{name: part for name, part in stored.items() if part.numel()}})
    found = Gradients(memory, x, weight, x.is_floating_point()).all(grad, grad_cell, grad_query)
    return tuple(h.new_empty(0) if part is None else part.clone() for part in found)  # type: ignore[return-value]


@memory_backward_op.register_fake
def _(
    grad: Tensor | None, grad_cell: Tensor | None, grad_query: Tensor | None,
    x: Tensor, weight: Tensor, recurrent: Tensor, query_weight: Tensor, key_weight: Tensor, score: Tensor,
    threshold: Tensor | None, gate: Tensor | None, h: Tensor, c: Tensor | None, query: Tensor, short: Tensor,
    relevant: Tensor, scores: Tensor, steps: Tensor, times: Tensor, lengths: Tensor | None,
    states: Tensor, macro: Tensor, log_sums: Tensor, admitted: Tensor, gate_values: Tensor,
    cells: Tensor, code: int, lstm: bool, nonlinearity: str, mixing: float,
) -> Gradient:  # fmt: skip
    new, n, rows = score.new_empty, score.shape[0], h.shape[0]
    inputs = x.new_empty(x.shape) if x.is_floating_point() else new(0)
    return (
        inputs, new(weight.shape), new((4 if lstm else 1) * n), new(recurrent.shape), new(n, n), new(n, n), new(n),
        new(n), new(n), new(rows, n), new(rows, n), new(rows, n), new(short.shape), new(relevant.shape),
        new(scores.shape),
    )  # fmt: skip


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.options = inputs[20:]
    ctx.has = [isinstance(part, Tensor) for part in inputs[:15]]
    tensors = (*inputs[:2], *inputs[3:17], inputs[19])  # without b, reads and surprise
    ctx.save_for_backward(*tensors, output[0], *output[8:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, grad_cell, grad_query, *_):  # type: ignore[no-untyped-def]
    grads = [None if part is None else part.contiguous() for part in (grad, grad_cell, grad_query)]
    found = torch.ops.kreiss.memory_backward(*grads, *ctx.saved_tensors, *ctx.options)
    wanted = [part if has and part.numel() else None for part, has in zip(found, ctx.has, strict=True)]
    return *wanted, *((None,) * 9)


memory_op.register_autograd(_backward, setup_context=_setup)
