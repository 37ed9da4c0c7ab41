"""The keyword options of a class, read from its constructor."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from kreiss.errors import InputError
from kreiss.recorded import PASSING

NOTHING = inspect.Parameter.empty
ENTRY = re.compile(r"^    (\w+): (.*\n(?:        .*\n)*)", re.MULTILINE)  # an argument in a docstring, after "Args:"


@dataclass(frozen=True)
class Option:
    """One keyword option: its type and default."""

    kind: Any
    default: Any


def options_of(cls: type, without: tuple[str, ...] = ()) -> dict[str, Option]:
    """The options of a class, including those it accepts as `**options: Unpack[...]`, with the defaults of its base.

    A bare `**options` stands for the options of the base class.
    """
    makers = [base for base in cls.__mro__ if "__init__" in vars(base) and base is not object]
    options = _options_from(makers)
    return {name: option for name, option in options.items() if name not in (*PASSING, *without)}


def _options_from(makers: list[type]) -> dict[str, Option]:
    """The options of the first class with a constructor, and those it hands on to the next."""
    if not makers:
        return {}
    make: Any = vars(makers[0])["__init__"]
    hints = get_type_hints(make)
    options: dict[str, Option] = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            typed, handed_on = get_args(hints.get(name)), _options_from(makers[1:])
            for part in typed:
                known = get_type_hints(part)
                options.update({key: Option(kind, _default(handed_on.get(key))) for key, kind in known.items()})
            options = options if typed else {**handed_on, **options}
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            options[name] = Option(hints.get(name, Any), parameter.default)
    return options


def _default(option: Option | None) -> Any:
    return NOTHING if option is None else option.default


def described(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each argument, the class itself first."""
    said: dict[str, str] = {}
    for kind in cls.__mro__:
        _, _, arguments = (inspect.cleandoc(kind.__doc__ or "")).partition("Args:\n")
        for name, text in ENTRY.findall(arguments.split("\n\n")[0] + "\n"):
            said.setdefault(name, " ".join(text.split()))
    return said


def typed_options(where: str, given: dict[str, Any], known: dict[str, Option]) -> dict[str, Any]:
    """`given` with every value converted to the type of its option; an error for a wrong type."""
    return {name: _typed(f"{where}.{name}", value, known[name].kind) for name, value in given.items()}


def _typed(name: str, value: Any, kind: Any) -> Any:
    adapter = TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if value is None:  # the word none on a command line
            with suppress(ValidationError):
                return adapter.validate_python("none")
        raise sentence(error, name) from error


def sentence(error: ValidationError, where: str = "", section: str = "") -> InputError:
    """Pydantic's first error in our form; names are those of `section`, unless `where` gives the full name."""
    first = error.errors()[0]
    parts = [section, *(str(part) for part in first["loc"] if not str(part).startswith(("function", "tagged")))]
    name = where or ".".join(part for part in parts if part)
    requirement = first["msg"].replace("Input should be", "must be").replace("Value error, ", "")
    return InputError(f"`{name}` {requirement}; got {first['input']!r}. Correct it on the command line or in the file.")
