"""Tables: named columns, what is missing in them, and which rows belong to one sequence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, unknown_name

NOTHING = ("", "na", "n/a", "nan", "null", "none")  # cells of a column of numbers that hold none
MARKS = ("NAType", "NaTType")  # pandas' own marks of what is missing, by name: pandas is not needed
LONGEST = 1000  # characters of a cell


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, one row per step.

    Args:
        name: what messages call it, the path of a file for example.
        columns: by name.
        written: whether cells are text, as in a CSV file, and the type of a column follows from them.
        first: the line of the first row, if they are.
    """

    name: str
    columns: dict[str, NDArray[Any]]
    written: bool = False
    first: int = 2  # after the line of names

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def take(self, rows: NDArray[Any]) -> Table:
        """The table with these rows alone."""
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})

    def check_name(self, name: str) -> None:
        """Raise if there is no such column."""
        if name not in self.columns:
            raise unknown_name(f"column of {self.name}", name, self.columns)

    def missing(self, name: str) -> NDArray[np.bool_]:
        """Whether each cell of a column is missing."""
        values = self.columns[name]
        if values.dtype.kind == "f":
            return np.isnan(values)
        if values.dtype.kind not in "USO":
            return np.isnat(values) if values.dtype.kind in "mM" else np.zeros(len(values), bool)
        if self.written:
            whole = _parsed(self.name, name, values)
            if whole.dtype.kind in "if":
                return np.isnan(whole)
            nothing = np.array([cell.strip().lower() in NOTHING for cell in values], bool)
            if _parsed(self.name, name, values[~nothing]).dtype.kind in "if":
                return nothing
        return np.array([_is_missing(value) for value in values], bool)

    def column(self, name: str) -> NDArray[Any]:
        """Whole numbers, else numbers (NaN where one is missing), else text."""
        values, missing = self.columns[name], self.missing(name)
        if not self.written and values.dtype.kind != "O":
            return values
        there = values[~missing]
        there = _parsed(self.name, name, there) if self.written else _of_objects(self.name, name, there)
        if not missing.any():
            return there
        numbers = there.dtype.kind in "biuf"
        filled = np.full(len(values), math.nan if numbers else "", there.dtype if not numbers else np.float64)
        filled[~missing] = there
        return filled

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of finite numbers, NaN where one is missing."""
        values = self.column(name)
        if values.dtype.kind not in "biuf":
            example = f", such as {str(values[0])!r}" if values.size else ""
            raise InputError(
                f"column {name!r} of {self.name} must be numbers; got {values.dtype}{example}. Leave it out with "
                "`ignore`, or code it as numbers."
            )
        values = values.astype(np.float64)
        if np.isinf(values).any():
            raise InputError(
                f"column {name!r} of {self.name} must be finite; got Inf in {self.where(np.isinf(values))}. Correct it."
            )
        return values

    def where(self, rows: NDArray[Any]) -> str:
        """The first of some rows in words, and how many more there are."""
        first, more = int(np.flatnonzero(rows)[0]), int(rows.sum()) - 1
        place = f"line {first + self.first}" if self.written else f"row {first}"
        return place + (f" and {more} more" if more else "")

    def check_present(self, name: str, needed: NDArray[np.bool_] | None = None, cure: str = "") -> None:
        """Raise for a missing cell, in the rows where one is needed."""
        absent = self.missing(name) if needed is None else self.missing(name) & needed
        if absent.any():
            raise InputError(
                f"column {name!r} of {self.name} must have a value in every row; got none in {self.where(absent)}. "
                f"Fill it{cure}."
            )


def members(groups: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows of each group, groups in the order of their first row."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rows = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [rows[number] for number in np.argsort(first)]


def table_of(data: Any, name: str = "the table") -> Table | None:
    """A DataFrame, a dict of columns or a list of rows (dicts) as a table; None for anything else."""
    if isinstance(data, Table):
        return data
    if isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        if any(np.ndim(value) for value in data[0].values()):
            return None  # a list of tables
        if uneven := next((number for number, row in enumerate(data) if row.keys() != data[0].keys()), None):
            raise InputError(f"rows of {name} must have the same names; got others in row {uneven}. Complete them.")
        data = {key: [row[key] for row in data] for key in data[0]}
    if not isinstance(data, Mapping) and not (hasattr(data, "columns") and hasattr(data, "to_numpy")):
        return None
    names = [str(key) for key in (data if isinstance(data, Mapping) else data.columns)]
    check_different(name, names)
    columns = {str(key): _array(data[key]) for key in (data if isinstance(data, Mapping) else data.columns)}
    shapes = {values.shape for values in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or shapes == {(0,)}:
        found = ", ".join(f"{key} {values.shape}" for key, values in columns.items())
        raise InputError(f"columns of {name} must be of one length and not empty; got {found or 'none'}. Correct them.")
    return Table(name, columns)


def check_different(name: str, names: list[str]) -> None:
    """Raise for two columns of one name."""
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"columns of {name} must have different names; got {twice[0]!r} more than once. Rename it.")


def _array(column: Any) -> NDArray[Any]:
    """A column as an array; text with missing cells as objects."""
    values = np.asarray(column)
    mixed = values.dtype.kind in "US" and not all(isinstance(value, str | bytes) for value in column)
    return np.asarray(column, object) if mixed else values


def _is_missing(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in MARKS


def _of_objects(table: str, name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Objects as numbers or text."""
    for kind, form in ((Real, None), (str, str)):
        if all(isinstance(value, kind) for value in values):
            return np.array(values.tolist(), form)
    wrong = next(type(value).__name__ for value in values if not isinstance(value, str))
    raise InputError(f"column {name!r} of {table} must be numbers or text; got {wrong}. Write it as one of them.")


def _parsed(table: str, name: str, cells: NDArray[Any]) -> NDArray[Any]:
    """Cells of a file as whole numbers, else as numbers, else as they are."""
    if (longest := max(map(len, cells), default=0)) > LONGEST:
        raise InputError(
            f"cells of {table} must have at most {LONGEST} characters; got {longest} in column {name!r}. Shorten it."
        )
    for kind in (np.int64, np.float64):
        try:
            return cells.astype(kind)
        except ValueError:
            continue
        except OverflowError:
            raise InputError(
                f"whole numbers in column {name!r} of {table} must fit in 64 bits; got larger ones. Write numbers with "
                "a decimal point, and names with a letter."
            ) from None
    return cells
