"""Prediction by a network that knows the preprocessing of its data: raw data in, answers out."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.stream import Stream
from kreiss.preprocessing import Answers, Preprocessing
from kreiss.preprocessing.tables import members, table_of

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
    stream, symbols = Stream(network), kept.encode(prompt)
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
        logits = stream.step(symbol).double().cpu()
