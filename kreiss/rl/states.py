"""Recurrent states of several episodes: choosing, joining, beginning anew. Sequences are the second dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


def at(state: Any, index: Tensor) -> Any:
    """The states of some of the sequences."""
    return tree_map(lambda part: part.index_select(1, index), state)


def joined(states: Sequence[Any]) -> Any:
    """All states as those of one batch; memories that have grown differently get the same room."""
    if hasattr(states[0], "memory"):
        most = max(state.times.shape[-1] for state in states)
        states = [_with_room(state, most) for state in states]
    return tree_map(lambda *parts: torch.cat(parts, 1), *states)


def begun_anew(state: Any, over: Tensor, first: Any) -> Any:
    """`state`, and where `over` (B,) that of a new episode, which is all of it: no memory is left.

    Args:
        first: the state before the first step, of B sequences.
    """
    if hasattr(state, "memory"):
        most = max(state.times.shape[-1], first.times.shape[-1])
        state, first = _with_room(state, most), _with_room(first, most)
    state = tree_map(lambda old, new: torch.where(over.view(1, -1, *[1] * (old.dim() - 2)), new, old), state, first)
    return _compact(state) if hasattr(state, "memory") else state


def _with_room(state: Any, size: int) -> Any:
    """A memory that grows, with empty slots up to `size`."""
    missing = size - state.times.shape[-1]
    if not missing:
        return state
    *leading, _, n = state.memory.shape
    memory = torch.cat([state.memory, state.memory.new_zeros(*leading, missing, n)], -2)
    times = torch.cat([state.times, state.times.new_full((*leading, missing), -1)], -1)
    return state._replace(memory=memory, times=times)


def _compact(state: Any) -> Any:
    """Without the slots in which no sequence has anything: a memory is as long as the longest episode."""
    used = (state.times >= 0).flatten(0, -2).any(0)
    return state._replace(memory=state.memory[..., used, :], times=state.times[..., used])
