"""The base of tasks whose objects are glyphs, some of which are never shown in training."""

from __future__ import annotations

import copy
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, check_size
from kreiss.tasks.relational.base import SEEN, Drawn, Relational
from kreiss.tasks.sources.images import image_files, read_images

UNSEEN = "@unseen"
COLOURS = 100


class GlyphOptions(TypedDict, total=False):
    """Options that every task of glyphs has."""

    held_out: int
    split: int | None
    images: str | Path
    colour: bool
    valid_sequences: int
    test_sequences: int


class Glyphs(Relational):
    """Sequences of glyphs: 100 distinct ones of 32 × 32, or those of a folder, grey ones repeated in three channels.

    `held_out` of them are never shown in training. Test and validation have two parts: seen glyphs, as in training, and
    held-out ones, whose metrics end in @unseen. With `held_out=0` both parts show all glyphs.

    With `colour=True` every image is multiplied by one of 100 colours, drawn independently and the same in training and
    test, so that the background is coloured and says nothing: a spurious feature (thesis, 5.4.3).

    Args:
        held_out: m, glyphs that are not shown in training.
        split: seed of the choice of these; the seed of the run by default.
        images: "glyphs", or the path of a folder of images of one size.
        colour: whether backgrounds are coloured at random.
        valid_sequences: size of each part of the validation set.
        test_sequences: size of each part of the test set.
    """

    parts = (SEEN, UNSEEN)
    paths: ClassVar = {"images": ("glyphs",)}

    def __init__(
        self,
        *,
        held_out: int = 0,
        split: int | None = None,
        images: str | Path = "glyphs",
        colour: bool = False,
        valid_sequences: int = 500,
        test_sequences: int = 10_000,
    ) -> None:
        super().__init__(valid_sequences=valid_sequences, test_sequences=test_sequences)
        self.images = images
        self.glyphs = read_images(self.images)
        self.image = (3, *self.glyphs.shape[2:])
        self.colour = bool(colour)
        self._check_shapes(check_size("held_out", held_out, minimum=0))
        self.split = split
        self._choose(0 if self.split is None else check_size("split", self.split, minimum=0))
        # white first, then the colours of the public code
        self.colours = np.concatenate([np.ones((1, 3)), np.random.RandomState(0).rand(COLOURS, 3)]).astype(np.float32)

    def for_run(self, seed: int) -> Self:
        """The same task, holding out the glyphs that the seed of a run chooses, unless `split` does."""
        if self.split is not None:
            return self
        other = copy.copy(self)
        other._validation = {}
        other._choose(seed)
        return other

    def data_files(self) -> list[Path]:
        return [] if self.images in self.paths["images"] else image_files(Path(self.images))

    def _choose(self, split: int) -> None:
        order = np.random.default_rng(split % 2**64).permutation(len(self.glyphs))
        self.shapes = {SEEN: order[self.unseen :], UNSEEN: order[: self.unseen] if self.unseen else order}

    def _check_shapes(self, held_out: int) -> None:
        self.unseen, total = held_out, len(self.glyphs)
        seen, unseen = self.needed(SEEN), self.needed(UNSEEN)
        if total < (most := max(seen, unseen)):
            raise InputError(
                f"{type(self).__name__} with these options needs {most} images; got {total}. Give a folder with more, "
                "or make its sequences shorter."
            )
        if total - held_out < seen or 0 < held_out < unseen or total < unseen:
            raise InputError(
                f"`held_out` must leave {seen} of the {total} images for training, and be 0 or at least {unseen} for "
                f"the test; got held_out={held_out}. Pass 0, or {unseen} to {total - seen}."
            )

    @abstractmethod
    def needed(self, part: str) -> int:
        """Distinct glyphs in a sequence of a part, at most."""

    def dressed(self, which: NDArray[Any], source: np.random.Generator) -> NDArray[Any]:
        """The glyphs with their colours: integers from which `pictures` makes images."""
        if not self.colour:
            return which
        return which + len(self.glyphs) * source.integers(1, COLOURS + 1, size=which.shape)

    def pictures(self, which: NDArray[Any]) -> NDArray[Any]:
        if not self.colour:
            return self.glyphs[which]
        colour, glyph = np.divmod(which, len(self.glyphs))
        return self.glyphs[glyph] * self.colours[colour][:, :, None, None]


def no_colour(task: Glyphs) -> None:
    """Raise if backgrounds are to be coloured where they cannot be."""
    if task.colour:
        raise InputError(f"`colour` must be left out of {type(task).__name__}; got colour=True. Leave it out.")


def in_turn(count: int, kinds: int, source: np.random.Generator) -> NDArray[Any]:
    """Numbers below `kinds`, each equally often; chance says which comes up short."""
    return (np.arange(count) + source.integers(kinds)) % kinds


class Arranged(Glyphs):
    """Sequences whose glyphs are drawn without replacement, and put in places that do not depend on which they are."""

    @abstractmethod
    def arranged(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        """Which of its glyphs is where in each sequence (count, objects), below `needed`, and the answers."""

    def draw(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        roles, answers = self.arranged(part, count, source)
        drawn = source.permuted(np.tile(self.shapes[part], (count, 1)), axis=1)[:, : self.needed(part)]
        return self.dressed(np.take_along_axis(drawn, roles, 1), source), answers


class Patterned(Arranged):
    """Sequences that follow one of a few patterns of letters, each letter a glyph: AABBCD.

    `groups` gives lists of (pattern, answer); every list is drawn equally often, and so is every pattern of a list.
    """

    @abstractmethod
    def groups(self, part: str) -> list[list[tuple[str, int]]]:
        """Patterns with their answers."""

    def needed(self, part: str) -> int:
        return max(len(set(pattern)) for group in self.groups(part) for pattern, _ in group)

    def arranged(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        tables = self._tables(part)
        chosen = in_turn(count, len(tables), source)
        roles = np.empty((count, tables[0][0].shape[1]), np.int64)
        answers = np.empty(count, np.int64)
        for number, (patterns, right) in enumerate(tables):
            here = np.flatnonzero(chosen == number)
            which = source.integers(len(right), size=len(here))
            roles[here], answers[here] = patterns[which], right[which]
        return roles, answers

    def _tables(self, part: str) -> list[Drawn]:
        """The groups as arrays of letters' numbers and of answers; made once."""
        tables: dict[str, list[Drawn]] = self.__dict__.setdefault("_made", {})
        if part not in tables:
            tables[part] = [
                (
                    np.array([[ord(c) - ord("A") for c in pattern] for pattern, _ in group]),
                    np.array([a for _, a in group]),
                )
                for group in self.groups(part)
            ]
        return tables[part]
