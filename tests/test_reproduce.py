"""`kreiss reproduce`: what is missing is run, what was killed goes on, what is done stays; also on a Ray cluster."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

import kreiss
from kreiss.commands.experiments import _searched
from kreiss.errors import InputError, RunError
from kreiss.experiments import experiment
from kreiss.report.sweeps import parallel_coordinates
from kreiss.studies import results, sweeping, worker
from kreiss.studies.grids import GRIDS
from kreiss.studies.jobs import Job, jobs_of
from kreiss.studies.places import Here, Made, OnRay, Place, made_in_this_process
from kreiss.studies.reproducing import Watch, reproduce, share_made, updates_made
from kreiss.training.config import first_name, written
from kreiss.training.record import RunFolder, read_status, remove

ROOT = Path(__file__).parents[1]
NAME = "001/fig2-copy"
ONLY = ("nnrnn-exact", "rnn")
Runs = dict[str, results.Record]
# long enough that it can be killed on the way, with a checkpoint at every third update
LONGER = {"steps": 90, "eval_every": 3, "task.delay": 60, "batch": 8}


class Inside:
    """Makes runs in this process: the same work without the time that a new process takes."""

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Made:
        for job in jobs:
            look()
            try:
                yield job, made_in_this_process(job, runs)
            except RunError as error:
                yield job, error


def made(
    folder: Path, place: Place | None = None, only: tuple[str, ...] = ONLY, again: bool = False, **changes: object
) -> Runs:
    return reproduce(
        experiment(NAME), "smoke", place or Inside(), seeds=1, only=only, changes=changes, folder=folder / "results",
        runs=folder / "runs", again=again, console=Console(quiet=True),
    )  # fmt: skip


def numbers(record: results.Record) -> results.Record:
    """Everything but the time that it took and how often it was resumed."""
    return {name: value for name, value in record.items() if name not in ("seconds", "resumed")}


def command(folder: Path, *more: str) -> list[str]:
    changes = [word for name, value in LONGER.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [
        sys.executable, "-m", "kreiss", "reproduce", f"{NAME}/rnn", "--scale", "smoke", "--seeds", "1", *changes,
        "--results", str(folder / "results"), "--runs", str(folder / "runs"), *more,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def test_what_is_done_is_not_run_again_and_a_changed_setting_is_a_new_run(tmp_path, monkeypatch):
    first = made(tmp_path)
    assert {record["row"] for record in first.values()} == {f"{NAME}/{name}" for name in ONLY}
    assert all(record["state"] == "finished" and record["test"]["loss"] > 0 for record in first.values())

    def never(*_: object) -> None:
        raise AssertionError("a run was made a second time")

    with monkeypatch.context() as patched:
        patched.setattr(Inside, "made", lambda self, jobs, *_: (never() for _ in jobs))
        assert made(tmp_path) == first
    again = made(tmp_path, lr=0.5)
    assert not set(again) & set(first)
    assert set(results.read(results.file_of(tmp_path / "results", NAME))) == {*first, *again}


@pytest.mark.parametrize("kills", [(12,), pytest.param((12, 30), marks=pytest.mark.slow)], ids=["once", "twice"])
def test_killed_it_ends_with_the_numbers_of_an_uninterrupted_run(kills, tmp_path):
    expected = made(tmp_path / "whole", only=("rnn",), **LONGER)
    killed = tmp_path / "killed"
    folder = killed / "runs" / next(iter(expected))
    for updates in kills:
        process = subprocess.Popen(command(killed), env=environment(), stdout=subprocess.DEVNULL)
        wait_until(lambda updates=updates: updates_made(folder) >= updates)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
        wait_until(lambda: read_status(folder)["state"] == "killed")  # the process of the run goes with it
        assert not (killed / "results").exists()
    done = subprocess.run(command(killed), env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1 runs, 0 done, 1 to make" in done.stdout
    assert (folder / "metrics.jsonl").read_text().count("resumed") == len(kills)
    found = results.read(results.file_of(killed / "results", NAME))
    assert [record["resumed"] for record in found.values()] == [len(kills)]
    assert {key: numbers(record) for key, record in found.items()} == {
        key: numbers(record) for key, record in expected.items()
    }


def test_a_run_has_the_threads_that_were_asked_for_and_its_record_says_so(tmp_path):
    done = subprocess.run(command(tmp_path, "--threads", "2"), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (record,) = results.read(results.file_of(tmp_path / "results", NAME)).values()
    assert record["threads"] == 2
    assert "resumed" not in record
    done = subprocess.run(
        command(tmp_path, "--threads", "2", "--ray", "local"), env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: `threads` must be 1 on a Ray cluster, which gives each run one processor")


def wait_until(true: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_diverges_is_a_result_and_is_made_again_only_when_asked(tmp_path):
    diverging = {"lr": 1e30, "steps": 10, "model.nonlinearity": "relu"}
    found = made(tmp_path, **diverging)
    record = next(record for record in found.values() if record["row"].endswith("/rnn"))
    assert record["state"] == "failed"
    assert "finite" in record["message"]
    assert made(tmp_path, **diverging) == found


def test_a_full_disk_is_no_result_and_the_run_is_made_when_there_is_room(tmp_path, monkeypatch):
    sync = os.fsync

    def nearly_full(file: int) -> None:
        if os.fstat(file).st_size > 8000:  # room for a status, and not for a checkpoint
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", nearly_full)
        with pytest.raises(RunError, match=r"1 of 1 runs of 001/fig2-copy were .*/rnn seed 0.*No space left on"):
            made(tmp_path, only=("rnn",))
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert read_status(folder)["state"] == "failed"
    assert results.read_all(tmp_path / "results") == {}
    (record,) = made(tmp_path, only=("rnn",)).values()
    assert record["state"] == "finished"


def test_failures_that_were_recorded_without_a_cause_stand_only_if_they_diverged(tmp_path):
    common = {"row": f"{NAME}/rnn", "scale": "smoke", "seed": 0}
    diverged = "the norm of all gradients must be finite; got inf at update 5. No checkpoint was written; lower"
    full = "`runs/x/last.safetensors` could not be written: No space left on device."
    recorded = {
        "a": {**common, "state": "finished"},
        "b": {**common, "state": "failed", "message": diverged},
        "c": {**common, "state": "failed", "message": full},
    }
    (tmp_path / "x.json").write_text(json.dumps({"experiment": NAME, "runs": recorded}))
    assert list(results.read_all(tmp_path)) == ["a", "b"]


def test_what_diverged_is_made_again_when_asked(tmp_path):
    diverging = {"lr": 1e30, "steps": 10, "model.nonlinearity": "relu"}
    (key,) = made(tmp_path, only=("rnn",), **diverging)
    started = (tmp_path / "runs" / key / "run.json").stat().st_mtime_ns
    made(tmp_path, only=("rnn",), again=True, **diverging)
    assert (tmp_path / "runs" / key / "run.json").stat().st_mtime_ns > started


# ---------------------------------------------------------------- several at once


def test_two_workers_with_one_run_wait_for_one_another(tmp_path):
    job = jobs_of(experiment(NAME), "smoke", 1, ("rnn",))[0]
    settings, folder = tmp_path / "settings.yaml", tmp_path / job.key
    settings.write_text(written(job.config))
    words = [sys.executable, "-m", "kreiss.studies.worker", str(folder), str(settings)]
    piped = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(words, env=environment(), **piped) for _ in range(2)]
    said = [process.stderr.read().decode() for process in both]  # until they end
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0], said
    assert read_status(folder)["state"] == "finished"
    assert (folder / "metrics.jsonl").read_text().count('"split": "test"') == 1


def test_a_folder_in_which_a_process_trains_is_never_removed(tmp_path):
    job = jobs_of(experiment(NAME), "smoke", 1, ("rnn",))[0]
    live = RunFolder.create(tmp_path / job.key, job.config)
    before = sorted(path.name for path in live.path.iterdir())
    with pytest.raises(RunError, match="only one process may train in"):
        remove(live.path)
    assert sorted(path.name for path in live.path.iterdir()) == before
    live.close()
    remove(live.path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_reproduce_alone_ends_its_runs_with_a_checkpoint(tmp_path):
    endless = [*command(tmp_path), "--steps", "1000000"]
    key = jobs_of(experiment(NAME), "smoke", 1, ("rnn",), {**LONGER, "steps": 1_000_000})[0].key
    heeding = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  jobs in the background ignore it
    process = subprocess.Popen(endless, env=environment(), stdout=subprocess.DEVNULL, preexec_fn=heeding)
    try:
        wait_until(lambda: updates_made(tmp_path / "runs" / key) >= 6)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert read_status(tmp_path / "runs" / key)["state"] == "interrupted"


def test_a_run_that_cannot_be_made_is_said_and_the_others_are_made(tmp_path):
    key = jobs_of(experiment(NAME), "smoke", 1, ("rnn",))[0].key
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / key).write_text("in the way")
    with pytest.raises(RunError, match=r"1 of 2 runs of 001/fig2-copy were .*/rnn seed 0.*must be writable"):
        made(tmp_path, Here(2))
    assert [record["row"] for record in results.read_all(tmp_path / "results").values()] == [f"{NAME}/nnrnn-exact"]


def test_the_share_of_a_run_that_is_done_comes_from_its_folder(tmp_path):
    assert share_made(tmp_path) == 0
    kreiss.fit("rnn", "pixels", {"hidden": 2, "batch": 1000, "epochs": 2, "log_every": 1}, out=tmp_path, show="quiet")
    metrics = tmp_path / "metrics.jsonl"
    assert share_made(tmp_path) == 1
    lines = metrics.read_text().splitlines()
    half = next(number for number, line in enumerate(lines) if '"update": 1,' in line)
    metrics.write_text("\n".join([*lines[: half + 1], '{"upd']))
    assert share_made(tmp_path) == 0.5  # 2 updates in all, though only epochs were asked for


def test_progress_says_the_time_left(tmp_path):
    jobs = jobs_of(experiment(NAME), "smoke", 1, ONLY, LONGER)
    said: list[str] = []
    console = Console(file=open(os.devnull, "w"))  # noqa: SIM115
    console.print = lambda text, **_: said.append(text)  # type: ignore[method-assign]
    with Watch(jobs, tmp_path, "loss", console) as watch:
        watch.look()
        watch.ended(jobs[0], "loss 1")
        watch.ended(jobs[1], "loss 2")
    console.file.close()
    assert "[1/2] 001/fig2-copy/nnrnn-exact seed 0: loss 1; about" in said[0]
    assert said[1].endswith("about 0 s left")


def test_records_of_a_file_that_is_no_result_are_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(RunError, match="must hold results of experiments"):
        results.read_all(tmp_path)


def test_a_record_holds_the_best_validation_the_test_and_the_spectrum(tmp_path):
    found = made(tmp_path, steps=6, eval_every=2)
    for record in found.values():
        assert [point["update"] for point in record["curve"]] == [2, 4, 6]
        assert record["valid"]["loss"] == min(point["loss"] for point in record["curve"])
        assert set(record["spectrum"]) == set(worker.SPECTRUM)
        assert record["parameters"] == 233
        assert "solved" not in record


def test_a_record_says_at_which_update_a_run_was_solved(tmp_path):
    found = made(tmp_path, steps=6, eval_every=2, stop_at=100.0)
    assert [(record["solved"], record["updates"], record["state"]) for record in found.values()] == [
        (2, 2, "finished") for _ in found
    ]


# ---------------------------------------------------------------- a cluster, and searches


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on two processors of this machine."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    variables = {"PYTHONPATH": environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000,
            runtime_env={"env_vars": variables},
        )  # fmt: skip
        yield
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_cluster_of_two_processors_makes_the_same_numbers(tmp_path, cluster):
    here = made(tmp_path / "here")
    there = made(tmp_path / "there", OnRay("local"))
    assert {key: numbers(record) for key, record in there.items()} == {
        key: numbers(record) for key, record in here.items()
    }


KILLED_IN_THE_LOCK = """
import os, signal, sys
from pathlib import Path
from kreiss.studies import sweeping
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # which Optuna asks for while it holds the lock
sweeping.study_of(sweeping.Sweep("001/fig2-copy/nnrnn", "smoke", "rates", {}, Path("sweep")))
"""


def test_a_search_goes_on_after_a_kill_inside_the_lock_of_its_journal(tmp_path):
    python = {"env": environment(), "cwd": tmp_path, "timeout": 300}  # seconds: without an end it would wait for ever
    assert subprocess.run([sys.executable, "-c", KILLED_IN_THE_LOCK], **python).returncode == -signal.SIGKILL
    going_on = KILLED_IN_THE_LOCK.replace("os.fsync =", "_ =").replace("study_of", "take_up")
    assert subprocess.run([sys.executable, "-c", going_on], **python).returncode == 0


def sweep_in(folder: Path) -> sweeping.Sweep:
    changes = {"steps": 4, "eval_every": 1, "task.valid_sequences": 5}
    return sweeping.Sweep(f"{NAME}/nnrnn", "smoke", "nnrnn", changes, folder / "sweep")


@pytest.mark.filterwarnings("ignore")
def test_a_search_runs_on_the_cluster(tmp_path, cluster):
    study = sweeping.sweep_on_ray(sweep_in(tmp_path), 4, 2, "local")
    workers = {tuple(trial.user_attrs["worker"]) for trial in study.trials}
    assert len([trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]) >= 4
    assert 1 <= len(workers) <= 2


# a worker that begins when both have started
WAITING = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_reproduce import sweep_in, sweeping
folder = Path(sys.argv[1])
(folder / f"{sys.argv[2]}.ready").touch()
while len(list(folder.glob("*.ready"))) < 2:
    time.sleep(0.01)
sweeping.work(sweep_in(folder), 12)
"""


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_processes_started_for_a_search_share_its_trials(tmp_path):
    study = sweeping.sweep_here(sweep_in(tmp_path), 3, 2)
    ended = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert 3 <= len(ended) <= 4
    assert os.getpid() not in {trial.user_attrs["worker"][1] for trial in study.trials}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_two_workers_search_the_grid_of_the_paper_and_go_on_after_being_killed(tmp_path):
    sweep = sweep_in(tmp_path)
    sweeping.take_up(sweep)
    command = [sys.executable, "-c", WAITING, str(tmp_path)]
    here = str(Path(__file__).parent)
    started = [subprocess.Popen([*command, name, here]) for name in ("one", "other")]
    assert [process.wait(300) for process in started] == [0, 0]
    study = sweeping.study_of(sweep)
    ended = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert len({tuple(trial.user_attrs["worker"]) for trial in study.trials}) == 2
    assert 12 <= len(ended) <= 13
    for trial in ended:
        assert all(trial.params[first_name(name)] in values for name, values in GRIDS["nnrnn"].choices.items())
    # a worker that was killed: a trial that is open, and half a line
    lost = study.ask()
    lost.set_user_attr("worker", (platform.node(), 2**22 + 1))
    tried = lost.suggest_categorical("optimiser.lr", GRIDS["nnrnn"].choices["optimiser.lr"])
    journal = sweep.folder / sweeping.JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')
    sweeping.take_up(sweep)
    sweeping.work(sweep, len(ended) + 1)
    study = sweeping.study_of(sweep)
    assert study.trials[lost.number].state.name == "FAIL"
    assert study.trials[lost.number + 1].params["optimiser.lr"] == tried
    picture = parallel_coordinates(study.trials, sweep.folder / "trials")
    assert "optimiser" not in picture.read_text()[:50]
    assert picture.read_text().count("<path") > len(ended)


