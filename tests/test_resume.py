"""A run that is killed at any moment and taken up again ends bit for bit as one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import kreiss
from kreiss.errors import InputError, RunError
from kreiss.networks import LAYERS
from kreiss.sets.orthogonal import METHODS
from kreiss.storage.files import read_tensors
from kreiss.tasks import TASKS
from kreiss.training import fitting, read_records
from kreiss.training.config import resolved
from kreiss.training.planning import make_network, make_task
from kreiss.training.record import read_status
from stream import Stream

HERE = Path(__file__).parent
COMMON = {"hidden": 6, "batch": 4, "steps": 160, "eval_every": 40, "checkpoint_every": 1, "log_every": 5, "lr": 1e-2}
COPY = {"task": "copy", "task.delay": 3}
STREAM = {"task": "stream"}
TEXT = {"task": "characters", "task.chunk": 10}

# what can go on wrongly, each with something of its own to remember
RUNS: dict[str, dict[str, Any]] = {
    **{f"nnrnn-{method}": {"model": "nnrnn", "model.orthogonal": method, **COPY} for method in METHODS},
    "nnrnn-rebased": {"model": "nnrnn", "optimiser.rebase_every": 3, "optimiser": "adam", **STREAM},
    "nnrnn-plateau": {"model": "nnrnn", "schedule": "plateau", "optimiser.radius_penalty": 1e-2, **STREAM},
    "lstm-dropout": {"model": "lstm", "layers": 2, "dropout": 0.3, "optimiser": "adamw", **STREAM},
    "lstm-cosine": {"model": "lstm", "schedule": "cosine", "schedule.warmup": 5, **COPY},
    "gru-momentum": {"model": "gru", "optimiser": "sgd", "optimiser.momentum": 0.9, "accumulate": 2, **STREAM},
    "nnrnn-bf16": {"model": "nnrnn", "precision": "bf16", "patience": 9, "stop_at": -1.0, **COPY},
}
if "characters" in TASKS:
    RUNS |= {f"{name}-text": {"model": name, "embedding": 3, **TEXT} for name in ("nnrnn", "lstm")}
SCREENED = {"model.short": 3, "model.relevant": 2}
RUNS |= {  # a memory is carried, or cleared between windows; the batch may be split
    "relrnn-carried": {"model": "relrnn", **SCREENED, **STREAM},
    "relrnn-text": {"model": "relrnn", **SCREENED, **TEXT},
    "rellstm-split": {"model": "rellstm", **SCREENED, "accumulate": 2, **STREAM},
    "memrnn-cleared": {"model": "memrnn", "accumulate": 2, **STREAM},
}
OBJECTS = {"task": "samedifferent", "task.held_out": 90, "task.valid_sequences": 8, "task.test_sequences": 8}
RUNS["corelnet-mix"] = {"model": "corelnet", "model.relation": "mix", "optimiser": "adam", **OBJECTS}  # draws noise
PLAYED = {"ppo.frames": 9, "ppo.recurrence": 4, "ppo.minibatch": 8, "batch": 3}
EPISODES = {"task.valid_episodes": 2, "task.test_episodes": 2}
RUNS |= {  # episodes go on where they were, in memory too
    "memlstm-tmaze": {"task": "tmaze", "task.length": 4, "model": "memlstm", **PLAYED, **EPISODES},
    "rellstm-minigrid": {
        "task": "minigrid", "task.env": "MiniGrid-MemoryS7-v0", "model": "rellstm", **SCREENED, **PLAYED,
        "task.valid_episodes": 1, "task.test_episodes": 1,
    },
}  # fmt: skip
REMEMBERING = ("nnrnn-trivialization", "nnrnn-rebased", "nnrnn-plateau", "nnrnn-bf16", "nnrnn-text")


@pytest.fixture(autouse=True)
def _with_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "stream", Stream)


def start(settings: dict[str, Any], out: Path) -> None:
    config = resolved(COMMON, settings)
    task = make_task(config)
    fitting.run(config, out, make_network(config, task), task, show="quiet")


def go_on(settings: dict[str, Any], out: Path) -> None:
    """Start, or take up what is there: what a person does who knows nothing."""
    if (out / "last.safetensors").exists():
        fitting.resume(out, show="quiet")
        return
    for path in out.glob("*"):  # killed before the first checkpoint
        path.unlink()
    start(settings, out)


def stamp(out: Path) -> int:
    try:
        return (out / "last.safetensors").stat().st_mtime_ns
    except OSError:
        return 0


def killed(settings: dict[str, Any], out: Path, moment: random.Random) -> bool:
    """Work in a child process and kill it: after up to two checkpoints and then any time, mostly while one is written.

    Returns whether it was killed; it may have ended before.
    """
    child = os.fork()
    if child == 0:
        try:
            go_on(settings, out)
        finally:
            os._exit(0)
    for _ in range(moment.randint(0, 2)):
        before, patience = stamp(out), time.monotonic() + 20
        while stamp(out) == before and time.monotonic() < patience and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.0005)
    time.sleep(moment.random() * 0.02)
    try:
        os.kill(child, signal.SIGKILL)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        return False


def remembered(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors, content = read_tensors(path)
    return tensors, {key: value for key, value in content.items() if key not in ("seconds", "run", "about", "records")}


def measured(out: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in read_records(out)]


def assert_same(one: Path, two: Path) -> None:
    for name in ("last.safetensors", "best.safetensors"):
        (first, told), (second, also) = remembered(one / name), remembered(two / name)
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert torch.equal(value, second[key]), key
        assert told == also
    assert measured(one) == measured(two)
    assert read_status(one)["state"] == read_status(two)["state"] == "finished"


# the long form for all, and a short one for those that have more to remember than their weights
KILLS = [
    *(pytest.param(name, 10, 160, id=f"{name}-long", marks=pytest.mark.slow) for name in RUNS),
    *(
        pytest.param(name, 3, 48, id=name)
        for name in RUNS
        if (not name.startswith("nnrnn-") or name in REMEMBERING) and name != "relrnn-text"  # a loop over long windows
    ),
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("name", "times", "steps"), KILLS)
def test_a_run_killed_at_random_moments_ends_as_if_nothing_had_happened(name, times, steps, tmp_path):
    steps = steps // 4 if "ppo.frames" in RUNS[name] else steps  # each plays, and learns several times
    settings = {**RUNS[name], "steps": steps, "eval_every": steps // 4}
    start(settings, tmp_path / "whole")
    moment, out, kills = random.Random(name), tmp_path / "killed", 0
    for _ in range(times):
        kills += killed(settings, out, moment)
    assert kills == times  # else the run was too short for the test
    go_on(settings, out)
    assert_same(tmp_path / "whole", out)
    assert not list(out.glob(".*.partial"))


@pytest.mark.parametrize("name", LAYERS)
def test_every_network_goes_on_as_if_nothing_had_happened(name, tmp_path):
    settings = {"model": name, **COPY, "steps": 6, "eval_every": 3}
    start(settings, tmp_path / "whole")
    start({**settings, "steps": 4, "eval_every": 3}, tmp_path / "parts")
    fitting.resume(tmp_path / "parts", {"steps": 6}, show="quiet")
    (first, _), (second, _) = (remembered(tmp_path / part / "last.safetensors") for part in ("whole", "parts"))
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def command(*words: object) -> list[str]:
    return [sys.executable, str(HERE / "stream.py"), *map(str, words)]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),  # one handler; `kreiss reproduce` sends it too
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_from_the_command_line_a_signal_loses_nothing(number, code, tmp_path):
    words = [
        "stream",
        "--model",
        "nnrnn",
        "--hidden",
        6,
        "--batch",
        4,
        "--steps",
        200,
        "--checkpoint-every",
        20,
        "--json",
    ]
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    config = resolved(
        {"task": "stream", "model": "nnrnn", "hidden": 6, "batch": 4, "steps": 200, "checkpoint_every": 20}
    )
    task = make_task(config)
    fitting.run(config, whole, make_network(config, task), task, show="quiet")
    with subprocess.Popen(command("train", *words, "--out", out), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"update": 40' in line:
                break
        process.send_signal(number)
        said = process.stdout.read()
    assert process.returncode == code
    if number != signal.SIGKILL:
        assert f"kreiss resume {out}" in said
        assert read_status(out)["state"] == "interrupted"
    else:
        assert read_status(out)["state"] == "killed"
    done = subprocess.run(command("resume", out, "--quiet"), capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_same(whole, out)


# ---------------------------------------------------------------- damaged checkpoints


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    start({**COPY, "steps": 8, "checkpoint_every": 3, "eval_every": 8}, tmp_path / "run")
    return tmp_path / "run"


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_offered_and_works(stopped):
    path = stopped / "last.safetensors"
    content = bytearray(path.read_bytes())
    content[-20] ^= 4
    path.write_bytes(content)
    offer = (
        r"last\.safetensors` must be a whole file.*checkpoint before it is good \(update 6\): kreiss resume .* previous"
    )
    with pytest.raises(RunError, match=offer):
        fitting.resume(stopped, show="quiet")
    fitting.resume(stopped, which="previous", show="quiet")
    assert read_status(stopped) == {**read_status(stopped), "state": "finished", "update": 8}


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"\x10" + bytes(30)], ids=["empty", "pickle", "foreign"])
def test_any_other_file_under_the_name_of_a_checkpoint_is_refused(content, stopped):
    (stopped / "last.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"last\.safetensors` must be a .*is good \(update 6\)"):
        fitting.resume(stopped, show="quiet")
    (stopped / "previous.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"last\.safetensors` must be a [^:]*$"):  # nothing is offered
        fitting.resume(stopped, show="quiet")


def test_a_model_is_no_checkpoint(stopped):
    kreiss.save(kreiss.RNN(2, 2), stopped / "last.safetensors")
    with pytest.raises(RunError, match="got a model without the state of a run"):
        fitting.resume(stopped, show="quiet")


def test_a_run_keeps_its_task_and_its_model(stopped):
    with pytest.raises(InputError, match="the task of a run must stay as it is"):
        fitting.resume(stopped, {"task.delay": 9}, show="quiet")
    with pytest.raises(InputError, match="the model of a run must stay as it is"):
        fitting.resume(stopped, {"hidden": 9}, show="quiet")


def test_a_finished_run_may_go_on_with_more_updates(stopped):
    fitting.resume(stopped, {"steps": 12}, show="quiet")
    assert read_status(stopped)["update"] == 12
    assert [record["update"] for record in read_records(stopped) if record.get("split") == "test"] == [12]


def test_a_solved_run_says_so_and_goes_on_only_if_more_is_asked(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {"model": "nnrnn", **COPY, "steps": 80, "eval_every": 20}
    start(settings, whole)
    losses = [record["loss"] for record in read_records(whole) if record.get("split") == "valid"]
    assert losses[0] > losses[1] > losses[2]
    start({**settings, "stop_at": losses[1]}, parts)
    assert {name: read_status(parts)[name] for name in ("state", "cause", "update")} == {
        "state": "finished", "cause": "solved", "update": 40,
    }  # fmt: skip
    fitting.resume(parts, {"steps": 90}, show="quiet")
    assert read_status(parts)["update"] == 40
    fitting.resume(parts, {"steps": 80, "stop_at": losses[2]}, show="quiet")
    assert (read_status(parts)["update"], read_status(parts)["cause"]) == (60, "solved")
    fitting.resume(parts, {"stop_at": None}, show="quiet")
    assert (read_status(parts)["update"], read_status(parts)["cause"]) == (80, "")
    (first, _), (second, _) = (remembered(folder / "last.safetensors") for folder in (whole, parts))
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(InputError, match=r"must be the folder of a run; got one without config\.yaml"):
        fitting.resume(tmp_path, show="quiet")


def test_in_python_a_run_goes_on_with_the_users_own_model(tmp_path):
    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.readout = torch.nn.GRU(5, 6), torch.nn.Linear(6, 5)

        def forward(self, inputs, state=None, lengths=None):
            hidden, state = self.rnn(torch.nn.functional.one_hot(inputs, 5).float(), state)
            return self.readout(hidden), state

    torch.manual_seed(3)
    first = Mine()
    second = Mine()
    second.load_state_dict(first.state_dict())
    whole = kreiss.fit(first, Stream(), steps=20, eval_every=5, out=tmp_path / "whole", show="quiet")
    kreiss.fit(second, Stream(), steps=10, eval_every=5, out=tmp_path / "parts", show="quiet")
    parts = kreiss.fit(Mine(), Stream(), steps=20, out=tmp_path / "parts", resume=True, show="quiet")
    assert parts.metrics == whole.metrics
    with pytest.raises(InputError, match=r"must be one that you trust.*got (stream:Stream|test_resume:.*Mine) of"):
        fitting.resume(tmp_path / "parts", show="quiet")
