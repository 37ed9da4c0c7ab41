"""Relational match-to-sample: which of two groups of objects follows the pattern of the first?"""

from __future__ import annotations

from itertools import permutations

from kreiss.tasks.relational.base import SEEN
from kreiss.tasks.relational.glyphs import Patterned

LETTERS = "ABCDEFGHIJ"


def matched(source: str, distractor: str) -> list[tuple[str, int]]:
    """A source, and a match and a distractor with other glyphs in either order; the answer is where the match is."""
    used = len(set(source))
    match = renamed(source, used)
    other = renamed(distractor, 2 * used)
    return [(source + match + other, 0), (source + other + match, 1)]


def renamed(pattern: str, start: int) -> str:
    """A pattern with other letters, from number `start` on."""
    return "".join(LETTERS[LETTERS.index(letter) + start] for letter in pattern)


class MatchToSample(Patterned):
    """Relational match-to-sample (RMTS): a pair, then two pairs; which (0 or 1) has the relation of the first?

    All glyphs of different pairs differ. In half of the sequences the first pair is of equal glyphs.

    Options: see `Glyphs`. The thesis holds out m = 0, 50, 85 and 95 glyphs, and normalises over the whole sequence;
    Webb et al. normalise each pair by itself: --model.segments 2,2,2.

    Reference: Webb, Sinha, Cohen 2021; Kerg's thesis, 5.4.1.

    Example:
        >>> from kreiss.tasks import MatchToSample
        >>> MatchToSample(held_out=95).train(update=0, batch=96, seed=0).inputs.shape
        torch.Size([6, 96, 3, 32, 32])
    """

    objects, output_size = 6, 2

    def groups(self, part: str) -> list[list[tuple[str, int]]]:
        return [matched("AA", "AB"), matched("AB", "AA")]


class MatchToSample3(Patterned):
    """RMTS with triplets: training shows AAA, ABA and BAA, the unseen part AAB and ABC.

    Every ordered pair of different patterns is source and distractor equally often.

    Options: see `Glyphs`. Reference: Kerg's thesis, 5.4.3; patterns as in its public code.

    Example:
        >>> from kreiss.tasks import MatchToSample3
        >>> MatchToSample3(held_out=94).train(update=0, batch=192, seed=0).inputs.shape
        torch.Size([9, 192, 3, 32, 32])
    """

    objects, output_size = 9, 2

    def groups(self, part: str) -> list[list[tuple[str, int]]]:
        patterns = ("AAA", "ABA", "BAA") if part == SEEN else ("AAB", "ABC")
        return [matched(_in_order(source), _in_order(other)) for source, other in permutations(patterns, 2)]


def _in_order(pattern: str) -> str:
    """The pattern with its letters in order of appearance: ABB for BAA."""
    names: dict[str, str] = {}
    return "".join(names.setdefault(letter, LETTERS[len(names)]) for letter in pattern)
