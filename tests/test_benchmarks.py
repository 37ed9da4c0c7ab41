"""Every program of benchmarks/ starts, measures and writes where it is told; recorded tables are what they make."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kreiss
from kreiss.bench.contenders import Work
from kreiss.studies.jobs import Job
from kreiss.studies.places import made_in_this_process
from kreiss.tasks import Adding, Denoise, Task
from scripts import FOLDER, script

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))

# program → words of a command line that asks for next to nothing; where it writes is added
TINY = {
    "adding": "--length 4 --updates 2 --every 1",
    "agents": "--networks lstm rellstm --environments 2 --frames 16 --rounds 1",
    "copy_task": "--seeds 1 --delay 2 --hidden 4 --steps 2",
    "denoise": "--delay 2 --parameters 200 --updates 1",
    "eigenpair": "--size 8 --steps 7",
    "learned_structure": "--scale smoke --seeds 1 --decays 1 --runs runs --figures figures",
    "learning_rates": "--scale smoke --networks nnrnn-1 --chunks 150 --rates 0.01 --updates 1",
    "long_sequences": "--lengths 2 4 --widths 4 --rounds 1 --compiled-at 2 3 --backend eager",
    "memory": "--lengths 2 4 --weighed 3 6 --hidden 4 --long 5 --rounds 1 --kinds counted --figure growth.png",
    "orthogonal_methods": "--sizes 4 6 --rounds 2 --size 6 --steps 3 --delay 2 --hidden 4 --updates 1 --seeds 1",
    "pseudospectra": "--size 6 --side 4 --sample 3 --rounds 1",
    "relational": "--networks corelnet lstm --held-out 95 --batch 2 --rounds 1",
    "stream_step": "--sizes 4 6 --rounds 1 --steps 2",
    "structured": "--sizes 4 8 16 --layers 4 --rounds 1",
    "training_overhead": "--rounds 1 --steps 2 --delay 2 --hidden 4 --show quiet --write",
}
WITHOUT_TABLE = ("training_overhead",)
FIGURES = {"learned_structure": {"001-fig3", "000-fig5"}}
# programs whose recorded results are one file, of which alone their table is made
RECORDED = (
    "adding",
    "agents",
    "copy_task",
    "denoise",
    "eigenpair",
    "memory",
    "orthogonal_methods",
    "pseudospectra",
    "relational",
    "stream_step",
    "structured",
)


class InThisProcess:
    """Makes the runs of an experiment without processes of their own, which take seconds to start."""

    def __init__(self, count: int) -> None:
        self.count = count

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Iterator[tuple[Job, Any]]:
        return ((job, made_in_this_process(job, runs)) for job in jobs)


def in_this_process(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program do here, and small, what it does in other processes."""
    if hasattr(program, "Here"):
        monkeypatch.setattr(program, "Here", InThisProcess)
    if hasattr(program, "weigh"):
        monkeypatch.setattr(program, "PS_MNIST", Work("tiny", 2, 3, 4, 1))
        monkeypatch.setattr(program, "_child", lambda _, how, name: str(program.weigh(how, name)))


def stamps() -> dict[Path, int]:
    """When each file of results/ and docs/ was last written."""
    folders = (ROOT / "results", ROOT / "docs")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and "_build" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture
def start(tmp_path, monkeypatch) -> Callable[..., dict[str, Any]]:
    """Starts a program with a tiny budget and more words; returns the results it wrote, if they are one file."""
    monkeypatch.chdir(tmp_path)  # where the folders of runs are made

    def run(name: str, *more: str) -> dict[str, Any]:
        program = script(name)
        in_this_process(program, monkeypatch)
        table = [] if name in WITHOUT_TABLE else ["--table", "table.md"]
        program.main([*TINY[name].split(), "--results", "results", *table, *more])
        return json.loads(Path("results").read_text()) if Path("results").is_file() else {}

    return run


