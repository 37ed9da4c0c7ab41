"""A small task whose state is carried from batch to batch, as truncated backpropagation through a text does.

Run as a program it is the command line with that task: `python tests/stream.py train stream ...`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.tasks import TASKS, Batch, Task


class Stream(Task):
    """The next symbol of a fixed sequence in which symbols depend on those before.

    Args:
        chunk: steps of a batch.
        chunks: batches of an epoch.
    """

    input_size = output_size = 5
    symbols = True
    metric = "loss"

    def __init__(self, chunk: int = 6, chunks: int = 4) -> None:
        self.chunk, self.chunks = chunk, chunks

    def updates_per_epoch(self, batch: int) -> int:
        return self.chunks

    def text(self, seed: int, columns: int) -> Tensor:
        """(steps + 1, columns): every symbol is the sum of the two before it, now and then disturbed."""
        g = torch.Generator().manual_seed(seed)
        drawn = torch.randint(5, (self.chunk * self.chunks + 1, columns), generator=g)
        disturbed = torch.rand(drawn.shape, generator=g) < 0.2
        for t in range(2, len(drawn)):
            drawn[t] = torch.where(disturbed[t], drawn[t], (drawn[t - 1] + drawn[t - 2]) % 5)
        return drawn

    def piece(self, text: Tensor, place: int) -> Batch:
        start = place * self.chunk
        inputs, targets = text[start : start + self.chunk], text[start + 1 : start + self.chunk + 1]
        return Batch(inputs, targets, carries=place > 0)

    def train(self, update: int, batch: int, seed: int) -> Batch:
        return self.piece(self.text(0, batch), update % self.chunks)

    def held_out(self, split: str, batch: int) -> Iterator[Batch]:
        text = self.text({"valid": 1, "test": 2}[split], 6)
        for columns in text.split(batch, 1):
            for place in range(self.chunks):
                yield self.piece(columns, place)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), batch.targets.flatten())

    def totals(self, output: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        count = batch.targets.numel()
        return {"loss": (float(self.loss(output.double(), batch)) * count, count)}

    def baseline(self) -> dict[str, float]:
        return {"loss": 1.6094}


if __name__ == "__main__":
    from kreiss.cli import main

    TASKS["stream"] = Stream
    main()
