"""Relational games: shapes, rules, files, and the published images beside ours."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import original_games as games
from kreiss.errors import InputError
from kreiss.tasks import TASKS, Game
from kreiss.tasks.base import Batch
from kreiss.tasks.relational import polyominoes, rules
from kreiss.tasks.sources.games import read_left_of
from small_tasks import DATA, real

RULES = tuple(rules.RULES)
PLAYED = [(rule, part) for rule in RULES for part in Game(rule).parts]
needs_files = real(games.FOLDER)


def rendered(task: Game, codes: Any) -> Any:
    """Codes (N, 9) as bytes (N, 36, 36, 3)."""
    cells = (task.pictures(codes.ravel()) * 255).round().astype(np.uint8)
    return games.whole(cells.reshape(-1, 9, 3, 12, 12))


def pictured(rule: str, part: str, count: int, seed: int = 0) -> tuple[Any, Any]:
    """Images and answers of a game."""
    task = Game(rule)
    codes, answers = task.draw(part, count, np.random.default_rng(seed))
    return rendered(task, codes), answers


def same(one: Batch, two: Batch) -> bool:
    """Whether two batches hold the same images in the same places, and the same answers."""
    pairs = ((one.inputs.images, two.inputs.images), (one.inputs.index, two.inputs.index), (one.targets, two.targets))
    return all(torch.equal(mine, other) for mine, other in pairs)


def far(counts: Any, shares: Any) -> float:
    """The largest distance of counts from what shares expect, in standard errors."""
    counts, shares = np.asarray(counts), np.asarray(shares)
    total = counts.sum()
    return float(np.abs((counts - total * shares) / np.sqrt(total * shares * (1 - shares))).max())


# ---------------------------------------------------------------- shapes


def connected(size: int) -> set[frozenset[tuple[int, int]]]:
    """All connected sets of so many squares of the 3 × 3 grid."""

    def joined(squares: tuple[tuple[int, int], ...]) -> bool:
        reached, left = {squares[0]}, set(squares[1:])
        while near := {(r, c) for r, c in left if any(abs(r - y) + abs(c - x) == 1 for y, x in reached)}:
            reached, left = reached | near, left - near
        return not left

    grid = [(row, column) for row in range(3) for column in range(3)]
    return {frozenset(squares) for squares in combinations(grid, size) if joined(squares)}


def squares_of(masks: Any) -> set[frozenset[tuple[int, int]]]:
    return {frozenset(divmod(bit, 3) for bit in range(9) if mask >> bit & 1) for mask in masks.tolist()}


def flush(squares: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The same moved to the top left."""
    top, left = min(row for row, _ in squares), min(column for _, column in squares)
    return frozenset((row - top, column - left) for row, column in squares)


def turned(squares: frozenset[tuple[int, int]]) -> list[frozenset[tuple[int, int]]]:
    """In all eight orientations of the grid."""
    out = []
    for _ in range(4):
        squares = frozenset((column, 2 - row) for row, column in squares)
        out += [squares, frozenset((row, 2 - column) for row, column in squares)]
    return out


def test_hexominoes_are_all_48_connected_sets_of_six_squares():
    assert squares_of(polyominoes.HEXOS.masks) == connected(6)
    assert len(connected(6)) == 48


def test_pentominoes_are_37_and_every_one_that_fits_in_a_cell_in_every_orientation():
    shown = squares_of(polyominoes.PENTOS.masks)
    assert len(shown) == 37
    assert shown <= connected(5)
    assert {flush(one) for one in shown} == {flush(one) for one in connected(5)}
    assert all(other in shown for one in shown for other in turned(one))  # also where it is in its cell


