"""The adding problem: the sum of two marked numbers of a long sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.generated import Generated
from kreiss.tasks.losses import squared


class Adding(Generated):
    """T numbers from U[0, 1) with a marker at two of them, one in each half; the answer at the end is their sum.

    Inputs are (number, marker), the loss is the mean squared error. A network without memory can do no better than the
    mean, 1, and has the variance of the sum of two uniform numbers, 1/6.

    Reference: Hochreiter, Schmidhuber 1997; the variant of the ENRNN paper, 5.1: T = 750, 100,000 training and
    10,000 test sequences.

    Args:
        length: T.
        sequences: size of the fixed training set; 0 draws fresh sequences at every update.
        valid_sequences: size of the validation set.
        test_sequences: size of the test set.

    Example:
        >>> from kreiss.tasks import Adding
        >>> task = Adding(length=20)
        >>> batch = task.train(update=0, batch=3, seed=0)
        >>> batch.inputs.shape, batch.targets.shape
        (torch.Size([20, 3, 2]), torch.Size([3, 1]))
    """

    input_size = 2
    output_size = 1
    answers = "last"

    def __init__(
        self,
        length: int = 750,
        *,
        sequences: int = 100_000,
        valid_sequences: int = 1000,
        test_sequences: int = 10_000,
    ) -> None:
        super().__init__(sequences=sequences, valid_sequences=valid_sequences, test_sequences=test_sequences)
        self.length = check_size("length", length, minimum=2)

    @property
    def steps(self) -> int:
        return self.length

    def draw(self, count: int, source: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        half = self.length // 2
        places = np.stack([source.integers(half, size=count), source.integers(half, self.length, size=count)], 1)
        return source.random((count, self.length)), places

    def assemble(self, *drawn: NDArray[Any]) -> Batch:
        numbers, places = torch.from_numpy(drawn[0].T).to(torch.get_default_dtype()), torch.from_numpy(drawn[1].T)
        marker = torch.zeros_like(numbers).scatter_(0, places, 1.0)
        return Batch(torch.stack([numbers, marker], -1), numbers.gather(0, places).sum(0)[:, None])

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean squared error."""
        error, count = squared(output, batch)
        return error.sum() / count

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        error, count = squared(output.double(), batch)
        return {"loss": (float(error.sum()), count)}

    def baseline(self) -> dict[str, float]:
        """The variance of the sum of two uniform numbers."""
        return {"loss": 1 / 6}
