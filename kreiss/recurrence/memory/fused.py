"""The fast path of recurrences with memory: an autograd function around the kernel.

A training pass stores the states h and s of every step and one number per step for the softmax (an LSTM also its gates
and cells). Attention weights are recomputed in the backward pass (`gradients.py`) and never stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence import products
from kreiss.recurrence.library import expect, readable_or_none, takes
from kreiss.recurrence.memory import reference
from kreiss.recurrence.memory.gradients import Gradients
from kreiss.recurrence.memory.kernel import Memory, Tensors
from kreiss.recurrence.memory.parts import Kind, Weights
from kreiss.recurrence.nonlinearity import SLOPE
from kreiss.recurrence.plain.reference import drive

WEIGHTS = len(Weights._fields)
STATE = ("h", "c", "query", "short", "relevant", "scores")  # what is differentiated of a state


class Before(NamedTuple):
    """The memory before a pass that is not differentiated; None for an empty one."""

    steps: Tensor | None = None  # (B,)
    times: Tensor | None = None  # of the relevant set (B, ρ)
    scores: Tensor | None = None
    reads: Tensor | None = None  # of the short-term memory (B, ν)
    surprise: Tensor | None = None


def usable(x: Tensor, weight: Tensor, bias: Tensor | None, weights: Weights, state: Any, kind: Kind) -> bool:
    """Whether the kernel supports these arguments, under ordinary first-order autograd."""
    if not derivatives.ordinary() or torch.is_autocast_enabled("cpu") or not takes(weights.score):
        return False
    if kind.nonlinearity not in SLOPE or (kind.rule is not None and kind.rule.code is None) or x.shape[1] == 0:
        return False
    tensors = [weight, bias, *weights, *state] + ([x] if x.is_floating_point() else [])
    return all(_plain(tensor, weights.score.dtype) for tensor in tensors if tensor is not None)


def _plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether this is a plain dense CPU tensor of that dtype, or of integers."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_cpu and tensor.layout == torch.strided
    return plain and (tensor.dtype == dtype or not tensor.is_floating_point())


class Recurrence(torch.autograd.Function):
    """Outputs h (T, B, N); c and the query after the last step; and what became of the relevant set.

    The differentiable arguments are x, U, b, the tensors of `Weights`, and h, c, query, short-term memory (or the whole
    one), relevant set and its scores before the pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *rest: Any,  # the tensors of Weights; h, c, query, short, relevant, scores; then the five below
    ) -> tuple[Tensor | None, ...]:
        *tensors, whole, before, slots, lengths, kind = rest
        weights, state = Weights(*tensors[:WEIGHTS]), tensors[WEIGHTS:]
        kept = kept_tensors(x, weight, bias, weights, state, before, lengths, kind)
        memory = Memory(weights, kind, slots, kept)
        after = memory_after(memory, before)
        memory.forward(after)
        ctx.names, ctx.kind, ctx.slots, ctx.whole, ctx.lengths = tuple(kept), kind, slots, whole, lengths
        ctx.save_for_backward(x, weight, bias, *tensors, *kept.values())
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*after.values())
        return kept["states"], memory.last_cell(), memory.last_query(), *after.values()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
        count = len(ctx.needs_input_grad)
        if grad is None and others[0] is None and others[1] is None:
            return (None,) * count
        if torch.is_grad_enabled():  # create_graph=True
            gradients = _through_reference(ctx, (grad, *others[:2]))
        else:
            x, weight, _, *rest = ctx.saved_tensors
            kept = dict(zip(ctx.names, rest[WEIGHTS + len(STATE) :], strict=True))
            memory = Memory(Weights(*rest[:WEIGHTS]), ctx.kind, ctx.slots, kept)
            gradients = Gradients(memory, x, weight, ctx.needs_input_grad[0]).all(grad, *others[:2])
        needed = [value if need else None for value, need in zip(gradients, ctx.needs_input_grad, strict=False)]
        return *needed, *((None,) * (count - len(needed)))


