"""What a layer with memory read, and what it kept."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Stay(NamedTuple):
    """One state in the relevant set of one sequence."""

    sequence: int
    past: int  # the step at which the state was made
    entered: int  # the first step that read it there
    left: int | None  # the first step that did not any more; None if it stayed to the end


class AttentionRecord:
    """Attention weights as a sparse record: at step t, sequence b read states `past[t, b]` with `weight[t, b]`.

    Steps count from the start of the sequence; −1 marks an empty slot, whose weight is 0. A step reads before it makes
    its own state, so past < t.

    Attributes:
        past: (T, B, M), the step at which each state in memory was made.
        weight: (T, B, M), its attention weight; the weights of a softmax sum to 1, or to 0 in the first step.
        relevant: the number of slots, the first ones, that hold screened states; 0 for attention over all states.
        start: (B,), the step of the first row.
    """

    def __init__(self, past: Tensor, weight: Tensor, relevant: int = 0, start: Tensor | None = None) -> None:
        self.past, self.weight, self.relevant = past, weight, relevant
        self.start = past.new_zeros(past.shape[1]) if start is None else start

    @classmethod
    def of(cls, reads: Any, out: Tensor, start: Tensor | int, relevant: int) -> AttentionRecord:
        """From the reads of `kreiss.recurrence.memory`."""
        first = torch.as_tensor(start, device=out.device).expand(out.shape[1])
        return cls(reads.times, reads.weights, relevant, first)

    def dense(self, sequence: int = 0) -> Tensor:
        """The attention map (T, P) of one sequence: row t, column i is the weight of step i in step t."""
        past, weight = self.past[:, sequence], self.weight[:, sequence]
        steps = int(self.start[sequence]) + len(past)
        dense = weight.new_zeros(len(past), steps + 1)  # one more column, for empty slots
        return dense.scatter_add_(1, torch.where(past < 0, steps, past), weight)[:, :steps]

    def kept(self) -> Tensor:
        """(T, B, ρ): the steps of the screened states that each step could read, −1 where there is none."""
        return self.past[..., : self.relevant]

    def stays(self) -> list[Stay]:
        """When every screened state came in and went out, in the order in which they came."""
        found: list[Stay] = []
        kept = self.kept().cpu()
        for b in range(kept.shape[1]):
            start = int(self.start[b])
            for slot in kept[:, b].T:
                changes = [0, *(int(i) for i in (slot[1:] != slot[:-1]).nonzero() + 1), len(slot)]
                for first, end in itertools.pairwise(changes):
                    if slot[first] >= 0:
                        left = None if end == len(slot) else start + end
                        found.append(Stay(b, int(slot[first]), start + first, left))
        return sorted(found, key=lambda stay: (stay.sequence, stay.entered, stay.past))

    def __repr__(self) -> str:
        steps, batch, slots = self.past.shape
        return f"AttentionRecord({steps} steps, {batch} sequences, {slots} slots, {self.relevant} for screened states)"
