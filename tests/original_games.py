"""Published images of relational games beside generated ones; run, it writes docs/relational_games.md.

It needs the four files in the folder relations_game of the folder that KREISS_DATA names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from kreiss.tasks import Game
from small_tasks import DATA

FOLDER = "relations_game"
PAGE = Path(__file__).parents[1] / "docs" / "relational_games.md"
GENERATED = 300_000  # images, so that the error of our frequencies is small beside theirs
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
NAMES = (
    "top row",
    "middle row",
    "bottom row",
    "left column",
    "middle column",
    "right column",
    "diagonal ↘",
    "diagonal ↙",
)
OFF_LINE = [triple for triple in combinations(range(9), 3) if triple not in LINES]
PATTERNS = ("AAA", "AAB", "ABA", "ABB", "ABC")
TASKS = ("ABA", "AAB", "ABB")  # of the numbers 0, 1 and 2 in the files of three tasks
BETWEEN, COLUMNS = "mini_between", "mini_3task_col_patts"
PARTS = ("hexos", "stripes")


# ---------------------------------------------------------------- images, and what is in them


@dataclass(frozen=True)
class Images:
    """Images as two features of what is in each cell (N, 9, 2), both 0 where a cell is blank; labels and tasks (N,).

    Features are the colour and the squares of a shape, or the outer and the inner colour of stripes.
    """

    features: Any
    labels: Any
    tasks: Any

    def of(self, which: Any) -> Images:
        return Images(self.features[which], self.labels[which], self.tasks[which])


def cells_of(images: Any) -> Any:
    """(N, 9, 12, 12, 3)"""
    return images.reshape(-1, 3, 12, 3, 12, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 9, 12, 12, 3)


def whole(cells: Any) -> Any:
    """Cells (N, 9, 3, 12, 12) as images (N, 36, 36, 3)."""
    return cells.reshape(-1, 3, 3, 3, 12, 12).transpose(0, 1, 4, 2, 5, 3).reshape(-1, 36, 36, 3)


@cache
def original(name: str) -> tuple[Any, Any, Any]:
    """Images, labels and tasks of a file."""
    assert DATA is not None
    with np.load(DATA / FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return file["images"].astype(np.uint8), file["labels"][:, 0], file["tasks"][:, 0]


def decoded(cells: Any) -> Any:
    """The features of cells (K, 12, 12, 3); every pixel must be what the features say."""
    squares = cells[:, 1:10:3, 1:10:3].astype(np.int64) @ [1 << 16, 1 << 8, 1]  # (K, 3, 3)
    colour = squares.max((1, 2))
    mask = (squares > 0).reshape(-1, 9) @ (1 << np.arange(9))
    striped = mask == 511
    features = np.where(striped[:, None], squares[:, 0, :2], np.stack([colour, mask], 1))
    assert (drawn(features) == cells).all()
    return features


def drawn(features: Any) -> Any:
    """The cells (K, 12, 12, 3) that features stand for: an object begins at pixel 1 and has squares of 3 pixels."""
    colour, second = features.T
    shape = second < 512  # colours of the held-out sets are larger numbers
    mask = (second[:, None] >> np.arange(9)) & 1
    squares = np.where(shape[:, None], mask * colour[:, None], np.stack([colour, second, colour] * 3, 1))
    pixels = np.stack([squares >> 16, (squares >> 8) & 255, squares & 255], -1).reshape(-1, 3, 3, 3)
    cells = np.zeros((len(features), 12, 12, 3), np.uint8)
    cells[:, 1:10, 1:10] = pixels.repeat(3, 1).repeat(3, 2)
    return cells


@cache
def published(name: str) -> Images:
    images, labels, tasks = original(name)
    cells = cells_of(images).reshape(-1, 12 * 12 * 3)
    distinct, which = np.unique(cells.view("V432")[:, 0], return_inverse=True)
    features = decoded(distinct.view(np.uint8).reshape(-1, 12, 12, 3))
    return Images(features[which].reshape(-1, 9, 2), labels, tasks)


@cache
def generated(rule: str, part: str) -> Images:
    task = Game(rule)
    codes, labels = task.draw(f"@{part}", GENERATED, np.random.default_rng(0))
    distinct, which = np.unique(codes, return_inverse=True)
    cells = (task.pictures(distinct) * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
    return Images(decoded(cells)[which].reshape(-1, 9, 2), labels, np.zeros_like(labels))


# ---------------------------------------------------------------- the rules, one image at a time


def naive(rule: str, image: Any, task: int = 0) -> int:
    """The answer that a rule gives for the pixels (36, 36, 3) of an image."""
    cells = [image[row : row + 12, column : column + 12] for row in (0, 12, 24) for column in (0, 12, 24)]
    places = [place for place, cell in enumerate(cells) if cell.any()]
    shown = [cells[place].tobytes() for place in places]
    if rule == "same":
        assert len(places) == 2
        return int(shown[0] == shown[1])
    if rule == "between":
        assert len(places) == 3
        return int(tuple(places) in LINES and shown[0] == shown[2])
    if rule in ("occurs", "xoccurs"):
        assert places == [1, 6, 7, 8]
        found = shown.count(shown[0]) - 1
        return int(found > 0) if rule == "occurs" else int(found == 1 and len(set(shown)) == 3)
    if rule == "rowmatching":
        assert places == [0, 1, 2, 6, 7, 8]
        return int(pattern(shown[:3]) == pattern(shown[3:]))
    if rule == "column":
        assert tuple(places) in LINES[3:6]
        return int(pattern(shown) == TASKS[task])
    colours = [tuple(cells[place].reshape(-1, 3).max(0).tolist()) for place in places]
    assert len(places) == 2
    if rule == "colourshape":
        shapes = [cells[place].any(-1).tobytes() for place in places]
        return 2 * (colours[0] != colours[1]) + (shapes[0] != shapes[1])
    light = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours]
    assert light[0] != light[1]
    (row, column), (other_row, other_column) = (
        divmod(place, 3) for place in (places if light[0] < light[1] else places[::-1])
    )
    return int(column < other_column or (column == other_column and row > other_row))


def pattern(objects: list[bytes]) -> str:
    """Letters for objects, a new one for each new object."""
    letters: dict[bytes, str] = {}
    return "".join(letters.setdefault(one, "ABC"[len(letters)]) for one in objects)


# ---------------------------------------------------------------- frequencies


@dataclass(frozen=True)
class Compared:
    """How often each of some things is so in a file, and in generated images."""

    file: str
    what: str
    names: tuple[Any, ...]
    counts: Any
    ours: Any

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def shares(self) -> Any:
        return self.counts / self.total

    @property
    def our_shares(self) -> Any:
        return self.ours / self.ours.sum()

    @property
    def errors(self) -> Any:
        """Standard errors of the shares in the file, given ours."""
        return np.sqrt(self.our_shares * (1 - self.our_shares) / self.total)

    @property
    def distances(self) -> Any:
        """In standard errors of the difference; 0 for what is in neither."""
        mixed = (self.counts + self.ours) / (self.total + self.ours.sum())
        spread = np.sqrt(mixed * (1 - mixed) * (1 / self.total + 1 / self.ours.sum()))
        return (self.shares - self.our_shares) / np.where(spread > 0, spread, 1)

    @property
    def farthest(self) -> int:
        return int(np.abs(self.distances).argmax())


def compared(file: str, what: str, names: Any, theirs: Any, ours: Any) -> Compared:
    """Values that are numbers of names, in a file and in generated images."""
    counts, others = (np.bincount(values, minlength=len(names)) for values in (theirs, ours))
    return Compared(file, what, tuple(names), counts, others)


def objects_of(images: Images, number: int) -> tuple[Any, Any]:
    """The cells of `number` objects in each image, and their features, in the order of cells."""
    _, places = np.nonzero(images.features[..., 0])
    places = places.reshape(-1, number)
    return places, np.take_along_axis(images.features, places[..., None], 1)


def way(one: Any, two: Any) -> Any:
    """0: equal; 1: only the first feature differs; 2: only the second; 3: both."""
    return (one[:, 0] != two[:, 0]) + 2 * (one[:, 1] != two[:, 1])


def lines(places: Any) -> Any:
    """The number of a line, or 8 + the number of three cells that are not in line."""
    numbers = np.full((9, 9, 9), -1)
    numbers[tuple(np.array([*LINES, *OFF_LINE]).T)] = np.arange(len(LINES) + len(OFF_LINE))
    return numbers[tuple(places.T)]


def features_of(file: str, part: str, theirs: Any, ours: Any) -> Iterator[Compared]:
    """Frequencies of the features of single objects."""
    shown = ("colour", "oriented shape") if part == "hexos" else ("outer colour", "inner colour")
    for number, name in enumerate(shown):
        values, places = np.unique(np.concatenate([ours[:, number], theirs[:, number]]), return_inverse=True)
        yield compared(file, name, values, places[len(ours) :], places[: len(ours)])
    if part == "stripes":
        equal = ((objects[:, 0] == objects[:, 1]).astype(int) for objects in (theirs, ours))
        yield compared(file, "colours of an object", ("different", "equal"), *equal)


def ways(part: str) -> tuple[str, ...]:
    """In which ways two objects differ."""
    first, second = ("colour", "shape") if part == "hexos" else ("outer colour", "inner colour")
    return ("nothing", f"{first} only", f"{second} only", "both")


def between(part: str) -> Iterator[Compared]:
    """Comparisons of `between`."""
    file, theirs, ours = f"{BETWEEN}_{part}", published(f"{BETWEEN}_{part}"), generated("between", part)
    (places, objects), (our_places, our_objects) = objects_of(theirs, 3), objects_of(ours, 3)
    yield from features_of(file, part, objects[:, 0], our_objects[:, 0])
    line, our_line = lines(places), lines(our_places)
    yield compared(file, "answer", ("false", "true"), theirs.labels, ours.labels)

    def pair(what: str, names: Any, one: int, two: int, here: Any, our: Any) -> Compared:
        of = way(objects[here, one], objects[here, two]), way(our_objects[our, one], our_objects[our, two])
        return compared(file, what, names, *of)

    here, our = theirs.labels == 1, ours.labels == 1
    yield compared(file, "true, line", NAMES, line[here], our_line[our])
    yield pair("true, outer and middle differ in", ways(part), 0, 1, here, our)
    here, our = ~here, ~our
    off = [np.minimum(numbers, 8) for numbers in (line[here], our_line[our])]
    yield compared(file, "false, line", (*NAMES, "none"), *off)
    off_line, our_off_line = here & (line >= 8), our & (our_line >= 8)
    yield compared(file, "false, cells not in line", OFF_LINE, line[off_line] - 8, our_line[our_off_line] - 8)
    in_line, our_in_line = here & (line < 8), our & (our_line < 8)
    yield pair("false, in line, outer two differ in", ways(part), 0, 2, in_line, our_in_line)
    yield pair("false, in line, outer and middle differ in", ways(part), 0, 1, in_line, our_in_line)
    for one, two in combinations(range(3), 2):
        what = f"false, not in line, objects {one + 1} and {two + 1} differ in"
        yield pair(what, ways(part), one, two, off_line, our_off_line)


def patterns(objects: Any) -> Any:
    """The number of the pattern of three objects (N, 3, 2)."""
    equal = [way(objects[:, one], objects[:, two]) == 0 for one, two in ((0, 1), (0, 2), (1, 2))]
    return np.select([equal[0] & equal[1], equal[0], equal[1], equal[2]], [0, 1, 2, 3], 4)


def columns(part: str) -> Iterator[Compared]:
    """Comparisons of patterns in a column with those in the rows of `rowmatching`."""
    file, theirs, ours = f"{COLUMNS}_{part}", published(f"{COLUMNS}_{part}"), generated("rowmatching", part)
    _, objects = objects_of(theirs, 3)
    _, six = objects_of(ours, 6)
    rows = six.reshape(-1, 3, 2)
    yield from features_of(file, part, objects[:, 0], rows[:, 0])
    top, bottom = patterns(six[:, :3]), patterns(six[:, 3:])
    column, row = patterns(objects), patterns(rows)
    for number, task in enumerate(TASKS):
        asked, others = PATTERNS.index(task), [one for one in range(5) if one != PATTERNS.index(task)]
        here, our = (theirs.tasks == number) & (theirs.labels == 0), (top == asked) & (ours.labels == 0)
        found = [np.searchsorted(others, shown) for shown in (column[here], bottom[our])]
        yield compared(file, f"{task} asked, false, is", [PATTERNS[one] for one in others], *found)
        different = 1 if task == "ABA" else 2  # where B is
        of = [way(shown[:, 0], shown[:, different]) - 1 for shown in (objects[column == asked], rows[row == asked])]
        yield compared(file, f"{task}, A and B differ in", ways(part)[1:], *of)
    three, our_three = objects[column == 4], rows[row == 4]
    for one, two in combinations(range(3), 2):
        of = [way(shown[:, one], shown[:, two]) - 1 for shown in (three, our_three)]
        yield compared(file, f"ABC, {'ABC'[one]} and {'ABC'[two]} differ in", ways(part)[1:], *of)


@cache
def comparisons() -> list[Compared]:
    return [one for part in PARTS for make in (between, columns) for one in make(part)]


# ---------------------------------------------------------------- the page

HEAD = """# Relational games: how close the generator is to the published images

