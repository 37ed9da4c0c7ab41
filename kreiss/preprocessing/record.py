"""How raw data become inputs and outputs become answers, as plain data that a file can hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError
from kreiss.preprocessing.answers import Answers
from kreiss.preprocessing.sound import Sound
from kreiss.preprocessing.tables import Table, members, table_of

Label = bool | int | float | str


@dataclass(frozen=True)
class Preprocessing:
    """What a task does to its raw data before the network sees them, and what the outputs mean.

    Inputs are (x − mean) / scale of the columns, the places of characters in the alphabet, or frames of a sound, which
    are standardised too.

    Args:
        columns: names of the inputs, in their order; empty if they have none.
        mean: subtracted from each input; empty for none.
        scale: divides each input; empty for none.
        order: steps in the order in which they are read, for images read by the pixel; empty as they come.
        fill: what a missing input is taken to be; empty refuses it.
        group: column that identifies the sequence of a row.
        alphabet: the characters, in the order of the symbols; a byte is the character of that number.
        sound: how a sound becomes a sequence.
        targets: names of the outputs, if they are numbers with names.
        classes: the classes, in the order of the outputs.

    Example:
        >>> from kreiss.preprocessing import Preprocessing
        >>> kept = Preprocessing(columns=("a", "b"), mean=(1.0, 0.0), scale=(2.0, 1.0), classes=("no", "yes"))
        >>> kept.encode({"b": [5.0], "a": [2.0], "time": [0]})
        tensor([[0.5000, 5.0000]], dtype=torch.float64)
        >>> next(kept.decode(kept.encode([[1.0, 0.0]])).rows())
        {'class': 'no', 'p(no)': 0.5, 'p(yes)': 0.5}
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # of `read`

    columns: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    order: tuple[int, ...] = ()
    fill: tuple[float, ...] = ()
    group: str = ""
    alphabet: str = ""
    sound: Sound | None = None
    targets: tuple[str, ...] = ()
    classes: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.columns, self.mean, self.scale, self.fill) if part}
        finite = np.isfinite((*self.mean, *self.scale, *self.fill)).all()
        if len(sizes) > 1 or len(self.mean) != len(self.scale) or not finite or 0 in self.scale:
            raise InputError(
                "`mean`, `scale` and `fill` must be finite numbers, one for each column, and no scale zero; got "
                f"{self.mean}, {self.scale} and {self.fill} for {len(self.columns)} columns. Correct them."
            )
        if sorted(self.order) != list(range(len(self.order))):
            raise InputError(f"`order` must be a permutation; got {self.order[:5]}…. Name each step once.")
        if len(set(self.alphabet)) != len(self.alphabet) or any(ord(letter) > 255 for letter in self.alphabet):
            raise InputError(f"`alphabet` must be different bytes; got {self.alphabet!r}. Name each once.")

    # ------------------------------------------------------------ files

    def plain(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON holds it."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        differ = {name: value for name, value in kept.items() if value != getattr(Preprocessing, name)}
        return {name: asdict(value) if isinstance(value, Sound) else _listed(value) for name, value in differ.items()}

    def strings(self) -> dict[str, str]:
        """The same as names and strings, each a value in JSON: for the metadata of other formats."""
        return {name: json.dumps(value) for name, value in self.plain().items()}

    @classmethod
    def read(cls, found: Any) -> Preprocessing:
        """What `plain` gave; an error for anything else."""
        from pydantic import TypeAdapter, ValidationError

        from kreiss.options import sentence

        try:
            return TypeAdapter(cls).validate_python(found)
        except ValidationError as error:
            raise sentence(error, section="preprocessing") from error

    # ------------------------------------------------------------ inputs

    def sequences(self, data: Any) -> list[Any] | None:
        """The sequences that data consist of; None if they are one."""
        if self.alphabet or self.sound is not None:
            return data if isinstance(data, list) else None
        if (table := table_of(data)) is not None:
            if self.group not in table.columns:
                return None
            table.check_present(self.group)
            return [table.take(rows) for rows in members(table.column(self.group))]
        if isinstance(data, list | tuple) and len(data):
            shapes = {(0, 0) if table_of(part) is not None else _shape(part) for part in data}
            if len(shapes) > 1 or len(next(iter(shapes))) > 1:
                return list(data)
        values = _numbers(data)
        alone = len(self.scale) == 1 and values.ndim == 2 and values.shape[1] > 1  # (N, T), as in training
        return list(values) if values.ndim == 3 or alone else None

    def encode(self, data: Any) -> Tensor:
        """The inputs of one sequence: (T, D) in double precision, or symbols (T,)."""
        if self.alphabet:
            return self._symbols(data)
        if self.sound is not None:
            values = self.sound.read(data).astype(np.float64)
        else:
            table = table_of(data)
            values = self._chosen(table) if table is not None else self._steps(data)
        values = self.standardised(values)
        if self.order and len(values) != len(self.order):
            raise InputError(f"a sequence must have {len(self.order)} steps; got {len(values)}. Pass all of them.")
        return torch.from_numpy(values[list(self.order)] if self.order else values)

    def standardised(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Inputs (T, D) in the units of the network."""
        values = np.where(np.isnan(values), self.fill, values) if self.fill else values
        return (values - np.array(self.mean)) / np.array(self.scale) if self.scale else values.astype(np.float64)

    def _symbols(self, data: Any) -> Tensor:
        """The characters of a text, or of bytes."""
        if not isinstance(data, str | bytes):
            raise InputError(f"a text must be str or bytes; got {type(data).__name__}. Pass the text itself.")
        places = {ord(letter): place for place, letter in enumerate(self.alphabet)}
        if " " not in self.alphabet and "_" in self.alphabet:  # as in Mikolov's files
            places[ord(" ")] = places[ord("_")]
        raw = data.encode() if isinstance(data, str) else data
        if not places.keys() >= set(raw):
            letters = raw.decode(errors="replace")
            strange = next(letter for letter in letters if not places.keys() >= set(letter.encode()))
            raise InputError(
                f"a text must have the characters that the network was trained on, {self.alphabet!r}; got {strange!r}. "
                "Leave it out."
            )
        return torch.tensor([places[code] for code in raw], dtype=torch.long)

    def _chosen(self, table: Table) -> NDArray[np.float64]:
        """The columns of a table that are inputs."""
        names = self.columns
        if not names:
            names = tuple(name for name in table.columns if name != self.group)
            self._check_size(len(names), f"{len(names)} columns in {table.name}")
        if lacking := next((name for name in names if name not in table.columns), None):
            raise InputError(
                f"{table.name} must have the columns {', '.join(names)}; got {', '.join(table.columns)}, without "
                f"{lacking!r}. Name them as in training."
            )
        for name in () if self.fill else names:
            table.check_present(name)
        return np.stack([table.numbers(name) for name in names], 1)

    def _steps(self, data: Any) -> NDArray[np.float64]:
        """Rows (T, D), or numbers (T,) of one input; a single row of several."""
        values = _numbers(data)
        if values.ndim == 1:
            values = values[:, None] if len(self.scale) <= 1 else values[None]
        if values.ndim != 2 or not len(values):
            raise InputError(f"a sequence must be (T, D); got shape {values.shape}. Pass one row per step.")
        self._check_size(values.shape[1], f"shape {values.shape}")
        wrong = np.isinf(values) if self.fill else ~np.isfinite(values)
        if wrong.any():
            step, place = np.argwhere(wrong)[0]
            raise InputError(
                f"inputs must be finite; got {values[step, place]} in step {step}, column {self._named(place)}. "
                "Fill it."
            )
        return values

    def _check_size(self, found: int, words: str) -> None:
        if self.scale and found != len(self.scale):
            named = f" ({', '.join(self.columns)})" if self.columns else ""
            raise InputError(
                f"a step must have {len(self.scale)} inputs{named}; got {words}. Pass these in this order."
            )

    def _named(self, place: int) -> str:
        return repr(self.columns[place]) if self.columns else str(place)

    # ------------------------------------------------------------ outputs

    def decode(self, output: Tensor) -> Answers:
        """The answers in outputs (T, K), or (K,) for a whole sequence."""
        numbers = output.detach().cpu()
        numbers = numbers.float() if numbers.dtype.itemsize < 4 else numbers  # NumPy lacks some of half precision
        names: Iterable[Any] = self.classes or tuple(self.alphabet) or self.targets or range(numbers.shape[-1])
        names = tuple(names)
        if len(names) != numbers.shape[-1]:
            raise InputError(f"there must be {len(names)} outputs, as there are names; got {numbers.shape[-1]}.")
        if not (self.classes or self.alphabet):
            return Answers(names, numbers.numpy())
        best = np.array(names, dtype=object)[numbers.argmax(-1).numpy()]
        return Answers(names, numbers.double().softmax(-1).to(numbers.dtype).numpy(), best)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shape(part: Any) -> tuple[int, ...]:
    return tuple(part.shape) if hasattr(part, "shape") else () if np.isscalar(part) else _numbers(part).shape


def _numbers(data: Any) -> NDArray[np.float64]:
    """An array of numbers from an array, a tensor or nested lists."""
    try:
        found = np.asarray(data.detach().cpu() if isinstance(data, Tensor) else data)
        if found.dtype.kind in "biufUO" and found.ndim and not isinstance(data, Mapping):
            return found.astype(np.float64)
    except (ValueError, TypeError):
        pass
    raise InputError(f"data must be numbers, a table or a list of such; got {type(data).__name__}. Convert them.")
