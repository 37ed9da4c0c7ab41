"""Distribution of N: which object is missing in a permuted row?"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import check_name, check_size
from kreiss.tasks.relational.base import SEEN, Drawn
from kreiss.tasks.relational.glyphs import Arranged, GlyphOptions

RESTRICTIONS = ("none", "preserving", "mixing")
KEPT = 3  # the last places, which a permutation that preserves the others permutes among themselves


class Distribution(Arranged):
    """A row of N glyphs, the same permuted without its last one, and N + 1 choices: which completes the second row?

    The choices are the N glyphs and one other, in random order; the answer is the place of the missing one.

    A restricted task shows other permutations in the unseen part than in training. Those that preserve the set of the
    first N − 3 places are shown in training and all others in the test with "preserving", as the thesis writes (C.4);
    "mixing" is the reverse, as its public code does.

    Args:
        n: glyphs in a row.
        restricted: "none", "preserving" or "mixing": the permutations shown in training.
        options: see `Glyphs`.

    Reference: Webb, Sinha, Cohen 2021 (N = 3); Kerg's thesis, 5.4.1 and C.4.

    Example:
        >>> from kreiss.tasks import Distribution
        >>> task = Distribution(10, restricted="preserving", held_out=89)
        >>> task.train(update=0, batch=96, seed=0).inputs.shape
        torch.Size([30, 96, 3, 32, 32])
    """

    def __init__(self, n: int = 10, *, restricted: str = "none", **options: Unpack[GlyphOptions]) -> None:
        check_name("restricted", restricted, RESTRICTIONS)
        self.n = check_size("n", n, minimum=2 if restricted == "none" else KEPT + 1)
        self.restricted = restricted
        self.objects, self.output_size = 3 * self.n, self.n + 1
        super().__init__(**options)

    def needed(self, part: str) -> int:
        return self.n + 1

    def arranged(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        second = self._permutations(part, count, source)
        choices = _shuffled(count, self.n + 1, source)
        first = np.tile(np.arange(self.n), (count, 1))
        answers = (choices == second[:, -1:]).argmax(1)
        return np.concatenate([first, second[:, :-1], choices], 1), answers

    def _permutations(self, part: str, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        if self.restricted == "none":
            return _shuffled(count, self.n, source)
        if (self.restricted == "preserving") == (part == SEEN):
            first, last = _shuffled(count, self.n - KEPT, source), _shuffled(count, KEPT, source)
            return np.concatenate([first, last + self.n - KEPT], 1)
        drawn = _shuffled(count, self.n, source)
        while len(again := np.flatnonzero(_preserves(drawn))):
            drawn[again] = _shuffled(len(again), self.n, source)
        return drawn


class DistributionOfThree(Distribution):
    """Distribution of three: three glyphs, the same permuted without the last one, and four choices of which to add.

    Any permutation may come up, the identity too. The answer is the place of the missing glyph among the choices.

    Options: see `Glyphs`. The thesis holds out m = 0, 50, 85 and 95 glyphs.

    Reference: Webb, Sinha, Cohen 2021; Kerg's thesis, 5.4.1.

    Example:
        >>> from kreiss.tasks import DistributionOfThree
        >>> batch = DistributionOfThree(held_out=95).train(update=0, batch=96, seed=0)
        >>> batch.inputs.shape, len(batch.inputs.images)
        (torch.Size([9, 96, 3, 32, 32]), 5)
    """

    def __init__(self, **options: Unpack[GlyphOptions]) -> None:
        super().__init__(3, **options)


def _shuffled(count: int, size: int, source: np.random.Generator) -> NDArray[np.int64]:
    """Permutations (count, size)."""
    return source.permuted(np.tile(np.arange(size), (count, 1)), axis=1)


def _preserves(permutations: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the set of all places but the last three is preserved."""
    first = permutations.shape[1] - KEPT
    return (permutations[:, :first] < first).all(1)
