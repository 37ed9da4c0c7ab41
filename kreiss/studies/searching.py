"""What a search tries: `lr=1e-4..1e-1` a range, `hidden=64,128,256` a list of values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kreiss.errors import InputError
from kreiss.settings import SHORT
from kreiss.training.config import scalar

EXAMPLE = "Write lr=1e-4..1e-1 or hidden=64,128,256."


@dataclass(frozen=True)
class Range:
    """Numbers between two: on a logarithmic scale if both are positive, whole numbers if both are."""

    low: float
    high: float

    @property
    def logarithmic(self) -> bool:
        return self.low > 0

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Choice = tuple[Any, ...] | Range


def choices(words: Iterable[str]) -> dict[str, Choice]:
    """Values by dotted name of a setting, from the words of a command line."""
    found: dict[str, Choice] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not name or not text.strip():
            raise InputError(f"a search must be written as name=low..high or name=value,value; got {word!r}. {EXAMPLE}")
        dotted = SHORT.get(name, name)
        if dotted in found:
            raise InputError(f"a setting must be searched once; got {name} twice. Write its values in one word.")
        found[dotted] = _range(word, text) if ".." in text else _values(word, text)
    return found


def _range(word: str, text: str) -> Range:
    ends = [scalar(end.strip()) for end in text.split("..")]
    if len(ends) != 2 or any(type(end) not in (int, float) for end in ends) or not ends[0] < ends[1]:
        raise InputError(f"a range must run from a number to a larger one; got {word!r}. {EXAMPLE}")
    return Range(*ends)


def _values(word: str, text: str) -> tuple[Any, ...]:
    values = tuple(scalar(value.strip()) for value in text.split(","))
    if "" in values or len(set(values)) < len(values):
        raise InputError(f"values must be different and not empty; got {word!r}. {EXAMPLE}")
    return values


def ends(choice: Choice) -> tuple[Any, ...]:
    """The values that are tried before a search starts: all of a list, both ends of a range."""
    return (choice.low, choice.high) if isinstance(choice, Range) else choice


def suggested(trial: Any, name: str, choice: Choice) -> Any:
    """Optuna's suggestion for one setting."""
    if not isinstance(choice, Range):
        return trial.suggest_categorical(name, choice)
    suggest = trial.suggest_int if choice.whole else trial.suggest_float
    return suggest(name, choice.low, choice.high, log=choice.logarithmic)
