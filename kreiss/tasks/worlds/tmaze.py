"""The T-maze: a sign at the entrance of a corridor says which way to turn at its end."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kreiss.errors import check_size
from kreiss.tasks.recall import delays
from kreiss.tasks.worlds.base import Array, Environments, Layout, Outcome, World

NORTH, EAST, SOUTH, WEST = range(4)
SIGN_NORTH, SIGN_SOUTH = (0, 1, 1), (1, 1, 0)
CORRIDOR, JUNCTION = (1, 0, 1), (0, 1, 0)
COST = 0.1  # of a step that does not lead towards the junction

# of a picture
SQUARE = 16  # pixels
MOST = 15  # squares of the corridor
WALL, FLOOR, GOAL, SIGN, AGENT = (70, 70, 70), (235, 235, 230), (120, 215, 180), (0, 114, 178), (213, 94, 0)


class TMaze(World):
    """A corridor of `length` steps from the sign to the junction, where turning the right way earns 1.

    The sign is seen at the entrance alone, so the network must remember it for `length` steps. Actions are north, east,
    south and west. A step that does not lead to the junction costs 0.1. Without memory one is right half of the time.

    Reference: Bakker (2002), where the right turn earns 4 and the wrong one costs 0.1.

    Args:
        length: steps from the entrance to the junction.
        test_lengths: other lengths to test at, as "100,1000" or (100, 1000).
        valid_episodes: episodes of a validation.
        test_episodes: episodes of a test.
        workers: processes that step the mazes; they are fast, so one process is best.

    Example:
        >>> import numpy as np
        >>> from kreiss.tasks import TMaze
        >>> maze = TMaze(length=2).environments(4, key=(0,))
        >>> signs = maze.start()
        >>> _, corridor = maze.step(np.full(4, 1))
        >>> signs[:, 0], corridor[:, 0]
        (array([1., 1., 0., 0.], dtype=float32), array([1., 1., 1., 1.], dtype=float32))
    """

    settings: ClassVar[dict[str, Any]] = {**World.settings, "ppo.normalise": True}
    has_goal = True

    def __init__(
        self,
        length: int = 10,
        *,
        test_lengths: str | int | tuple[int, ...] | list[int] = "",
        valid_episodes: int = 100,
        test_episodes: int = 500,
        workers: int = 0,
    ) -> None:
        super().__init__(
            Layout(None, 3), 4, valid_episodes=valid_episodes, test_episodes=test_episodes, workers=workers
        )
        self.length = check_size("length", length)
        self.test_lengths = delays(test_lengths, "test_lengths")
        self.horizon = 2 * (length + 1)

    def copies(self, count: int, key: tuple[int, ...]) -> Environments:
        return Mazes(self.length, count, key)

    @property
    def action_names(self) -> tuple[str, ...]:
        return "north", "east", "south", "west"

    def others(self) -> dict[str, World]:
        return {str(length): TMaze(length, test_episodes=self.test_episodes) for length in self.test_lengths}

    def baseline(self) -> dict[str, float]:
        """Straight to the junction, and a guess there."""
        return {"reward": 0.5, "success": 0.5, "steps": self.length + 1.0}


class Mazes(Environments):
    """Mazes as arrays: where the goal is, where the agent is, which way it turned, and how many steps it has taken."""

    def __init__(self, length: int, count: int, key: tuple[int, ...]) -> None:
        super().__init__(count, key)
        self.length = length
        self.goal, self.place, self.side, self.clock = (np.zeros(count, np.int64) for _ in range(4))

    def begin(self, which: Array, seeds: list[int]) -> Array:
        self.goal[which] = np.where(np.asarray(seeds) & 1, NORTH, SOUTH)
        self.place[which] = self.side[which] = self.clock[which] = 0
        return self._seen(which)

    def act(self, which: Array, actions: Array) -> Outcome:
        place = self.place[which]
        ended = (place == self.length) & ((actions == NORTH) | (actions == SOUTH))
        onward = (place < self.length) & (actions == EAST)
        back = (place > 0) & (actions == WEST)
        self.place[which] = place + onward - back
        self.side[which] = np.where(ended, np.where(actions == NORTH, -1, 1), 0)
        self.clock[which] += 1
        rewards = np.where(ended, 1.0 * (actions == self.goal[which]), np.where(onward, 0.0, -COST))
        truncated = ~ended & (self.clock[which] >= 2 * (self.length + 1))
        return Outcome(self._seen(which), rewards, ended, truncated)

    def _seen(self, which: Array) -> Array:
        place = self.place[which, None]
        sign = np.where(self.goal[which, None] == NORTH, SIGN_NORTH, SIGN_SOUTH)
        seen = np.where(place == 0, sign, np.where(place == self.length, JUNCTION, CORRIDOR))
        return seen.astype(np.float32)

    def picture(self, index: int) -> Array:
        """The corridor around the agent, with the sign and the goal, which it does not see from everywhere."""
        place, north = int(self.place[index]), bool(self.goal[index] == NORTH)
        first = min(max(place - MOST // 2, 0), max(self.length + 1 - MOST, 0))
        count = min(self.length + 1, MOST)
        drawn = np.full((3 * SQUARE, count * SQUARE, 3), WALL, np.uint8)
        drawn[SQUARE : 2 * SQUARE] = FLOOR
        if first + count > self.length:
            drawn[:, -SQUARE:] = FLOOR
            (drawn[:SQUARE] if north else drawn[-SQUARE:])[:, -SQUARE:] = GOAL
        if first == 0:
            _draw_arrow(drawn, north)
        _draw_disc(drawn, 1.5 + int(self.side[index]), place - first + 0.5)
        edge = SQUARE // 2
        return np.pad(drawn, ((edge, edge), (edge, edge), (0, 0)), mode="edge")


def _draw_arrow(drawn: Array, north: bool) -> None:
    """The sign, in the square at the entrance."""
    for row in range(SQUARE // 2):
        at = SQUARE + row if north else 2 * SQUARE - 1 - row
        drawn[at, SQUARE // 2 - row // 2 - 1 : SQUARE // 2 + row // 2 + 1] = SIGN


def _draw_disc(drawn: Array, row: float, column: float) -> None:
    """The agent, at a place in squares."""
    rows, columns = (np.arange(size) + 0.5 for size in drawn.shape[:2])
    drawn[np.hypot(rows[:, None] - row * SQUARE, columns - column * SQUARE) < SQUARE / 3.2] = AGENT
