"""Checks of the arguments of layers, and their precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError, check_memory, check_size, check_tensor

# ---------------------------------------------------------------- precision


def autocast_is_on(device: torch.device) -> bool:
    """Whether autocast is enabled for this device."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Context that disables autocast, on devices that have it."""
    return torch.autocast(device.type, enabled=False) if autocast_is_on(device) else nullcontext()


# ---------------------------------------------------------------- checks of arguments

MOST_LAYERS = 1000


def checked_layers(num_layers: object) -> int:
    """`num_layers` if it is within the limit."""
    count = check_size("num_layers", num_layers)
    if count > MOST_LAYERS:
        raise InputError(
            f"`num_layers` must be at most {MOST_LAYERS}; got num_layers={count}. Use fewer layers, or chain modules."
        )
    return count


def check_tensors_fit(
    shapes: Iterable[tuple[int, ...]], device: torch.device, dtype: torch.dtype, what: str = "the parameters"
) -> None:
    """Raise if tensors of these shapes do not fit in memory; on the meta device all do."""
    if device.type != "meta":
        check_memory(what, dtype.itemsize * sum(math.prod(shape) for shape in shapes))


def check_state(hx: object) -> None:
    """Raise unless hx is a tensor or None."""
    if hx is not None and not isinstance(hx, Tensor):
        raise TypeError(
            f"`hx` must be a Tensor, the one state of this layer; got {type(hx).__name__}. "
            "Pass the h_n of an earlier call, or init_state(batch_size)."
        )


def checked_number(name: str, value: float) -> float:
    """`value` if it is a finite real number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"`{name}` must be a finite number; got {name}={value!r}. Pass a finite number.")
    return number


def checked_share(dropout: float) -> float:
    """`dropout` if it is a probability."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise InputError(
            f"`dropout` must be a probability in [0, 1]; got dropout={dropout!r}. Pass a number in that range."
        )
    return float(dropout)


def checked_dropout(dropout: float, num_layers: int) -> float:
    """`dropout` if it is a probability; warns if it has no effect."""
    if checked_share(dropout) > 0 and num_layers == 1:
        warnings.warn(
            f"dropout acts between layers only; got dropout={dropout} with num_layers=1, where it does nothing. "
            "Use torch.nn.Dropout on the output.",
            stacklevel=4,
        )
    return float(dropout)


def checked_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """`dtype` if it is a real floating-point dtype; by default torch's."""
    dtype = dtype or torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(
            f"`dtype` must be a real floating-point dtype; got dtype={dtype}. Pass torch.float32 or float64."
        )
    return dtype


def checked_device(device: Any) -> torch.device:
    """The device; by default torch's."""
    try:
        return torch.device(device) if device is not None else torch.get_default_device()
    except (RuntimeError, TypeError) as error:
        raise InputError(f"`device` must name a device; got device={device!r}. Pass, for example, 'cpu'.") from error


# ---------------------------------------------------------------- checks of inputs


def check_input(x: object, weight: Tensor) -> None:
    """Raise unless x is a sequence for input weights (N, I): features (…, I), or integer symbols below I."""
    if isinstance(x, Tensor) and x.dtype in (torch.int64, torch.int32) and x.dim() in (1, 2):
        check_symbols(x, weight)
    else:
        check_vectors(x, weight)


def checked_step(x: object, bidirectional: bool, batch_first: bool) -> int:
    """The dimension that makes a sequence of one time step x (batch, features) or (features,)."""
    if bidirectional:
        raise InputError(
            "`step` must be called on a unidirectional layer; got bidirectional=True, which needs the whole sequence. "
            "Use forward()."
        )
    check_tensor("x", x)
    assert isinstance(x, Tensor)
    if x.dim() not in (1, 2):
        raise InputError(f"`x` must be 1-D or 2-D, one time step; got {x.dim()}-D. Use forward() for a sequence.")
    return 1 if batch_first and x.dim() == 2 else 0


def check_vectors(x: object, weight: Tensor) -> None:
    """Raise unless x is a sequence of vectors (…, I) for input weights (N, I)."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"`input` must be a Tensor or a PackedSequence; got {type(x).__name__}. Convert it with torch.as_tensor."
        )
    if x.dim() not in (2, 3):
        raise InputError(
            f"`input` must be 2-D (time, feature) or 3-D (time, batch, feature); got {x.dim()}-D. "
            "Add or remove dimensions."
        )
    check_features(x, weight)


def check_symbols(x: Tensor, weight: Tensor) -> None:
    """Raise unless x holds integers below the input size."""
    if x.dtype not in (torch.int64, torch.int32):
        raise InputError(f"symbols in `input` must be int64 or int32; got {x.dtype}. Convert them with input.long().")
    _check_device(x, weight)
    if not torch.compiler.is_compiling() and x.numel() and not x.is_meta:
        low, high = (int(value) for value in torch.aminmax(x))
        if low < 0 or high >= weight.shape[1]:
            raise InputError(
                f"symbols in `input` must be in [0, input_size={weight.shape[1]}); got {low} to {high}. "
                "Make input_size the number of symbols."
            )


def check_features(x: Tensor, weight: Tensor) -> None:
    """Raise unless x holds vectors of the input size, in the dtype of the parameters."""
    if x.shape[-1] != weight.shape[1]:
        raise InputError(
            f"the last dimension of `input` must be input_size={weight.shape[1]}; got {x.shape[-1]}. "
            "Check the order of its dimensions."
        )
    if x.dtype != weight.dtype and not autocast_is_on(x.device):
        raise InputError(
            f"`input` must be {weight.dtype}, as the parameters are; got {x.dtype}. "
            f"Convert it with input.to({weight.dtype})."
        )
    _check_device(x, weight)


def _check_device(x: Tensor, weight: Tensor) -> None:
    if x.device != weight.device:
        raise InputError(
            f"`input` must be on {weight.device}, as the parameters are; got {x.device}. "
            f"Move it with input.to({str(weight.device)!r})."
        )
