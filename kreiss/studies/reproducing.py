"""`kreiss reproduce`: missing runs of an experiment are executed, interrupted ones resumed, finished ones kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from kreiss.errors import RunError
from kreiss.experiments import Experiment
from kreiss.studies import results
from kreiss.studies.jobs import Job, chosen, differences, jobs_of
from kreiss.studies.places import Place
from kreiss.studies.results import Record
from kreiss.training.record import read_config, read_status, remove

SHOWN = 12  # differences from the paper that are printed, each once
TAIL = 4096  # bytes at the end of the metrics, with the last update


def reproduce(
    made: Experiment,
    scale: str,
    place: Place,
    *,
    seeds: int,
    only: tuple[str, ...] = (),
    changes: dict[str, Any] | None = None,
    folder: Path = results.FOLDER,
    runs: Path = Path("runs") / "experiments",
    again: bool = False,
    console: Console | None = None,
) -> dict[str, Record]:
    """Run what is missing of an experiment; returns all its runs by key.

    Args:
        made: the experiment.
        scale: one of its scales.
        place: where runs are executed.
        seeds: runs of every row, with seeds from 0.
        only: names or patterns of rows.
        changes: settings to change.
        folder: of results.
        runs: folder of the runs themselves, with their checkpoints.
        again: rerun runs that diverged.
        console: where progress is shown.
    """
    console = console or Console(soft_wrap=True, highlight=False)
    jobs = list({job.key: job for job in jobs_of(made, scale, seeds, only, changes)}.values())
    known = results.read_all(folder)
    stands = {key for key, record in known.items() if record["state"] == "finished" or not again}
    done = {job.key: _named(known[job.key], job, scale) for job in jobs if job.key in stands}
    missing = [job for job in jobs if job.key not in done]
    _say_scale(made, scale, only, console)
    console.print(f"{made.name} at scale {scale}: {len(jobs)} runs, {len(done)} done, {len(missing)} to make")
    if done:
        results.add(folder, made.name, done)
    if again:
        _set_aside(missing, runs)

    def keep(job: Job, record: Record) -> None:
        done[job.key] = _named(record, job, scale)
        results.add(folder, made.name, {job.key: done[job.key]})

    make(missing, place, runs, made.name, made.metric, console, keep)
    return done


def make(
    jobs: list[Job], place: Place, runs: Path, name: str, metric: str, console: Console,
    keep: Callable[[Job, Record], None] = lambda job, record: None,
) -> None:  # fmt: skip
    """Execute runs, or resume them; an error at the end says which were not finished.

    Args:
        jobs: the runs.
        place: where they are executed.
        runs: folder of the runs.
        name: of all of them together, for messages.
        metric: that is shown.
        console: where progress is shown.
        keep: called with every result as it comes.
    """
    troubles: dict[str, RunError] = {}
    with Watch(jobs, runs, metric, console) as watch, closing(place.made(jobs, runs, watch.look)) as making:
        for job, came in making:
            if isinstance(came, RunError):
                troubles[f"{job.row} seed {job.seed}"] = came
                watch.ended(job, str(came))
                continue
            keep(job, came)
            watch.ended(job, said(came, metric))
    if troubles:
        raise RunError(
            f"{len(troubles)} of {len(jobs)} runs of {name} were not finished; rerun the command: "
            f"{', '.join(troubles)}. The first was {next(iter(troubles.values()))}"
        )


def _set_aside(jobs: list[Job], runs: Path) -> None:
    """Remove the folders of runs that diverged, which would otherwise stay."""
    for folder in (runs / job.key for job in jobs):
        status = read_status(folder)
        if status["state"] == "failed" and results.is_result(status):
            remove(folder)


def _named(record: Record, job: Job, scale: str) -> Record:
    settings = {name: value for name, value in record.items() if name not in ("row", "scale", "seed", "config")}
    return {"row": job.row, "scale": scale, "seed": job.seed, "config": _short(job), **settings}


def _short(job: Job) -> dict[str, Any]:
    """Settings that are not defaults."""
    settings = job.config.model_dump(mode="json", exclude_defaults=True)
    for section in ("task", "model"):
        settings[section] = {"name": getattr(job.config, section).name, **settings.get(section, {})}
    return settings


def said(record: Record, metric: str) -> str:
    """One line about a run."""
    if record["state"] == "failed":
        return f"failed: {record.get('message', '')}"
    numbers = {**record.get("spectrum", {}), **record.get("test", {})}
    return f"{metric} {numbers.get(metric, float('nan')):.4g}"


def _say_scale(experiment: Experiment, scale: str, only: tuple[str, ...], console: Console) -> None:
    """The difference from the published set-up, before anything is run."""
    console.print(f"scale {scale}: {experiment.scales[scale].about}")
    lines: dict[str, None] = {}
    for row in chosen(experiment, only):
        for name, (paper, here) in differences(experiment, row, scale).items():
            lines[f"  {name}: {_value(paper)} → {_value(here)}"] = None
    for line in list(lines)[:SHOWN]:
        console.print(line, markup=False)
    if len(lines) > SHOWN:
        console.print(
            f"  and {len(lines) - SHOWN} more; `kreiss show {experiment.name}/ROW --scale {scale}` lists them"
        )


def _value(value: Any) -> str:
    return "not set" if value is None else str(value)


# ---------------------------------------------------------------- progress


@dataclass
class Watch:
    """Overall progress and the time left: a bar on a terminal, a line for every run elsewhere."""

    jobs: list[Job]
    runs: Path
    metric: str
    console: Console
    over: set[str] = field(default_factory=set)  # keys of runs that ended

    def __enter__(self) -> Watch:
        self.before = {job.key: share_made(self.runs / job.key) for job in self.jobs}  # by earlier processes
        self.started = time.monotonic()
        self.bar = Progress(
            BarColumn(30), MofNCompleteColumn(), TextColumn("runs, {task.description}"), console=self.console,
            disable=not self.console.is_terminal or not self.jobs,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=len(self.jobs))
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def look(self) -> None:
        """Show the progress of all runs."""
        self.bar.update(self.task, completed=len(self.over), description=self._left())

    def ended(self, job: Job, words: str) -> None:
        """A run has ended."""
        self.over.add(job.key)
        number = f"[{len(self.over)}/{len(self.jobs)}]"
        self.console.print(f"{number} {job.row} seed {job.seed}: {words}; {self._left()}", markup=False)

    def _left(self) -> str:
        """Time left, if the remaining runs take as long as those so far."""
        shares = {key: 1.0 if key in self.over else share_made(self.runs / key) for key in self.before}
        done = sum(shares.values()) - sum(self.before.values())
        if done <= 0:
            return "time left not known yet"
        return (
            f"about {_duration((time.monotonic() - self.started) * (len(shares) - sum(shares.values())) / done)} left"
        )


def share_made(folder: Path) -> float:
    """How much of a run is done, from 0 to 1; its settings in the folder say how many updates it has."""
    updates = updates_made(folder)
    return updates / (read_config(folder).steps or updates) if updates else 0.0


def updates_made(folder: Path) -> int:
    """Updates of a run so far, from the end of its metrics."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL, 0))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["update"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
