"""Environments of gymnasium, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from enum import EnumType
from typing import Any

import numpy as np

from kreiss.errors import InputError, MissingExtra, RunError, check_size
from kreiss.tasks.worlds.base import Array, Environments, Outcome, World
from kreiss.tasks.worlds.observations import flattened

DRAWN = "rgb_array"  # the render mode that gives pictures


class Gym(World):
    """Any environment of gymnasium with discrete actions, by its name.

    Observations may be images, vectors, numbers, or dictionaries of these with at most one image; text in them is left
    out. Bytes of images are scaled to [0, 1].

    Args:
        env: name, such as CartPole-v1; "module:Name-v0" imports the module first, which registers it.
        test_env: name of another environment with the same observations and actions, to be tested too.
        limit: steps after which an episode is cut off; 0 for the environment's own limit.
        valid_episodes: episodes of a validation.
        test_episodes: episodes of a test.
        workers: processes that step the environments; 0 for none but the one that trains.
    """

    scaled = True  # whether bytes of images are scaled
    only: tuple[str, ...] = ()  # entries of a dictionary that are shown; all but text by default

    def __init__(
        self,
        env: str = "CartPole-v1",
        *,
        test_env: str = "",
        limit: int = 0,
        valid_episodes: int = 20,
        test_episodes: int = 100,
        workers: int = 0,
    ) -> None:
        self.env, self.test_env, self.limit = env, test_env, check_size("limit", limit, 0)
        made = opened(env)
        layout, self.flat = flattened(made.observation_space, env, scaled=self.scaled, only=self.only)
        actions, self.first_action = _choices(made.action_space, env)
        self.drawn = DRAWN in made.metadata.get("render_modes", ())
        words: Any = getattr(made.unwrapped, "actions", None)  # an enumeration, in MiniGrid
        self.words = tuple(words.__members__) if isinstance(words, EnumType) else ()
        made.close()
        super().__init__(layout, actions, valid_episodes=valid_episodes, test_episodes=test_episodes, workers=workers)
        for name, other in self.others().items():
            if (other.layout, other.actions) != (self.layout, self.actions):
                raise InputError(
                    f"`test_env` must have the observations and actions of {env}, {self.layout.size} numbers and "
                    f"{self.actions} actions; got {name} with {other.layout.size} and {other.actions}. Choose another."
                )

    def copies(self, count: int, key: tuple[int, ...]) -> Environments:
        return Gyms(self, count, key)

    def visible(self, count: int, key: tuple[int, ...]) -> Environments:
        if not self.drawn:
            raise InputError(
                f"an episode must be drawn by its environment; got {self.env}, which has no render mode {DRAWN!r}. "
                "Choose one that has."
            )
        return Gyms(self, count, key, render_mode=DRAWN)

    @property
    def action_names(self) -> tuple[str, ...]:
        return self.words if len(self.words) == self.actions else super().action_names

    def others(self) -> dict[str, World]:
        if not self.test_env:
            return {}
        return {self.test_env: type(self)(self.test_env, limit=self.limit, test_episodes=self.test_episodes)}


class Gyms(Environments):
    """Environments of gymnasium, one after the other."""

    def __init__(self, world: Gym, count: int, key: tuple[int, ...], **options: Any) -> None:
        super().__init__(count, key)
        self.world = world
        self.made = [opened(world.env, limit=world.limit, **options) for _ in range(count)]

    def begin(self, which: Array, seeds: list[int]) -> Array:
        return np.stack([self._tried(index, self._reset, seed) for index, seed in zip(which, seeds, strict=True)])

    def act(self, which: Array, actions: Array) -> Outcome:
        first = self.world.first_action
        steps = [self._tried(index, self._step, action + first) for index, action in zip(which, actions, strict=True)]
        observations, rewards, ended, truncated = zip(*steps, strict=True)
        return Outcome(np.stack(observations), np.array(rewards, float), np.array(ended), np.array(truncated))

    def picture(self, index: int) -> Array:
        try:
            return np.asarray(self.made[index].render(), np.uint8)
        except Exception as error:  # the user's code may raise anything
            raise RunError(
                f"an environment must draw itself without errors; got {type(error).__name__} from {self.world.env}: "
                f"{_text(error)}. Mend it, or install what it needs."
            ) from error

    def _reset(self, made: Any, seed: int) -> Array:
        return self.world.flat(made.reset(seed=seed)[0])

    def _step(self, made: Any, action: int) -> tuple[Array, float, bool, bool]:
        observation, reward, ended, truncated, _ = made.step(action)
        return self.world.flat(observation), float(reward), bool(ended), bool(truncated)

    def _tried(self, index: int, does: Callable[[Any, int], Any], number: Any) -> Any:
        try:
            return does(self.made[index], int(number))
        except Exception as error:  # the user's code may raise anything
            raise RunError(
                f"an environment must step without errors; got {type(error).__name__} from {self.world.env}: "
                f"{_text(error)}. Mend it and resume the run."
            ) from error

    def close(self) -> None:
        for made in self.made:
            made.close()


def opened(name: str, limit: int = 0, **options: Any) -> Any:
    """An environment of gymnasium.

    Args:
        name: as `gymnasium.make` takes it.
        limit: steps after which an episode is cut off; 0 for the environment's own limit.
        options: of the environment.
    """
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        raise MissingExtra("a gymnasium environment", "rl", "gymnasium") from error
    try:
        if name.startswith("MiniGrid"):
            import minigrid  # noqa: F401  # registers them, where its entry point has not
        return gymnasium.make(name, disable_env_checker=True, max_episode_steps=limit or None, **options)
    except ModuleNotFoundError as error:
        if error.name == "minigrid":
            raise MissingExtra("a MiniGrid world", "rl", "minigrid") from error
        raise _unmade(name, error) from error
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        raise _unknown(name, gymnasium.registry, error) from error
    except Exception as error:  # the user's code may raise anything
        raise _unmade(name, error) from error


def _unknown(name: str, known: Any, error: Exception) -> InputError:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    hint = f"Did you mean {close[0]!r}?" if close else "`gymnasium.registry` lists those installed."
    return InputError(f"`env` must be an environment of gymnasium; got {name!r} ({_first(error)}). {hint}")


def _unmade(name: str, error: Exception) -> InputError:
    return InputError(
        f"`env` must be an environment that can be made; got {type(error).__name__} from {name!r}: {_text(error)}. "
        "Mend it, or install what it needs."
    )


def _text(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split()).rstrip(".")


def _first(error: Exception) -> str:
    """The first sentence of an error."""
    return _text(error).partition(". ")[0]


def _choices(space: Any, name: str) -> tuple[int, int]:
    """How many actions there are, and the number of the first."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Discrete):
        raise InputError(
            f"an environment must have discrete actions; got {space} of {name}. Choose another, or wrap it so that it "
            "has a Discrete space."
        )
    return int(space.n), int(space.start)
