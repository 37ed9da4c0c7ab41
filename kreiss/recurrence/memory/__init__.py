"""Recurrences that attend to their own past, each by the fastest path that applies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence.memory import fused, operator, reference
from kreiss.recurrence.memory.parts import Candidate, Kind, State, Weights, empty_state
from kreiss.recurrence.memory.reference import Reads
from kreiss.recurrence.plain import takes_reference
from kreiss.recurrence.plain.reference import drive

__all__ = ["Candidate", "Kind", "Reads", "State", "Weights", "empty_state", "run_memory"]


def run_memory(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weights: Weights,
    state: Any,
    kind: Kind,
    lengths: Tensor | None = None,
    *,
    keep: bool = False,
) -> tuple[Tensor, Any, Reads | None]:
    """Run a recurrence with memory over a sequence.

    Args:
        x: inputs (T, B, I), or integer symbols (T, B) below I, which represent one-hot vectors.
        weight, bias: U and b; the threshold of modReLU is one of the weights.
        state: one of those in `parts`, with the batch as its first dimension.
        kind: what the cell computes.
        lengths: (B,), valid steps of each sequence; beyond them the state is unchanged.
        keep: whether to return what every step read, which runs the reference path.

    Returns:
        States (T, B, N), the last state, and what was read.
    """
    if not keep:
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting() and not derivatives.forward_mode():
            if operator.usable(weights, kind):
                return *_run_operator(x, weight, bias, weights, state, kind, lengths), None
        elif not takes_reference() and fused.usable(x, weight, bias, weights, state, kind):
            return *_run_fused(x, weight, bias, weights, state, kind, lengths), None
    u = drive(x, weight)
    u = u if bias is None else u + bias.to(u.dtype)
    return reference.run(u, weights, state, kind, lengths, keep=keep)


def _run_fused(
    x: Tensor, weight: Tensor, bias: Tensor | None, weights: Weights, state: Any, kind: Kind, lengths: Tensor | None
) -> tuple[Tensor, Any]:
    """By the kernel; a memory that is still empty is not handed over."""
    fresh = not bool(state.steps.any())
    if hasattr(state, "memory"):
        if not fresh and not _is_compact(state):
            state = _compact(state)
        short, relevant, scores = (None if fresh else state.memory), None, None
        before = fused.Before(None if fresh else (state.times >= 0).sum(1))
        slots = (0 if short is None else short.shape[1]) + len(x), 0
    else:
        numbers = (state.steps, state.times, state.scores, state.reads, state.surprise)
        before = fused.Before() if fresh else fused.Before(*numbers)
        short, relevant, scores = (None, None, None) if fresh else (state.short, state.relevant, state.scores)
        slots = state.short.shape[1], state.relevant.shape[1]
    results = fused.Recurrence.apply(
        x, weight, bias, *weights, state.h, getattr(state, "c", None), None if fresh else state.query, short, relevant,
        scores, state, before, slots, lengths, kind,
    )  # fmt: skip
    return results[0], _state_after(state, results, weights, kind, lengths, fresh)


def _run_operator(
    x: Tensor, weight: Tensor, bias: Tensor | None, weights: Weights, state: Any, kind: Kind, lengths: Tensor | None
) -> tuple[Tensor, Any]:
    """By the operator, which does not depend on what is in the tensors."""
    if hasattr(state, "memory"):
        state = _compact(state) if state.memory.shape[1] else state
        none = state.h.new_empty(len(state.h), 0)
        stored = (state.memory, none[..., None].expand(-1, -1, state.h.shape[1]), none)
        numbers = ((state.times >= 0).sum(1), state.times[:, :0], none, none)
    else:
        stored = (state.short, state.relevant, state.scores)
        numbers = (state.steps, state.times, state.reads, state.surprise)
    code = operator.FULL if kind.rule is None or kind.rule.code is None else kind.rule.code
    results = operator.memory_op(
        x, weight, bias, *weights, state.h, getattr(state, "c", None), state.query, *stored, *numbers, lengths, code,
        kind.lstm, kind.nonlinearity, kind.mixing,
    )[:8]  # fmt: skip
    return results[0], _state_after(state, results, weights, kind, lengths, fresh=False)


def _state_after(
    state: Any, results: tuple[Any, ...], weights: Weights, kind: Kind, lengths: Tensor | None, fresh: bool
) -> Any:
    """The state after a pass, from what it returned."""
    out, c, query, members, times, scores, reads, surprise = results
    lasting = _Lasting(state, out, lengths, fresh)
    common = {"h": lasting.h(), "query": query, "steps": lasting.steps, **({"c": c} if kind.lstm else {})}
    if hasattr(state, "memory"):
        return state._replace(**common, **lasting.full())
    kept = lasting.screened(members, scores, weights, kind)
    return state._replace(**common, **kept, times=times, reads=reads, surprise=surprise)


def _is_compact(state: Any) -> bool:
    there = state.times >= 0
    return bool((there[:, 1:] <= there[:, :-1]).all())


def _compact(state: Any) -> Any:
    """The state with what every sequence stored first in its memory, where shorter sequences left gaps."""
    order = torch.sort((state.times >= 0).to(torch.int8), dim=1, descending=True, stable=True).indices
    memory = state.memory.gather(1, order[..., None].expand_as(state.memory))
    return state._replace(memory=memory, times=state.times.gather(1, order))


class _Lasting:
    """The state after a pass, from its outputs: what is stored in memory is some of them."""

    def __init__(self, state: Any, out: Tensor, lengths: Tensor | None, fresh: bool) -> None:
        self.state, self.out, self.lengths, self.fresh = state, out, lengths, fresh
        self.rows = torch.arange(out.shape[1])
        self.steps = state.steps + (len(out) if lengths is None else lengths)

    def h(self) -> Tensor:
        """The last state of every sequence."""
        return self.out[-1].clone() if self.lengths is None else self.out[self.lengths - 1, self.rows]

    def full(self) -> dict[str, Tensor]:
        """All states and their steps."""
        steps = torch.arange(len(self.out)) + self.state.steps[:, None]
        # a copy: outputs are often changed in place
        new, memory = steps, self.out.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        if self.lengths is not None:
            there = steps < self.steps[:, None]
            new, memory = torch.where(there, steps, -1), torch.where(there[..., None], memory, 0.0)
        if self.state.memory.shape[1] == 0:
            return {"memory": memory, "times": new}
        return {
            "memory": torch.cat([self.state.memory, memory], 1),
            "times": torch.cat([self.state.times, new], 1),
        }

    def screened(self, members: Tensor, scores: Tensor, weights: Weights, kind: Kind) -> dict[str, Tensor]:
        """The short-term memory, the relevant set and its scores."""
        state, rows = self.state, self.rows[:, None]
        size, slots = state.short.shape[1], torch.arange(state.short.shape[1])
        last = self.steps[:, None] - 1
        made = last - (last - slots) % size - state.steps[:, None]  # step of this pass in every slot
        short = torch.where((made >= 0)[..., None], self.out[made.clamp(min=0), rows], state.short)
        past = 0 if self.fresh else size + state.relevant.shape[1]
        relevant = self.out[(members - past).clamp(min=0), rows]
        if past:
            before = torch.cat([state.relevant, state.short], 1)
            relevant = torch.where((members >= past)[..., None], relevant, before[rows, members.clamp(0, past - 1)])
        relevant = torch.where((members >= 0)[..., None], relevant, state.relevant)
        if kind.rule is not None and kind.rule.learned:
            scores = self._with_gradient(scores, members, relevant, weights)
        return {"short": short, "relevant": relevant, "scores": scores}

    def _with_gradient(self, scores: Tensor, members: Tensor, relevant: Tensor, weights: Weights) -> Tensor:
        """Scores of a learned rule with the graph of w·h; those of earlier members with their own."""
        assert weights.gate is not None
        earlier = torch.zeros_like(members, dtype=torch.bool)
        graph = relevant.detach() @ weights.gate
        if not self.fresh:
            earlier = (members >= 0) & (members < members.shape[1])
            graph = torch.where(earlier, self.state.scores, graph)
        graph = torch.where(members >= 0, graph, 0.0)
        return scores + (graph - graph.detach())
