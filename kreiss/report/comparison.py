"""An experiment beside the paper: what was run, what it came to, and whether it agrees."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from kreiss.experiments import Experiment, Published, Row, Scale
from kreiss.studies import worker
from kreiss.studies.jobs import differences, keys_of
from kreiss.studies.results import Record
from kreiss.tasks import TASKS
from kreiss.training.record import read_config

MOST_SEEDS = 10  # looked for
NEAR = 2.0  # standard errors within which numbers agree
NOT_RUN = "not run"
HIGHER = ("accuracy", "segsnr", "stoi", "pesq")  # metrics that are better when higher
SOLVED = 0.99  # accuracy from which a task of recall is solved


@dataclass(frozen=True)
class Line:
    """A row with its runs.

    Attributes:
        row: of the experiment.
        published: the number it is compared with.
        runs: those that were made, by seed.
        values: the metric of each that finished.
        scaled: whether the runs differ from the published set-up.
    """

    row: Row
    published: Published | None
    runs: list[Record]
    values: list[float]
    scaled: bool

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean."""
        return statistics.stdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else None

    @property
    def failed(self) -> int:
        """Runs that did not converge."""
        return sum(run["state"] == "failed" for run in self.runs)

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.published is None else self.mean - self.published.value

    def of(self, metric: str, split: str) -> Line:
        """The same runs with another of their numbers; there is no published one."""
        values = [run[split][metric] for run in self.runs if metric in run.get(split, {})]
        return replace(self, published=None, values=values)

    def ends(self, name: str) -> float | None:
        """The mean over runs of a number of their tests or spectra."""
        found = [{**run.get("spectrum", {}), **run.get("test", {})}.get(name) for run in self.runs]
        numbers = [number for number in found if number is not None]
        return statistics.fmean(numbers) if numbers else None


@dataclass(frozen=True)
class Comparison:
    """All rows of an experiment at a scale."""

    made: Experiment
    scale: str
    lines: list[Line]
    baseline: float | None = None
    order: tuple[int, int] = field(default=(0, 0))  # pairs of rows in the order of the paper, of all pairs

    @property
    def run(self) -> bool:
        """Whether anything of it was run."""
        return bool(self.keys)

    @property
    def keys(self) -> frozenset[str]:
        """Of all its runs."""
        return frozenset(run["key"] for line in self.lines for run in line.runs)


def compare(made: Experiment, scale: str, known: dict[str, Record]) -> Comparison:
    """The rows of an experiment beside their runs.

    Args:
        made: the experiment.
        scale: one of its scales.
        known: all runs by key.
    """
    lines = [_line(made, row, scale, known) for row in made.rows]
    baselines = [run["baseline"].get(made.metric) for line in lines for run in line.runs if "baseline" in run]
    return Comparison(made, scale, lines, next(iter(baselines), None), _order(lines))


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Runs of the user's own beside one another; there is no paper."""
    lines: list[Line] = []
    for folder in folders:
        config = read_config(folder)
        record = {**worker.record_of(folder, config), "key": str(folder.resolve())}
        settings = {"model": config.model.name, "task": config.task.name}
        metric = TASKS[config.task.name].metric
        values = [record["test"][metric]] if "test" in record else []
        lines.append(Line(Row(folder.name, str(folder), settings), None, [record], values, False))
    made = Experiment(
        "runs", "", "runs of your own", "Runs", TASKS[lines[0].row.settings["task"]].metric,
        tuple(line.row for line in lines), {"own": Scale("as each was told")},
    )  # fmt: skip
    return Comparison(made, "own", lines)


def _line(made: Experiment, row: Row, scale: str, known: dict[str, Record]) -> Line:
    keys = keys_of(made, row, scale, MOST_SEEDS)
    runs = [{**known[key], "key": key} for key in keys if key in known]
    published = next((n for n in row.published if (n.metric, n.split) == (made.metric, made.split)), None)
    values = [value for run in runs if (value := _value(run, made)) is not None]
    return Line(row, published, runs, values, bool(differences(made, row, scale)))


def _value(run: Record, made: Experiment) -> float | None:
    found: dict[str, Any] = {**run.get("spectrum", {}), **run.get(made.split, {})}
    return found.get(made.metric)


def _order(lines: Sequence[Line]) -> tuple[int, int]:
    """Pairs of rows whose order is that of the paper, of all whose published numbers differ and that were run."""
    right = total = 0
    for one, two in _pairs(lines):
        assert one.published is not None
        assert two.published is not None
        assert one.mean is not None
        assert two.mean is not None
        total += 1
        right += (one.published.value < two.published.value) == (one.mean < two.mean)
    return right, total


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[Line, Line]]:
    """Pairs of rows of one comparison (units or parameters, and the same length) with numbers on both sides."""
    numbers = [line for line in lines if line.published is not None and line.mean is not None]
    for one, two in combinations(numbers, 2):
        together = set(one.row.columns) & set(two.row.columns) or not (one.row.columns or two.row.columns)
        lengths = {line.row.settings.get("task.chunk") for line in (one, two)}
        assert one.published is not None
        assert two.published is not None
        if together and len(lengths) == 1 and one.published.value != two.published.value:
            yield one, two


def verdict(line: Line, comparison: Comparison) -> str:
    """In a few words what the numbers of a row say."""
    if not line.runs:
        return NOT_RUN
    if line.mean is None:
        return "failed"
    if line.published is not None and not line.scaled:
        return _agreement(line)
    if line.scaled and line.published is not None:
        return "scaled down: not comparable"
    return _against_baseline(line, comparison)


def _agreement(line: Line) -> str:
    assert line.difference is not None
    assert line.published is not None
    errors = [error for error in (line.error, line.published.error) if error is not None]
    spread = NEAR * math.hypot(*errors) if errors else 0.0
    return "agrees" if abs(line.difference) <= spread else "higher" if line.difference > 0 else "lower"


def _against_baseline(line: Line, comparison: Comparison) -> str:
    accuracy = line.ends("accuracy")
    if comparison.made.rows[0].settings["task"] == "copy" and accuracy is not None and accuracy >= SOLVED:
        return "solved"
    if comparison.baseline is None or line.mean is None:
        return "run"
    higher = comparison.made.metric in HIGHER
    better = line.mean > comparison.baseline if higher else line.mean < comparison.baseline
    return "better than without memory" if better else "no better than without memory"