The task `game` generates its images. Of the published ones (Shanahan et al. 2020, `deepmind-research/PrediNet`) four
test files of 5,000 images are at hand: `between`, and three tasks about patterns of three objects in a column, each
with hexominoes and with stripes. The latter show how the objects of a pattern differ, as they do in `rowmatching`. This
page is written by `tests/original_games.py`; `tests/test_relational_games.py` repeats it where the files are.

- Every pixel of the {images:,} images is accounted for: an object is 3 × 3 squares of 3 pixels, from pixel 1 of a cell
  of 12; all else is black.
- The sets are those of the generator: {shapes} oriented hexominoes, {colours} colours of hexominoes and of stripes, 8
  lines and 76 other sets of three cells. Each of 8 free hexominoes is equally frequent, and so is each of its
  orientations, so that those of a symmetric one are twice as frequent.
- Our rules give the published label of {right:,} of the {images:,} images. In the file of three tasks these ask for
  ABA (0), AAB (1) and ABB (2). In `between` the object in the middle is drawn alone, and may be the same as the others.

## Frequencies

Shares in a file, shares in {generated:,} generated images, and the farthest of them, in standard errors of the
difference. Of all {count} shares {three} are farther than 3 and {four} farther than 4.

"""

TAIL = """
## Differences left

