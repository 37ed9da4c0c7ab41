"""Reinforcement learning by proximal policy optimisation: play, then learn from what was played."""

from __future__ import annotations

import sys
import time
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from kreiss import rl
from kreiss.errors import InputError
from kreiss.networks.agent import Agent
from kreiss.optim import radius_penalty, rebase
from kreiss.rl.ppo import pieces, replayed
from kreiss.rl.rollout import Player, Rollout
from kreiss.settings import Config
from kreiss.tasks.generated import ACTIONS, ORDER, stream
from kreiss.tasks.worlds.base import TRAIN, World
from kreiss.training import checkpoint
from kreiss.training.distributed import Processes
from kreiss.training.guard import computable
from kreiss.training.learner import Now
from kreiss.training.loop import as_made
from kreiss.training.scored import Scored

PLAYED = "played."  # prefix of the tensors of the environments in a checkpoint


class Reinforced(Scored):
    """Trains an agent in a world: an update plays `ppo.frames` frames in each of `batch` environments.

    Which actions are drawn, and which frames are learned from together, are functions of the seed and the number of the
    update. A resumed run takes the actions of the current episodes again; an environment that does not come back to the
    same observation begins a new episode, which is said.

    Args:
        model: the agent.
        task: the world.
        config: all settings, with `steps`, `ppo.frames` and `ppo.recurrence` set.
        processes: only one.
    """

    kind = "ppo"
    model: Agent

    def __init__(self, model: nn.Module, task: World, config: Config, processes: Processes) -> None:
        _check(config, processes)
        super().__init__(rl.checked_agent(model), task, config, processes)
        self.world, self.ppo = task, config.ppo
        self.player = Player(task.environments(config.batch, (TRAIN, config.seed)), self.model)
        self.ended: list[tuple[float, int]] = []  # returns and steps of episodes since the last record
        self.sums = np.zeros(3)  # of the parts of the loss since the last record
        self.clock = time.monotonic()  # of the last record

    @property
    def frames(self) -> int:
        """Frames played so far."""
        assert self.ppo.frames is not None
        return self.updates * self.ppo.frames * self.config.batch

    # ------------------------------------------------------------ updates

    def update(self) -> Now:
        """Play, then learn for some epochs from what was played."""
        self.schedule.apply(self.updates)
        with computable(self.updates + 1, self.last_good):
            rollout = self._played()
            losses, norms = self._learned(rollout)
        self.ended += zip(rollout.returns, rollout.lengths, strict=True)
        self.updates += 1
        if self.config.optimiser.rebase_every and self.updates % self.config.optimiser.rebase_every == 0:
            rebase(self.model)
        if losses:
            self.window[0] += sum(losses) / len(losses)
            self.window[1] += 1
        return Now(self.updates, float(np.mean(losses or [np.nan])), float(np.mean(norms)), self._words())

    def _played(self) -> Rollout:
        assert self.ppo.frames is not None
        assert self.ppo.recurrence is not None
        seed = int(stream(ACTIONS, self.config.seed, self.updates).integers(2**63))
        generator = torch.Generator().manual_seed(seed)
        return self.player.play(self.model.freeze(), self.ppo.frames, self.ppo.recurrence, generator)

    def _learned(self, rollout: Rollout) -> tuple[list[float], list[float]]:
        """Losses and gradient norms of all steps of the optimiser; of those skipped only the norms."""
        assert self.ppo.recurrence is not None
        gains = self._gains(rollout)
        returns = gains + rollout.values
        if self.ppo.normalise:
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        of = pieces(rollout.starts, self.ppo.recurrence)
        together = max(self.ppo.minibatch // self.ppo.recurrence, 1)
        order = stream(ORDER, self.config.seed, self.updates)
        losses, norms = [], []
        for _ in range(self.ppo.epochs):
            for chunks in torch.from_numpy(order.permutation(of.count)).split(together):
                self.optimiser.zero_grad(set_to_none=True)
                outputs, frame, copy = replayed(self.model, rollout, of, chunks, self.model.init_state(1))
                actions, scores, values, gain, target = (
                    part[frame, copy] for part in (rollout.actions, rollout.scores, rollout.values, gains, returns)
                )
                parts = rl.terms(
                    outputs, actions, scores, values, gain,
                    returns=target, clip=self.ppo.clip, clip_value=self.ppo.clip_value,
                )  # fmt: skip
                loss, norm = self._stepped(parts)
                norms.append(norm)
                losses += loss
        return losses, norms

    def _gains(self, rollout: Rollout) -> Tensor:
        beyond = rollout.beyond if self.ppo.truncation == "value" else torch.zeros_like(rollout.beyond)
        return rl.advantages(
            rollout.rewards, rollout.values, rollout.last, rollout.alive, beyond, self.ppo.discount, self.ppo.gae
        )

    def _stepped(self, parts: rl.Terms) -> tuple[list[float], float]:
        """One step of the optimiser: its loss, unless it was skipped, and its gradient norm."""
        loss = parts.policy + self.ppo.value * parts.value - self.ppo.entropy * parts.entropy
        objective, chosen = loss, self.config.optimiser
        if chosen.radius_penalty:
            objective = loss + radius_penalty(self.model, chosen.radius_penalty, reduction=chosen.reduction)
        objective.backward()
        norm = float(self._gradient_norm())
        if not self._may_step(loss.item(), norm):
            return [], norm
        self._clip(norm)
        self.optimiser.step()
        self.sums += [part.item() for part in parts]
        return [loss.item()], norm

    # ------------------------------------------------------------ records

    def log(self, now: Now) -> dict[str, Any]:
        """Loss and its parts, frames, and reward and steps of the episodes that ended since the last record."""
        steps = -(-self.config.batch * (self.ppo.frames or 1) // self.ppo.minibatch) * self.ppo.epochs
        made = self.window[1] * steps
        record = super().log(now)
        if made:
            names = ("policy_loss", "value_loss", "entropy")
            record |= dict(zip(names, (self.sums / made).tolist(), strict=True))
        record["frames"] = self.frames
        if self.ended:
            returns, lengths = zip(*self.ended, strict=True)
            record |= {"episodes": len(returns), "reward": float(np.mean(returns)), "steps": float(np.mean(lengths))}
        self.sums[:] = 0
        self.ended, self.clock = [], time.monotonic()
        return record

    def _words(self) -> tuple[str, ...]:
        """Reward and frames per second, for the display."""
        assert self.ppo.frames is not None
        rate = self.ppo.frames * self.config.batch / max(time.monotonic() - self.clock, 1e-9)
        reward = (f"reward {np.mean([reward for reward, _ in self.ended]):.3f}",) if self.ended else ()
        return (*reward, f"{rate:.0f} frames/s")

    def evaluate(self, split: Literal["valid", "test"]) -> dict[str, float]:
        """Means over the episodes of a validation or test."""
        with computable(self.updates, self.last_good):
            return rl.evaluate(self.model, self.world, split, self.config.eval_batch)

    def close(self) -> None:
        """End worker processes."""
        self.player.environments.close()

    # ------------------------------------------------------------ state to resume from

    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As every learner, and what is being played: episodes, actions, recurrent states."""
        tensors, content = super().kept()
        states: dict[str, Tensor] = {}
        shape = checkpoint.flat_state(self.player.state, states)
        played = {PLAYED + name: tensor for name, tensor in self.player.kept().items()}
        return tensors | states | played, {
            **content, "state": shape, "ended": self.ended, "sums": self.sums.tolist(),
        }  # fmt: skip

    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` returned; the model already has its tensors."""
        super().restore(tensors, content)
        state = as_made(self.model, checkpoint.full_state(content["state"], tensors))
        played = {name.removeprefix(PLAYED): part for name, part in tensors.items() if name.startswith(PLAYED)}
        lost = self.player.restore(played, state)
        self.ended = [(reward, steps) for reward, steps in content["ended"]]
        self.sums = np.array(content["sums"])
        if lost:
            print(
                f"{lost} of {self.config.batch} environments did not come back to where they were and begin a new "
                "episode: from here on the run is not what it would have been.",
                file=sys.stderr,
            )


def _check(config: Config, processes: Processes) -> None:
    for name, value, wanted in (
        ("accumulate", config.accumulate, 1), ("precision", config.precision, "float32"),
        ("the number of processes", processes.count, 1), ("device", processes.device.type, "cpu"),
    ):  # fmt: skip
        if value != wanted:
            raise InputError(
                f"`{name}` must be {wanted} for reinforcement learning; got {value}. Leave it at its default."
            )
