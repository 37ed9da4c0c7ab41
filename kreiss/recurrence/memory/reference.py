"""Recurrences with memory in plain torch, which supports every feature of autograd.

    e_i = vᵀ tanh(V_a q + U_a m_i), α = softmax(e) over the memory, s_{t−1} = m (h_{t−1} + Σ α_i m_i), and h_t from
    (x_t, s_{t−1}) as in a network without memory (thesis, eqs. 4.4.1 and 4.4.2, and Algorithm 1 as corrected).

Before the first step the memory is empty and s = h, the incoming state. The query q of a step is s of the step before.
U_a m_i is computed once, when a state is stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from kreiss.errors import InputError
from kreiss.recurrence.memory.parts import Candidate, Kind, Rule, Weights
from kreiss.recurrence.nonlinearity import APPLY
from kreiss.recurrence.unroll import Step, settled, unroll


class Carry(NamedTuple):
    """The state, one of those in `parts`, with U_a m_i of everything stored."""

    state: Any
    short: Tensor  # U_a of the short-term memory, or of the whole one (B, M, N)
    relevant: Tensor  # U_a of the relevant set (B, ρ, N)


class Reads(NamedTuple):
    """What one step read: the step of each stored state, −1 where there is none, and its weight (B, M)."""

    times: Tensor
    weights: Tensor


def run(
    u: Tensor, weights: Weights, state: Any, kind: Kind, lengths: Tensor | None = None, *, keep: bool = False
) -> tuple[Tensor, Any, Reads | None]:
    """States (T, B, N), the last state, and with `keep` what every step read (T, B, M).

    Args:
        u: U x_t + b (T, B, G·N).
        state: with the batch as its first dimension.
        lengths: (B,), valid steps of each sequence.
    """
    step = _screened_step if hasattr(state, "short") else _full_step
    steps = u.shape[0]  # not len(u), which would fix the length in torch.export
    first = _with_keys(_with_room(state, steps), weights)
    places = torch.arange(steps, device=u.device) + (first.state.memory.shape[1] - steps if _full(state) else 0)
    outputs, last = unroll(step(weights, kind, keep), (u, places), first, lengths=lengths)
    out, *reads = outputs if keep else (outputs,)
    out = settled(out, state.h, last.state.h, lengths, reverse=False)
    return out, last.state, Reads(*reads) if keep else None


def _full(state: Any) -> bool:
    return hasattr(state, "memory")


def _with_room(state: Any, steps: int) -> Any:
    """A full memory with empty slots for the steps to come; other states as they are."""
    if not _full(state):
        return state
    batch, _, n = state.memory.shape
    memory = torch.cat([state.memory, state.memory.new_zeros(batch, steps, n)], 1)
    return state._replace(memory=memory, times=torch.cat([state.times, state.times.new_full((batch, steps), -1)], 1))


def _with_keys(state: Any, weights: Weights) -> Carry:
    stored = state.memory if _full(state) else state.short
    relevant = stored[:, :0] if _full(state) else state.relevant
    return Carry(state, stored @ weights.key.mT, relevant @ weights.key.mT)


# ---------------------------------------------------------------- what all steps share


def attention(query: Tensor, keys: Tensor, valid: Tensor, weights: Weights, boost: Tensor | None = None) -> Tensor:
    """α (B, M): zero where there is nothing, and altogether zero where there is nothing at all."""
    scores = (query @ weights.query.mT).unsqueeze(-2).add(keys).tanh() @ weights.score  # thesis, eq. (4.4.1)
    if boost is not None:
        scores = scores + boost
    scores = torch.where(valid, scores, torch.finfo(scores.dtype).min)  # not −inf: a row of it would give NaN
    return scores.softmax(-1) * valid


def _macro_state(state: Any, alpha: Tensor, stored: Tensor, mixing: float) -> Tensor:
    """s_{t−1} = m (h_{t−1} + Σ α_i m_i); h_{t−1} before the first step."""
    read = (alpha.unsqueeze(-2) @ stored).squeeze(-2)
    first = (state.steps == 0).unsqueeze(-1)
    return torch.where(first, state.h, mixing * (state.h + read))


def _cell(u: Tensor, s: Tensor, state: Any, weights: Weights, kind: Kind) -> dict[str, Tensor]:
    """h_t, the query of the next step and, for an LSTM, c_t."""
    z = u + s @ weights.recurrent.mT
    if kind.lstm:
        i, f, g, o = z.chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        return {"h": (o.sigmoid() * c.tanh()).to(z.dtype), "c": c, "query": s}  # under autocast c stays wide
    return {"h": APPLY[kind.nonlinearity](z, weights.threshold), "query": s}


def _put(stored: Tensor, where: Tensor, new: Tensor) -> Tensor:
    """`stored` (B, M, …) with `new` (B, …) at the slots `where` (B, M)."""
    shape = where.shape + (1,) * (stored.dim() - 2)
    return torch.where(where.view(shape), new.unsqueeze(1), stored)


def _taken(stored: Tensor, where: Tensor) -> Tensor:
    """What is in the one slot `where` (B, M) of `stored` (B, M, …)."""
    return torch.where(where.view(where.shape + (1,) * (stored.dim() - 2)), stored, 0.0).sum(1)


def _slots(stored: Tensor) -> Tensor:
    return torch.arange(stored.shape[1], device=stored.device)


# ---------------------------------------------------------------- attention over all states


def _full_step(weights: Weights, kind: Kind, keep: bool) -> Step:
    def step(now: tuple[Tensor, Tensor], carry: Carry) -> tuple[Any, Carry]:
        (u, place), (state, keys, _) = now, carry
        alpha = attention(state.query, keys, state.times >= 0, weights)
        s = _macro_state(state, alpha, state.memory, kind.mixing)
        new = _cell(u, s, state, weights, kind)
        where = (_slots(keys) == place).expand(u.shape[0], -1)
        after = state._replace(
            **new,
            memory=_put(state.memory, where, new["h"]),
            times=_put(state.times, where, state.steps),
            steps=state.steps + 1,
        )
        key = new["h"] @ weights.key.mT
        out = (new["h"], state.times, alpha) if keep else new["h"]
        return out, Carry(after, _put(keys, where, key), carry.relevant.clone())

    return step


# ---------------------------------------------------------------- attention over screened states


def _screened_step(weights: Weights, kind: Kind, keep: bool) -> Step:
    def step(now: tuple[Tensor, Tensor], carry: Carry) -> tuple[Any, Carry]:
        (u, _), state = now, carry.state
        times = torch.cat([state.times, _short_times(state)], -1)
        alpha = attention(
            state.query, torch.cat([carry.relevant, carry.short], -2), times >= 0, weights, _boost(state, kind)
        )
        s = _macro_state(state, alpha, torch.cat([state.relevant, state.short], -2), kind.mixing)
        new = _cell(u, s, state, weights, kind)
        after = state._replace(reads=state.reads + alpha[:, state.times.shape[1] :].detach())
        after, keys = _screen(after, carry, weights, kind)
        after, short_keys = _push(after._replace(**new), carry.short, _surprise(state, new["h"], s, kind), weights)
        out = (new["h"], times, alpha) if keep else new["h"]
        return out, Carry(after, short_keys, keys)

    return step


def _surprise(state: Any, h: Tensor, s: Tensor, kind: Kind) -> Tensor:
    """‖h_t − (h_{t−1} + Σ α_i m_i)/2‖² (B,): the error of predicting that nothing new happens; detached."""
    expected = torch.where((state.steps == 0).unsqueeze(-1), s, s / (2 * kind.mixing))
    return (h - expected).detach().square().sum(-1)


def _short_times(state: Any) -> Tensor:
    """The step in each slot of the short-term memory (B, ν), −1 where there is none: step i is in slot i mod ν."""
    slots, size = _slots(state.short), state.short.shape[1]
    last = state.steps.unsqueeze(-1) - 1
    times = last - (last - slots) % size
    return torch.where(times < 0, -1, times)


def _boost(state: Any, kind: Kind) -> Tensor | None:
    """Zero, with the gradient of the scores: the straight-through choice of a learned rule."""
    if kind.rule is None or not kind.rule.learned:
        return None
    scores = torch.where(state.times >= 0, state.scores, 0.0)
    return torch.cat([scores - scores.detach(), torch.zeros_like(state.reads)], -1)


def _screen(state: Any, carry: Carry, weights: Weights, kind: Kind) -> tuple[Any, Tensor]:
    """The state after its oldest short-term state was screened, and U_a of the relevant set."""
    assert kind.rule is not None
    if not state.relevant.shape[1]:  # attention over the short-term memory alone
        empty = {name: getattr(state, name).clone() for name in ("relevant", "scores", "times")}
        return state._replace(**empty), carry.relevant.clone()
    oldest = _slots(state.short) == (state.steps % state.short.shape[1]).unsqueeze(-1)  # (B, ν), the slot used next
    leaving = _taken(state.short, oldest)
    gate = None if weights.gate is None else leaving.detach() @ weights.gate
    step = state.steps - state.short.shape[1]
    candidate = Candidate(leaving, _taken(state.reads, oldest), _taken(state.surprise, oldest), step, gate)
    score = _scored(kind.rule, candidate).to(state.scores.dtype)
    place, enters = _place(state, score.detach())
    where = (_slots(state.relevant) == place.unsqueeze(-1)) & (enters & (step >= 0)).unsqueeze(-1)
    after = state._replace(
        relevant=_put(state.relevant, where, leaving),
        scores=_put(state.scores, where, score),
        times=_put(state.times, where, step),
    )
    return after, _put(carry.relevant, where, _taken(carry.short, oldest))


def _scored(rule: Rule, candidate: Candidate) -> Tensor:
    """The scores of a rule, which may be a user's own."""
    score = rule.score(candidate)
    if not isinstance(score, Tensor) or score.shape != candidate.step.shape:
        got = f"shape {tuple(score.shape)}" if isinstance(score, Tensor) else f"a {type(score).__name__}"
        hint = " `candidate.gate` is there for a rule with `learned = True` alone." if candidate.gate is None else ""
        raise InputError(
            f"`score` of {type(rule).__name__} must return a tensor with one number for each of the "
            f"{len(candidate.step)} sequences; got {got}. Reduce over the last dimension of `candidate.state`.{hint}"
        )
    return score if rule.learned else score.detach()


def _place(state: Any, score: Tensor) -> tuple[Tensor, Tensor]:
    """The slot for a state with this score (B,), and whether it enters: there is room, or a lower score leaves."""
    count = (state.times >= 0).sum(-1)
    there_is_room = count < state.times.shape[1]
    lowest, place = state.scores.detach().min(-1)
    enters = (there_is_room & (score != -torch.inf)) | (~there_is_room & (score > lowest))  # strictly greater
    return torch.where(there_is_room, count, place), enters


def _push(state: Any, keys: Tensor, surprise: Tensor, weights: Weights) -> tuple[Any, Tensor]:
    """The state after h_t took the slot of the oldest short-term state, and U_a of the short-term memory."""
    where = _slots(state.short) == (state.steps % state.short.shape[1]).unsqueeze(-1)
    after = state._replace(
        short=_put(state.short, where, state.h),
        reads=torch.where(where, 0.0, state.reads),
        surprise=_put(state.surprise, where, surprise),
        steps=state.steps + 1,
    )
    return after, _put(keys, where, state.h @ weights.key.mT)
