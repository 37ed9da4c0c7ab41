"""Characters of a text, each predicted from those before: truncated backpropagation through contiguous streams."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_name, check_size
from kreiss.preprocessing import Preprocessing
from kreiss.tasks.base import Batch, Task, Totals
from kreiss.tasks.losses import NO_TARGET, cross_entropy, surprise
from kreiss.tasks.sources import data
from kreiss.tasks.stored import Split

PARTS: tuple[Split, ...] = ("train", "valid", "test")


class Characters(Task):
    """The next character of a text, for every character.

    The text is cut into contiguous streams, one per sequence of a batch, and these into chunks of `chunk` steps. The
    state is carried from chunk to chunk (`Batch.carries`) and reset at each epoch. Every character but the first of a
    part is predicted exactly once; streams differ in length by at most one step, which is padded and ignored.

    Held-out text is always read in the same `streams` streams, whatever the batch size, and the state is carried
    through, so bits per character depend neither on the batch size nor on `chunk`.

    Metrics are the loss in nats, `bpc`, bits per character = loss / ln 2, and the accuracy. The baseline is measured:
    the best network without memory knows the current character only, so it is the table of pairs counted in the
    training text (each count plus one), evaluated on the test text.

    Two sets of characters are called PTB, and their numbers cannot be compared: `mikolov` (each line stripped, a blank
    is "_", the end of line a symbol: 5,017,482 / 393,042 / 442,423 symbols) and `bytes` (the file as it is: 5,101,618 /
    399,782 / 449,945). Both have 50 symbols.

    Args:
        text: "shakespeare" (seven plays, in the package), "ptb", or the path of a text file, such as text8 or enwik8.
        characters: "mikolov" or "bytes", see above; any text may be read either way. "auto" is mikolov for ptb and
            bytes for all else.
        chunk: steps of truncated backpropagation.
        streams: parallel streams of an evaluation; with 1 the state is never reset within a part.
        valid: share of a text file that is held out for validation, before the test part.
        test: share of a text file that is held out for the test, at its end.

    Example:
        >>> from kreiss.tasks import Characters
        >>> task = Characters(chunk=100)
        >>> first, second = task.train(0, batch=4, seed=0), task.train(1, batch=4, seed=0)
        >>> first.inputs.shape, first.carries, second.carries
        (torch.Size([100, 4]), False, True)
    """

    paths: ClassVar = {"text": ("shakespeare", "ptb")}
    symbols = True
    metric = "bpc"

    def __init__(
        self,
        text: str | Path = "shakespeare",
        *,
        characters: str = "auto",
        chunk: int = 150,
        streams: int = 10,
        valid: float = 0.05,
        test: float = 0.05,
    ) -> None:
        check_name("characters", characters, ("auto", "bytes", "mikolov"))
        self.text, self.characters, self.valid, self.test = text, characters, valid, test
        self.chunk = check_size("chunk", chunk)
        self.streams = check_size("streams", streams)
        parts = _parts(text, valid, test)
        if characters == "mikolov" or (characters == "auto" and text == "ptb"):
            parts = [mikolov(part) for part in parts]
        self.alphabet, self.parts = _coded(parts)
        self.input_size = self.output_size = len(self.alphabet)
        self._cut: dict[tuple[Split, int], tuple[Tensor, Tensor]] = {}

    def data_files(self) -> list[Path]:
        return [] if self.text in self.paths["text"] else [data.file_at(Path(self.text))]

    def preprocessing(self) -> Preprocessing:
        return Preprocessing(alphabet=self.alphabet.decode("latin-1"))

    def updates_per_epoch(self, batch: int) -> int:
        return -(-len(self._streams("train", check_size("batch", batch))[0]) // self.chunk)

    def train(self, update: int, batch: int, seed: int) -> Batch:
        """The chunk of an update; the text is read in order, so the seed changes nothing."""
        place = check_size("update", update, minimum=0) % self.updates_per_epoch(batch)
        return self._chunk(*self._streams("train", batch), place)

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        """The streams of a part, at most `batch` at a time, each from its beginning to its end."""
        inputs, targets = self._streams(split, self.streams)
        for start in range(0, inputs.shape[1], check_size("batch", batch)):
            some = slice(start, start + batch)
            for place in range(-(-len(inputs) // self.chunk)):
                yield self._chunk(inputs[:, some], targets[:, some], place)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy in nats."""
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        right = int((output.argmax(-1) == batch.targets).sum())
        return _all(*surprise(output, batch.targets), right)

    def baseline(self) -> dict[str, float]:
        """The table of pairs of the training text, on the test text."""
        size, (train, _, test) = len(self.alphabet), (self.parts[part].astype(np.int64) for part in PARTS)
        pairs = np.bincount(train[:-1] * size + train[1:], minlength=size * size).reshape(size, size) + 1.0
        chance = pairs / pairs.sum(1, keepdims=True)
        right = int((chance.argmax(1)[test[:-1]] == test[1:]).sum())
        return self.metrics(_all(-float(np.log(chance[test[:-1], test[1:]]).sum()), len(test) - 1, right))

    def _streams(self, part: Split, count: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (steps, streams) of a part; cut once for each number of streams."""
        if (part, count) not in self._cut:
            self._cut[part, count] = streams(self.parts[part], count)
        return self._cut[part, count]

    def _chunk(self, inputs: Tensor, targets: Tensor, place: int) -> Batch:
        steps = slice(place * self.chunk, (place + 1) * self.chunk)
        return Batch(inputs[steps].long(), targets[steps].long(), carries=place > 0)


def _all(nats: float, count: int, right: int) -> Totals:
    return {"loss": (nats, count), "bpc": (nats / math.log(2), count), "accuracy": (right, count)}


def streams(symbols: NDArray[Any], count: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (steps, count): contiguous streams that hold every pair of neighbours exactly once.

    The first streams are a step longer if the pairs cannot be divided evenly; the others end in a step without target.
    """
    pairs = len(symbols) - 1
    count = min(count, pairs)
    steps, longer = -(-pairs // count), pairs % count or count

    def columns(values: NDArray[Any], padding: int) -> Tensor:
        ahead, behind = values[: longer * steps], values[longer * steps :].reshape(count - longer, steps - 1)
        behind = np.pad(behind, ((0, 0), (0, 1)), constant_values=padding)
        return torch.from_numpy(np.concatenate([ahead.reshape(longer, steps), behind]).T.copy())

    return columns(symbols[:-1], 0), columns(symbols[1:].astype(np.int16), NO_TARGET)


def mikolov(text: bytes) -> bytes:
    """A text in the form of Mikolov's character files: lines without outer blanks, inner blanks as "_"."""
    lines = text.removesuffix(b"\n").split(b"\n")
    return b"".join(line.strip(b" ").replace(b" ", b"_") + b"\n" for line in lines)


def _parts(text: str | Path, valid: float, test: float) -> list[bytes]:
    """The three parts of a text, as bytes."""
    if text == "ptb":
        return [data.read("ptb", f"ptb.{part}.txt") for part in PARTS]
    whole = data.embedded("shakespeare.txt.gz") if text == "shakespeare" else data.read_path(Path(text))
    if not (valid > 0 and test > 0 and valid + test < 1):
        raise InputError(
            f"`valid` and `test` must be positive shares with a sum below 1; got valid={valid}, test={test}. "
            "Pass for example valid=0.05, test=0.05."
        )
    ends = [round(len(whole) * (1 - valid - test)), round(len(whole) * (1 - test))]
    parts = [whole[: ends[0]], whole[ends[0] : ends[1]], whole[ends[1] :]]
    if min(map(len, parts)) < 2:
        raise InputError(
            f"a text needs two characters in each of train, valid and test; got {len(whole)} in all. "
            "Give a longer text or larger shares."
        )
    return parts


def _coded(parts: list[bytes]) -> tuple[bytes, dict[Split, NDArray[Any]]]:
    """The sorted bytes that occur, and each part as indices into them."""
    read = [np.frombuffer(part, dtype=np.uint8) for part in parts]
    alphabet = np.flatnonzero(np.sum([np.bincount(part, minlength=256) for part in read], axis=0))
    codes = np.zeros(256, dtype=np.uint8)
    codes[alphabet] = np.arange(len(alphabet))
    return bytes(alphabet.tolist()), {name: codes[part] for name, part in zip(PARTS, read, strict=True)}
