"""Observations of gymnasium as vectors of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kreiss.errors import InputError
from kreiss.tasks.worlds.base import Array, Layout

Flat = Callable[[Any], Array]
CHANNELS = 4  # of an image, at most


def flattened(space: Any, name: str, *, scaled: bool, only: tuple[str, ...] = ()) -> tuple[Layout, Flat]:
    """What an observation of a space is made of, and the function that makes a float32 vector of one.

    Args:
        space: of observations.
        name: of the environment, for errors.
        scaled: whether bytes of images are divided by 255.
        only: entries of a dictionary that are shown; all by default.
    """
    images: list[Any] = []
    others: list[Any] = []
    for path, part in _parts(space, (), name):
        if not only or path[:1] in [(key,) for key in only]:
            (images if _is_image(part) else others).append((path, part))
    if len(images) > 1:
        raise InputError(
            f"an observation must hold one image at most; got {len(images)} in {name}. Wrap the environment so that it "
            "gives one."
        )
    if not images and not others:
        wanted = f"an entry {only[0]!r}" if only else "numbers"
        remedy = "The task gym takes any environment" if only else "Wrap the environment"
        raise InputError(f"an observation must have {wanted}; got {space} of {name}. {remedy}.")
    layout = Layout(_shape(images[0][1]) if images else None, sum(_size(part) for _, part in others))
    readers = [(path, _image_reader(part, scaled)) for path, part in images]
    readers += [(path, _reader(part)) for path, part in others]

    def flat(observation: Any) -> Array:
        numbers = np.concatenate([read(_at(observation, path)) for path, read in readers])
        if numbers.size != layout.size:
            raise ValueError(f"an observation has {numbers.size} numbers and its space {layout.size}")
        if not np.isfinite(numbers).all():
            raise ValueError("an observation has entries that are NaN or infinite")
        return numbers

    return layout, flat


def _parts(space: Any, path: tuple[Any, ...], name: str) -> list[tuple[tuple[Any, ...], Any]]:
    """The simple spaces that a space is made of, with the keys that lead to them; text is left out."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [found for key, part in space.items() for found in _parts(part, (*path, key), name)]
    if isinstance(space, spaces.Tuple):
        return [found for key, part in enumerate(space) for found in _parts(part, (*path, key), name)]
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        return [(path, space)]
    dtype = getattr(space, "dtype", None)
    if dtype is not None and np.dtype(dtype).kind == "U":  # text
        return []
    raise InputError(
        f"an observation must be an image, a vector or numbers of fixed shape; got {type(space).__name__} in {name}. "
        "Wrap the environment."
    )


def _is_image(space: Any) -> bool:
    return len(space.shape) == 3 and min(space.shape[0], space.shape[2]) <= CHANNELS


def _last(space: Any) -> bool:
    """Whether the channels of an image come last."""
    return bool(space.shape[2] <= CHANNELS)


def _shape(space: Any) -> tuple[int, int, int]:
    height, width, channels = space.shape if _last(space) else (*space.shape[1:], space.shape[0])
    return channels, height, width


def _image_reader(space: Any, scaled: bool) -> Flat:
    last, scale = _last(space), 1 / 255 if scaled and space.dtype == np.uint8 else 1.0

    def read(image: Any) -> Array:
        image = np.asarray(image)
        return (image.transpose(2, 0, 1) if last else image).astype(np.float32).ravel() * np.float32(scale)

    return read


def _size(space: Any) -> int:
    from gymnasium import spaces

    return int(spaces.flatdim(space))


def _reader(space: Any) -> Flat:
    """Box and binary as they are, discrete numbers one-hot."""
    from gymnasium import spaces

    return lambda value: np.asarray(spaces.flatten(space, value), np.float32)


def _at(observation: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        observation = observation[key]
    return observation