@pytest.mark.parametrize("objects", [polyominoes.PENTOS, polyominoes.HEXOS])
def test_free_shapes_are_equally_frequent_and_so_are_the_orientations_of_each(objects):
    counts = Counter(objects.masks.tolist())
    for one in squares_of(objects.masks):
        orbit = set(turned(one))
        masks = [sum(1 << 3 * row + column for row, column in squares) for squares in orbit]
        assert [counts[mask] for mask in masks] == [8 // len(orbit)] * len(orbit)
    assert len(objects.masks) == 64


def test_the_colours_are_25_and_other_ones_where_objects_are_held_out():
    seen, other = set(polyominoes.SEEN_COLOURS), set(polyominoes.OTHER_COLOURS)
    assert len(seen) == len(other) == 25
    assert not seen & other
    assert {level for colour in seen for level in colour} == {0, 128, 255}
    assert {level for colour in other for level in colour} == {64, 144, 192}
    assert not {(0, 0, 0), (255, 255, 255), (64, 64, 64), (192, 192, 192)} & (seen | other)
    assert len(set(polyominoes.LUMINANCE.tolist())) == len(polyominoes.COLOURS)  # so leftof may ask for colours alone


@pytest.mark.parametrize("objects", [polyominoes.PENTOS, polyominoes.HEXOS, polyominoes.STRIPES])
def test_objects_that_are_to_differ_do(objects):
    source = np.random.default_rng(0)
    one = objects.drawn(20_000, source)
    two = objects.unlike(one, source)
    three = objects.unlike_both(one, two, source)
    assert (one != two).all()
    assert ((three != one) & (three != two)).all()


@pytest.mark.parametrize("objects", [polyominoes.PENTOS, polyominoes.HEXOS])
def test_another_colour_and_shape_are_as_frequent_as_when_drawn_alone(objects):
    for mask in (objects.masks[0], objects.masks[-1]):
        one = np.full(30_000, polyominoes.encoded(mask, 0, objects.first_colour + 3))
        both = np.ones(len(one), bool)
        changed = objects.changed(one, both, both, np.random.default_rng(1))
        shapes, _, colours, _ = polyominoes.decoded(changed)
        others = np.array([other for other in objects.masks if other != mask])
        values, weights = np.unique(others, return_counts=True)
        assert set(shapes.tolist()) == set(values.tolist())
        assert far(np.unique(shapes, return_counts=True)[1], weights / len(others)) < 4
        assert far(np.delete(np.bincount(colours - objects.first_colour), 3), np.full(24, 1 / 24)) < 4


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(("rule", "part"), PLAYED)
def test_the_answer_is_what_the_rule_says_of_the_pixels(rule, part):
    images, answers = pictured(rule, part, 400)
    assert [games.naive(rule, image) for image in images] == answers.tolist()


@pytest.mark.parametrize(("rule", "part"), PLAYED)
def test_every_answer_is_equally_frequent(rule, part):
    task = Game(rule)
    for count in (400, 33):
        counts = np.bincount(task.draw(part, count, np.random.default_rng(1))[1], minlength=task.output_size)
        assert counts.max() - counts.min() <= 1
    assert task.baseline()[f"accuracy{part}"] == 1 / task.output_size


@pytest.mark.parametrize("rule", ["same", "colourshape", "leftof"])
def test_two_objects_stand_in_any_two_cells(rule):
    codes, answers = Game(rule).draw("", 36_000, np.random.default_rng(2))
    cells = [combinations_number(np.flatnonzero(row)) for row in codes]
    for answer in range(Game(rule).output_size):
        counts = np.bincount(np.array(cells)[answers == answer], minlength=36)
        assert far(counts, np.full(36, 1 / 36)) < 4.5


def combinations_number(places: Any) -> int:
    return list(combinations(range(9), 2)).index(tuple(places.tolist()))


@pytest.mark.parametrize("part", ["", "@hexos"])
def test_unequal_pairs_of_same_differ_in_colour_in_shape_or_in_both(part):
    codes, answers = Game("same").draw(part, 20_000, np.random.default_rng(3))
    one, two = codes[codes > 0].reshape(-1, 2)[answers == 0].T
    (shape, _, colour, _), (other_shape, _, other_colour, _) = polyominoes.decoded(one), polyominoes.decoded(two)
    ways = (colour != other_colour) + 2 * (shape != other_shape)
    assert far(np.bincount(ways, minlength=4)[1:], np.full(3, 1 / 3)) < 4
    assert not (ways == 0).any()


def test_xoccurs_is_broken_by_an_absent_object_or_by_one_that_is_there_twice():
    codes, answers = Game("xoccurs").draw("", 8000, np.random.default_rng(4))
    top, bottom = codes[:, 1:2], codes[:, 6:]
    absent = ~(top == bottom).any(1)
    twice = np.array([len(set(row)) for row in bottom.tolist()]) == 2
    broken = answers == 0
    assert (absent | twice)[broken].all()
    assert far([absent[broken].sum(), (~absent)[broken].sum()], [0.5, 0.5]) < 4
    places = (top == bottom)[answers == 1]
    assert far(places.sum(0), np.full(3, 1 / 3)) < 4


def test_the_patterns_of_rowmatching_are_equally_frequent():
    codes, answers = Game("rowmatching").draw("", 8000, np.random.default_rng(5))
    found = [(games.pattern(row[:3]), games.pattern(row[6:])) for row in codes.tolist()]
    true = Counter(one for (one, _), answer in zip(found, answers, strict=True) if answer)
    false = Counter(pair for pair, answer in zip(found, answers, strict=True) if not answer)
    assert far([true[pattern] for pattern in games.PATTERNS], np.full(5, 1 / 5)) < 4
    assert len(false) == 20
    assert far(list(false.values()), np.full(20, 1 / 20)) < 4


def test_left_of_changes_its_answer_when_the_two_objects_change_places():
    images, answers = pictured("leftof", "@hexos", 300)
    cells = games.cells_of(images).copy()
    for shown in cells:
        one, two = np.flatnonzero(shown.any((1, 2, 3)))
        shown[[one, two]] = shown[[two, one]]
    swapped = games.whole(cells.transpose(0, 1, 4, 2, 3))
    assert [games.naive("leftof", image) for image in swapped] == (1 - answers).tolist()


def test_left_of_is_what_the_images_of_same_and_these_turned_give(tmp_path):
    images, labels = pictured("same", "", 6000, seed=6)
    np.savez(tmp_path / "same_pentos.npz", images=images, labels=labels[:, None], tasks=np.zeros((len(labels), 1)))
    derived = read_left_of(tmp_path / "same_pentos.npz")
    whole = games.whole(derived.cells[derived.which])
    assert [games.naive("leftof", image) for image in whole] == derived.labels.tolist()
    ours, answers = pictured("leftof", "", 6000, seed=7)
    for theirs, generated in zip(seen(whole, derived.labels), seen(ours, answers), strict=True):
        total, other = len(theirs), len(generated)
        size = 1 + max(theirs.max(), generated.max())
        shares, others = np.bincount(theirs, minlength=size) / total, np.bincount(generated, minlength=size) / other
        mixed = (total * shares + other * others) / (total + other)
        # an image of `same` and the same turned are not independent: twice the variance at most
        spread = np.sqrt(mixed * (1 - mixed) * (2 / total + 1 / other))
        assert np.abs((shares - others)[mixed > 0] / np.where(spread > 0, spread, 1)[mixed > 0]).max() < 4


def seen(images: Any, answers: Any) -> list[Any]:
    """What can be seen, as numbers: answer and first pixel, cells, equal shapes, shape and colour of the darker."""
    shown = games.cells_of(images)
    light = shown.max((2, 3)) @ np.array([2126, 7152, 722])
    dark, bright = np.where(light, light, light.max() + 1).argmin(1), light.argmax(1)
    every = np.arange(len(images))
    first, second = (shown[every, which].any(-1) for which in (dark, bright))
    begins = (first.any(2).argmax(1) - 1) % 3  # pixel 1, 4 or 7; or 2, 5 or 8
    corner = np.arange(2, 11, 3)
    squares = first[:, corner][:, :, corner].reshape(-1, 9) @ (1 << np.arange(9))
    colours = np.unique(light[every, dark], return_inverse=True)[1]
    return [2 * answers + begins, 9 * dark + bright, 2 * answers + (first == second).all((1, 2)), squares, colours]


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("rule", RULES)
def test_batches_depend_on_update_batch_and_seed_alone(rule):
    task, other = Game(rule), Game(rule)
    first = task.train(3, 8, seed=5)
    task.train(9, 8, seed=5)
    assert same(first, other.train(3, 8, seed=5))
    assert not same(first, task.train(4, 8, seed=5))
    assert not same(first, task.train(3, 8, seed=6))
    assert first.inputs.shape == (9, 8, 3, 12, 12)
    assert len(first.inputs.images) == len(torch.unique(first.inputs.images, dim=0))


@pytest.mark.parametrize("rule", RULES)
def test_held_out_data_are_fixed_and_do_not_depend_on_the_batch_size(rule):
    def all_of(batch: int) -> tuple[Any, Any, list[str]]:
        pieces = list(Game(rule, test_sequences=23).held_out("test", batch))
        inputs = torch.cat([piece.inputs.expanded() for piece in pieces], 1)
        return inputs, torch.cat([piece.targets for piece in pieces]), [piece.part for piece in pieces]

    inputs, targets, parts = all_of(23)
    assert tuple(parts) == Game(rule).parts
    for batch in (1, 7):
        again = all_of(batch)
        assert torch.equal(again[0], inputs)
        assert torch.equal(again[1], targets)


def test_held_out_parts_are_those_of_the_thesis():
    assert {rule: Game(rule).parts for rule in RULES} == {
        **dict.fromkeys(RULES[:5], ("", "@hexos", "@stripes")),
        **dict.fromkeys(RULES[5:], ("", "@hexos")),
    }
    assert TASKS["game"] is Game
    assert [Game(rule).output_size for rule in RULES] == [2, 2, 2, 2, 2, 4, 2]


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match=r"unknown rule 'betwen'\. Did you mean 'between'"):
        Game("betwen")


