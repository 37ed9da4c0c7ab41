"""Worlds: tasks that give episodes of an environment in place of batches; independent of models."""

from kreiss.tasks.worlds.base import Environments, Layout, Outcome, World
from kreiss.tasks.worlds.gym import Gym
from kreiss.tasks.worlds.minigrid import MiniGrid
from kreiss.tasks.worlds.tmaze import TMaze

__all__ = ["Environments", "Gym", "Layout", "MiniGrid", "Outcome", "TMaze", "World"]
