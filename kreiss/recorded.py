"""Objects that remember the arguments they were made with, so that a file can say how to make them again."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Self

# where it lives and what it starts from are not part of what it is
PASSING = ("self", "generator", "device", "dtype")


class Recorded:
    """A class whose objects give back their constructor's arguments as plain values, in `config`.

    Example:
        >>> import kreiss
        >>> kreiss.NNRNN(3, 8, blocks="paper").config
        {'input_size': 3, 'hidden_size': 8, 'blocks': 'paper'}
    """

    config: dict[str, Any]  # the arguments given
    unrecorded: tuple[str, ...]  # names of those that are no plain values, such as functions

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        given = _bound(cls, args, kwargs)
        values = {name: plain(value) for name, value in given.items()}
        # into the dict itself: modules take attributes only once they are initialised
        made.__dict__["config"] = {name: value for name, value in values.items() if value is not NOT_PLAIN}
        made.__dict__["unrecorded"] = tuple(name for name, value in values.items() if value is NOT_PLAIN)
        return made


def _bound(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; none if they do not fit, which the constructor then says itself."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        given = dict(signature.bind(None, *args, **kwargs).arguments)
    except TypeError:
        return {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(name, {}))
    return {name: value for name, value in given.items() if name not in PASSING}


NOT_PLAIN = object()


def plain(value: Any) -> Any:
    """`value` as JSON can hold it, or NOT_PLAIN."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return NOT_PLAIN if NOT_PLAIN in items else items
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's or torch's
        return value.item()
    return NOT_PLAIN
