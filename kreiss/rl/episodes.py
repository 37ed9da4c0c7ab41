"""Whole episodes of a trained agent: evaluations, and everything that happened in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.errors import InputError, RunError
from kreiss.networks.agent import Agent
from kreiss.rl import states
from kreiss.tasks.generated import ACTIONS, stream
from kreiss.tasks.worlds.base import TEST, VALID, Array, Environments, World

LONGEST = 50_000  # steps of an episode; one that takes longer is taken to have no end


@dataclass
class Episode:
    """One episode.

    Attributes:
        observations: every one that the agent saw.
        actions: what it did.
        rewards: what it got.
        values: what it expected.
        ended: whether it came to an end of its own, or a time limit cut it off.
    """

    observations: list[Array] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def reward(self) -> float:
        """The sum of all rewards."""
        return float(sum(self.rewards))


@torch.no_grad()
def play(
    agent: Agent,
    environments: Environments,
    *,
    sampled: bool = True,
    watch: Callable[[Array, Tensor], None] | None = None,
) -> list[Episode]:
    """One episode in every copy of an environment; what happens in one does not depend on the others.

    Args:
        agent: frozen.
        environments: whose first episodes are played.
        sampled: draw actions from the policy; else take the most likely one.
        watch: is told which episodes are not over and what the agent put out, before every step.
    """
    like = next(agent.parameters())
    seen = environments.start()
    which = np.arange(environments.count)
    episodes = [Episode() for _ in which]
    sources = [stream(ACTIONS, *environments.key, environments.first + int(index)) for index in which]
    state = agent.init_state(len(which))
    while len(which):
        if len(episodes[which[0]].actions) >= LONGEST:
            raise RunError(
                f"an episode must come to an end; got {LONGEST:,} steps without one. Train with a limit, such as "
                "--task.limit 1000."
            )
        outputs, state = agent.step(torch.from_numpy(seen).to(like), state)
        if watch is not None:
            watch(which, outputs)
        shares = F.softmax(outputs[:, :-1].double(), -1).cumsum(-1).numpy()
        drawn = [sources[index].random() for index in which]
        actions = (shares < np.array(drawn)[:, None]).sum(1).clip(max=agent.actions - 1)
        actions = actions if sampled else outputs[:, :-1].argmax(-1).numpy()
        outcome = environments.act(which, actions)
        for row, index in enumerate(which):
            episode = episodes[index]
            episode.observations.append(seen[row])
            episode.actions.append(int(actions[row]))
            episode.rewards.append(float(outcome.rewards[row]))
            episode.values.append(float(outputs[row, -1]))
            episode.ended = bool(outcome.ended[row])
        (on,) = np.nonzero(~outcome.over)
        which, seen = which[on], outcome.observations[on]
        state = states.at(state, torch.from_numpy(on))
    return episodes


def checked_agent(model: nn.Module) -> Agent:
    """The model, if it can act."""
    if not isinstance(model, Agent):
        raise InputError(
            f"a world must be given an agent, or a recurrent layer to make one of; got {type(model).__name__}. "
            "Pass kreiss.networks.Agent around a layer."
        )
    return model


def evaluate(agent: Agent, world: World, split: Literal["valid", "test"], batch: int = 100) -> dict[str, float]:
    """Means over the episodes of a validation or a test, which is also held in other worlds.

    Args:
        agent: any.
        world: in which it plays.
        split: "valid" or "test"; each has its own episodes, the same for every agent.
        batch: episodes at a time.
    """
    frozen = agent.freeze()
    worlds = {"": world, **({f"@{name}": other for name, other in world.others().items()} if split == "test" else {})}
    metrics: dict[str, float] = {}
    for suffix, each in worlds.items():
        metrics |= {name + suffix: value for name, value in _means(frozen, each, split, batch).items()}
    return metrics


def _means(agent: Agent, world: World, split: str, batch: int) -> dict[str, float]:
    purpose, count = (VALID, world.valid_episodes) if split == "valid" else (TEST, world.test_episodes)
    episodes: list[Episode] = []
    while len(episodes) < count:
        environments = world.environments(min(batch, count - len(episodes)), (purpose,))
        environments.first = len(episodes)
        episodes += play(agent, environments)
        environments.close()
    numbers: dict[str, Any] = {"reward": [episode.reward for episode in episodes]}
    if world.has_goal:
        numbers["success"] = [episode.ended and episode.rewards[-1] > 0 for episode in episodes]
    numbers["steps"] = [len(episode.actions) for episode in episodes]
    return {name: float(np.mean(values)) for name, values in numbers.items()}
