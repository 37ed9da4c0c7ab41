"""The copy task: remember ten symbols over a long delay."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.errors import check_size

SYMBOLS = 8
LENGTH = 10
BLANK, CUE = SYMBOLS, SYMBOLS + 1


class Copy:
    """Ten symbols of eight, T − 1 blanks, a cue, ten blanks; the symbols are due after the cue.

    Sequences have length T + 20 (the convention of Kerg et al. 2019, A.1). Inputs are one-hot of 10
    (8 symbols, blank, cue), targets are 9 classes (8 symbols, blank). The loss is the mean
    cross-entropy over all steps, the accuracy is that of the last ten.

    Args:
        delay: T.

    Example:
        >>> import torch
        >>> from kreiss.tasks import Copy
        >>> task = Copy(delay=100)
        >>> inputs, targets = task.sample(5, torch.Generator().manual_seed(0))
        >>> inputs.shape, targets.shape
        (torch.Size([120, 5, 10]), torch.Size([120, 5]))
        >>> round(task.baseline(), 4)
        0.1733
    """

    input_size = SYMBOLS + 2
    output_size = SYMBOLS + 1

    def __init__(self, delay: int = 100) -> None:
        self.delay = check_size("delay", delay)
        self.steps = self.delay + 2 * LENGTH

    def sample(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (T + 20, batch, 10) one-hot in the default dtype and targets (T + 20, batch)."""
        symbols = torch.randint(SYMBOLS, (LENGTH, check_size("batch", batch)), generator=generator)
        inputs = torch.full((self.steps, batch), BLANK)
        inputs[:LENGTH] = symbols
        inputs[self.delay + LENGTH - 1] = CUE
        targets = torch.full((self.steps, batch), BLANK)
        targets[-LENGTH:] = symbols
        return F.one_hot(inputs, self.input_size).to(torch.get_default_dtype()), targets

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all steps."""
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def metrics(self, logits: Tensor, targets: Tensor) -> dict[str, float]:
        """Loss over all steps and accuracy over the last ten."""
        hits = logits[-LENGTH:].argmax(-1) == targets[-LENGTH:]
        return {"loss": float(self.loss(logits, targets)), "accuracy": float(hits.double().mean())}

    def baseline(self) -> float:
        """Loss of the best network without memory: 10 ln 8 / (T + 20)."""
        return LENGTH * math.log(SYMBOLS) / self.steps
