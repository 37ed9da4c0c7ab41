"""Losses and totals shared by several tasks; padding is ignored."""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.crossentropy import NO_TARGET as NO_TARGET
from kreiss.tasks.crossentropy import cross_entropy as cross_entropy


def surprise(output: Tensor, targets: Tensor) -> tuple[float, int]:
    """Total cross-entropy in nats, summed in double precision, and the number of targets."""
    return float(cross_entropy(output.double(), targets, "sum")), int((targets != NO_TARGET).sum())


def classified(output: Tensor, targets: Tensor) -> Totals:
    """Cross-entropy and accuracy."""
    total, count = surprise(output, targets)
    return {"loss": (total, count), "accuracy": (int((output.argmax(-1) == targets).sum()), count)}


def squared(output: Tensor, batch: Batch) -> tuple[Tensor, int]:
    """Squared errors, zero in padding and where the target is NaN, and the number of all others."""
    error = output - batch.targets
    there = ~batch.targets.isnan()
    if batch.lengths is not None and batch.targets.dim() > 2:  # one answer per sequence has no padding
        steps = torch.arange(len(output), device=output.device)[:, None]
        there &= (steps < batch.lengths.to(output.device))[..., None]
    # masked before squaring: outputs in padding may be anything, even infinite
    return torch.where(there, error, 0.0).square(), int(there.sum())