# ---------------------------------------------------------------- published files


def write(path: Path, rule: str = "between", part: str = "", count: int = 60, **changes: Any) -> Path:
    """A file as they are published; `changes` replaces arrays, None leaves one out."""
    images, labels = pictured(rule, part, count)
    arrays = {
        "images": images.astype(np.int64),
        "labels": labels[:, None],
        "tasks": np.zeros((count, 1), int),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def images_of(task: Game, split: str) -> list[bytes]:
    return [
        image.contiguous().numpy().tobytes()
        for batch in task.held_out(split, 100)
        for image in batch.inputs.expanded().transpose(0, 1)
    ]


@pytest.mark.parametrize("rule", RULES)
def test_files_are_read_as_they_were_written(rule, tmp_path):
    source = "same" if rule == "leftof" else rule
    stem = rules.RULES[rule].files[0]
    files = [
        write(tmp_path / f"mini_{stem}_pentos.npz", source),
        write(tmp_path / f"{stem}_hexos.npz", source, "@hexos", 40),
    ]
    task = Game(rule, path=tmp_path)
    assert task.parts == ("", "@hexos")
    assert task.data_files() == files
    batch = task.train(0, 9, seed=0)
    assert batch.inputs.shape == (9, 9, 3, 12, 12)
    shown = (batch.inputs.expanded().transpose(0, 1) * 255).round().numpy().astype(np.uint8)
    assert [games.naive(rule, image) for image in games.whole(shown)] == batch.targets.tolist()
    assert len(task.cells) < 9 * 60  # distinct cells only


def test_images_of_a_file_are_for_one_use_only_and_all_are_used(tmp_path):
    write(tmp_path / "between_pentos.npz", count=200)
    task = Game("between", path=tmp_path, valid_sequences=11, test_sequences=30)
    assert task.updates_per_epoch(10) == 15
    epoch = [task.train(update, 10, seed=1).inputs.expanded().transpose(0, 1) for update in range(15)]
    trained = [image.contiguous().numpy().tobytes() for batch in epoch for image in batch]
    uses = [set(trained), set(images_of(task, "valid")), set(images_of(task, "test"))]
    assert list(map(len, uses)) == [150, 11, 30]
    assert not uses[0] & uses[1]
    assert not uses[0] & uses[2]
    assert not uses[1] & uses[2]
    assert same(
        task.train(4, 10, seed=1), Game("between", path=tmp_path, valid_sequences=11, test_sequences=30).train(4, 10, 1)
    )


def test_labels_may_be_one_number_or_one_column_for_each_answer(tmp_path):
    images, labels = pictured("same", "", 20)
    for number, written in enumerate((labels, labels[:, None], np.eye(2)[labels])):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "same_pentos.npz", "same", count=20, images=images, labels=written, tasks=None)
        assert Game("same", path=folder).recorded[""][1].tolist() == labels.tolist()


