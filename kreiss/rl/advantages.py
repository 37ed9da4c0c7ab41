"""How much better an action was than expected."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kreiss.recurrence.unroll import unroll


def advantages(
    rewards: Tensor, values: Tensor, last: Tensor, alive: Tensor, beyond: Tensor, discount: float, gae: float
) -> Tensor:
    """Generalised advantage estimates A_t = δ_t + γλ A_{t+1}, with δ_t = r_t + γ V_{t+1} − V_t, within each episode.

    Reference: Schulman et al. (2016), eq. (16).

    Args:
        rewards: r (T, B).
        values: V (T, B), of the states in which the actions were taken.
        last: V (B,) of the states after the last step.
        alive: (T, B), 1 where the episode goes on after the step, else 0.
        beyond: (T, B), the value of the state in which a time limit cut an episode off; else 0.
        discount: γ.
        gae: λ.
    """
    following = values.roll(-1, 0)
    following[-1] = last
    errors = rewards + discount * (alive * following + beyond) - values  # δ

    def step(now: Any, later: Tensor) -> tuple[Tensor, Tensor]:
        error, goes_on = now
        advantage = error + discount * gae * goes_on * later  # eq. (16)
        return advantage, advantage

    return unroll(step, (errors, alive), rewards.new_zeros(rewards.shape[1]), reverse=True)[0]
