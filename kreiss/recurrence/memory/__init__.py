"""Recurrences that attend to their own past, each by the fastest path that applies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss.recurrence.memory import fused, reference
from kreiss.recurrence.memory.parts import Candidate, Kind, State, Weights, empty_state
from kreiss.recurrence.memory.reference import Reads
from kreiss.recurrence.plain import reference_is_forced
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
    if not keep and not reference_is_forced() and fused.usable(x, weight, bias, weights, state, kind):
        return *_run_fused(x, weight, bias, weights, state, kind, lengths), None
    u = drive(x, weight)
    u = u if bias is None else u + bias.to(u.dtype)
    return reference.run(u, weights, state, kind, lengths, keep=keep)


def _run_fused(
    x: Tensor, weight: Tensor, bias: Tensor | None, weights: Weights, state: Any, kind: Kind, lengths: Tensor | None
) -> tuple[Tensor, Any]:
    fresh = not bool(state.steps.any())  # nothing stored yet
    if hasattr(state, "memory"):
        state = state if fresh else _compact(state)
        short = None if fresh else state.memory
        steps = None if fresh else (state.times >= 0).sum(1)
        before, relevant, scores = fused.Before(steps), None, None
        slots = (0 if short is None else short.shape[1]) + len(x), 0
    else:
        before = fused.Before() if fresh else fused.Before(
            state.steps, state.times, state.scores, state.reads, state.surprise
        )  # fmt: skip
        short, relevant, scores = (None, None, None) if fresh else (state.short, state.relevant, state.scores)
        slots = state.short.shape[1], state.relevant.shape[1]
    query = None if fresh else state.query
    out, c, query, members, times, scores, reads, surprise = fused.Recurrence.apply(
        x, weight, bias, *weights, state.h, getattr(state, "c", None), query, short, relevant, scores,
        state, before, slots, lengths, kind,
    )  # fmt: skip
    cell = {} if c is None else {"c": c}
    lasting = _Lasting(state, out, lengths, fresh)
    common = {"h": lasting.h(), **cell, "query": query, "steps": lasting.steps}
    if hasattr(state, "memory"):
        return out, state._replace(**common, **lasting.full())
    kept = lasting.screened(members, scores, weights, kind)
    return out, state._replace(**common, **kept, times=times, reads=reads, surprise=surprise)


def _compact(state: Any) -> Any:
    """The state with what every sequence stored first in its memory, where shorter sequences left gaps."""
    there = state.times >= 0
    if bool((there[:, 1:] <= there[:, :-1]).all()):
        return state
    order = torch.sort(there.to(torch.int8), dim=1, descending=True, stable=True).indices
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
        return self.out[-1] if self.lengths is None else self.out[self.lengths - 1, self.rows]

    def full(self) -> dict[str, Tensor]:
        """All states and their steps."""
        steps = torch.arange(len(self.out)) + self.state.steps[:, None]
        new, memory = steps, self.out.transpose(0, 1)
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
        graph = relevant @ weights.gate
        if not self.fresh:
            earlier = (members >= 0) & (members < members.shape[1])
            graph = torch.where(earlier, self.state.scores, graph)
        graph = torch.where(members >= 0, graph, 0.0)
        return scores + (graph - graph.detach())
