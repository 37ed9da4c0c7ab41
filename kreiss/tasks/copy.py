"""The copy task: remember ten symbols over a long delay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.errors import check_size
from kreiss.tasks.base import Batch, Task, Totals

SYMBOLS = 8
LENGTH = 10
BLANK, CUE = SYMBOLS, SYMBOLS + 1


class Copy(Task):
    """Ten symbols of eight, T − 1 blanks, a cue, ten blanks; the symbols are due after the cue.

    Sequences have length T + 20 (the convention of Kerg et al. 2019, A.1). Inputs are ten symbols
    (8, blank, cue), targets are 9 classes (8 symbols, blank). The loss is the mean
    cross-entropy over all steps, the accuracy is that of the last ten.

    Args:
        delay: T.

    Example:
        >>> from kreiss.tasks import Copy
        >>> task = Copy(delay=100)
        >>> batch = task.train(update=0, batch=5, seed=0)
        >>> batch.inputs.shape, batch.targets.shape
        (torch.Size([120, 5]), torch.Size([120, 5]))
        >>> round(task.baseline()["loss"], 4)
        0.1733
    """

    input_size = SYMBOLS + 2
    output_size = SYMBOLS + 1
    symbols = True
    metric = "loss"

    def __init__(self, delay: int = 100) -> None:
        self.delay = check_size("delay", delay)
        self.steps = self.delay + 2 * LENGTH

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Batch:
        """Symbols and targets (T + 20, batch)."""
        symbols = torch.randint(SYMBOLS, (LENGTH, check_size("batch", batch)), generator=generator)
        inputs = torch.full((self.steps, batch), BLANK)
        inputs[:LENGTH] = symbols
        inputs[self.delay + LENGTH - 1] = CUE
        targets = torch.full((self.steps, batch), BLANK)
        targets[-LENGTH:] = symbols
        return Batch(inputs, targets)

    def train(self, update: int, batch: int, seed: int) -> Batch:
        return self.sample(batch, torch.Generator().manual_seed(hash((update, batch, seed)) % 2**63))

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed({"valid": 1_000_003, "test": 1_000_033}[split])
        whole = self.sample(500, generator)
        for inputs, targets in zip(whole.inputs.split(batch, 1), whole.targets.split(batch, 1), strict=True):
            yield Batch(inputs, targets)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over all steps."""
        return F.cross_entropy(output.flatten(0, 1), batch.targets.flatten())

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """Loss over all steps and accuracy over the last ten."""
        hits = output[-LENGTH:].argmax(-1) == batch.targets[-LENGTH:]
        count = batch.targets.numel()
        return {
            "loss": (float(self.loss(output.double(), batch)) * count, count),
            "accuracy": (float(hits.sum()), hits.numel()),
        }

    def baseline(self) -> dict[str, float]:
        """Of the best network without memory: loss 10 ln 8 / (T + 20), one symbol of eight by chance."""
        return {"loss": LENGTH * math.log(SYMBOLS) / self.steps, "accuracy": 1 / SYMBOLS}
