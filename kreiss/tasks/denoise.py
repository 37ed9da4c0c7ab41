"""The denoise task: pick ten symbols out of blanks, wherever they are, and repeat them at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kreiss.tasks.base import Batch
from kreiss.tasks.recall import LENGTH, SYMBOLS, Recall

BLANK, CUE = 0, SYMBOLS + 2


class Denoise(Recall):
    """Ten symbols from eight at random places among T + 9 steps, a cue, ten blanks; the symbols are due after the cue.

    T + 20 steps. Symbols are 1 to 8, the blank is 0 and the cue 10, so inputs are one-hot of 11 and targets 10 classes,
    of which 9 is never used: the coding of the thesis' public code, whose parameter counts follow from it. The places
    are drawn without replacement and sorted. The loss is the mean cross-entropy over all steps, the accuracy is that
    of the last ten, and a network without memory reaches 10 ln 8 / (T + 20).

    Reference: Jing et al., "Gated orthogonal recurrent units", 2019; Kerg's thesis, 2022, 4.6. The first draws symbols
    1 to 9 and places with replacement.

    Transfer: with `test_delays` the test set holds further parts at other delays, and their metrics are named after
    them, `accuracy@400`. `Denoise(100).at(400)` is the same task at another delay.

    Args:
        delay: T.
        test_delays: other delays to test at, as "200,400" or (200, 400).
        shortest: training batches have delays between this and T, uniform in the logarithm; 0 trains at T alone.
        sequences: size of a fixed training set; 0 draws fresh sequences at every update.
        valid_sequences: size of the validation set.
        test_sequences: size of the test set, for each delay.

    Example:
        >>> from kreiss.tasks import Denoise
        >>> task = Denoise(delay=50)
        >>> batch = task.train(update=0, batch=5, seed=0)
        >>> batch.inputs.shape, int((batch.inputs[:, 0] == 10).sum())
        (torch.Size([70, 5]), 1)
    """

    input_size = SYMBOLS + 3
    output_size = SYMBOLS + 2

    def __init__(
        self,
        delay: int = 100,
        *,
        test_delays: str | int | tuple[int, ...] | list[int] = "",
        shortest: int = 0,
        sequences: int = 0,
        valid_sequences: int = 500,
        test_sequences: int = 1000,
    ) -> None:
        super().__init__(
            delay,
            test_delays,
            shortest,
            sequences=sequences,
            valid_sequences=valid_sequences,
            test_sequences=test_sequences,
        )

    def draw(self, count: int, source: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        symbols = source.integers(1, SYMBOLS + 1, size=(count, LENGTH))
        # the ten smallest of T + 9 random numbers lie at ten places without replacement
        keys = source.random((count, self.delay + LENGTH - 1))
        places = np.sort(np.argpartition(keys, LENGTH - 1, axis=1)[:, :LENGTH], axis=1)
        return symbols, places

    def assemble(self, *drawn: NDArray[Any]) -> Batch:
        symbols, places = (torch.from_numpy(part.T) for part in drawn)  # (10, B)
        inputs = torch.full((self.steps, symbols.shape[1]), BLANK)
        targets = inputs.clone()
        inputs.scatter_(0, places, symbols)
        inputs[-LENGTH - 1] = CUE
        targets[-LENGTH:] = symbols
        return Batch(inputs, targets)