- Answers are exactly balanced here, by a coin in the files.
- ABC with hexominoes: in the files A and B differ in both colour and shape less often than in one of them; here all
  three ways are equally frequent. {abc}
- There is no file at hand for same, occurs, xoccurs, rowmatching and colourshape, nor of pentominoes. Pairs that differ
  do so in colour, in shape or in both, as in the files above. What stands beside the object of `occurs`, and which
  negatives `xoccurs` has, is our choice: see `kreiss.tasks.Game`.
- Colours of pentominoes, of levels 0, 128 and 255, are as in published pictures, not checked image by image. That there
  are 37 pentominoes in all orientations means that P and U, which fit in a cell at two places, have one of them; which
  one is our choice.
- `leftof` is derived in the thesis from the images of `same` and these turned by 180°. The generator draws from the
  distribution of those, so that the objects of half of its images begin at pixel 2 of a cell.
"""


def page() -> str:
    every = comparisons()
    names = [f"{name}_{part}" for name in (BETWEEN, COLUMNS) for part in PARTS]
    hexos = [published(f"{name}_hexos").features.reshape(-1, 2) for name in (BETWEEN, COLUMNS)]
    colours, shapes = (len(np.unique(np.concatenate(hexos)[:, number])) - 1 for number in (0, 1))
    far = np.abs(np.concatenate([one.distances for one in every]))
    head = HEAD.format(
        images=sum(len(published(name).labels) for name in names), right=sum(right(name) for name in names),
        shapes=shapes, colours=colours, generated=GENERATED,
        count=len(far), three=int((far > 3).sum()), four=int((far > 4).sum()),
    )  # fmt: skip
    abc = next(one for one in every if one.what == "ABC, A and B differ in" and one.file.endswith("hexos"))
    share = f"{abc.shares[-1]:.3f} ± {abc.errors[-1]:.3f} there and {abc.our_shares[-1]:.3f} here"
    return head + table(every) + TAIL.format(abc=f"That share is {share}.")


def right(name: str) -> int:
    """Images of a file whose label is what our rule says."""
    rule = "between" if name.startswith(BETWEEN) else "column"
    return sum(naive(rule, image, task) == label for image, label, task in zip(*_in_order(name), strict=True))


def _in_order(name: str) -> tuple[Any, Any, Any]:
    images, labels, tasks = original(name)
    return images, labels.tolist(), tasks.tolist()


def table(every: list[Compared]) -> str:
    out = []
    for file in dict.fromkeys(one.file for one in every):
        out += [f"### {file}", "", "| what | of | in the file | generated | farthest |", "|---|---|---|---|---|"]
        out += [line(one) for one in every if one.file == file]
        out.append("")
    return "\n".join(out)


def line(one: Compared) -> str:
    """One line of the table; of more than nine shares only the farthest is shown."""
    shown = range(len(one.names)) if len(one.names) < 10 else [one.farthest]
    names = " / ".join(map(str, one.names)) if len(shown) > 1 else f"each of {len(one.names)}, the farthest"
    theirs, ours = (" / ".join(f"{shares[number]:.3f}" for number in shown) for shares in (one.shares, one.our_shares))
    return (
        f"| {one.what}: {names} | {one.total:,} | {theirs}, ± {one.errors[shown].max():.3f} | {ours} | "
        f"{one.distances[one.farthest]:+.1f} |"
    )


if __name__ == "__main__":
    if DATA is None:
        sys.exit("KREISS_DATA must name a folder with relations_game; it names none. Set it.")
    PAGE.write_text(page())
