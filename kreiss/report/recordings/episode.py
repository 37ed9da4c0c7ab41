"""Play one episode and keep everything that can be seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss import rl
from kreiss.analysis.arrays import Array
from kreiss.analysis.network.attentive import attentive_layer
from kreiss.errors import InputError
from kreiss.networks.agent import Agent
from kreiss.report.findings import percent, steps
from kreiss.rl.episodes import Episode
from kreiss.tasks.worlds.base import TEST, World

MOST_STEPS = 500  # that are kept
MOST_PIXELS = 256  # on a side of a picture
LEAST = 0.01  # weight below which a past step is not named


class Look(NamedTuple):
    """A past step that is read, and the weight of it."""

    past: int
    weight: float


@dataclass(frozen=True)
class Recording:
    """An episode of T steps.

    Attributes:
        title: the agent and its world.
        names: of the actions.
        pictures: of the world before each step and, if all steps are here, at the end; (height, width, 3) bytes.
        actions: (T,), what was done.
        chances: (T, actions), how likely each action was.
        rewards: (T,).
        values: (T,), what the agent expected to earn.
        attention: (T, T), the weight of each past step (column) at each step (row); None without memory.
        total: the reward of the whole episode.
        length: steps of the whole episode.
        ended: whether it came to an end of its own.
    """

    title: str
    names: tuple[str, ...]
    pictures: list[Array]
    actions: Array
    chances: Array
    rewards: Array
    values: Array
    attention: Array | None
    total: float
    length: int
    ended: bool

    def looks(self, step: int, most: int) -> list[Look]:
        """The past steps that a step reads most, in their order."""
        if self.attention is None:
            return []
        row = self.attention[step]
        chosen = [int(past) for past in np.argsort(-row, kind="stable")[:most] if row[past] >= LEAST]
        return [Look(past, float(row[past])) for past in sorted(chosen)]

    @property
    def received(self) -> Array:
        """(T,), the share of all attention that each step received."""
        assert self.attention is not None
        return self.attention.sum(0) / max(self.attention.sum(), 1e-30)

    def sentence(self) -> str:
        """What happened."""
        end = "came to its end" if self.ended else "was cut off by its time limit"
        cut = f" The first {steps(len(self.actions))} are shown." if len(self.actions) < self.length else ""
        said = f"The episode {end} after {steps(self.length)} and earned {self.total:.3g}.{cut}"
        return said if self.attention is None else f"{said} {self._most_read()}"

    def _most_read(self) -> str:
        share = self.received
        top = [int(past) for past in np.argsort(-share, kind="stable")[:3] if share[past] >= LEAST]
        named = ", ".join(f"{past} ({percent(float(share[past]))})" for past in top)
        return f"Of all attention most went to steps {named}." if top else "It read nothing."


def record(agent: Agent, world: World, number: int = 0, *, sampled: bool = True, title: str = "") -> Recording:
    """Play an episode of the test and keep what can be seen of it.

    Args:
        agent: trained in this world, or in one with the same observations and actions.
        world: in which it plays.
        number: which of the test's episodes.
        sampled: draw actions from the policy, as in the test; else take the most likely one.
        title: the agent and its world, in words.
    """
    if agent.actions != world.actions:
        raise InputError(
            f"an agent must have the actions of its world, {world.actions}; got one with {agent.actions}. Choose a "
            "world like that of its training."
        )
    frozen = agent.freeze()
    environments = world.visible(1, (TEST,))
    environments.first = number
    pictures: list[Array] = []
    chances: list[Array] = []

    def watch(_: Array, outputs: Tensor) -> None:
        if len(pictures) < MOST_STEPS:
            pictures.append(_small(environments.picture(0)))
            chances.append(F.softmax(outputs[0, :-1].double(), -1).numpy())

    try:
        (episode,) = rl.play(frozen, environments, sampled=sampled, watch=watch)
        if len(pictures) == len(episode.actions):
            pictures.append(_small(environments.picture(0)))
    finally:
        environments.close()
    kept = slice(0, len(chances))
    return Recording(
        title, world.action_names, pictures, np.array(episode.actions[kept]), np.stack(chances),
        np.array(episode.rewards[kept]), np.array(episode.values[kept]), _attention(frozen, episode, len(chances)),
        episode.reward, len(episode.actions), episode.ended,
    )  # fmt: skip


def _small(picture: Array) -> Array:
    """Every k-th pixel, so that both sides are short."""
    every = -(-max(picture.shape[:2]) // MOST_PIXELS)
    return np.ascontiguousarray(picture[::every, ::every])


@torch.no_grad()
def _attention(agent: Agent, episode: Episode, length: int) -> Array | None:
    """Who was read by whom, (T, T); None for a layer that does not attend to its past."""
    layer = attentive_layer(agent)
    if layer is None:
        return None
    seen = torch.from_numpy(np.stack(episode.observations[:length])).unsqueeze(1)
    dense: Tensor = layer.attention(agent.encode(seen.to(next(agent.parameters())))).dense(0)
    return dense.abs().double().numpy()  # those of some networks are signed
