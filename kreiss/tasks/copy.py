"""The copy task: remember ten symbols over a long delay."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from kreiss.errors import check_name, check_size
from kreiss.tasks.base import Batch
from kreiss.tasks.recall import LENGTH, SYMBOLS, Recall

BLANK, CUE = SYMBOLS, SYMBOLS + 1

# convention → steps beyond T; each shows the symbols, waits, gives the cue, and leaves ten steps for the answer
CONVENTIONS = {"nnrnn": 2 * LENGTH, "enrnn-text": 2 * LENGTH + 2, "enrnn": 2 * LENGTH + 2}


class Copy(Recall):
    """Ten symbols from an alphabet of eight, a delay, a cue, ten blanks; the symbols are due after the cue.

    Two conventions of length are in use, and their losses cannot be compared:

    - `nnrnn` (Kerg et al. 2019, A.1): ten symbols, T − 1 blanks, the cue, ten blanks: T + 20 steps. The code of the
      ENRNN paper's authors uses it too.
    - `enrnn-text` (the ENRNN paper, 5.2): one more cue right after the symbols, and T blanks between the two: T + 22
      steps. The text gives the length as T + 20, but the sequence it describes is two steps longer. `enrnn` is the
      earlier name of this convention.

    There are ten input symbols (8, blank, cue) and 9 target classes (8 symbols, blank). The loss is the mean
    cross-entropy over all steps, the accuracy is that of the last ten. A network without memory reaches
    10 ln 8 / steps.

    Transfer: with `test_delays` the test set holds further parts at other delays, and their metrics are named after
    them, `accuracy@400`. `Copy(100).at(400)` is the same task at another delay.

    Args:
        delay: T.
        convention: "nnrnn" or "enrnn-text".
        test_delays: other delays to test at, as "200,400" or (200, 400).
        shortest: training batches have delays between this and T, uniform in the logarithm; 0 trains at T alone.
        sequences: size of a fixed training set; 0 draws fresh sequences at every update.
        valid_sequences: size of the validation set.
        test_sequences: size of the test set, for each delay.

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

    def __init__(
        self,
        delay: int = 100,
        *,
        convention: str = "nnrnn",
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
        check_name("convention", convention, CONVENTIONS)
        self.convention = convention
        self.extra = CONVENTIONS[convention]

    def draw(self, count: int, source: np.random.Generator) -> tuple[NDArray[Any]]:
        return (source.integers(SYMBOLS, size=(count, LENGTH)),)

    def assemble(self, *drawn: NDArray[Any]) -> Batch:
        return self._shown(torch.from_numpy(drawn[0].T))

    def sample(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (steps, batch, 10) one-hot in the default dtype and targets (steps, batch), from torch's generator."""
        shown = self._shown(torch.randint(SYMBOLS, (LENGTH, check_size("batch", batch)), generator=generator))
        return F.one_hot(shown.inputs, self.input_size).to(torch.get_default_dtype()), shown.targets

    def _shown(self, symbols: Tensor) -> Batch:
        """The sequences that show these symbols (10, batch)."""
        inputs = torch.full((self.steps, symbols.shape[1]), BLANK)
        targets = inputs.clone()
        inputs[:LENGTH] = targets[-LENGTH:] = symbols
        inputs[-LENGTH - 1] = CUE
        if self.convention != "nnrnn":
            inputs[LENGTH] = CUE
        return Batch(inputs, targets)
