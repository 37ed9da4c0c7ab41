"""Identity rules: which object completes the second row by the rule of the first?"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from kreiss.errors import check_name
from kreiss.tasks.relational.base import SEEN, Drawn
from kreiss.tasks.relational.glyphs import Arranged, GlyphOptions, in_turn

FEW = ("AAAA", "ABAA", "AABA", "BAAA", "ABBA", "ABAB", "AABB")  # at most two distinct objects
THREE = ("ABCA", "BACA", "BCAA")
# variant → rules shown in training, rules of the unseen part
VARIANTS = {
    "plain": (FEW, THREE),
    "missing": (tuple(rule for rule in FEW if rule not in ("ABAA", "ABAB")), THREE),
    "flipped": (THREE, FEW),
    "flipped-missing": (tuple(rule for rule in THREE if rule != "ABCA"), FEW),
}


class IdentityRules(Arranged):
    """A row by the rule AAA, ABA or ABB, the same with other glyphs without its last one, and four choices.

    The choices are the four glyphs drawn for a sequence in random order, of which a row uses one or two. The answer is
    the place of the one that completes the second row. Each rule is drawn equally often.

    Options: see `Glyphs`. The thesis holds out m = 0, 50, 85 and 95 glyphs.

    Reference: Marcus et al. 1999; Webb, Sinha, Cohen 2021; Kerg's thesis, 5.4.1.

    Example:
        >>> from kreiss.tasks import IdentityRules
        >>> IdentityRules(held_out=95).train(update=0, batch=96, seed=0).inputs.shape
        torch.Size([9, 96, 3, 32, 32])
    """

    objects, output_size = 9, 4

    def __init__(self, **options: Unpack[GlyphOptions]) -> None:
        super().__init__(**options)

    def rules(self, part: str) -> tuple[str, ...]:
        """The rules of a part."""
        return ("AAA", "ABA", "ABB")

    def needed(self, part: str) -> int:
        return self.output_size

    def arranged(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        rules = np.array([[ord(letter) - ord("A") for letter in rule] for rule in self.rules(part)])
        first = rules[in_turn(count, len(rules), source)]
        second = first + self.output_size // 2  # glyphs of its own
        choices = source.permuted(np.tile(np.arange(self.output_size), (count, 1)), axis=1)
        answers = (choices == second[:, -1:]).argmax(1)
        return np.concatenate([first, second[:, :-1], choices], 1), answers


class IdentityRules4(IdentityRules):
    """Identity rules with rows of four and six choices; the unseen part has other rules than training.

    "plain" trains on rules with at most two distinct glyphs and tests on ABCA, BACA and BCAA; "missing" leaves ABAA and
    ABAB out of training; "flipped" trains on the three and tests on the others; "flipped-missing" leaves out ABCA too.

    Args:
        variant: "plain", "missing", "flipped" or "flipped-missing".
        options: see `Glyphs`.

    Reference: Kerg's thesis, 5.4.3 and C.3; rules as in its public code.

    Example:
        >>> from kreiss.tasks import IdentityRules4
        >>> IdentityRules4("missing", held_out=94).train(update=0, batch=160, seed=0).inputs.shape
        torch.Size([13, 160, 3, 32, 32])
    """

    objects, output_size = 13, 6

    def __init__(self, variant: str = "plain", **options: Unpack[GlyphOptions]) -> None:
        check_name("variant", variant, VARIANTS)
        self.variant = variant
        super().__init__(**options)

    def rules(self, part: str) -> tuple[str, ...]:
        return VARIANTS[self.variant][0 if part == SEEN else 1]
