"""Proximal policy optimisation: the loss of some frames of a rollout, each episode by itself.

Reference: Schulman et al. (2017). Sequences of R frames start from the state that was stored when they were played. An
episode that starts within one is a sequence of its own, from the first state, so nothing crosses the end of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.networks.agent import Agent
from kreiss.rl import states
from kreiss.rl.rollout import Rollout


class Terms(NamedTuple):
    """The parts of the loss."""

    policy: Tensor
    value: Tensor
    entropy: Tensor


@dataclass
class Pieces:
    """A rollout in sequences: at most R frames of one episode.

    Attributes:
        begin: (S,), the first frame of each.
        copy: (S,), its environment.
        length: (S,), its frames.
        chunk: (S,), which stored state it starts from, numbered over (stored states, environments).
        fresh: (S,), whether it starts an episode.
        count: of chunks.
    """

    begin: Tensor
    copy: Tensor
    length: Tensor
    chunk: Tensor
    fresh: Tensor
    count: int


def pieces(starts: Tensor, recurrence: int) -> Pieces:
    """The sequences of a rollout.

    Args:
        starts: (T, B), whether a frame is the first of an episode.
        recurrence: R.
    """
    frames, copies = starts.shape
    cut = starts.clone()
    cut[::recurrence] = True
    copy, begin = cut.T.nonzero(as_tuple=True)  # all of one copy in order
    ends = torch.cat([begin[1:], begin.new_tensor([0])])
    length = torch.where(ends > begin, ends, frames) - begin  # the last of a copy ends with the rollout
    chunk = begin // recurrence * copies + copy
    return Pieces(begin, copy, length, chunk, starts[begin, copy], -(-frames // recurrence) * copies)


def replayed(agent: Agent, rollout: Rollout, of: Pieces, chunks: Tensor, first: object) -> tuple[Tensor, ...]:
    """Outputs (F, actions + 1) on all frames of some chunks, and the frames' places (frame, environment), each (F,).

    Args:
        agent: which may have learned since the rollout.
        rollout: what was played.
        of: its sequences.
        chunks: which to replay.
        first: the state at the start of an episode, of one sequence.
    """
    (chosen,) = torch.isin(of.chunk, chunks).nonzero(as_tuple=True)
    begin, copy, length = of.begin[chosen], of.copy[chosen], of.length[chosen]
    steps = torch.arange(int(length.max())).unsqueeze(1)  # (R, 1)
    valid = steps < length
    frame, place = (begin + steps)[valid], copy.expand_as(valid)[valid]
    encoded = agent.encode(rollout.observations[frame, place])
    x = encoded.new_zeros(*valid.shape, encoded.shape[-1])
    x[valid] = encoded
    state = _state(rollout, of, chosen, first)
    hidden = agent.layer(x, state)[0]
    return agent.read(hidden[valid]), frame, place


def _state(rollout: Rollout, of: Pieces, chosen: Tensor, first: object) -> object:
    """What each sequence starts from: a stored state, or the first one."""
    fresh, chunk = of.fresh[chosen], of.chunk[chosen]
    copies = rollout.starts.shape[1]
    needed, place = torch.unique(chunk, return_inverse=True)
    parts = [
        states.at(stored, needed[needed // copies == number] % copies)
        for number, stored in enumerate(rollout.states)
        if bool((needed // copies == number).any())
    ]
    before = states.at(states.joined(parts), place)
    return states.begun_anew(before, fresh, states.at(first, torch.zeros(len(chosen), dtype=torch.long)))


def terms(
    outputs: Tensor,
    actions: Tensor,
    scores: Tensor,
    values: Tensor,
    gains: Tensor,
    *,
    returns: Tensor | None = None,
    clip: float,
    clip_value: bool = True,
) -> Terms:
    """The parts of the loss, means over F frames.

    policy = −E min(r A, clip(r, 1 ± ε) A) with r = π(a)/π_played(a) (eq. 7); value = E max((V − G)², (clipped V − G)²)
    with the return G = A + V_played; entropy of π.

    Args:
        outputs: scores of the actions and the value (F, actions + 1).
        actions, scores, values: as played (F,).
        gains: A (F,).
        returns: G (F,), where gains were normalised, so that they do not add up to it.
        clip: ε.
        clip_value: whether the value may move by ε alone.
    """
    logits, value = F.log_softmax(outputs[:, :-1], -1), outputs[:, -1]
    ratio = (logits.gather(1, actions.unsqueeze(1))[:, 0] - scores).exp()
    policy = -torch.min(ratio * gains, ratio.clamp(1 - clip, 1 + clip) * gains).mean()  # eq. (7)
    target = gains + values if returns is None else returns
    error = (value - target).square()
    if clip_value:
        near = values + (value - values).clamp(-clip, clip)
        error = torch.max(error, (near - target).square())
    entropy = -(logits.exp() * logits).sum(-1).mean()
    return Terms(policy, error.mean(), entropy)
