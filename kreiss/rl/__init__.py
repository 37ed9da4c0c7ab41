"""Reinforcement learning: playing episodes with any recurrent layer, advantages, and the loss of PPO."""

from kreiss.rl.advantages import advantages as advantages
from kreiss.rl.episodes import checked_agent as checked_agent
from kreiss.rl.episodes import evaluate as evaluate
from kreiss.rl.episodes import play as play
from kreiss.rl.ppo import Terms as Terms
from kreiss.rl.ppo import terms as terms
from kreiss.rl.rollout import Player as Player
from kreiss.rl.rollout import Rollout as Rollout

__all__ = ["Player", "Rollout", "Terms", "advantages", "checked_agent", "evaluate", "play", "terms"]
