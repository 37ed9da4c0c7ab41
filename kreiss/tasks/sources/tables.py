"""A user's own sequences from NumPy, CSV or parquet files."""

from __future__ import annotations

import csv
import io
import tokenize
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra, check_name, unknown_name
from kreiss.tasks.sources import data

FORMATS = (".npz", ".npy", ".csv", ".csv.gz", ".parquet")
LONGEST = 1000  # characters of a cell

# what NumPy's reader and those of zip archives and Python literals below it raise for damaged files
DAMAGED = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, MemoryError, OverflowError, RecursionError,
    SyntaxError, tokenize.TokenError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


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
        arrays = packed_arrays(path)
        for name in ("inputs", "targets"):
            if name not in arrays:
                raise unknown_name(f"{path} lacks the array", name, arrays)
        return _from_arrays(path, arrays["inputs"], arrays["targets"], arrays.get("lengths"), every)
    if kind == ".npy":
        if targets is None:
            raise InputError(f"`targets` must be given with a .npy file; got only {path}. Pass targets=… or use .npz.")
        return _from_arrays(path, _array(path), _array(targets), None, every)
    columns = _parquet(path) if kind == ".parquet" else _csv(path)
    return _from_columns(path, columns, target, group, every)


# ---------------------------------------------------------------- arrays


def _array(path: Path) -> NDArray[Any]:
    """The array of an .npy; files that would run code are refused."""
    try:
        array = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        raise _not_plain(path, error) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} must hold one array; got an archive of several. Rename it to .npz.")
    return array


def packed_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz by name."""
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
    except DAMAGED as error:
        raise _not_plain(path, error) from None
    data.check_unpacked(path, size)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        raise _not_plain(path, error) from None


def _not_plain(path: Path, error: BaseException) -> InputError:
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return InputError(
        f"{path} must hold plain NumPy arrays; got {reason}. Save numbers, not objects, and save it again."
    )


def _from_arrays(
    path: Path, inputs: NDArray[Any], targets: NDArray[Any], lengths: NDArray[Any] | None, every: bool
) -> Sequences:
    """Inputs (N, T) or (N, T, D); targets (N, T) or (N, T, K) per step, (N,) or (N, K) at the end."""
    leading = inputs.shape[:2] if every else inputs.shape[:1]
    rank = len(leading)
    if (
        not inputs.size
        or inputs.ndim not in (2, 3)
        or targets.ndim not in (rank, rank + 1)
        or targets.shape[:rank] != leading
    ):
        raise InputError(
            f"inputs must be (N, T) or (N, T, D) and targets {'(N, T) or (N, T, K)' if every else '(N,) or (N, K)'}; "
            f"got {inputs.shape} and {targets.shape} in {path}. Reshape them, or pass "
            f'answers="{"last" if every else "every"}".'
        )
    inputs, targets = inputs.reshape(*inputs.shape[:2], -1), targets.reshape(*leading, -1)
    count, steps = inputs.shape[:2]
    ends = np.full(count, steps) if lengths is None else np.asarray(lengths)
    if ends.dtype.kind not in "iu":
        raise InputError(f"lengths of {path} must be whole numbers; got {ends.dtype}. Convert them with astype(int).")
    if ends.shape != (count,) or not ((ends >= 1) & (ends <= steps)).all():
        raise InputError(
            f"lengths must be {count} numbers from 1 to {steps}; got {ends.shape} from {ends.min(initial=0)} to "
            f"{ends.max(initial=0)} in {path}. Correct them."
        )
    _check_numbers(path, "inputs", inputs)
    _check_present(path, "targets", targets)
    return Sequences(
        [part[:end] for part, end in zip(inputs, ends, strict=True)],
        [part[:end] if every else part for part, end in zip(targets, ends, strict=True)],
    )


# ---------------------------------------------------------------- columns


def _csv(path: Path) -> dict[str, NDArray[Any]]:
    """Columns by the names of the first line: whole numbers, else numbers, else text."""
    try:
        # a carriage return alone ends a line too
        lines = list(csv.reader(io.StringIO(data.read_path(path).decode("utf-8-sig"), newline=None)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a table of text in UTF-8; got {error}. Write it again as CSV.") from None
    names, rows = (lines or [[]])[0], lines[1:]
    _check_columns(path, names)
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None or not rows:
        raise InputError(
            f"{path} must have a line of names and then lines of {len(names)} cells; got "
            f"{f'{len(rows[wrong - 2])} in line {wrong}' if wrong else 'no further lines'}. Correct the file."
        )
    return {name: _column(path, name, cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}


def _check_columns(path: Path, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"columns of {path} must have different names; got {twice[0]!r} more than once. Rename it.")


def _column(path: Path, name: str, cells: tuple[str, ...]) -> NDArray[Any]:
    if (longest := max(map(len, cells))) > LONGEST:
        raise InputError(
            f"cells of {path} must have at most {LONGEST} characters; got {longest} in column {name!r}. Shorten it."
        )
    for kind in (np.int64, np.float64):
        try:
            return np.array(cells).astype(kind)
        except ValueError:
            continue
        except OverflowError:
            raise InputError(
                f"whole numbers in column {name!r} of {path} must fit in 64 bits; got larger ones. Write numbers with "
                "a decimal point, and names with a letter."
            ) from None
    return np.array(cells)


def _parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("reading parquet", "parquet", "pyarrow") from None
    try:
        names = parquet.read_schema(path).names
        _check_columns(path, names)
        table = parquet.read_table(path, page_checksum_verification=True)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{path} must be a parquet file; got {reason}. Write it again.") from None
    return {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in names}


def _from_columns(path: Path, columns: dict[str, NDArray[Any]], target: str, group: str, every: bool) -> Sequences:
    """Rows in the order of time; `group` identifies the sequence of a row."""
    answers = [name.strip() for name in target.split(",")]
    for name in [*answers, *([group] if group else [])]:
        if name not in columns:
            raise unknown_name(f"column of {path}", name, columns)
    features = [name for name in columns if name not in (*answers, group)]
    if not features:
        raise InputError(f"{path} must have columns besides {target} and {group}; got none. Add the inputs.")
    for name in features:
        _check_numbers(path, f"column {name!r}", columns[name])
    for name in [*answers, *([group] if group else [])]:
        _check_present(path, f"column {name!r}", columns[name])
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
        example = f", such as {values.flat[0]!r}" if values.dtype.kind in "UO" and values.size else ""
        raise InputError(
            f"{what} of {path} must be numbers; got {values.dtype}{example}. Leave it out or code it as numbers."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise InputError(f"{what} of {path} must be finite; got {bad} NaN or Inf entries. Remove or fill them first.")


def _check_present(path: Path, what: str, values: NDArray[Any]) -> None:
    """Raise for labels and names of sequences that are missing: they would be taken for one more class or sequence."""
    if values.dtype.kind == "f":
        missing = int(np.isnan(values).sum())
    else:
        missing = sum(map(_is_missing, values.flat)) if values.dtype.kind in "USO" else 0
    if missing:
        raise InputError(
            f"{what} of {path} must have a value in every row; got {missing} without one. Fill them, or leave these "
            "rows out."
        )
    if values.dtype.kind == "O" and not all(isinstance(value, str) for value in values.flat):
        kind = next(type(value).__name__ for value in values.flat if not isinstance(value, str))
        raise InputError(f"{what} of {path} must be numbers or text; got {kind}. Write it as one of them.")


def _is_missing(value: Any) -> bool:
    return not value.strip() if isinstance(value, (str, bytes)) else value is None
