"""Recurrences that attend to their own past, each by the fastest path that applies."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kreiss.recurrence.memory import reference
from kreiss.recurrence.memory.parts import Candidate, Kind, State, Weights, empty_state
from kreiss.recurrence.plain.reference import drive

__all__ = ["Candidate", "Kind", "State", "Weights", "empty_state", "run_memory"]


def run_memory(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weights: Weights,
    state: State,
    kind: Kind,
    lengths: Tensor | None = None,
    *,
    keep: bool = False,
) -> tuple[Tensor, State, Any]:
    """States (T, B, N), the last state, and with `keep` what every step read."""
    u = drive(x, weight)
    return reference.run(u if bias is None else u + bias.to(u.dtype), weights, state, kind, lengths, keep=keep)
