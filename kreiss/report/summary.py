"""One table over all experiments that were run small: networks against tasks, at equal units."""

from __future__ import annotations

from typing import NamedTuple

from kreiss.experiments import experiment
from kreiss.report.comparison import Line, compare
from kreiss.report.tables import heading_row, number
from kreiss.studies.results import Record


class Column(NamedTuple):
    """An experiment in the summary; `ending` follows the name of a network in the names of its rows."""

    heading: str
    experiment: str
    scale: str
    metric: str
    ending: str = ""


NETWORKS = {
    "nnrnn-exact": "`NNRNN`", "nnrnn": "`NNRNN`, paper's blocks", "exprnn": "`ExpRNN`", "orthrnn": "`OrthRNN`",
    "eurnn": "`EURNN`", "rnn": "`RNN`", "lstm": "`LSTM`",
}  # fmt: skip
COLUMNS = (
    Column("copy, T = 200: accuracy", "001/fig2-copy", "laptop", "accuracy"),
    Column("permuted digits: accuracy", "001/fig2-psmnist", "digits", "accuracy"),
    Column("permuted MNIST: accuracy", "001/fig2-psmnist", "laptop", "accuracy"),
    Column("PTB, 150 steps: bits", "001/table1", "laptop", "bpc", "-150"),
    Column("PTB, 300 steps: bits", "001/table1", "laptop", "bpc", "-300"),
)


def summary(known: dict[str, Record]) -> str:
    """The table in Markdown; test numbers, mean ± standard error over seeds."""
    lines = heading_row("network", *(column.heading for column in COLUMNS))
    found = {column: _lines(column, known) for column in COLUMNS}
    for name, label in NETWORKS.items():
        cells = [_cell(found[column].get(name + column.ending), column.metric) for column in COLUMNS]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _lines(column: Column, known: dict[str, Record]) -> dict[str, Line]:
    return {line.row.name: line for line in compare(experiment(column.experiment), column.scale, known).lines}


def _cell(line: Line | None, metric: str) -> str:
    if line is None or not line.runs:
        return "not run"
    values = [run["test"][metric] for run in line.runs if metric in run.get("test", {})]
    if not values:
        return "failed"
    shown = Line(line.row, None, line.runs, values, line.scaled)
    return number(shown.mean, shown.error)
