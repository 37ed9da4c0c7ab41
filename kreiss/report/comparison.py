"""Comparison of an experiment with the paper: runs, results and agreement."""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from kreiss.experiments import Experiment, Published, Row
from kreiss.networks.saving import BEST
from kreiss.studies.jobs import differences, keys_of
from kreiss.studies.results import Record
from kreiss.tasks import TASKS
from kreiss.tasks.base import HIGHER

MOST_SEEDS = 10  # per row
MOST_NOT_RUN = 12  # rows without runs that a table shows; more are counted below it
NEAR = 2.0  # standard errors within which numbers agree
NOT_RUN, QUOTED = "not run", "quoted"
RECALL = ("copy", "denoise", "selectivecopy")  # tasks that are solved or not
SOLVED = 0.99  # accuracy from which a recall task counts as solved


@dataclass(frozen=True)
class Line:
    """A row with its runs.

    Attributes:
        row: of the experiment.
        published: the published number.
        runs: existing runs, by seed.
        values: the metric of each finished run.
        scaled: whether the runs differ from the published set-up.
        elsewhere: other scales at which the row was run, if it was not run at this one.
    """

    row: Row
    published: Published | None
    runs: list[Record]
    values: list[float]
    scaled: bool
    elsewhere: tuple[str, ...] = ()

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
        """The same runs with another metric, without a published number."""
        values = [run[split][metric] for run in self.runs if metric in run.get(split, {})]
        return replace(self, published=None, values=values)

    def baseline(self, metric: str) -> float | None:
        """The metric without memory."""
        return next((run["baseline"].get(metric) for run in self.runs if "baseline" in run), None)

    @property
    def solved(self) -> float | None:
        """The mean number of updates after which runs were solved and stopped, if all were."""
        updates = [run["solved"] for run in self.runs if "solved" in run]
        return statistics.fmean(updates) if updates and len(updates) == len(self.runs) else None

    def ends(self, name: str) -> float | None:
        """The mean over runs of a test metric or a spectral number."""
        values = [{**run.get("spectrum", {}), **run.get("test", {})}.get(name) for run in self.runs]
        numbers = [number for number in values if number is not None]
        return statistics.fmean(numbers) if numbers else None


