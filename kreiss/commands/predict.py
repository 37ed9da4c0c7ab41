"""`kreiss predict` and `kreiss generate`: what a trained network answers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from kreiss.commands.words import Flag, Positive, Trust, may_import
from kreiss.errors import InputError

STDIN = "-"
Sources = Annotated[str, Parameter(allow_leading_hyphen=True)]


def predict(model: str, /, *sources: Sources, json: Flag = False, trust: Trust = None) -> int:
    """Predict with a trained network: raw data in, answers out.

    kreiss predict RUN new.csv

    kreiss predict RUN one.wav two.wav --json

    sensor | kreiss predict RUN -

    Data are prepared as those of the training were: columns chosen by name, inputs standardised, sounds resampled.
    Numbers are printed in the units of the data, classes with their probabilities, as CSV with a line of names.

    With `-`, each line of the standard input is a step and is answered at once, from a state that is kept: numbers
    separated by commas, in the order of the columns or after a line of names, or JSON. A network of characters reads
    lines of text. An empty line begins a new sequence.

    Parameters
    ----------
    model
        Folder of a run, whose best checkpoint is used, or a file of `kreiss.save`.
    sources
        Tables (.csv, .parquet), arrays (.npy), sounds or texts; or `-`.
    json
        Print JSON lines.
    trust
        Module of your own that the network is from.
    """
    from kreiss.networks.saving import load

    may_import(trust)
    if not sources or (STDIN in sources and len(sources) > 1):
        raise InputError(
            f"`kreiss predict` needs files, or - alone; got {' '.join(sources) or 'none'!r}. Name what to predict."
        )
    network = load(model)
    rows = _stream(network, sys.stdin) if sources == (STDIN,) else _of_files(network, sources)
    _print(rows, json)
    return 0


def _of_files(network: Any, sources: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of each file, with its name if there are several."""
    from pathlib import Path

    from kreiss import prediction

    for source in sources:
        named = {"file": source} if len(sources) > 1 else {}
        for row in prediction.rows(network, Path(source)):
            yield {**named, **row}


def _stream(network: Any, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One row for every line, as soon as it has come."""
    from kreiss.prediction import Lines

    steps = Lines(network)
    for line in lines:
        if (row := steps.answer(line)) is not None:
            yield row


def _print(rows: Iterator[dict[str, Any]], json: bool) -> None:
    import csv
    from json import dumps

    writer = None
    for row in rows:
        if json:
            print(dumps(row, ensure_ascii=False), flush=True)
            continue
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
        sys.stdout.flush()


def generate(
    model: str,
    /,
    *,
    prompt: str = "\n",
    length: Positive = 200,
    temperature: float = 1.0,
    seed: int | None = None,
) -> int:
    """Let a network of characters write text after a prompt.

    kreiss generate RUN --prompt "the " --length 200 --temperature 0.8 --seed 0

    Parameters
    ----------
    model
        Folder of a run, whose best checkpoint is used, or a file of `kreiss.save`.
    prompt
        The beginning of the text; a new line by default.
    length
        Number of characters.
    temperature
        Divides the logits: below 1 for likelier text; 0 takes the most probable character.
    seed
        Seed of the draws; a new one at every call by default.
    """
    from kreiss.networks.saving import load
    from kreiss.prediction import generate as generated

    network: Any = load(model)
    pieces = generated(network, prompt, length, temperature, seed)
    print(prompt.lstrip("\n"), end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0
