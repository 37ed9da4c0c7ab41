"""Checks of states that are made of several tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from kreiss.errors import InputError
from kreiss.layers.contract.checks import autocast_is_on

REMEDY = "Pass the state of a layer with the same configuration, or init_state(batch_size)."


def check_parts(names: Iterable[str], hx: Iterable[Any], expected: Iterable[Tensor], free: dict[str, int]) -> None:
    """Raise unless every part of a state is a tensor like the expected one.

    Args:
        free: by name of a part, the dimension, counted from the last, that may be of any size.
    """
    for name, part, like in zip(names, hx, expected, strict=True):
        shape = tuple(part.shape) if isinstance(part, Tensor) else ()
        any_size = like.dim() + free[name] if name in free else None
        fits = len(shape) == like.dim() and all(
            shape[place] == size for place, size in enumerate(like.shape) if place != any_size
        )
        if not isinstance(part, Tensor) or not fits:
            got = shape if isinstance(part, Tensor) else type(part).__name__
            raise InputError(
                f"`hx.{name}` must be of shape {tuple(like.shape)} for this layer and input; got {got}. {REMEDY}"
            )
        same_sort = part.is_floating_point() == like.is_floating_point()
        if part.dtype != like.dtype and not (same_sort and autocast_is_on(part.device)):
            raise InputError(f"`hx.{name}` must be {like.dtype}; got {part.dtype}. Convert it with .to(...).")
        if part.device != like.device:
            raise InputError(f"`hx.{name}` must be on {like.device}; got {part.device}. Move it with .to(...).")