def test_a_search_follows_the_rules_of_its_grid(tmp_path):
    sweep = sweep_in(tmp_path)
    config = sweep.config({"optimiser.lr": 2e-3})
    assert config.optimiser.orthogonal_lr == pytest.approx(2e-4)
    plain = sweeping.Sweep(f"{NAME}/rnn", "smoke", "nnrnn", {}, tmp_path)
    assert set(plain.choices()) == {"optimiser.lr", "optimiser.alpha"}
    with pytest.raises(InputError, match="unknown grid 'nnrn'"):
        sweeping.Sweep(f"{NAME}/rnn", "smoke", "nnrn", {}, tmp_path).choices()
    sweeping.study_of(plain)
    with pytest.raises(InputError, match="which holds another"):
        sweeping.study_of(sweeping.Sweep(f"{NAME}/rnn", "smoke", "rates", {}, tmp_path))


def test_a_search_in_which_nothing_came_to_an_end_says_so(tmp_path):
    search = sweep_in(tmp_path)
    study = sweeping.study_of(search)
    trial = study.ask()
    study.tell(trial, state=sweeping.optuna_here().trial.TrialState.PRUNED)
    with pytest.raises(RunError, match=r"at least one trial must be complete; got 1 pruned\. Raise --trials"):
        _searched(study, search)
