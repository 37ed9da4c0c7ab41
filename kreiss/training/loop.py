"""A small training loop: one model, one task, records as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.training.groups import penalty


class Task(Protocol):
    """What the loop needs of a task."""

    input_size: int
    output_size: int

    def sample(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]: ...

    def loss(self, output: Tensor, batch: Batch) -> Tensor: ...

    def totals(self, output: Tensor, batch: Batch) -> Totals: ...

    def metrics(self, totals: Totals) -> dict[str, float]: ...


class Readout(nn.Module):
    """A recurrent layer and a linear readout at every step: y_t = W h_t + c (nnRNN paper, eq. 1)."""

    def __init__(self, layer: nn.Module, output_size: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.layer = layer
        like = next(layer.parameters())
        width = getattr(layer, "state_size", layer.hidden_size)  # a complex layer puts out two reals per unit
        self.readout = nn.Linear(int(width), output_size, device=like.device, dtype=like.dtype)  # type: ignore[arg-type]
        nn.init.xavier_normal_(self.readout.weight, generator=generator)
        nn.init.zeros_(self.readout.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (T, B, output_size)."""
        return self.readout(self.layer(inputs)[0])


def train(
    model: nn.Module,
    task: Task,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    batch: int = 10,
    radius: float = 0.0,
    reduction: str = "sum",
    generator: torch.Generator | None = None,
) -> Iterator[dict[str, Any]]:
    """Take `steps` optimiser steps on fresh samples, yielding {"step", "loss"} after each.

    Args:
        radius: weight δ of the penalty on eigenvalue moduli, see `kreiss.penalty`.
        reduction: of that penalty.
        generator: of the samples.
    """
    for step in range(1, steps + 1):
        inputs, targets = task.sample(batch, generator)
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(model(inputs), Batch(inputs, targets))
        if not torch.isfinite(loss):
            raise InputError(
                f"the training loss must be finite; got {float(loss.detach())} at step {step}. Lower the learning rate."
            )
        (loss + penalty(model, radius, reduction=reduction)).backward()
        optimizer.step()
        yield {"step": step, "loss": float(loss.detach())}


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, sequences: int = 500, *, seed: int = 1_000_003) -> dict[str, float]:
    """Metrics on a fixed held-out set, the same for every model."""
    inputs, targets = task.sample(check_size("sequences", sequences), torch.Generator().manual_seed(seed))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        return task.metrics(task.totals(model(inputs), Batch(inputs, targets)))
    finally:
        for module, training in modes.items():
            module.training = training
