"""Prediction by a network that knows the preprocessing of its data: raw data in, answers out."""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.stream import Stream
from kreiss.preprocessing import Answers, Preprocessing
from kreiss.preprocessing.tables import Table, members, table_of

if TYPE_CHECKING:
    from kreiss.contracts import Network

TOGETHER = 64  # sequences in one pass


def preprocessing_of(network: Any) -> Preprocessing:
    """The preprocessing of a network; an error if it has none."""
    kept = getattr(network, "preprocessing", None)
    if not isinstance(kept, Preprocessing):
        raise InputError(
            f"a network must have been saved with its preprocessing to predict; got {type(network).__name__} without. "
            "Train it on data of your own, or set network.preprocessing = task.preprocessing()."
        )
    return kept


def predict(network: Network, data: Any) -> Answers | list[Answers]:
    """As `Network.predict`."""
    kept = preprocessing_of(network)
    data = opened(kept, data)
    parts = kept.sequences(data)
    inputs = [kept.encode(part) for part in ([data] if parts is None else parts)]
    found = [kept.decode(output) for output in _outputs(network, inputs)]
    return found[0] if parts is None else found


def opened(kept: Preprocessing, data: Any) -> Any:
    """What a path leads to; anything else, and the path of a sound, as it is."""
    if kept.sound is not None or not isinstance(data, Path if kept.alphabet else str | Path):
        return data
    from kreiss.tasks.sources import arrays, loading
    from kreiss.tasks.sources.data import read_path

    path = Path(data)
    if kept.alphabet:
        return read_path(path)
    return arrays.read_array(path) if loading.kind_of(path) == ".npy" else loading.read_table(path)


@torch.no_grad()
def _outputs(network: Network, inputs: list[Tensor]) -> Iterator[Tensor]:
    """Outputs of each sequence: (T, K), or (K,) for one answer."""
    frozen, like = network.freeze(), next(network.parameters())
    for start in range(0, len(inputs), TOGETHER):
        some = inputs[start : start + TOGETHER]
        lengths = torch.tensor([len(part) for part in some])
        batch = pad_sequence(some).to(like.device)
        batch = batch.to(like.dtype) if batch.is_floating_point() else batch
        outputs, _ = frozen(batch, None, lengths if (lengths != lengths[0]).any() else None)
        for place, length in enumerate(lengths.tolist()):
            yield outputs[:length, place] if outputs.dim() == 3 else outputs[place]


def rows(network: Network, data: Any) -> Iterator[dict[str, Any]]:
    """The answers to data as rows of plain values, in the order of the data, each with the name of its sequence."""
    kept = preprocessing_of(network)
    data = opened(kept, data)
    found = predict(network, data)
    if not isinstance(found, list):
        yield from found.rows()
        return
    table = table_of(data)
    if table is None:
        yield from ({"sequence": number, **row} for number, answer in enumerate(found) for row in answer.rows())
        return
    groups = table.column(kept.group)
    placed = [
        (int(place), {kept.group: groups[place].item(), **row})
        for own, answer in zip(members(groups), found, strict=True)
        for place, row in zip(own, answer.rows(), strict=False)  # one answer in all is at the first row
    ]
    yield from (row for _, row in sorted(placed, key=lambda pair: pair[0]))


class Lines:
    """A network that answers lines of text one after the other, with its state kept.

    Args:
        network: a recurrent network with its preprocessing.
    """

    def __init__(self, network: Network) -> None:
        self.kept = preprocessing_of(network)
        if self.kept.sound is not None or not hasattr(network, "layer"):
            raise InputError(
                f"lines must be steps of a recurrent network; got {type(network).__name__} of sounds or images. "
                "Pass files."
            )
        self.stream, self.dtype = Stream(network), next(network.parameters()).dtype
        self.names: list[str] = []  # of the cells, if a line has named them
        self.states: dict[str, Any] = {}  # of each sequence, where a column tells them apart
        self.number = 0

    def answer(self, line: str) -> dict[str, Any] | None:
        """The answer to a line; None to a line of names, or to an empty one, which begins a new sequence."""
        self.number += 1
        if self.kept.alphabet:
            return self._answered(self.kept.encode(line))
        if not line.strip():
            self.stream.reset()
            self.states.clear()
            return None
        row = self._row(line.strip())
        if row is None:
            return None
        name = row.get(self.kept.group)
        if name is not None:
            self.stream.state = self.states.get(name, self.stream.layer.init_state(None))
        cells = {column: np.array([cell]) for column, cell in row.items()}
        found = self._answered(self.kept.encode(Table("standard input", cells, written=True, first=self.number)))
        if name is None:
            return found
        self.states[name] = self.stream.state
        return {self.kept.group: name, **found}

    def _row(self, line: str) -> dict[str, str] | None:
        """The cells of a line by name; None if they are names."""
        values = _parsed(line, self.number)
        if isinstance(values, dict):
            return {str(name): _cell(value) for name, value in values.items()}
        cells = [_cell(value) for value in values]
        if self.number == 1 and not all(_is_number(cell) for cell in cells):
            self.names = cells
            return None
        names = self.names or [*self.kept.columns] or [str(place) for place in range(len(self.kept.scale))]
        if len(cells) != len(names):
            raise InputError(
                f"line {self.number} of standard input must have {len(names)} cells, {', '.join(names)}; got "
                f"{len(cells)}. Separate them by commas."
            )
        return dict(zip(names, cells, strict=True))

    def _answered(self, inputs: Tensor) -> dict[str, Any]:
        inputs = inputs.to(self.dtype) if inputs.is_floating_point() else inputs
        return next(self.kept.decode(self.stream.feed(inputs)[-1]).rows())


def _parsed(line: str, number: int) -> Any:
    """The cells of a line of CSV, or the list or object of a line of JSON."""
    if line[0] not in "[{":
        return next(csv.reader([line]))
    try:
        return json.loads(line)
    except ValueError as error:
        raise InputError(
            f"line {number} of standard input must be JSON, as it begins with {line[0]}; got {error}. Correct it."
        ) from None


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _is_number(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True


def generate(network: Network, prompt: str, length: int, temperature: float, seed: int | None) -> Iterator[str]:
    """As `Network.generate`."""
    kept = preprocessing_of(network)
    if not kept.alphabet:
        raise InputError("only a network of characters can generate; got one of numbers or sounds. Use predict.")
    if not 0 <= temperature < math.inf:
        raise InputError(f"`temperature` must be at least 0; got temperature={temperature}. Pass for example 0.8.")
    if not prompt:
        raise InputError("`prompt` must have a character; got an empty one. Pass the beginning of a text.")
    check_size("length", length)
    stream, symbols = Stream(network), kept.encode(prompt).to(next(network.parameters()).device)
    source = torch.Generator() if seed is None else torch.Generator().manual_seed(seed)
    if seed is None:
        source.seed()
    return _generated(stream, symbols, kept.alphabet, length, temperature, source)


def _generated(
    stream: Stream, prompt: Tensor, alphabet: str, length: int, temperature: float, source: torch.Generator
) -> Iterator[str]:
    """Characters one after the other; a character of several bytes comes with its last one."""
    logits = stream.feed(prompt)[-1].double().cpu()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for _ in range(length):
        if temperature:
            chances = (logits / temperature).softmax(-1)
            symbol = torch.multinomial(chances, 1, generator=source)[0]
        else:
            symbol = logits.argmax()
        if text := decoder.decode(alphabet[int(symbol)].encode("latin-1")):
            yield text
        logits = stream.step(symbol.to(prompt.device)).double().cpu()