def leaves(value: Any) -> list[Any]:
    """All that nested lists and mappings hold."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inside is None else [leaf for part in inside for leaf in leaves(part)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_measures_and_writes_where_it_is_told_and_nowhere_else(name, start):
    assert name in TINY, f"benchmarks/{name}.py is new: say in TINY how it is started with next to nothing to do."
    before = stamps()
    results = start(name)
    assert stamps() == before
    files = [Path("results")] if results else list(Path("results").glob("*.json"))
    numbers = [leaf for file in files for leaf in leaves(json.loads(file.read_text())) if isinstance(leaf, float)]
    assert numbers
    assert all(torch.tensor(numbers).isfinite())
    assert name in WITHOUT_TABLE or re.search(r"^\| ?---.*\n\| .*\d", Path("table.md").read_text(), re.MULTILINE)
    assert {path.stem for path in Path("figures").glob("*.*")} == FIGURES.get(name, set())


def test_no_budget_is_left_of_a_program_that_is_gone():
    assert sorted(TINY) == PROGRAMS


@pytest.mark.parametrize("name", RECORDED)
def test_the_table_of_a_program_is_what_it_makes_of_the_recorded_results(name):
    program = script(name)
    assert program.table(json.loads(program.RESULTS.read_text())) == program.TABLE.read_text()


# ---------------------------------------------------------------- runs that end early, and runs that go on


def test_adding_ends_at_the_first_validation_that_reaches_the_target(start):
    (entry,) = start("adding", "--target", "10")["runs"]
    assert (entry["updates"], entry["reached"]) == (1, True)
    (entry,) = start("adding", "--target", "1e-9")["runs"]  # goes on with the same run
    assert (entry["updates"], entry["reached"]) == (2, False)
    assert [point["update"] for point in entry["curve"]] == [1, 2]


def test_adding_that_was_stopped_goes_on_and_comes_to_the_numbers_of_a_run_at_once(start, monkeypatch):
    stop(Adding, monkeypatch, lambda: start("adding"))
    (entry,) = start("adding")["runs"]
    task = Adding(4, sequences=0, valid_sequences=1000, test_sequences=2000)
    settings = {"model.short": 64, "model.negative": 0, "batch": 50, "steps": 2, "eval_every": 1}
    whole = kreiss.fit("enrnn", task, settings, hidden=160, optimiser="adam", lr=1e-3, clip_norm=1, show="quiet")
    assert entry["mse"] == whole.metrics["loss"]
    assert [point["mse"] for point in entry["curve"]] == [r["loss"] for r in whole.records if r.get("split") == "valid"]


def test_denoise_that_was_stopped_goes_on_and_comes_to_the_same_numbers(start, monkeypatch):
    words = ("denoise", "--updates", "2", "--models", "lstm", "--runs")
    stop(Denoise, monkeypatch, lambda: start(*words, "stopped"))
    on = without_times(start(*words, "stopped"))
    assert on == without_times(start(*words, "whole"))
    assert [point["update"] for point in on[0]["curve"]] == [1, 2]


def stop(task: type[Task], monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let a piece of work fail at the second update of a run, before it has written results."""
    with monkeypatch.context() as patch:
        patch.setattr(task, "train", stopping(task.train, at=1))
        with pytest.raises(RuntimeError, match="the machine is gone"):
            work()
    assert not Path("results").exists()


def stopping(train: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Draws batches until an update, at which it raises."""

    def drawn(self: Any, update: int, *rest: Any) -> Any:
        if update == at:
            raise RuntimeError("the machine is gone")
        return train(self, update, *rest)

    return drawn


def without_times(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in results["runs"]]


def test_runs_of_denoise_that_are_done_are_not_made_again(start, monkeypatch):
    before = start("denoise", "--models", "lstm")
    monkeypatch.setattr(Denoise, "train", lambda *_: pytest.fail("it trained again"))
    assert without_times(start("denoise", "--models", "lstm")) == without_times(before)


def test_denoise_shows_the_rate_with_the_lower_validation_loss(start):
    results = start("denoise", "--models", "lstm")
    lower, higher = sorted(results["runs"], key=lambda entry: min(point["loss"] for point in entry["curve"]))
    rows = [line for line in Path("table.md").read_text().splitlines() if line.startswith("| lstm")]
    assert lower["rate"] != higher["rate"]
    assert len(rows) == 1
    assert f"| {lower['rate']} |" in rows[0]


@pytest.mark.parametrize("name", ["long_sequences", "orthogonal_methods", "structured"])
def test_a_part_that_a_program_does_not_have_is_refused(name, start, capsys):
    with pytest.raises(SystemExit):
        start(name, "--rounds", "1", "all")
    assert "unknown part ['all']; choose from" in capsys.readouterr().err
