"""Checks of states that are made of several tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError
from kreiss.layers.contract.checks import autocast_is_on

REMEDY = "Pass the state of a layer with the same configuration, or init_state(batch_size)."


def check_parts(names: Iterable[str], hx: Iterable[Any], expected: Iterable[Tensor], device: torch.device) -> None:
    """Raise unless every part of a state is a tensor of the expected shape and dtype, on this device."""
    for name, part, like in zip(names, hx, expected, strict=True):
        if not isinstance(part, Tensor) or part.shape != like.shape:
            got = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise InputError(
                f"`hx.{name}` must be of shape {tuple(like.shape)} for this layer and input; got {got}. {REMEDY}"
            )
        same_sort = part.is_floating_point() == like.is_floating_point()
        if part.dtype != like.dtype and not (same_sort and autocast_is_on(device)):
            raise InputError(f"`hx.{name}` must be {like.dtype}; got {part.dtype}. Convert it with .to(...).")
        if part.device != device:
            raise InputError(f"`hx.{name}` must be on {device}; got {part.device}. Move it with .to(...).")


def with_stored(expected: Any, times: Any) -> Any:
    """The expected state with as many memories as there are times, since a memory that grows may hold any number."""
    if not isinstance(times, Tensor) or not times.dim():
        return expected
    *leading, _, n = expected.memory.shape
    stored = times.shape[-1]
    return expected._replace(
        memory=expected.memory.new_empty(*leading, stored, n), times=expected.times.new_empty(*leading, stored)
    )
