"""Objects that record their constructor arguments, so that they can be rebuilt from a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar, Self

# not recorded: they do not define the object
PASSING = ("self", "generator", "device", "dtype")


class Recorded:
    """Base class that records the constructor arguments as plain values in `config`.

    Example:
        >>> import kreiss
        >>> kreiss.NNRNN(3, 8, blocks="paper").config
        {'input_size': 3, 'hidden_size': 8, 'blocks': 'paper'}
    """

    config: dict[str, Any]  # the arguments passed
    __signature__: ClassVar[inspect.Signature]
    unrecorded: tuple[str, ...]  # names of arguments that are not plain values, such as functions

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _, *own = inspect.signature(cls.__init__).parameters.values()
        cls.__signature__ = inspect.Signature(own)  # for help(), editors and docs; else it would be that of __new__

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls)
        arguments = _bound(cls, args, kwargs)
        values = {name: plain(value) for name, value in arguments.items()}
        # via __dict__: modules accept attributes only after initialisation
        instance.__dict__["config"] = {name: value for name, value in values.items() if value is not NOT_PLAIN}
        instance.__dict__["unrecorded"] = tuple(name for name, value in values.items() if value is NOT_PLAIN)
        return instance


def _bound(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; empty if they do not match the signature, for which the constructor itself raises."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        arguments = dict(signature.bind(None, *args, **kwargs).arguments)
    except TypeError:
        return {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name, {}))
    return {name: value for name, value in arguments.items() if name not in PASSING}


NOT_PLAIN = object()


def plain(value: Any) -> Any:
    """`value` in a form that JSON can represent, or NOT_PLAIN."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return NOT_PLAIN if NOT_PLAIN in items else items
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy or torch scalar
        return value.item()
    return NOT_PLAIN