def _through_reference(ctx: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Differentiable gradients by the plain loop."""
    inputs = ctx.saved_tensors[: 3 + WEIGHTS + len(STATE)]
    x, weight, bias, *rest = inputs
    given = zip(STATE, rest[WEIGHTS:], strict=True)
    fields = {"memory" if name == "short" and hasattr(ctx.whole, "memory") else name: part for name, part in given}
    state = ctx.whole._replace(**{name: part for name, part in fields.items() if part is not None})
    u = drive(x, weight)
    u = u if bias is None else u + bias
    out, last, _ = reference.run(u, Weights(*rest[:WEIGHTS]), state, ctx.kind, ctx.lengths)
    pairs = [(o, g) for o, g in zip((out, getattr(last, "c", None), last.query), grads, strict=True) if g is not None]
    outputs, given_grads = zip(*pairs, strict=True)
    positions = [i for i, needed in enumerate(ctx.needs_input_grad[: len(inputs)]) if needed]
    wanted = [inputs[i] for i in positions]
    found = torch.autograd.grad(outputs, wanted, given_grads, create_graph=True, allow_unused=True)
    by_position = dict(zip(positions, found, strict=True))
    return tuple(by_position.get(i) for i in range(len(inputs)))


def kept_tensors(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weights: Weights,
    state: list[Tensor | None],
    before: Before,
    lengths: Tensor | None,
    kind: Kind,
) -> Tensors:
    """The buffers that the forward pass fills, and the state before it."""
    return {**_stored(x, weight, bias, weights.score, kind), **given_tensors(state, before, lengths)}


def _stored(x: Tensor, weight: Tensor, bias: Tensor | None, like: Tensor, kind: Kind) -> Tensors:
    """The buffers that the forward pass fills, U x + b already in the one where the kernel reads it."""
    steps, batch, n = x.shape[0], x.shape[1], len(like)
    buffers: Tensors = {
        "states": expect(like.new_empty(steps, batch, n)), "macro": expect(like.new_empty(steps, batch, n)),
        "log_sums": like.new_empty(steps, batch),
        "admitted": like.new_empty(steps, batch, dtype=torch.int32),
    }  # fmt: skip
    if kind.lstm:
        buffers["gate_values"] = expect(like.new_empty(steps, batch, 4 * n))
        buffers["cells"] = expect(like.new_empty(steps, batch, n))
    driven = buffers["gate_values" if kind.lstm else "states"]
    assert driven is not None
    _drive(driven.view(steps * batch, -1), x, weight, bias)
    return buffers


def _drive(rows: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Write U x + b into the rows."""
    if not x.is_floating_point():
        torch.index_select(weight.mT.contiguous(), 0, x.flatten(), out=rows)
        if bias is not None:
            rows += bias
    elif bias is None:
        products.write(rows, x.flatten(0, 1), weight.mT)
    else:
        torch.addmm(bias, x.flatten(0, 1), weight.mT, out=rows)


def given_tensors(state: list[Tensor | None], before: Before, lengths: Tensor | None) -> Tensors:
    """The state before the pass, under the kernel's names."""
    names = ("h_before", "c_before", "query_before", "short_before", "relevant_before")
    given = {name: readable_or_none(tensor) for name, tensor in zip(names, state, strict=False)}
    more = {"steps_before": before.steps, "times_before": before.times, "lengths": lengths}
    return {**given, **{name: readable_or_none(tensor) for name, tensor in more.items()}}


def memory_after(memory: Memory, before: Before) -> dict[str, Tensor]:
    """Members, times, scores, reads and surprise: as before the pass, for the kernel to change."""
    (_, batch, _), (short, relevant), like = memory.shape, memory.slots, memory.states
    ring = (batch, 0 if memory.kind.rule is None else short)
    return {
        "members": like.new_full((batch, relevant), -1, dtype=torch.int64),
        "times": _copied(before.times, like, (batch, relevant), -1, torch.int64),
        "scores": _copied(before.scores, like, (batch, relevant), -torch.inf, like.dtype),
        "reads": _copied(before.reads, like, ring, 0, like.dtype),
        "surprise": _copied(before.surprise, like, ring, 0, like.dtype),
    }


def _copied(tensor: Tensor | None, like: Tensor, shape: tuple[int, ...], fill: float, dtype: torch.dtype) -> Tensor:
    if tensor is None:
        return like.new_full(shape, fill, dtype=dtype)
    return tensor.detach().clone(memory_format=torch.contiguous_format)
