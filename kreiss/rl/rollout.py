"""Playing: so many frames in every copy of an environment, with what learning from them needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.networks.agent import Agent
from kreiss.rl import states
from kreiss.tasks.worlds.base import Array, Environments


@dataclass
class Rollout:
    """T frames of B environments.

    Attributes:
        observations: (T, B, D).
        actions: (T, B), taken on these.
        scores: (T, B), the log-probabilities they had.
        values: (T, B).
        rewards: (T, B).
        alive: (T, B), 1 where the episode goes on afterwards.
        beyond: (T, B), the value of the state in which a time limit cut an episode off; else 0.
        starts: (T, B), whether the frame is the first of an episode.
        states: recurrent states before frames 0, R, 2R, …
        last: (B,), the value after the last frame.
        returns: sums of rewards of the episodes that ended.
        lengths: their steps.
    """

    observations: Tensor
    actions: Tensor
    scores: Tensor
    values: Tensor
    rewards: Tensor
    alive: Tensor
    beyond: Tensor
    starts: Tensor
    states: list[Any]
    last: Tensor
    returns: list[float]
    lengths: list[int]


FRAME = ("observations", "actions", "scores", "values", "rewards", "alive", "beyond", "starts")


class Player:
    """Plays on from where it stopped, in all copies of an environment at once.

    Args:
        environments: to play in.
        agent: whose form of state is needed.

    Attributes:
        observations: (B, D) to act on next.
        state: of the agent before them.
        starts: (B,), whether they are the first of an episode.
        returns, lengths: (B,), of the current episodes so far.
    """

    def __init__(self, environments: Environments, agent: Agent) -> None:
        self.environments = environments
        self.first = agent.init_state(environments.count)
        self.observations = environments.start()
        self.state = self.first
        self.starts = np.ones(environments.count, bool)
        self.returns = np.zeros(environments.count)
        self.lengths = np.zeros(environments.count, np.int64)

    @torch.no_grad()
    def play(self, agent: Agent, frames: int, recurrence: int, generator: torch.Generator) -> Rollout:
        """Play so many frames in every copy.

        Args:
            agent: frozen.
            frames: T.
            recurrence: R, frames between the states that are stored.
            generator: for the choice of actions.
        """
        like = next(agent.parameters())
        kept: list[tuple[Tensor, ...]] = []
        stored: list[Any] = []
        ended: list[tuple[float, int]] = []
        while len(kept) < frames:
            if len(kept) % recurrence == 0:
                stored.append(self.state)
            kept.append(self._frame(agent, like, generator, ended))
        frame_by_frame: Any = zip(FRAME, (torch.stack(parts) for parts in zip(*kept, strict=True)), strict=True)
        last = agent.step(_tensor(self.observations, like), self.state)[0][:, -1]
        returns, lengths = (list(part) for part in zip(*ended, strict=True)) if ended else ([], [])
        return Rollout(**dict(frame_by_frame), states=stored, last=last, returns=returns, lengths=lengths)

    def _frame(
        self, agent: Agent, like: Tensor, generator: torch.Generator, ended: list[tuple[float, int]]
    ) -> tuple[Tensor, ...]:
        """One frame of every copy; episodes that end are noted in `ended`."""
        observations, starts = _tensor(self.observations, like), torch.from_numpy(self.starts.copy())
        outputs, state = agent.step(observations, self.state)
        scores = F.log_softmax(outputs[:, :-1], -1)
        actions = torch.multinomial(scores.exp(), 1, generator=generator)
        outcome, following = self.environments.step(actions[:, 0].numpy())
        beyond = torch.zeros_like(scores[:, 0])
        if outcome.truncated.any():
            (cut,) = torch.from_numpy(outcome.truncated).nonzero(as_tuple=True)
            final = _tensor(outcome.observations, like)[cut]
            beyond[cut] = agent.step(final, states.at(state, cut))[0][:, -1]
        rewards = _tensor(outcome.rewards, like)
        alive = _tensor(~outcome.over, like)
        self._advance(outcome.rewards, outcome.over, following, state, ended)
        chosen = scores.gather(1, actions)[:, 0]
        return observations, actions[:, 0], chosen, outputs[:, -1], rewards, alive, beyond, starts

    def _advance(
        self, rewards: Array, over: Array, following: Array, state: Any, ended: list[tuple[float, int]]
    ) -> None:
        self.returns += rewards
        self.lengths += 1
        self.observations, self.starts = following, over
        self.state = state
        if over.any():
            self.state = states.begun_anew(state, torch.from_numpy(over), self.first)
            ended += zip(self.returns[over].tolist(), self.lengths[over].tolist(), strict=True)
            self.returns[over] = self.lengths[over] = 0

    # ------------------------------------------------------------ to resume

    def kept(self) -> dict[str, Tensor]:
        """Everything but the state: what is being played, and how far it has come."""
        arrays = {
            **self.environments.kept(), "observations": self.observations, "starts": self.starts,
            "returns": self.returns, "lengths": self.lengths,
        }  # fmt: skip
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def restore(self, kept: dict[str, Tensor], state: Any) -> int:
        """Resume from what `kept` returned, and a state.

        Returns:
            How many environments did not come back to where they were, and begin a new episode.
        """
        arrays = {name: tensor.numpy().copy() for name, tensor in kept.items()}
        again, lost = self.environments.restore(arrays)
        self.observations, self.starts = arrays["observations"], arrays["starts"]
        self.returns, self.lengths = arrays["returns"], arrays["lengths"]
        self.state = state
        lost |= ~np.array([np.array_equal(*pair) for pair in zip(again, self.observations, strict=True)])
        if lost.any():
            (which,) = np.nonzero(lost)
            self.observations[which] = self.environments.renew(which)
            self.state = states.begun_anew(state, torch.from_numpy(lost), self.first)
            self.starts[lost], self.returns[lost], self.lengths[lost] = True, 0, 0
        return int(lost.sum())


def _tensor(array: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(array)).to(dtype=like.dtype, device=like.device)
