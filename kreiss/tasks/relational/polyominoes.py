"""The objects of relational games: pentominoes, hexominoes and stripes, as integers from which images are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]

CELL, BLOCK, SQUARES = 12, 3, 9  # pixels of a cell and of a square of an object; squares of an object

# one drawing of each; the eight rotations and reflections of the 3 × 3 array give the others
PENTOMINOES = (
    ".##/##./.#.", "##./##./#..", "###/.#./.#.", "#.#/###/...",  # F, P, T, U
    "#../#../###", "#../##./.##", ".#./###/.#.", "##./.#./.##",  # V, W, X, Z
)  # fmt: skip
HEXOMINOES = (
    "##./###/#..", "#.#/###/.#.", "###/###/...", ".##/###/#..",
    "###/#.#/#..", "###/##./#..", "#.#/###/#..", "##./###/.#.",
)  # fmt: skip
OUTER = 0b101101101  # the squares of the first and third column


def palette(values: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """The 25 colours of three levels without the darkest and the brightest."""
    return [colour for colour in product(values, repeat=3) if set(colour) not in ({values[0]}, {values[2]})]


SEEN_COLOURS, OTHER_COLOURS = palette((0, 128, 255)), palette((64, 144, 192))
COLOURS = np.array([(0, 0, 0), *SEEN_COLOURS, *OTHER_COLOURS])  # black first
PALETTE = len(SEEN_COLOURS)
LUMINANCE = COLOURS @ [0.2126, 0.7152, 0.0722]

# A code is mask + 512 · (rest + 51 · (colour + 51 · moved)): nine squares, those in the mask of one colour, the rest of
# another; `moved` objects begin at pixel 2 of their cell and not at pixel 1. A blank cell is 0.
MASKS = 2**SQUARES
BLANK, MOVED = 0, MASKS * len(COLOURS) ** 2


def encoded(mask: Any, rest: Any, colour: Any) -> Codes:
    """The codes of objects."""
    return np.asarray(mask + MASKS * (rest + len(COLOURS) * colour), np.int64)


def decoded(codes: Codes) -> tuple[Codes, Codes, Codes, Codes]:
    """Mask, colours of the rest and of the mask, and whether an object is moved."""
    colours, mask = np.divmod(codes, MASKS)
    colours, rest = np.divmod(colours, len(COLOURS))
    moved, colour = np.divmod(colours, len(COLOURS))
    return mask, rest, colour, moved


def luminance(codes: Codes) -> NDArray[np.float64]:
    """Of the colour of shapes."""
    return np.asarray(LUMINANCE[decoded(codes)[2]])


def images(codes: Codes) -> NDArray[np.float64]:
    """The cells (K, 3, 12, 12), in [0, 1], that codes (K,) stand for."""
    mask, rest, colour, moved = decoded(codes)
    inside = (mask[:, None] >> np.arange(SQUARES)) % 2 == 1
    squares = np.where(inside[..., None], COLOURS[colour][:, None], COLOURS[rest][:, None]) / 255.0  # (K, 9, 3)
    object_ = squares.reshape(-1, 3, 3, 3).repeat(BLOCK, 1).repeat(BLOCK, 2).transpose(0, 3, 1, 2)
    cells = np.zeros((len(codes), 3, CELL, CELL))
    for first in (1, 2):
        here = moved == first - 1
        cells[here, :, first : first + object_.shape[2], first : first + object_.shape[3]] = object_[here]
    return cells


def oriented(drawings: tuple[str, ...]) -> Codes:
    """Eight masks of each drawing, equal ones next to each other."""
    squares = [np.array([list(row) for row in drawing.split("/")]) == "#" for drawing in drawings]
    turned = [[np.rot90(array, turns) for turns in range(4) for array in (square, square.T)] for square in squares]
    masks = [sorted(int(turn.ravel() @ (1 << np.arange(SQUARES))) for turn in turns) for turns in turned]
    return np.array(masks).ravel()


class Objects(ABC):
    """A family of objects, and how to draw one that differs from another.

    `ways` is the number of ways in which two objects are made to differ.
    """

    ways: int

    @abstractmethod
    def drawn(self, size: int | tuple[int, ...], source: np.random.Generator) -> Codes:
        """Objects, each drawn alone."""

    @abstractmethod
    def unlike(self, objects: Codes, source: np.random.Generator) -> Codes:
        """For each object another one that differs from it."""

    def unlike_both(self, one: Codes, two: Codes, source: np.random.Generator) -> Codes:
        """Objects that differ from two, made from either of them."""
        made_from = np.where(source.random(one.shape) < 0.5, one, two)
        out = self.unlike(made_from, source)
        while len(again := np.flatnonzero((out == one) | (out == two))):
            out[again] = self.unlike(made_from[again], source)
        return out


class Shapes(Objects):
    """Polyominoes: every free shape equally often, each of its orientations equally often, in one of 25 colours.

    Two objects differ in colour only, in shape only (another shape, or another orientation), or in both, each a third.
    """

    ways = 3

    def __init__(self, drawings: tuple[str, ...], first_colour: int) -> None:
        self.masks, self.first_colour = oriented(drawings), first_colour
        distinct, self.starts, self.copies = np.unique(self.masks, return_index=True, return_counts=True)
        self.number = np.zeros(MASKS, np.int64)  # of each mask, among distinct ones
        self.number[distinct] = np.arange(len(distinct))

    def drawn(self, size: int | tuple[int, ...], source: np.random.Generator) -> Codes:
        masks = self.masks[source.integers(len(self.masks), size=size)]
        return encoded(masks, 0, self.first_colour + source.integers(PALETTE, size=size))

    def unlike(self, objects: Codes, source: np.random.Generator) -> Codes:
        way = source.integers(self.ways, size=objects.shape)
        return self.changed(objects, way != 0, way != 1, source)

    def changed(
        self, objects: Codes, colour: NDArray[np.bool_], shape: NDArray[np.bool_], source: np.random.Generator
    ) -> Codes:
        """Objects with another colour, another shape, or both, where it is asked for."""
        mask, rest, own, _ = decoded(objects)
        step = source.integers(1, PALETTE, size=objects.shape)
        other = self.first_colour + (own - self.first_colour + step) % PALETTE
        return encoded(np.where(shape, self._other_masks(mask, source), mask), rest, np.where(colour, other, own))

    def _other_masks(self, masks: Codes, source: np.random.Generator) -> Codes:
        """As likely as when drawn alone, given that they differ: any place of the list but those of the mask."""
        number = self.number[masks]
        copies = self.copies[number]
        step = source.integers(len(self.masks) - copies)
        return np.asarray(self.masks[(self.starts[number] + copies + step) % len(self.masks)])


class Stripes(Objects):
    """Squares of three vertical stripes, the outer two of one colour; both are drawn from 25 and may be equal."""

    ways = 1

    def __init__(self, first_colour: int) -> None:
        self.first_colour = first_colour

    def drawn(self, size: int | tuple[int, ...], source: np.random.Generator) -> Codes:
        return self._made(source.integers(PALETTE**2, size=size))

    def unlike(self, objects: Codes, source: np.random.Generator) -> Codes:
        _, inner, outer, _ = decoded(objects)
        own = inner - self.first_colour + PALETTE * (outer - self.first_colour)
        return self._made((own + source.integers(1, PALETTE**2, size=objects.shape)) % PALETTE**2)

    def _made(self, pair: Codes) -> Codes:
        outer, inner = np.divmod(pair, PALETTE)
        return encoded(OUTER, self.first_colour + inner, self.first_colour + outer)


PENTOS = Shapes(PENTOMINOES, first_colour=1)
HEXOS = Shapes(HEXOMINOES, first_colour=1 + PALETTE)
STRIPES = Stripes(first_colour=1 + PALETTE)
