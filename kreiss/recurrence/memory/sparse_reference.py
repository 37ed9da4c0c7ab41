"""Sparse attentive backtracking (Ke et al. 2018) in plain torch, which supports every feature of autograd.

    ĥ_t, c_t = LSTM(x_t, h_{t−1}, c_{t−1}),   h_t = ĥ_t + r_t,   r_t = Σ_i a_i m_i over the memory
    s_i = w₁ᵀ tanh(ĥ_t) + w₂ᵀ tanh(m_i)

Up to `top` memories a = s. With more of them a_i ∝ relu(s_i − (the top-th largest s + ε)), so at most top − 1 weights
are not zero; the first term of s then cancels, and is left out. The memory starts with a zero vector. Counting steps
from 1, h_t is stored at the multiples of `every`, and at those of `truncate` h and c enter the LSTM without gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss import derivatives
from kreiss.recurrence.lstm import cell
from kreiss.recurrence.memory.parts import STEP
from kreiss.recurrence.memory.reference import Reads
from kreiss.recurrence.unroll import Step, is_one_step, settled, unroll

EPSILON = 1e-7
Bar = Callable[[Tensor, int], Tensor]  # scores (B, M), k → the k-th largest (B, 1)


class Schedule(NamedTuple):
    """When a state is stored, how many are attended to, and when h and c lose their gradient."""

    every: int
    top: int
    truncate: int

    def memories(self, first: int, seen: int, steps: int) -> int:
        """Memories after `steps` more steps, if there were `first` of them after `seen`."""
        return first + (seen + steps) // self.every - seen // self.every


class SparseState(NamedTuple):
    """The state of sparse attentive backtracking; M memories have room."""

    h: Tensor  # (B, N)
    c: Tensor  # (B, N)
    memory: Tensor  # (B, M, N), of which the first is zero
    times: Tensor  # (B, M), steps seen when it was stored: 0 for the first; −1 where there is none
    steps: Tensor  # (B,), steps seen


def empty_sparse_state(like: Tensor, leading: tuple[int, ...], n: int) -> SparseState:
    """The state before the first step, with these leading dimensions: (B,), or (cells, B)."""
    zeros = like.new_zeros(*leading, n)
    counts = like.new_zeros(leading, dtype=STEP)
    return SparseState(zeros, zeros.clone(), zeros.unsqueeze(-2).clone(), counts.unsqueeze(-1).clone(), counts)


# ---------------------------------------------------------------- the plain loop


def run(
    u: Tensor,
    matrix: Tensor,
    score: Tensor,
    state: SparseState,
    schedule: Schedule,
    lengths: Tensor | None = None,
    *,
    seen: int | None = None,
    keep: bool = False,
) -> tuple[Tensor, Tensor, SparseState, Reads | None]:
    """States h and reads r (T, B, N), the last state, and with `keep` the weight of every memory at every step.

    Args:
        u: U x_t + b (T, B, 4N), gates in the inner order of `kreiss.recurrence.lstm`.
        matrix: V (4N, N), rows in that order.
        score: w (2N,), of ĥ and then of the memories.
        state: with the batch as its first dimension.
        lengths: (B,), valid steps of each sequence.
        seen: steps that all sequences have seen, if that is known: the last state has no empty slots then.
    """
    steps = u.shape[0]  # not len(u), which would fix the length in torch.export
    slots = -(-steps // schedule.every) + (schedule.top if torch.compiler.is_exporting() else 0)  # one graph for all
    n, roomy = state.h.shape[-1], _with_room(state, slots)
    first = *roomy, roomy.memory.tanh() @ score[n:]  # a plain tuple: torch's scan takes no other
    bar = _bar_by_comparison if torch.compiler.is_exporting() and is_one_step(u) else _bar
    outputs, carry = unroll(_step(matrix.to(u.dtype), score, schedule, keep, bar), u, first, lengths=lengths)
    last, (out, read, *reads) = SparseState(*carry[:-1]), outputs
    out = settled(out, state.h, last.h, lengths, reverse=False)
    used = None if seen is None else schedule.memories(state.memory.shape[1], seen, steps)
    return out, read, _trimmed(last, used), Reads(*reads) if keep else None


def _with_room(state: SparseState, slots: int) -> SparseState:
    return state._replace(memory=F.pad(state.memory, (0, 0, 0, slots)), times=F.pad(state.times, (0, slots), value=-1))


def _trimmed(state: SparseState, used: int | None) -> SparseState:
    """Without slots behind the first `used`, and those that no sequence uses, where their number can be read."""
    if torch.compiler.is_exporting():
        if used is None:  # read from the tensor whenever the graph runs
            used = (state.times >= 0).sum(-1).amax(0).item()  # type: ignore[assignment]
            torch._check(used <= state.times.shape[1])  # type: ignore[operator]
    elif derivatives.ordinary() and not state.times.is_meta and state.times.shape[0] > 0:
        used = int((state.times >= 0).sum(-1).max())
    return state._replace(memory=state.memory[:, :used], times=state.times[:, :used])


def _step(matrix: Tensor, score: Tensor, schedule: Schedule, keep: bool, bar: Bar) -> Step:
    n, transposed = matrix.shape[1], matrix.mT

    def step(u: Tensor, carry: tuple[Tensor, ...]) -> tuple[Any, tuple[Tensor, ...]]:
        state, second = SparseState(*carry[:-1]), carry[-1]
        steps = state.steps + 1
        cut = (steps % schedule.truncate == 0).unsqueeze(-1)
        h, c = (torch.where(cut, part.detach(), part) for part in (state.h, state.c))
        made, c = cell(u + h @ transposed, c)
        weight = attention(made.tanh() @ score[:n], second, state.times >= 0, schedule.top, bar)
        read = (weight.unsqueeze(-2) @ state.memory).squeeze(-2)
        h = made + read
        where = _free(state.times) & (steps % schedule.every == 0).unsqueeze(-1)
        memory = torch.where(where.unsqueeze(-1), h.unsqueeze(-2), state.memory)
        times = torch.where(where, steps.unsqueeze(-1), state.times)
        second = torch.where(where, (h.tanh() @ score[n:]).unsqueeze(-1), second)
        out = (h, read, state.times, weight) if keep else (h, read)
        return out, (h, c, memory, times, steps, second)

    return step


def _free(times: Tensor) -> Tensor:
    """(B, M): the slot behind the last one in use, of each sequence."""
    slots = torch.arange(times.shape[1], device=times.device)
    last = torch.where(times >= 0, slots, -1).amax(-1, keepdim=True)
    return slots == last + 1


def _bar(values: Tensor, top: int) -> Tensor:
    """The top-th largest (B, 1)."""
    return values.topk(top, -1).values[..., -1:]


def _bar_by_comparison(values: Tensor, top: int) -> Tensor:
    """The same by element-wise operations: the smallest of those that fewer than `top` exceed."""
    above = (values.unsqueeze(-2) > values.unsqueeze(-1)).sum(-1)
    return torch.where(above < top, values, torch.finfo(values.dtype).max).amin(-1, keepdim=True)


def attention(first: Tensor, second: Tensor, valid: Tensor, top: int, bar_of: Bar = _bar) -> Tensor:
    """a (B, M) from the two terms of the scores, (B,) and (B, M)."""
    raw = (first.unsqueeze(-1) + second) * valid
    if second.shape[-1] <= top:
        return raw
    lowest = torch.finfo(second.dtype).min
    many = valid.sum(-1, keepdim=True) > top
    bar = bar_of(torch.where(valid, second, lowest), top)
    bar = torch.where(many, bar, 0.0)  # where there are few it may be `lowest`, and overflow
    above = (second - bar - EPSILON).relu() * valid
    return torch.where(many, above / (above.sum(-1, keepdim=True) + EPSILON), raw)
