"""A user's own sequences, and what is what in the data that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TIMES = ("time", "timestamp", "date", "datetime")  # columns that are no inputs unless they are named as such


@dataclass(frozen=True)
class Sequences:
    """Inputs (T_i, D) of each sequence, and its targets: (T_i, K) with one answer per step, (K,) with one in all.

    Args:
        inputs: numbers; NaN where one is missing and is to be filled with a mean.
        targets: numbers or text.
        masks: whether each step (T_i,) counts; None if all do.
        columns: names of the inputs, if they have names.
        names: names of the targets, if they have names.
    """

    inputs: list[NDArray[Any]]
    targets: list[NDArray[Any]]
    masks: list[NDArray[np.bool_]] | None = None
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def part(self, members: list[tuple[int, slice]]) -> Sequences:
        """Pieces of sequences, by the index of the sequence and its steps."""
        cut = lambda parts: [parts[owner][steps] for owner, steps in members]  # noqa: E731
        masks = None if self.masks is None else cut(self.masks)
        return Sequences(cut(self.inputs), cut(self.targets), masks, self.columns, self.names)


@dataclass(frozen=True)
class Choice:
    """What is what in the data, see `kreiss.tasks.Sequence`."""

    inputs: Any = None
    targets: Any = None
    ignore: Any = ""
    group: str = ""
    mask: Any = None
    missing: str = "error"
    every: bool = True

    @property
    def cure(self) -> str:
        """What can be done about a missing cell."""
        if self.missing == "mean":
            return ", or set `missing` (--task.missing) to drop, which leaves it out"
        return ", or set `missing` (--task.missing) to mean, for inputs, or to drop, which leaves it out"


def names_in(given: Any) -> tuple[str, ...]:
    """Names of columns, as a list or separated by commas."""
    listed = given.split(",") if isinstance(given, str) else list(given or ())
    return tuple(str(name).strip() for name in listed if str(name).strip())
