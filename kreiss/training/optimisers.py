"""Optimisers and learning-rate schedules, from the settings."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from kreiss.optim import Adam, AdamW, RMSprop, param_groups
from kreiss.settings import OptimiserSection, ScheduleSection


def make_optimiser(model: nn.Module, chosen: OptimiserSection) -> torch.optim.Optimizer:
    """The optimiser over groups by role, see `kreiss.param_groups`; those with a native step clip norms in it."""
    groups = param_groups(model, chosen.lr, chosen.orthogonal_lr, chosen.coupling_decay)
    common: dict[str, Any] = {"lr": chosen.lr, "weight_decay": chosen.weight_decay}
    ours: dict[str, Any] = {**common, "eps": chosen.eps, "clip_norm": chosen.clip_norm}
    if chosen.name == "rmsprop":
        return RMSprop(groups, alpha=chosen.alpha, momentum=chosen.momentum, **ours)
    if chosen.name == "adagrad":
        return torch.optim.Adagrad(groups, eps=chosen.eps, **common)
    if chosen.name == "adam":
        return Adam(groups, betas=chosen.betas, **ours)
    if chosen.name == "adamw":
        return AdamW(groups, betas=chosen.betas, **ours)
    return torch.optim.SGD(groups, momentum=chosen.momentum, **common)


class Schedule:
    """Multiplies every learning rate by one factor: a function of the update and of evaluations so far.

    Args:
        chosen: the settings.
        optimiser: whose rates are set; those it has now are what the factor multiplies.
        steps: updates of the whole run.
    """

    def __init__(self, chosen: ScheduleSection, optimiser: torch.optim.Optimizer, steps: int) -> None:
        self.chosen = chosen
        self.optimiser = optimiser
        self.steps = steps
        self.rates = [group["lr"] for group in optimiser.param_groups]
        self.reduced = 1.0  # by plateaus
        self.stale = 0  # evaluations without improvement since the last reduction

    def factor(self, update: int) -> float:
        """What the rates are multiplied by at `update`, counted from 0."""
        warm = min(1.0, (update + 1) / self.chosen.warmup) if self.chosen.warmup else 1.0
        if self.chosen.name != "cosine":
            return warm * self.reduced
        left = max(self.steps - self.chosen.warmup, 1)
        share = min(max(update - self.chosen.warmup, 0) / left, 1.0)
        low = self.chosen.minimum
        return warm * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * share)))

    def apply(self, update: int) -> float:
        """Set the rates for `update` and return the factor."""
        factor = self.factor(update)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        return factor

    def observe(self, improved: bool) -> None:
        """Record an evaluation; on a plateau the rates are reduced ("halved on every epoch without improvement")."""
        self.stale = 0 if improved else self.stale + 1
        if self.chosen.name == "plateau" and self.stale > self.chosen.patience:
            self.reduced *= self.chosen.factor
            self.stale = 0

    def state(self) -> dict[str, Any]:
        """The state needed to resume."""
        return {"reduced": self.reduced, "stale": self.stale}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.reduced, self.stale = state["reduced"], state["stale"]
