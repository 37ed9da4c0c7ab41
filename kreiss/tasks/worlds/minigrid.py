"""MiniGrid: small worlds of squares, of which an agent sees a few."""

from __future__ import annotations

from kreiss.tasks.worlds.gym import Gym


class MiniGrid(Gym):
    """MiniGrid: an agent sees a few squares ahead of it, and is rewarded when it reaches its goal.

    An observation is the view of 7 × 7 squares in three numbers each (object, colour, state), not scaled. The mission
    is not shown, as in the thesis, so worlds in which it changes (GoToDoor, GoToObject, Fetch) cannot be solved every
    time. The reward is 1 − 0.9 · steps / limit, or 0 where the limit is reached.

    Reference: Chevalier-Boisvert et al. (2023).

    Args:
        env: name, such as MiniGrid-DoorKey-5x5-v0.
        test_env: name of another, usually larger, world to be tested too.
        limit: steps after which an episode is cut off; 0 for the world's own limit.
        valid_episodes: episodes of a validation.
        test_episodes: episodes of a test.
        workers: processes that step the environments; 0 for none but the one that trains.
    """

    scaled, only = False, ("image",)
    has_goal = True

    def __init__(
        self,
        env: str = "MiniGrid-DoorKey-5x5-v0",
        *,
        test_env: str = "",
        limit: int = 0,
        valid_episodes: int = 20,
        test_episodes: int = 100,
        workers: int = 0,
    ) -> None:
        super().__init__(
            env,
            test_env=test_env,
            limit=limit,
            valid_episodes=valid_episodes,
            test_episodes=test_episodes,
            workers=workers,
        )
