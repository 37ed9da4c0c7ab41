"""A user's own sequences from NumPy, CSV or parquet files."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra, check_name, unknown_name

FORMATS = (".npz", ".npy", ".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Sequences:
    """Inputs (T_i, D) of each sequence, and its targets: (T_i, K) with one answer per step, (K,) with one in all."""

    inputs: list[NDArray[Any]]
    targets: list[NDArray[Any]]


def load(path: Path, targets: Path | None, target: str, group: str, every: bool) -> Sequences:
    """Sequences of a file, see `kreiss.tasks.Sequence`."""
    for file in [path, *([targets] if targets else [])]:
        if not file.is_file():
            raise InputError(f"a data file must exist; got {file}, which does not. Check the path.")
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    check_name("format", kind, FORMATS)
    if kind == ".npz":
        arrays = _numpy(path)
        for name in ("inputs", "targets"):
            if name not in arrays:
                raise unknown_name(f"{path} lacks the array", name, arrays)
        return _from_arrays(path, arrays["inputs"], arrays["targets"], arrays.get("lengths"), every)
    if kind == ".npy":
        if targets is None:
            raise InputError(f"`targets` must be given with a .npy file; got only {path}. Pass targets=… or use .npz.")
        return _from_arrays(path, _numpy(path), _numpy(targets), None, every)
    columns = _parquet(path) if kind == ".parquet" else _csv(path)
    return _from_columns(path, columns, target, group, every)


# ---------------------------------------------------------------- arrays


def _numpy(path: Path) -> Any:
    """An array, or the arrays of an .npz by name; files that would run code are refused."""
    try:
        found = np.load(path, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{path} must hold plain NumPy arrays; got {reason}. Save numbers, not objects.") from None


def _from_arrays(
    path: Path, inputs: NDArray[Any], targets: NDArray[Any], lengths: NDArray[Any] | None, every: bool
) -> Sequences:
    """Inputs (N, T) or (N, T, D); targets (N, T) or (N, T, K) per step, (N,) or (N, K) at the end."""
    wanted = inputs.shape[:2] if every else inputs.shape[:1]
    rank = len(wanted)
    if inputs.ndim not in (2, 3) or targets.ndim not in (rank, rank + 1) or targets.shape[:rank] != wanted:
        raise InputError(
            f"inputs must be (N, T) or (N, T, D) and targets {'(N, T) or (N, T, K)' if every else '(N,) or (N, K)'}; "
            f"got {inputs.shape} and {targets.shape} in {path}. Reshape them, or pass "
            f'answers="{"last" if every else "every"}".'
        )
    inputs, targets = inputs.reshape(*inputs.shape[:2], -1), targets.reshape(*wanted, -1)
    count, steps = inputs.shape[:2]
    ends = np.full(count, steps) if lengths is None else np.asarray(lengths)
    if ends.shape != (count,) or not ((ends >= 1) & (ends <= steps)).all():
        raise InputError(
            f"lengths must be {count} numbers from 1 to {steps}; got {ends.shape} from {ends.min(initial=0)} to "
            f"{ends.max(initial=0)} in {path}. Correct them."
        )
    _check_numbers(path, "inputs", inputs)
    return Sequences(
        [part[:end] for part, end in zip(inputs, ends, strict=True)],
        [part[:end] if every else part for part, end in zip(targets, ends, strict=True)],
    )


# ---------------------------------------------------------------- columns


def _csv(path: Path) -> dict[str, NDArray[Any]]:
    """Columns by the names of the first line: whole numbers, else numbers, else text."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    names, *rows = csv.reader(io.StringIO(raw.decode("utf-8-sig"))) or [[]]
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None or not rows:
        raise InputError(
            f"{path} must have a line of names and then lines of {len(names)} cells; got "
            f"{f'{len(rows[wrong - 2])} in line {wrong}' if wrong else 'no further lines'}. Correct the file."
        )
    return {name: _column(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}


def _column(cells: tuple[str, ...]) -> NDArray[Any]:
    for kind in (np.int64, np.float64):
        try:
            return np.array(cells).astype(kind)
        except ValueError:
            continue
    return np.array(cells)


def _parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise MissingExtra("reading parquet", "parquet", "pyarrow") from None
    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise InputError(f"{path} must be a parquet file; got {str(error).rstrip('.')}. Write it again.") from None
    return {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}


def _from_columns(path: Path, columns: dict[str, NDArray[Any]], target: str, group: str, every: bool) -> Sequences:
    """Rows in the order of time; `group` says which sequence a row belongs to."""
    answers = [name.strip() for name in target.split(",")]
    for name in [*answers, *([group] if group else [])]:
        if name not in columns:
            raise unknown_name(f"column of {path}", name, columns)
    features = [name for name in columns if name not in (*answers, group)]
    if not features:
        raise InputError(f"{path} must have columns besides {target} and {group}; got none. Add the inputs.")
    for name in features:
        _check_numbers(path, f"column {name!r}", columns[name])
    inputs = np.stack([columns[name].astype(np.float64) for name in features], 1)
    targets = np.stack([columns[name] for name in answers], 1)
    members = _members(columns[group]) if group else [np.arange(len(inputs))]
    return Sequences(
        [inputs[rows] for rows in members], [targets[rows] if every else targets[rows[-1]] for rows in members]
    )


def _members(groups: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows of each group, groups in the order of their first row."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rows = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [rows[number] for number in np.argsort(first)]


def _check_numbers(path: Path, what: str, values: NDArray[Any]) -> None:
    if values.dtype.kind not in "biuf":
        raise InputError(f"{what} of {path} must be numbers; got {values.dtype}. Leave it out or code it as numbers.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise InputError(f"{what} of {path} must be finite; got {bad} NaN or Inf entries. Remove or fill them first.")
