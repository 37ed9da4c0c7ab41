"""Same or different: two objects, or two triplets of them."""

from __future__ import annotations

from itertools import permutations

from kreiss.tasks.relational.base import SEEN
from kreiss.tasks.relational.glyphs import Patterned

SAME, DIFFERENT = 0, 1


class SameDifferent(Patterned):
    """Two glyphs: are they the same (0) or different (1)? Half of the sequences are each.

    Options: see `Glyphs`. The thesis holds out m = 0, 50, 85, 95 and 98 glyphs.

    Reference: Webb, Sinha, Cohen, "Emergent symbols through binding in external memory", 2021; Kerg's thesis, 5.4.1.

    Example:
        >>> from kreiss.tasks import SameDifferent
        >>> task = SameDifferent(held_out=98)
        >>> batch = task.train(update=0, batch=96, seed=0)
        >>> batch.inputs.shape, len(batch.inputs.images)
        (torch.Size([2, 96, 3, 32, 32]), 2)
    """

    objects, output_size = 2, 2

    def groups(self, part: str) -> list[list[tuple[str, int]]]:
        return [[("AA", SAME)], [("AB", DIFFERENT)]]


class SameDifferent6(Patterned):
    """Two triplets of the same two glyphs: are they the same (0) or different (1)?

    Training shows equal triplets AAA, ABB, ABA, and every ordered pair of AAA, BAA, ABA. The unseen part has AAB in
    every sequence: equal triplets AAB, and the ordered pairs of AAB with one of the three. Half of the sequences are
    the same.

    Options: see `Glyphs`. Reference: Kerg's thesis, 5.4.3; patterns as in its public code.

    Example:
        >>> from kreiss.tasks import SameDifferent6
        >>> SameDifferent6(held_out=98).train(update=0, batch=384, seed=0).inputs.shape
        torch.Size([6, 384, 3, 32, 32])
    """

    objects, output_size = 6, 2
    shown = ("AAA", "BAA", "ABA")

    def groups(self, part: str) -> list[list[tuple[str, int]]]:
        if part == SEEN:
            same = [("AAA", "AAA"), ("ABB", "ABB"), ("ABA", "ABA")] * 2
            different = list(permutations(self.shown, 2))
        else:
            same = [("AAB", "AAB")] * 6
            different = [pair for other in self.shown for pair in (("AAB", other), (other, "AAB"))]
        return [[("".join(pair), SAME)] for pair in same] + [[("".join(pair), DIFFERENT)] for pair in different]
