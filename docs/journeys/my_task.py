"""A task of one's own: batches as a function of update and seed, a loss, metrics, and a baseline without memory."""

import numpy as np
import torch
from torch.nn import functional as F

from kreiss.tasks import Batch
from kreiss.tasks.generated import Generated


class Before(Generated):
    """Say at every step the symbol that was shown `back` steps before; the first ones are blank.

    Args:
        back: steps between a symbol and its repetition.
        length: of a sequence.
    """

    input_size, output_size, symbols, metric, higher_is_better = 4, 4, True, "accuracy", True

    def __init__(self, back: int = 2, length: int = 20) -> None:
        super().__init__(sequences=0, valid_sequences=50, test_sequences=100)
        self.back, self.length = back, length

    def draw(self, count: int, source: np.random.Generator):
        return (source.integers(1, self.input_size, (count, self.length)),)

    def assemble(self, *drawn):
        inputs = torch.from_numpy(drawn[0].T)
        return Batch(inputs, F.pad(inputs[: -self.back], (0, 0, self.back, 0)))

    def loss(self, output, batch):
        return F.cross_entropy(output.flatten(0, 1), batch.targets.flatten())

    def totals(self, output, batch):
        count = batch.targets.numel()
        right = int((output.argmax(-1) == batch.targets).sum())
        return {"loss": (float(self.loss(output, batch)) * count, count), "accuracy": (right, count)}

    def baseline(self):
        """The blanks are known from their place; of three symbols one is guessed."""
        share = self.back / self.length
        return {"loss": (1 - share) * float(np.log(3)), "accuracy": share + (1 - share) / 3}