def test_without_pentominoes_there_is_no_training_but_a_test(tmp_path):
    write(tmp_path / "1task_between_hexos.npz", part="@hexos")
    task = Game("between", path=tmp_path)
    assert task.parts == ("@hexos",)
    assert set(task.baseline()) == {"loss@hexos", "accuracy@hexos"}
    assert len(images_of(task, "test")) == 54
    with pytest.raises(
        InputError, match=r"training must have a file of pentominoes; got none in .*1task_between_pentos.npz"
    ):
        task.train(0, 4, seed=0)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no images": ({"images": None}, "lacks the array 'images'"),
    "no labels": ({"labels": None}, "lacks the array 'labels'"),
    "flat images": ({"images": np.zeros((60, 36 * 36 * 3), int)}, r"must be \(N, 36, 36, 3\) with N at least 10"),
    "few images": ({"images": np.zeros((3, 36, 36, 3), int)}, r"at least 10; got \(3, 36, 36, 3\)"),
    "large numbers": ({"images": np.full((60, 36, 36, 3), 256)}, "whole numbers from 0 to 255"),
    "negative numbers": ({"images": np.full((60, 36, 36, 3), -1)}, "whole numbers from 0 to 255"),
    "fractions": ({"images": np.full((60, 36, 36, 3), 0.5)}, "whole numbers from 0 to 255; got others, of float64"),
    "not numbers": ({"images": np.full((60, 36, 36, 3), np.nan)}, "whole numbers from 0 to 255"),
    "text": ({"images": np.full((60, 36, 36, 3), "a")}, "whole numbers from 0 to 255; got others, of <U1"),
    "a third answer": (
        {"labels": np.full((60, 1), 2)},
        r"one number below 2 for each of 60 images; got .* from 2 to 2",
    ),
    "half an answer": ({"labels": np.full((60, 1), 0.5)}, "one number below 2"),
    "too few labels": ({"labels": np.zeros((59, 1), int)}, "one number below 2 for each of 60 images"),
    "labels of three columns": ({"labels": np.zeros((60, 3), int)}, "one number below 2 for each of 60 images"),
    "words": (
        {"labels": np.full((60, 1), "yes")},
        r"one number below 2 for each of 60 images; got <U3 of shape \(60, 1\)\.",
    ),
    "several tasks": ({"tasks": np.arange(60)[:, None]}, "must be of one task; got several"),
    "objects": ({"tasks": np.array([{}] * 60)}, "must hold plain NumPy arrays"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(name, tmp_path):
    changes, said = BAD[name]
    write(tmp_path / "between_pentos.npz", **changes)
    with pytest.raises(InputError, match=said) as error:
        Game("between", path=tmp_path)
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_refused_in_one_sentence(tmp_path):
    path = write(tmp_path / "between_pentos.npz")
    content = path.read_bytes()
    for damaged in (b"", content[: len(content) // 2], content[:100] + bytes(100) + content[200:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"must be an undamaged file of NumPy arrays; got .*\. Copy it once more"):
            Game("between", path=tmp_path)


def test_folders_without_a_file_of_the_game_are_refused(tmp_path):
    with pytest.raises(InputError, match="`path` must be a folder"):
        Game("same", path=tmp_path / "nothing")
    with pytest.raises(
        InputError, match=r"must hold a file of the game; got none of same_pentos.npz, mini_same_pentos"
    ):
        Game("same", path=tmp_path)
    write(tmp_path / "same_hexos.npz", "between")
    with pytest.raises(InputError, match="must show two objects each; got 3 in one"):
        Game("leftof", path=tmp_path)


# ---------------------------------------------------------------- published images


@needs_files
@pytest.mark.parametrize("part", games.PARTS)
@pytest.mark.parametrize("name", [games.BETWEEN, games.COLUMNS])
def test_our_rules_give_every_published_label(name, part):
    assert games.right(f"{name}_{part}") == 5000


@needs_files
@pytest.mark.parametrize("part", games.PARTS)
def test_published_shapes_colours_and_cells_are_those_that_are_generated(part):
    for name, rule, number in ((games.BETWEEN, "between", 3), (games.COLUMNS, "rowmatching", 6)):
        (places, theirs), (our_places, ours) = (
            games.objects_of(images, count)
            for images, count in ((games.published(f"{name}_{part}"), 3), (games.generated(rule, part), number))
        )
        for feature in range(2):
            assert set(theirs[..., feature].ravel()) == set(ours[..., feature].ravel())
        if rule == "between":
            assert set(map(tuple, places.tolist())) == set(map(tuple, our_places.tolist()))
            assert len(set(map(tuple, places.tolist()))) == 84


@needs_files
def test_published_frequencies_are_those_of_the_generator():
    distances = {(one.file, one.what): np.abs(one.distances).max() for one in games.comparisons()}
    assert {what: distance for what, distance in distances.items() if distance >= 4} == {}
    assert len(distances) == 48


@needs_files
def test_the_page_is_what_is_made_of_the_files():
    assert games.PAGE.read_text() == games.page()


@needs_files
def test_published_files_are_a_test_without_training():
    assert DATA is not None
    task = Game("between", path=DATA / games.FOLDER)
    assert task.parts == ("@hexos", "@stripes")
    measured = list(task.held_out("test", 1500))
    assert [(piece.part, piece.inputs.shape[1]) for piece in measured] == [
        (part, count) for part in task.parts for count in (1500, 1500, 1500)
    ]
