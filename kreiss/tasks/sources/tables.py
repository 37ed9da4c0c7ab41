"""Sequences from tables: CSV and parquet files, DataFrames, columns in memory."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra
from kreiss.preprocessing.tables import Table, check_different, members, table_of
from kreiss.tasks.sources import data
from kreiss.tasks.sources.sequences import TIMES, Choice, Sequences, names_in

SEQUENCE = "number of the table"  # the column that tells tables of a list apart


def read_table(path: Path) -> Table:
    """The table of a CSV or parquet file."""
    return _parquet(path) if path.suffix == ".parquet" else _csv(path)


def _csv(path: Path) -> Table:
    """Columns of text by the names of the first line."""
    try:
        # a carriage return alone ends a line too
        lines = list(csv.reader(io.StringIO(data.read_path(path).decode("utf-8-sig"), newline=None)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a table of text in UTF-8; got {error}. Write it again as CSV.") from None
    names, rows = (lines or [[]])[0], lines[1:]
    check_different(str(path), names)
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None or not rows:
        raise InputError(
            f"{path} must have a line of names and then lines of {len(names)} cells; got "
            f"{f'{len(rows[wrong - 2])} in line {wrong}' if wrong else 'no further lines'}. Correct the file."
        )
    return Table(str(path), {name: np.array(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)},
                 written=True)  # fmt: skip


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("reading parquet", "parquet", "pyarrow") from None
    try:
        names = parquet.read_schema(path).names
        check_different(str(path), names)
        table = parquet.read_table(path, page_checksum_verification=True)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{path} must be a parquet file; got {reason}. Write it again.") from None
    return Table(str(path), {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in names})


def _a_table(data: Any) -> Table:
    table = table_of(data)
    if table is None:
        raise InputError(f"all of a list must be tables if the first is; got {type(data).__name__}. Convert it.")
    return table


def of_tables(tables: list[Any], choice: Choice) -> Sequences:
    """One table per sequence."""
    if choice.group:
        raise InputError(
            f"`group` must be left out for a list of tables, one per sequence; got {choice.group!r}. Leave it out."
        )
    return of_table(_joined([*map(_a_table, tables)]), replace(choice, group=SEQUENCE))


def _joined(tables: list[Table]) -> Table:
    """Tables of a list below each other, with a column that tells them apart."""
    names = list(tables[0].columns)
    if wrong := next((number for number, table in enumerate(tables) if [*table.columns] != names), None):
        raise InputError(
            f"tables of a list must have the same columns; got {', '.join(tables[wrong].columns)} in table {wrong} "
            f"where the first has {', '.join(names)}. Select them first."
        )
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in names}
    numbers = np.repeat(np.arange(len(tables)), [table.rows for table in tables])
    return Table(tables[0].name, {**columns, SEQUENCE: numbers})


def _features(table: Table, choice: Choice, others: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the inputs: those that are named, else all that are nothing else."""
    chosen, ignored = names_in(choice.inputs), names_in(choice.ignore)
    for name in (*others, *chosen, *ignored):
        table.check_name(name)
    rest = (name for name in table.columns if name not in (*others, *ignored) and name.lower() not in TIMES)
    found = chosen or tuple(rest)
    if not found:
        raise InputError(
            f"{table.name} must have columns besides {', '.join((*others, *ignored))}; got none. Add the inputs."
        )
    return found


def of_table(table: Table, choice: Choice) -> Sequences:
    """Rows in the order of time; `group` identifies the sequence of a row, `mask` the rows that count."""
    targets = _names(table, "targets", choice.targets) or ("target",)
    mask = next(iter(_names(table, "mask", choice.mask)), "")
    marks = tuple(name for name in (choice.group, mask) if name)
    features = _features(table, choice, (*targets, *marks))
    every, drop = choice.every, choice.missing == "drop"
    if drop:
        table = _without(table, [table.missing(name) for name in (*features, *marks)])
    if drop and every:  # of a row that does not count the target may be missing
        counted = table.numbers(mask).astype(bool) if mask else True
        table = _without(table, [table.missing(name) & counted for name in targets])
    inputs = np.stack([table.numbers(name) for name in features], 1)
    for name in (*(features if choice.missing == "error" else ()), *marks):
        table.check_present(name, cure=choice.cure)
    counted = table.numbers(mask).astype(bool) if mask else np.ones(table.rows, bool)
    if not counted.any():
        raise InputError(f"`mask` must leave a row; got zeros alone in column {mask!r} of {table.name}. Correct it.")
    rows = members(table.column(choice.group)) if choice.group else [np.arange(table.rows)]
    if drop and not every:
        rows = [part for part in rows if not any(table.missing(name)[part[-1]] for name in targets)]
    needed = counted if every else np.isin(np.arange(table.rows), [part[-1] for part in rows])
    for name in targets:
        table.check_present(name, needed, choice.cure)
    answers = np.stack([table.take(needed).column(name) for name in targets], 1)
    where = np.cumsum(needed) - 1  # of a row among those that are needed
    return Sequences(
        [inputs[part] for part in rows],
        [answers[where[part]] if every else answers[where[part[-1]]] for part in rows],
        [counted[part] for part in rows] if mask else None, features, targets,
    )  # fmt: skip


def _names(table: Table, option: str, given: Any) -> tuple[str, ...]:
    """Columns of a table that an option names."""
    listed = (
        given
        if isinstance(given, list | tuple)
        else [given or ""]
        if given is None or isinstance(given, str)
        else [given]
    )
    if not all(isinstance(name, str) for name in listed):
        raise InputError(f"`{option}` must name columns of {table.name}; got {type(given).__name__}. Name them.")
    return names_in(given)


def _without(table: Table, absent: list[NDArray[np.bool_]]) -> Table:
    """The table without rows in which something is missing."""
    kept = table.take(~np.any(absent, axis=0))
    if not kept.rows:
        raise InputError(f"{table.name} must have rows without missing cells; got none. Fill them, or use the mean.")
    return kept
