"""What a network answers, in the words of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Answers:
    """The answers to one sequence: one per step, or one in all.

    Attributes:
        names: of the columns of `numbers`: the targets, or the classes.
        numbers: (T, K), or (K,) for one answer: in the units of the data, or the probability of each class.
        classes: the most probable class of each step (T,), or the one of the sequence; None if numbers were asked for.
    """

    names: tuple[Any, ...]
    numbers: NDArray[Any]
    classes: Any = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row of plain values per answer: of each target, or the class and the probability of each."""
        steps = [[float(str(x)) for x in step] for step in np.atleast_2d(self.numbers)]  # no digits beyond precision
        if self.classes is None:
            yield from (dict(zip(map(str, self.names), step, strict=True)) for step in steps)
            return
        for name, step in zip(np.atleast_1d(self.classes).tolist(), steps, strict=True):
            yield {"class": name, **{f"p({key})": value for key, value in zip(self.names, step, strict=True)}}
