"""Selective copying: pick tokens out of noise, wherever they are, and repeat them in their order at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.generated import Generated
from kreiss.tasks.losses import NO_TARGET, classified, cross_entropy

NOISE = 0


class SelectiveCopy(Generated):
    """Data tokens at random places of a noisy sequence, then a cue for every token, at which they are due in order.

    Published: sequences of 4,096 steps, a vocabulary of 16 with the noise token in it, 16 data tokens to memorise at
    random places, and the share of tokens that are right; an S4 without gates gets 18.3 %, Mamba 99.8 %.

    Chosen here, because it is not printed: the 4,096 steps include those of the answer; the cue is in the vocabulary
    too (0 is noise, 15 the cue), so that data tokens are drawn uniformly from 14; places are drawn without replacement
    and sorted; the cue is shown at each of the 16 steps of the answer; the loss is the mean cross-entropy of the answer
    alone. A network without memory reaches ln 14 and one token in 14.

    Denoise asks for the same of ten symbols, with one cue and a loss over all steps.

    Reference: Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", 2023, 4.1 and E.1.

    Args:
        length: of a sequence, with the answer.
        tokens: data tokens in a sequence.
        vocabulary: data tokens, noise and cue.
        sequences: size of a fixed training set; 0 draws fresh sequences at every update.
        valid_sequences: size of the validation set.
        test_sequences: size of the test set.

    Example:
        >>> from kreiss.tasks import SelectiveCopy
        >>> task = SelectiveCopy(length=64, tokens=4)
        >>> batch = task.train(update=0, batch=5, seed=0)
        >>> batch.inputs.shape, int((batch.inputs[:, 0] == 15).sum())
        (torch.Size([64, 5]), 4)
        >>> round(task.baseline()["loss"], 4)
        2.6391
    """

    symbols = True

    def __init__(
        self,
        length: int = 4096,
        *,
        tokens: int = 16,
        vocabulary: int = 16,
        sequences: int = 0,
        valid_sequences: int = 500,
        test_sequences: int = 1000,
    ) -> None:
        super().__init__(sequences=sequences, valid_sequences=valid_sequences, test_sequences=test_sequences)
        self.length, self.tokens = check_size("length", length), check_size("tokens", tokens)
        self.vocabulary = self.input_size = self.output_size = check_size("vocabulary", vocabulary, minimum=4)
        if length < 2 * tokens:
            raise InputError(
                f"`length` must be at least twice `tokens`, which are shown and asked for; got length={length} and "
                f"tokens={tokens}. Pass at least length={2 * tokens}."
            )

    @property
    def steps(self) -> int:
        return self.length

    def draw(self, count: int, source: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        data = source.integers(NOISE + 1, self.vocabulary - 1, size=(count, self.tokens))
        # the smallest of as many random numbers as there are places lie at places without replacement
        keys = source.random((count, self.length - self.tokens))
        places = np.sort(np.argpartition(keys, self.tokens - 1, axis=1)[:, : self.tokens], axis=1)
        return data, places

    def assemble(self, *drawn: NDArray[Any]) -> Batch:
        data, places = (torch.from_numpy(part.T) for part in drawn)  # (tokens, B)
        inputs = torch.full((self.length, data.shape[1]), NOISE)
        targets = torch.full_like(inputs, NO_TARGET)
        inputs.scatter_(0, places, data)
        inputs[-self.tokens :] = self.vocabulary - 1
        targets[-self.tokens :] = data
        return Batch(inputs, targets)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy of the answer."""
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """Cross-entropy and hits of the answer."""
        return classified(output, batch.targets)

    def baseline(self) -> dict[str, float]:
        """A network without memory guesses among the data tokens."""
        kinds = self.vocabulary - 2
        return {"loss": math.log(kinds), "accuracy": 1 / kinds}
