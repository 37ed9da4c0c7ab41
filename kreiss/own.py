"""Classes of the user's own, named as `package.module:Class`, and which modules may be imported for them.

A file or a run names the class it was made with. Importing a module runs its code, so that only modules which the
caller has named are imported: on the command line with --trust, --model or --task, in Python with `trust`.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from operator import attrgetter
from typing import Any

from kreiss.errors import InputError

TRUSTED: set[str] = set()
"""Modules that the caller has named."""


class Untrusted(InputError):  # noqa: N818
    """A class is in a module that the caller has not named."""


def is_own(name: object) -> bool:
    """Whether a name is of the form `package.module:Class`."""
    module, colon, attribute = str(name).partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() or part == "<locals>" for part in parts)


def home_of(cls: type) -> str:
    """The name of a class by its module: `package.module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_ours(cls: type) -> bool:
    """Whether a class is part of kreiss."""
    return cls.__module__.split(".")[0] == "kreiss"


def trust(*names: str) -> None:
    """Import modules, `package.module` or `package.module:Class`, and use their classes from now on."""
    for name in names:
        if ":" in name:
            imported(name)
        else:
            _module(name)
        TRUSTED.add(name.partition(":")[0])


def trusted(kind: str, name: str) -> Any:
    """The class `package.module:Class` of a trusted module."""
    module = name.partition(":")[0]
    if module not in TRUSTED:
        raise Untrusted(
            f"the module of a {kind} must be one that you trust, because importing it runs its code; got {name} of "
            f"the module {module}. If you trust it, pass --trust {module}, in Python trust=({module!r},)."
        )
    return imported(name)


def imported(name: str) -> Any:
    """The class `package.module:Class`; the caller has named it."""
    module, _, attribute = name.partition(":")
    found = _module(module)
    try:
        cls = attrgetter(attribute)(found)
    except AttributeError as error:
        classes = [key for key, value in vars(found).items() if isinstance(value, type)]
        close = difflib.get_close_matches(attribute, classes, n=1, cutoff=0.5)
        hint = f"Did you mean {module}:{close[0]}?" if close else "Check the name behind the colon."
        raise InputError(
            f"the module {module} must hold the class {attribute}; got none of that name. {hint}"
        ) from error
    if not isinstance(cls, type):
        raise InputError(f"`{name}` must be a class; got a {type(cls).__name__}. Name a class.")
    return cls


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise InputError(
                f"the module {name} must be importable; got no module named {error.name!r}. Run from the folder that "
                "holds it, or install it."
            ) from error
        raise _broken(name, error) from error
    except Exception as error:  # whatever the user's own code raises
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> InputError:
    said = " ".join(str(error).split()).rstrip(".")
    return InputError(
        f"the module {name!r} must be imported without an error; got {type(error).__name__}: {said}. Correct it."
    )
