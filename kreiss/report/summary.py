"""Tables over all recorded experiments: networks against tasks at equal units, and all results of one network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kreiss.catalogue import MODELS, RELATIONAL_MODELS
from kreiss.errors import check_name
from kreiss.experiments import EXPERIMENTS, experiment
from kreiss.report.comparison import Comparison, Line, compare
from kreiss.report.tables import failures, heading_row, label, markdown_row, number, parameters, without_empty
from kreiss.studies.results import Record

BENCH = Path("results/bench.json")


class Column(NamedTuple):
    """An experiment in the summary; `ending` is the suffix of its row names after the name of the network."""

    heading: str
    experiment: str
    scale: str
    metric: str
    ending: str = ""


NETWORKS = {
    "nnrnn-exact": "`NNRNN`", "nnrnn": "`NNRNN`, paper's blocks", "exprnn": "`ExpRNN`", "orthrnn": "`OrthRNN`",
    "eurnn": "`EURNN`, 2N real features", "rnn": "`RNN`", "lstm": "`LSTM`",
}  # fmt: skip
COLUMNS = (
    Column("copy, T = 200: accuracy", "001/fig2-copy", "laptop", "accuracy"),
    Column("permuted digits, 20 epochs: accuracy", "001/fig2-psmnist", "digits", "accuracy"),
    Column("permuted MNIST after 0.4 epochs: accuracy", "001/fig2-psmnist", "laptop", "accuracy"),
    Column("PTB, 150 steps, after one epoch: bits", "001/table1", "laptop", "bpc", "-150"),
    Column("PTB, 300 steps, after one epoch: bits", "001/table1", "laptop", "bpc", "-300"),
)


OF_MODELS = ("experiment, scale", "network", "parameters", "metric", "ours", "without memory")


def summary(known: dict[str, Record]) -> str:
    """The table in Markdown; test numbers, mean ± standard error over seeds."""
    lines = heading_row("network", *(column.heading for column in COLUMNS))
    rows = {column: _lines(column, known) for column in COLUMNS}
    for name, title in NETWORKS.items():
        cells = [_cell(rows[column].get(name + column.ending), column.metric) for column in COLUMNS]
        lines.append(markdown_row([title, *cells]))
    return "\n".join(lines) + "\n"


def headline(known: dict[str, Record], bench: Path = BENCH) -> str:
    """The numbers of the README's first screen, from recorded results and measurements; and where LSTM is better."""
    copy, *_, ptb = (_lines(column, known) for column in COLUMNS)

    def mean(lines: dict[str, Line], name: str, metric: str) -> float:
        return lines[name].of(metric, "test").mean or float("nan")

    work = json.loads(bench.read_text(encoding="utf-8"))["works"]["psMNIST"]
    ratio, shape = work["ratios"]["layer / nn.LSTM"]["ratio"], work["shape"]
    ours, theirs = (mean(copy, name, "accuracy") for name in ("nnrnn-exact", "lstm"))
    sentences = (
        f"- **Memory.** Of ten symbols copied after 200 steps, `NNRNN` gets {ours:.3f} right and `LSTM` {theirs:.3f}, "
        "with the same number of units and the published settings.",
        f"- **Speed.** A training pass of {shape['steps']} steps takes {ratio:.2f} of the time of `torch.nn.LSTM` on a "
        f"CPU ({shape['hidden']} units, batch {shape['batch']}).",
        "- **Exact resuming.** A run that was killed goes on bit for bit as if it had never stopped.",
        f"- **Where LSTM is better.** On text: {mean(ptb, 'lstm-300', 'bpc'):.2f} bits per character of Penn Treebank "
        f"after an epoch, against {mean(ptb, 'nnrnn-exact-300', 'bpc'):.2f} of `NNRNN` with the same units.",
    )
    return "\n".join(sentences) + "\n"


def _lines(column: Column, known: dict[str, Record]) -> dict[str, Line]:
    return {line.row.name: line for line in compare(experiment(column.experiment), column.scale, known).lines}


def _cell(line: Line | None, metric: str) -> str:
    if line is None or not line.runs:
        return "not run"
    shown = line.of(metric, "test")
    return number(shown.mean, shown.error) + failures(line) if shown.values else "failed"


def of_models(models: Sequence[str], known: dict[str, Record]) -> str:
    """Every recorded row of these models in Markdown, each once."""
    for model in models:
        check_name("model", model, MODELS | RELATIONAL_MODELS)
    rows = [_row(comparison, line) for comparison, line in _recorded(models, known)]
    headings, rows = without_empty(OF_MODELS, rows)
    return "\n".join([*heading_row(*headings), *map(markdown_row, rows)]) + "\n"


def _recorded(models: Sequence[str], known: dict[str, Record]) -> Iterator[tuple[Comparison, Line]]:
    seen: set[str] = set()
    concerned = [made for made in EXPERIMENTS.values() if any(row.settings.get("model") in models for row in made.rows)]
    for entry in concerned:
        for scale in entry.scales:
            comparison = compare(entry, scale, known)
            for line in comparison.lines:
                if line.row.settings.get("model") in models and line.runs and line.runs[0]["key"] not in seen:
                    seen.add(line.runs[0]["key"])
                    yield comparison, line


def _distinct(line: Line, comparison: Comparison) -> str:
    """The label of a row, with its comparison if others of the experiment have the same label."""
    name = label(line, comparison)
    alike = [other for other in comparison.lines if label(other, comparison) == name]
    return name if len(alike) == 1 else f"{name}, {', '.join(line.row.columns)}"


def _row(comparison: Comparison, line: Line) -> list[str]:
    entry = comparison.made
    return [
        f"{entry.name}, {comparison.scale}",
        _distinct(line, comparison),
        parameters(line),
        f"{entry.metric}, {entry.split}",
        number(line.mean, line.error) + failures(line),
        number(comparison.baseline),
    ]
