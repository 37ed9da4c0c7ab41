"""The rules of relational games: how the nine cells of an image are filled so that its answer is a given one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.tasks.relational.polyominoes import BLANK, MOVED, Codes, Objects, Shapes, luminance

CELLS = 9
PAIRS = np.array(list(permutations(range(CELLS), 2)))
TRIPLES = np.array(list(combinations(range(CELLS), 3)))
ROWS = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
STRAIGHT = [*ROWS, *zip(*ROWS, strict=True), (0, 4, 8), (2, 4, 6)]
LINES = np.array([*STRAIGHT, ROWS[1]])  # the middle row is twice as frequent in the original files
IN_LINE = np.array([triple in STRAIGHT for triple in combinations(range(CELLS), 3)])
PATTERNS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]])  # AAA, AAB, ABA, ABB, ABC
TOP, BOTTOM = [1], [6, 7, 8]

Fill = Callable[[Any, NDArray[Any], np.random.Generator], Codes]


def same(objects: Objects, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """Two objects in any two cells, equal or not."""
    one = objects.drawn(len(answers), source)
    two = np.where(answers == 1, one, objects.unlike(one, source))
    return _placed(_any(PAIRS, len(answers), source), np.stack([one, two], 1))


def between(objects: Objects, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """Three objects in line, the outer two equal; or in line and these not equal; or three objects in any cells.

    The last is one more of the ways in which the outer two differ, so a quarter of the negatives with shapes and half
    of those with stripes; one in ten of them is in line by chance.
    """
    count = len(answers)
    outer, middle, free = objects.drawn((3, count), source)
    unlike = objects.unlike(outer, source)
    anywhere = (answers == 0) & (source.integers(objects.ways + 1, size=count) == 0)
    triple = source.integers(len(TRIPLES), size=count)
    other = np.where(answers == 1, outer, unlike)
    other = np.where(anywhere & ~(IN_LINE[triple] & (free == outer)), free, other)
    places = np.where(anywhere[:, None], TRIPLES[triple], _any(LINES, count, source))
    return _placed(places, np.stack([outer, middle, other], 1))


def occurs(objects: Objects, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """An object above three; one of these is equal to it, or none."""
    count = len(answers)
    top = objects.drawn((count, 1), source)
    bottom = objects.unlike(top.repeat(3, 1), source)
    found = (np.arange(3) == source.integers(3, size=(count, 1))) & (answers[:, None] == 1)
    return _above(top, np.where(found, top, bottom))


def xoccurs(objects: Objects, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """An object above three; one of these is equal to it and the other two differ, or else.

    Half of the negatives do not have the object; the other half have it, and twice another.
    """
    top = objects.drawn(len(answers), source)
    second = objects.unlike(top, source)
    third = objects.unlike_both(top, second, source)
    absent = (answers == 0) & (source.random(len(answers)) < 0.5)
    first = np.where(absent, objects.unlike(top, source), top)
    third = np.where((answers == 0) & ~absent, second, third)
    return _above(top[:, None], source.permuted(np.stack([first, second, third], 1), axis=1))


def row_matching(objects: Objects, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """Two rows, each of a pattern AAA, AAB, ABA, ABB or ABC, equal or not."""
    count = len(answers)
    first, step = source.integers(len(PATTERNS), size=count), source.integers(1, len(PATTERNS), size=count)
    second = np.where(answers == 1, first, (first + step) % len(PATTERNS))
    a = objects.drawn(2 * count, source)
    b = objects.unlike(a, source)
    c = objects.unlike_both(a, b, source)
    rows = np.take_along_axis(np.stack([a, b, c], 1), PATTERNS[np.concatenate([first, second])], 1)
    cells = np.full((count, CELLS), BLANK)
    cells[:, :3], cells[:, 6:] = rows[:count], rows[count:]
    return cells


def colour_shape(objects: Shapes, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """Two objects in any two cells; colours differ in answers 2 and 3, shapes in 1 and 3."""
    one = objects.drawn(len(answers), source)
    two = objects.changed(one, answers >= 2, answers % 2 == 1, source)
    return _placed(_any(PAIRS, len(answers), source), np.stack([one, two], 1))


def left_of(objects: Shapes, answers: NDArray[Any], source: np.random.Generator) -> Codes:
    """Two objects of different colours, so of different luminance; the darker one to the left, or not.

    Half of the images are those of `same` turned by 180°, so that objects begin one pixel later.
    """
    count = len(answers)
    one = objects.drawn(count, source)
    shape = source.random(count) < 0.5  # a third of the unequal pairs of `same` each
    two = objects.changed(one, np.ones(count, bool), shape, source)
    places = _any(PAIRS, count, source)
    darker = luminance(one) < luminance(two)
    is_left = np.where(darker, left(places[:, 0], places[:, 1]), left(places[:, 1], places[:, 0]))
    swapped = is_left != (answers == 1)
    pair = np.where(swapped[:, None], np.stack([two, one], 1), np.stack([one, two], 1))
    turned = source.integers(2, size=(count, 1))
    return _placed(places, pair + MOVED * turned)


def left(one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a cell is in a column to the left of another's; of the same column, whether it is below."""
    (row, column), (other_row, other_column) = np.divmod(one, 3), np.divmod(two, 3)
    return np.asarray((column < other_column) | ((column == other_column) & (row > other_row)))


def _any(places: NDArray[Any], count: int, source: np.random.Generator) -> NDArray[Any]:
    return np.asarray(places[source.integers(len(places), size=count)])


def _placed(places: NDArray[Any], objects: Codes) -> Codes:
    """Nine cells, blank but for the objects in their places."""
    cells = np.full((len(objects), CELLS), BLANK)
    np.put_along_axis(cells, places, objects, 1)
    return cells


def _above(top: Codes, bottom: Codes) -> Codes:
    return _placed(np.tile(TOP + BOTTOM, (len(top), 1)), np.concatenate([top, bottom], 1))


@dataclass(frozen=True)
class Rule:
    """One game.

    Args:
        fill: makes cells (count, 9) for answers (count,).
        files: how names of the published files begin.
        answers: number of them.
        stripes: whether it is played with stripes.
    """

    fill: Fill
    files: tuple[str, ...]
    answers: int = 2
    stripes: bool = True


RULES = {
    "same": Rule(same, ("same",)),
    "between": Rule(between, ("1task_between", "between")),
    "occurs": Rule(occurs, ("occurs",)),
    "xoccurs": Rule(xoccurs, ("xoccurs",)),
    "rowmatching": Rule(row_matching, ("1task_match_patt", "match_patt")),
    "colourshape": Rule(colour_shape, ("colour_and_or_shape",), answers=4, stripes=False),
    "leftof": Rule(left_of, ("same",), stripes=False),  # made from the images of `same`
}
