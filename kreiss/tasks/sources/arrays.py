"""Sequences from NumPy files, and from arrays and lists of arrays in memory."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, unknown_name
from kreiss.preprocessing.tables import Table
from kreiss.tasks.sources import data
from kreiss.tasks.sources.sequences import Choice, Sequences

# what NumPy's reader and those of zip archives and Python literals below it raise for damaged files
DAMAGED = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, MemoryError, OverflowError, RecursionError,
    SyntaxError, tokenize.TokenError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def plain(values: Any) -> NDArray[Any]:
    """An array of numbers or text from an array, a tensor or nested lists."""
    try:
        found = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"data must be arrays, lists of arrays, tables or a path; got {reason}. Convert it.") from None
    if found.dtype.kind == "O" or not found.ndim:
        raise InputError(
            f"data must be arrays, lists of arrays, tables or a path; got {type(values).__name__}. Convert it."
        )
    return found


def read_array(path: Path) -> NDArray[Any]:
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
    if "Object arrays" not in reason:
        return InputError(
            f"{path} must be an undamaged file of NumPy arrays; got {reason}. Copy it once more, or save it again."
        )
    return InputError(
        f"{path} must hold plain NumPy arrays; got {reason}. Save numbers, not objects, and save it again."
    )


def of_named(arrays: Mapping[str, Any], what: str, choice: Choice) -> Sequences:
    """Arrays `inputs` and `targets`, perhaps `lengths` and `mask`."""
    for name in ("inputs", "targets"):
        if name not in arrays:
            raise unknown_name(f"{what} lacks the array", name, arrays)
    mask = arrays.get("mask") if choice.mask is None else choice.mask
    return of_arrays(what, plain(arrays["inputs"]), arrays["targets"], arrays.get("lengths"), mask, choice)


def of_arrays(what: str, inputs: NDArray[Any], targets: Any, lengths: Any, mask: Any, choice: Choice) -> Sequences:
    """Inputs (N, T) or (N, T, D); targets (N, T) or (N, T, K) per step, (N,) or (N, K) at the end."""
    every = choice.every
    leading = inputs.shape[:2] if every else inputs.shape[:1]
    rank = len(leading)
    targets = _given_targets(what, targets)
    if (
        not inputs.size
        or inputs.ndim not in (2, 3)
        or targets.ndim not in (rank, rank + 1)
        or targets.shape[:rank] != leading
    ):
        raise InputError(
            f"inputs must be (N, T) or (N, T, D) and targets {'(N, T) or (N, T, K)' if every else '(N,) or (N, K)'}; "
            f"got {inputs.shape} and {targets.shape} in {what}. Reshape them, or pass "
            f'answers="{"last" if every else "every"}".'
        )
    inputs, targets = inputs.reshape(*inputs.shape[:2], -1), targets.reshape(*leading, -1)
    count, steps = inputs.shape[:2]
    ends = np.full(count, steps) if lengths is None else np.asarray(lengths)
    if ends.dtype.kind not in "iu":
        raise InputError(f"lengths of {what} must be whole numbers; got {ends.dtype}. Convert them with astype(int).")
    if ends.shape != (count,) or not ((ends >= 1) & (ends <= steps)).all():
        raise InputError(
            f"lengths must be {count} numbers from 1 to {steps}; got {ends.shape} from {ends.min(initial=0)} to "
            f"{ends.max(initial=0)} in {what}. Correct them."
        )
    cut = lambda parts: [part[:end] for part, end in zip(parts, ends, strict=True)]  # noqa: E731
    if mask is not None:
        mask = plain(mask)
        _check_mask(what, [mask.shape], [(count, steps)])
    return of_lists(
        what, cut(inputs), cut(targets) if every else list(targets), None if mask is None else cut(mask), choice
    )


def of_lists(what: str, inputs: list[NDArray[Any]], targets: Any, mask: Any, choice: Choice) -> Sequences:
    """Sequences of any lengths: inputs (T_i,) or (T_i, D), targets alike or one per sequence."""
    every = choice.every
    if not isinstance(targets, list | tuple):
        targets = _given_targets(what, targets)
    inputs, answers = [*map(_upright, inputs)], [*map(_target, targets)]
    answers = [_upright(part) if every else np.atleast_1d(part) for part in answers]
    if not _fit(inputs, answers, every):
        raise InputError(
            f"each sequence must be (T, D), with a target {'at every step' if every else 'for the whole of it'}; got "
            f"{len(inputs)} inputs such as {inputs[0].shape} and {len(answers)} targets such as "
            f"{answers[0].shape if answers else 'none'} in {what}. Reshape them, or pass "
            f'answers="{"last" if every else "every"}".'
        )
    masks = None if mask is None else [np.asarray(part) for part in mask]
    if masks is not None:
        _check_mask(what, [part.shape for part in masks], [(len(part),) for part in inputs])
        masks = [part.astype(bool) for part in masks]
    for part in inputs:
        _check_numbers(what, part)
    return _without_missing(what, Sequences(inputs, answers, masks), choice)


def _upright(part: NDArray[Any]) -> NDArray[Any]:
    """One number per step as a column."""
    return part[:, None] if part.ndim == 1 else part


def _target(part: Any) -> NDArray[Any]:
    """The target of a sequence, which may be a single value."""
    return np.asarray(part) if np.isscalar(part) or getattr(part, "ndim", 1) == 0 else plain(part)


def _fit(inputs: list[NDArray[Any]], answers: list[NDArray[Any]], every: bool) -> bool:
    """Whether sequences are of the same width, and each has its targets."""
    if len(answers) != len(inputs) or not all(x.ndim == 2 and x.size for x in inputs):
        return False
    if not all(y.ndim == (2 if every else 1) for y in answers):
        return False
    long = not every or all(len(x) == len(y) for x, y in zip(inputs, answers, strict=True))
    return long and len({x.shape[-1] for x in inputs}) == len({y.shape[-1] for y in answers}) == 1


def _given_targets(what: str, targets: Any) -> NDArray[Any]:
    if targets is None or isinstance(targets, str | Path):
        raise InputError(f"`targets` must be given as an array with {what}; got {targets!r}. Pass targets=….")
    return plain(targets)


def _check_mask(what: str, shapes: list[Any], wanted: list[Any]) -> None:
    if shapes != wanted:
        raise InputError(
            f"`mask` must have a number for every step of {what}, {wanted[0]}; got {shapes[0]}. Reshape it."
        )


def _check_numbers(what: str, values: NDArray[Any]) -> None:
    if values.dtype.kind not in "biuf":
        raise InputError(f"inputs of {what} must be numbers; got {values.dtype}. Code them as numbers.")
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise InputError(f"inputs of {what} must be finite; got {int(np.isinf(values).sum())} Inf. Correct them.")


def _without_missing(what: str, found: Sequences, choice: Choice) -> Sequences:
    """Sequences without the steps in which something is missing, or an error that names the first."""
    kept = []
    for number, (x, y) in enumerate(zip(found.inputs, found.targets, strict=True)):
        needed = np.ones(len(x), bool) if found.masks is None else found.masks[number]
        lacks = {"input": _absent(x), "target": _absent(y) & (needed[:, None] if choice.every else True)}
        if choice.missing == "mean":
            del lacks["input"]
        if choice.missing != "drop":
            for name, absent in lacks.items():
                _check_there(what, name, number, absent, choice)
        steps = np.ones(len(x), bool)
        for absent in lacks.values() if choice.missing == "drop" else ():
            steps &= ~absent.any(1) if absent.ndim > 1 else not absent.any()
        kept.append(steps)
    if not any(steps.any() for steps in kept):
        raise InputError(f"{what} must have steps without missing values; got none. Pass missing='mean', or fill them.")
    there = [number for number, steps in enumerate(kept) if steps.any()]
    return Sequences(
        [found.inputs[number][kept[number]] for number in there],
        [found.targets[number][kept[number]] if choice.every else found.targets[number] for number in there],
        None if found.masks is None else [found.masks[number][kept[number]] for number in there],
    )


def _absent(values: NDArray[Any]) -> NDArray[np.bool_]:
    column = Table("", {"": values.reshape(-1)})
    return column.missing("").reshape(values.shape)


def _check_there(what: str, name: str, number: int, absent: NDArray[np.bool_], choice: Choice) -> None:
    if absent.any():
        place = np.argwhere(absent)[0]
        step = f"step {place[0]}, " if absent.ndim > 1 else ""
        raise InputError(
            f"{name}s of {what} must have a value everywhere; got none in sequence {number}, {step}{name} {place[-1]}. "
            f"Fill it{choice.cure}."
        )
