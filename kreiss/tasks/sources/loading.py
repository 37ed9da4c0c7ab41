"""A user's own data in any of the forms that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kreiss.errors import InputError, check_name
from kreiss.preprocessing.tables import Table, table_of
from kreiss.tasks.sources import arrays, tables
from kreiss.tasks.sources.sequences import Choice, Sequences

FORMATS = (".npz", ".npy", ".csv", ".csv.gz", ".parquet")


def load(source: Any, choice: Choice) -> Sequences:
    """Sequences of a file, or of arrays and tables in memory."""
    if isinstance(source, str | Path):
        return _of_file(Path(source), choice)
    if isinstance(source, Mapping) and np.ndim(source.get("inputs", 0)) > 1:
        return arrays.of_named(source, "the arrays", choice)
    if (table := table_of(source)) is not None:
        return tables.of_table(table, choice)
    if isinstance(source, list | tuple) and len(source):
        if table_of(source[0]) is not None:
            return tables.of_tables(list(source), choice)
        if isinstance(source[0], list | tuple) or getattr(source[0], "ndim", 0) > 0:
            return arrays.of_lists("the arrays", [*map(arrays.plain, source)], choice.targets, choice.mask, choice)
    return arrays.of_arrays("the arrays", arrays.plain(source), choice.targets, None, choice.mask, choice)


def _of_file(path: Path, choice: Choice) -> Sequences:
    kind = kind_of(path)
    if kind == ".npz":
        return arrays.of_named(arrays.packed_arrays(path), str(path), choice)
    if kind != ".npy":
        return tables.of_table(tables.read_table(path), choice)
    if choice.targets is None:
        raise InputError(f"`targets` must be given with a .npy file; got only {path}. Pass targets=… or use .npz.")
    answers = choice.targets
    if isinstance(answers, str | Path):
        kind_of(Path(answers))
        answers = arrays.read_array(Path(answers))
    return arrays.of_arrays(str(path), arrays.read_array(path), answers, None, choice.mask, choice)


def kind_of(path: Path) -> str:
    """The format of a file that exists, by its ending."""
    if not path.is_file():
        raise InputError(f"a data file must exist; got {path}, which does not. Check the path.")
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    check_name("format", kind, FORMATS)
    return kind


def read_table(path: Path) -> Table:
    """The table of a CSV or parquet file; an error for any other."""
    if kind_of(path) not in (".csv", ".csv.gz", ".parquet"):
        raise InputError(f"`{path}` must be a table, .csv or .parquet; got an array. Pass the array itself.")
    return tables.read_table(path)