@dataclass(frozen=True)
class Comparison:
    """All rows of an experiment at a scale."""

    made: Experiment
    scale: str
    lines: list[Line]
    baseline: float | None = None
    order: tuple[int, int] = field(default=(0, 0))  # pairs of rows in the order of the paper, and all pairs

    @property
    def run(self) -> bool:
        """Whether it has any runs."""
        return bool(self.keys)

    @property
    def shown(self) -> list[Line]:
        """The rows of a table: those run here or quoted, and a few that were run at no scale."""
        if not self.run:
            return self.lines
        listed = self.not_run if len(self.not_run) <= MOST_NOT_RUN else []
        return [line for line in self.lines if line.runs or line.row.quoted or line in listed]

    @property
    def not_run(self) -> list[Line]:
        """The rows without a run at any scale."""
        return [line for line in self.lines if not (line.runs or line.row.quoted or line.elsewhere)]

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all its runs."""
        return frozenset(run["key"] for line in self.lines for run in line.runs)


def compare(made: Experiment, scale: str, known: dict[str, Record]) -> Comparison:
    """The rows of an experiment with their runs.

    Args:
        made: the experiment.
        scale: one of its scales.
        known: all runs by key.
    """
    lines = [_line(made, row, scale, known) for row in made.rows]
    baselines = {line.baseline(made.metric) for line in lines} - {None}  # the loss of a recall depends on its delay
    return Comparison(made, scale, lines, baselines.pop() if len(baselines) == 1 else None, _order(lines))


def _line(experiment: Experiment, row: Row, scale: str, known: dict[str, Record]) -> Line:
    keys = keys_of(experiment, row, scale, MOST_SEEDS)
    runs = [{**known[key], "key": key} for key in keys if key in known]
    published = next((n for n in row.published if (n.metric, n.split) == (experiment.metric, experiment.split)), None)
    values = [value for run in runs if (value := _value(run, experiment)) is not None]
    elsewhere = () if runs else _other_scales(experiment, row, scale, known)
    return Line(row, published, runs, values, bool(differences(experiment, row, scale)), elsewhere)


def _other_scales(experiment: Experiment, row: Row, scale: str, known: dict[str, Record]) -> tuple[str, ...]:
    others = (other for other in experiment.scales if other != scale)
    return tuple(name for name in others if not known.keys().isdisjoint(keys_of(experiment, row, name, MOST_SEEDS)))


def _value(run: Record, experiment: Experiment) -> float | None:
    metrics: dict[str, Any] = {**run.get("spectrum", {}), **run.get(experiment.split, {})}
    return metrics.get(experiment.metric)


def _order(lines: Sequence[Line]) -> tuple[int, int]:
    """Pairs of rows in the order of the paper, and all pairs that were run and whose published numbers differ."""
    right = total = 0
    for first, second in _pairs(lines):
        assert first.published is not None
        assert second.published is not None
        assert first.mean is not None
        assert second.mean is not None
        total += 1
        right += (first.published.value < second.published.value) == (first.mean < second.mean)
    return right, total


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[Line, Line]]:
    """Pairs of rows of one comparison (units or parameters, same length) with published numbers and runs."""
    numbers = [line for line in lines if line.published is not None and line.mean is not None]
    for first, second in combinations(numbers, 2):
        together = set(first.row.columns) & set(second.row.columns) or not (first.row.columns or second.row.columns)
        lengths = {line.row.settings.get("task.chunk") for line in (first, second)}
        assert first.published is not None
        assert second.published is not None
        if together and len(lengths) == 1 and first.published.value != second.published.value:
            yield first, second


def folder_of(line: Line, runs: Path) -> Path | None:
    """The folder of the first run of a row whose network still exists."""
    for run in line.runs:
        folder = runs / str(run.get("key", ""))
        if run.get("key") and (folder / BEST).exists():
            return folder
    return None


def verdict(line: Line, comparison: Comparison) -> str:
    """A short verdict on the numbers of a row."""
    if not line.runs:
        return QUOTED if line.row.quoted and line.row.published else NOT_RUN
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


def _noise(line: Line, comparison: Comparison, chance: float) -> float:
    """Standard error of the mean over seeds or, if that is larger, of a share of so many tests."""
    tested = _tested(comparison.made.settings(line.row, comparison.scale))
    share = comparison.made.metric.split("@")[0] in ("accuracy", "success") and tested > 0
    return max(line.error or 0.0, math.sqrt(chance * (1 - chance) / tested) if share else 0.0)


def _tested(settings: Mapping[str, Any]) -> int:
    """Sequences or episodes of a test; 0 where the task does not choose their number."""
    known = inspect.signature(TASKS[settings["task"]]).parameters if settings["task"] in TASKS else {}
    for name in ("test_sequences", "test_episodes"):
        if name in known:
            return int(settings.get(f"task.{name}", known[name].default))
    return 0


def _against_baseline(line: Line, comparison: Comparison) -> str:
    accuracy = line.ends("accuracy")
    if line.row.settings["task"] in RECALL and accuracy is not None and accuracy >= SOLVED:
        return "solved"
    baseline = line.baseline(comparison.made.metric)
    if baseline is None or line.mean is None:
        return "run"
    sign = 1 if comparison.made.metric.split("@")[0] in HIGHER else -1
    better = sign * (line.mean - baseline) > NEAR * _noise(line, comparison, baseline)
    return f"better than {naive(comparison)}" if better else f"no better than {naive(comparison)}"


def naive(comparison: Comparison) -> str:
    """What the baseline of the experiment's task is called; runs of one's own record it."""
    recorded = [run["naive"] for line in comparison.lines for run in line.runs if "naive" in run]
    names = (line.row.settings["task"] for line in comparison.lines if not line.row.quoted)
    return str(recorded[0]) if recorded else TASKS[next(names)].naive
