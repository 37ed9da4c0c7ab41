"""The exceptions of the package, and checks shared by all of its parts.

A message states the condition, what was received, and what to do. Only the tensor checks import torch, so that parts
which do not need torch can raise the same exceptions.
"""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


LARGEST_SIZE = 2**63 - 1  # of a dimension of a tensor or array
BYTES = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


class InputError(ValueError, RuntimeError):
    """Bad input: the message states the condition, what was received, and what to do.

    `torch.nn.RNN` raises ValueError for some bad inputs and RuntimeError for others. This class derives
    from both, so code that catches torch's errors also catches ours.
    """

    exit_code = 2  # of the command line


class MissingExtra(InputError):  # noqa: N818
    """A part of kreiss needs packages that are not installed; the message gives the command that installs them.

    Args:
        purpose: what needs them, as the beginning of a sentence.
        extra: the name in square brackets of `pip install 'kreiss[extra]'`.
        package: the module that could not be imported.
    """

    exit_code = 3

    def __init__(self, purpose: str, extra: str, package: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}; it is not installed. Run: pip install 'kreiss[{extra}]'."
        )
        self.extra = extra


class RunError(RuntimeError):
    """A run that could not continue: full disk, damaged file, non-finite numbers."""

    exit_code = 1


class Diverged(RunError):  # noqa: N818
    """Non-finite numbers in a run: a consequence of its settings, unlike other run errors."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the closest match."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(f"unknown {kind} {name!r}.{hint} Choose one of: {', '.join(names)}.")


def check_name(kind: str, name: object, known: Iterable[str]) -> None:
    """Raise if `name` is not one of `known`."""
    names = tuple(known)
    if name not in names:
        raise unknown_name(kind, name, names)


def check_size(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` if it is a whole number of at least `minimum`."""
    try:
        size = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        size = None
    if size is None:
        raise TypeError(
            f"`{name}` must be an int; got {name}={value!r} of type {type(value).__name__}. Pass a whole number."
        )
    if size < minimum:
        raise InputError(f"`{name}` must be at least {minimum}; got {name}={size}. Pass a larger whole number.")
    if size > LARGEST_SIZE:
        raise InputError(f"`{name}` must be at most 2⁶³ − 1; got {name}={size:.6g}. Pass a smaller whole number.")
    return size


def machine_memory() -> int:
    """Bytes of main memory of this machine; one pebibyte where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 2**50


def in_bytes(count: int) -> str:
    """A number of bytes with a unit, such as 1.6 TB."""
    unit = (len(str(count)) - 1) // 3
    return f"{count / 1000**unit:.3g} {BYTES[unit]}" if unit < len(BYTES) else "1,000 EB"


def check_memory(what: str, needed: int, advice: str = "Choose smaller sizes") -> None:
    """Raise if `needed` bytes exceed the memory of this machine; called before allocating."""
    if needed > (there := machine_memory()):
        raise InputError(
            f"{what} must fit in memory, {in_bytes(there)} on this machine; got sizes that take at least "
            f"{in_bytes(needed)}. {advice}."
        )


def check_tensor(name: str, value: object) -> None:
    """Raise if `value` is not a tensor."""
    from torch import Tensor

    if not isinstance(value, Tensor):
        raise TypeError(
            f"`{name}` must be a torch.Tensor; got {type(value).__name__}. Convert it with torch.as_tensor first."
        )


def check_square(matrix: object, n: int | None = None, *, what: str = "matrix") -> Tensor:
    """Return `matrix` if it is a finite real square tensor (of size `n`)."""
    import torch
    from torch import Tensor

    check_tensor(what, matrix)
    assert isinstance(matrix, Tensor)
    shape = tuple(matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1] or (n is not None and shape[0] != n) or not shape[0]:
        expected = "a square matrix" if n is None else f"of shape ({n}, {n})"
        raise InputError(f"`{what}` must be {expected}; got shape {shape}. Pass a matrix of that shape.")
    if matrix.is_complex() or not matrix.is_floating_point():
        raise InputError(
            f"`{what}` must be of a real floating-point dtype; got {matrix.dtype}. "
            "Convert it with .float() or .double()."
        )
    if matrix.is_meta:
        raise InputError(
            f"`{what}` must hold numbers; got a tensor on the meta device, which holds none. "
            "Materialise it first, for example with to_empty and reset_parameters."
        )
    if not torch.isfinite(matrix).all():
        raise InputError(
            f"`{what}` must be finite; got {int((~torch.isfinite(matrix)).sum())} NaN or Inf entries. "
            "Remove them first."
        )
    return matrix
