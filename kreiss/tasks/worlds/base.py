"""The interface of a world: several copies of an environment, stepped together, each with its own episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, RunError, check_size
from kreiss.recorded import Recorded
from kreiss.tasks.base import Problem

Array = NDArray[Any]

# purposes of episodes; no two share a seed
TRAIN, VALID, TEST = range(3)


@dataclass(frozen=True)
class Layout:
    """What the numbers of one observation are.

    Args:
        image: (channels, height, width) of the image that comes first, or None.
        others: how many numbers come after it.
    """

    image: tuple[int, int, int] | None
    others: int

    @property
    def size(self) -> int:
        """Numbers of an observation."""
        return self.others + (0 if self.image is None else int(np.prod(self.image)))


class Outcome(NamedTuple):
    """What one action of each of K environments led to."""

    observations: Array  # (K, D), the last of the episode where it is over
    rewards: Array  # (K,)
    ended: Array  # (K,), whether the episode reached an end of its own
    truncated: Array  # (K,), whether a time limit cut it off

    @property
    def over(self) -> Array:
        """Whether the episode is over."""
        return self.ended | self.truncated


class Environments(ABC):
    """Copies of an environment. The next episode of a copy begins as soon as the last one is over.

    An episode is a function of its seed and of the actions taken, and its seed one of (key, copy, number of the
    episode). So what is kept to resume are numbers of episodes and actions, which are taken again.

    Args:
        count: how many copies.
        key: of their seeds, such as a purpose and the seed of a run.
    """

    def __init__(self, count: int, key: tuple[int, ...]) -> None:
        self.count, self.key = check_size("count", count), key
        self.first = 0  # the number of the first copy, from which seeds follow
        self.episodes = np.zeros(count, np.int64)
        self.taken: list[list[int]] = [[] for _ in range(count)]  # actions of the current episode

    @abstractmethod
    def begin(self, which: Array, seeds: list[int]) -> Array:
        """Begin an episode in each copy of `which`; the first observations (K, D), float32."""

    @abstractmethod
    def act(self, which: Array, actions: Array) -> Outcome:
        """Take one action in each copy of `which`."""

    def close(self) -> None:  # noqa: B027
        """Free what the copies hold."""

    def picture(self, index: int) -> Array:
        """What one copy looks like now, (height, width, 3) bytes; of copies from `World.visible`."""
        raise InputError(
            f"an episode must be drawn by its environment; got {type(self).__name__}, which does not draw. Give it a "
            "method picture(index)."
        )

    # ------------------------------------------------------------ episodes

    def start(self) -> Array:
        """Begin the first episode of every copy."""
        self.episodes[:] = 0
        return self._begin(np.arange(self.count))

    def step(self, actions: Array) -> tuple[Outcome, Array]:
        """Take one action in every copy.

        Returns:
            What it led to, and the observations to act on next: the first of a new episode where one is over.
        """
        outcome = self.act(np.arange(self.count), actions)
        for taken, action in zip(self.taken, actions.tolist(), strict=True):
            taken.append(action)
        (over,) = np.nonzero(outcome.over)
        if not len(over):
            return outcome, outcome.observations
        following = outcome.observations.copy()
        following[over] = self.renew(over)
        return outcome, following

    def renew(self, which: Array) -> Array:
        """Begin the next episode in each copy of `which`."""
        self.episodes[which] += 1
        return self._begin(which)

    def _begin(self, which: Array) -> Array:
        for index in which:
            self.taken[index] = []
        return self.begin(which, [self._seed(int(index)) for index in which])

    def _seed(self, index: int) -> int:
        numbers = [*(number % 2**64 for number in self.key), self.first + index, int(self.episodes[index])]
        return int(np.random.SeedSequence(numbers).generate_state(1)[0])

    # ------------------------------------------------------------ to resume

    def kept(self) -> dict[str, Array]:
        """Numbers of the episodes, and their actions so far, −1 behind the last."""
        longest = max(len(taken) for taken in self.taken)
        actions = np.full((self.count, longest), -1, np.int64)
        for row, taken in zip(actions, self.taken, strict=True):
            row[: len(taken)] = taken
        return {"episodes": self.episodes.copy(), "actions": actions}

    def restore(self, kept: dict[str, Array]) -> tuple[Array, Array]:
        """Take the actions that were kept again.

        Returns:
            The observations to act on next, and which copies did not go on as before: their episode ended early or, in
            one of the copies, raised.
        """
        self.episodes[:] = kept["episodes"]
        observations = self._begin(np.arange(self.count))
        lost = np.zeros(self.count, bool)
        for actions in kept["actions"].T:
            (which,) = np.nonzero((actions >= 0) & ~lost)
            if not len(which):
                break
            for index in which:
                self.taken[index].append(int(actions[index]))
            try:
                outcome = self.act(which, actions[which])
            except RunError:
                lost[which] = True
                break
            observations[which], lost[which] = outcome.observations, outcome.over
        return observations, lost


class World(Recorded, Problem):
    """Episodes in an environment. A network acts in it, and is rewarded.

    Args:
        layout: what an observation is made of.
        actions: how many there are to choose from.
        valid_episodes: episodes of a validation.
        test_episodes: episodes of a test.
        workers: processes that step the copies of the environment; 0 for none but the one that trains.

    Attributes:
        has_goal: whether an episode succeeds if its last reward is positive.
        horizon: the most steps of an episode, where training should see whole episodes; else None.
    """

    metric = "reward"
    higher_is_better = True
    settings: ClassVar[dict[str, Any]] = {
        "optimiser.name": "adam", "optimiser.lr": 1e-3, "optimiser.clip_norm": 0.5, "model.hidden": 64, "batch": 16,
        "log_every": 1,
    }  # fmt: skip
    has_goal = False
    horizon: int | None = None

    def __init__(self, layout: Layout, actions: int, *, valid_episodes: int, test_episodes: int, workers: int) -> None:
        self.layout, self.actions = layout, actions
        self.input_size, self.output_size = layout.size, actions + 1  # a score for every action, and the value
        self.valid_episodes = check_size("valid_episodes", valid_episodes)
        self.test_episodes = check_size("test_episodes", test_episodes)
        self.workers = check_size("workers", workers, 0)

    @abstractmethod
    def copies(self, count: int, key: tuple[int, ...]) -> Environments:
        """So many copies of the environment, in this process."""

    def visible(self, count: int, key: tuple[int, ...]) -> Environments:
        """So many copies, in this process, that draw themselves."""
        return self.copies(count, key)

    @property
    def action_names(self) -> tuple[str, ...]:
        """A word for each action."""
        return tuple(f"action {number}" for number in range(self.actions))

    def environments(self, count: int, key: tuple[int, ...]) -> Environments:
        """So many copies, in worker processes if there are to be any."""
        from kreiss.tasks.worlds.workers import Workers

        return Workers(self, count, key) if self.workers else self.copies(count, key)

    def others(self) -> dict[str, World]:
        """Worlds that a test also goes to, by what follows "@" in the names of their metrics."""
        return {}

    def baseline(self) -> dict[str, float]:
        """Unknown for most worlds."""
        return {}
