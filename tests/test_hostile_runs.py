"""Runs under attack: death at every file operation, a flipped bit at every place of every file, files of other runs."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import kreiss
from kreiss.commands.runs import _row, ls, show
from kreiss.errors import InputError, RunError
from kreiss.storage import files as storage
from kreiss.tasks import TASKS
from kreiss.training import fitting, read_records, record
from kreiss.training.config import resolved
from kreiss.training.planning import make_network, make_task
from kreiss.training.record import damage, read_status
from kreiss.training.resuming import resumption
from kreiss.training.spectrum import read_spectra
from stream import Stream

SETTINGS = {
    "task": "stream", "model": "nnrnn", "hidden": 3, "batch": 2, "steps": 2, "eval_every": 2, "checkpoint_every": 1,
    "log_every": 1, "lr": 1e-2,
}  # fmt: skip
TIMES = ("seconds", "run", "about", "records")  # what differs between two runs that are the same


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "stream", Stream)
    monkeypatch.setattr(record, "_git", lambda: None)  # which starts processes
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is cut here
    monkeypatch.setattr(yaml, "safe_load", functools.cache(yaml.safe_load))  # the same settings many times


def start(out: Path, **settings: Any) -> None:
    config = resolved(SETTINGS, settings)
    task = make_task(config)
    fitting.run(config, out, make_network(config, task), task, show="quiet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "stream", Stream)
        start(out)
    return out


def outcome(out: Path) -> tuple[Any, ...]:
    """Everything that a run came to, but for times and its identity."""
    files = [storage.read_tensors(out / name) for name in ("last.safetensors", "best.safetensors")]
    numbers = [[(name, tensor.tolist()) for name, tensor in sorted(tensors.items())] for tensors, _ in files]
    told = [{key: value for key, value in content.items() if key not in TIMES} for _, content in files]
    records = [{key: value for key, value in line.items() if key not in TIMES} for line in read_records(out)]
    return numbers, told, records, read_spectra(out), read_status(out)["state"]


# ---------------------------------------------------------------- death


class Death(BaseException):
    """The process is no more."""


class Machine:
    """Counts file operations; at the given one the process dies, a write being half done, and does nothing any more."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int | None = None) -> None:
        self.last, self.count, self.opened = last, 0, set[int]()
        for name in ("open", "write", "fsync", "replace", "link", "unlink", "mkdir"):
            patch.setattr(os, name, self._counted(name, getattr(os, name)))
        close = os.close
        patch.setattr(os, "close", lambda file: (self.opened.discard(file), close(file))[1])

    def _counted(self, name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.last is not None and self.count >= self.last:
                if name == "write" and self.count == self.last:
                    does(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Death
            done = does(*arguments, **options)
            if name == "open":
                self.opened.add(done)
            return done

        return call


def dies(work: Callable[[], None], last: int | None = None) -> int:
    """Work on a machine that dies at its operation `last`; returns how many there were."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(patch, last)
        with suppress(Death):
            work()
    for file in machine.opened:  # which the system does
        os.close(file)
    return machine.count


def taken_up(out: Path) -> None:
    """Resume; a folder that has no settings yet holds no run, and says so."""
    if (out / "config.yaml").exists():
        fitting.resume(out, show="quiet")
        return
    with pytest.raises(InputError, match="must be the folder of a run"):
        fitting.resume(out, show="quiet")
    start(out)


def test_death_at_every_file_operation_of_a_run_changes_nothing(whole, tmp_path):
    count, expected = dies(lambda: start(tmp_path / "count")), outcome(whole)
    assert count > 80
    for last in range(1, count + 1):
        out = tmp_path / str(last)
        dies(lambda out=out: start(out), last)
        taken_up(out)
        assert outcome(out) == expected, last
        assert not list(out.glob(".*.partial"))


def test_death_at_every_file_operation_of_a_resumption_changes_nothing(whole, tmp_path):
    half, expected = tmp_path / "half", outcome(whole)
    total = dies(lambda: start(tmp_path / "total"))
    dies(lambda: start(half), total * 2 // 3)
    assert resumption(half).update == 1
    shutil.copytree(half, tmp_path / "count")
    count = dies(lambda: fitting.resume(tmp_path / "count", show="quiet"))
    for last in range(1, count + 1):
        out = shutil.copytree(half, tmp_path / str(last))
        dies(lambda out=out: taken_up(out), last)
        taken_up(out)
        assert outcome(out) == expected, last


# ---------------------------------------------------------------- flipped bits

TEXTS = ("config.yaml", "run.json", "metrics.jsonl", "spectra.jsonl", "status.json")
TENSORS = ("last.safetensors", "previous.safetensors", "best.safetensors")


@pytest.fixture(scope="module")
def resumed(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that was killed on the way, with half a line in its records."""
    out = tmp_path_factory.mktemp("runs") / "resumed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "stream", Stream)
        dies(lambda: start(out), dies(lambda: start(out.with_name("count"))) * 2 // 3)
        with open(out / "metrics.jsonl", "a") as file:
            file.write('{"update": 2, "lo')
        fitting.resume(out, show="quiet")
    return out


@pytest.fixture
def copied(resumed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(resumed, tmp_path / "run")


def flips(path: Path, step: int = 1) -> Iterator[int]:
    """The file with one bit changed, at one place after another; as it was afterwards."""
    content = path.read_bytes()
    for place in range(0, len(content), step):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        yield place
    path.write_bytes(content)


REFUSED = "refused in a sentence"


def seen(look: Callable[[Path], Any], out: Path) -> Any:
    """What somebody finds who looks; any other error is a fault."""
    try:
        return look(out)
    except (RunError, InputError) as error:
        return REFUSED if "\n" not in str(error) else error


def to_resume(out: Path, which: str = "last") -> tuple[Any, ...]:
    """All that decides how a run continues."""
    found = resumption(out, which)
    numbers = {name: tensor.numpy().tobytes() for name, tensor in found.tensors.items()}
    return found.run, found.settings, numbers, found.content, found.metrics.records, found.spectra.records


def weights(out: Path) -> list[Any]:
    return [parameter.tolist() for parameter in kreiss.load(out).parameters()]


LOOKS = (read_records, read_spectra, to_resume, record.settings_of)


# every bit of a byte in turn: 7 and 8 have no common divisor
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TEXTS)
def test_a_flipped_bit_at_any_place_of_a_text_is_harmless_or_said_in_a_sentence(name, step, copied):
    clean, row = [seen(look, copied) for look in LOOKS], _row(copied)
    assert REFUSED not in clean
    assert not damage(copied)
    said = 0
    for place in flips(copied / name, step):
        found = [seen(look, copied) for look in LOOKS]
        assert all(one in (other, REFUSED) for one, other in zip(found, clean, strict=True)), place
        reported = damage(copied)
        assert reported or (found == clean and _row(copied) == row), place
        said += bool(reported)
    assert step * said > 100  # the bits do matter


@pytest.mark.parametrize("name", TENSORS)
def test_a_flipped_bit_in_a_file_of_tensors_is_refused(name, copied):
    looks = {
        "last.safetensors": to_resume,
        "previous.safetensors": lambda out: to_resume(out, "previous"),
        "best.safetensors": weights,
    }
    assert seen(looks[name], copied) != REFUSED
    for place in flips(copied / name, 97):
        assert seen(looks[name], copied) == REFUSED, place


@pytest.mark.parametrize("name", TEXTS)
def test_a_run_with_a_flipped_bit_ends_as_it_was_or_is_refused_and_can_be_repaired(name, copied, tmp_path):
    expected = outcome(copied)
    for place in flips(copied / name, 211):
        out = shutil.copytree(copied, tmp_path / str(place))
        if seen(lambda out: fitting.resume(out, show="quiet"), out) == REFUSED:
            fitting.resume(out, repair=True, show="quiet")
            assert read_status(out)["state"] == "finished"
            assert not damage(out)
        else:
            assert outcome(out) == expected


def test_death_while_a_run_returns_to_its_previous_checkpoint_changes_nothing(copied, tmp_path):
    expected = outcome(copied)
    (copied / "last.safetensors").write_bytes(b"bad")
    for last in range(1, 60, 4):
        out = shutil.copytree(copied, tmp_path / str(last))
        dies(lambda out=out: fitting.resume(out, which="previous", show="quiet"), last)
        if seen(lambda out: fitting.resume(out, show="quiet"), out) == REFUSED:
            fitting.resume(out, which="previous", show="quiet")
        assert outcome(out) == expected, last


@pytest.mark.parametrize("name", ["config.yaml", "run.json"])
def test_what_the_checkpoint_holds_too_is_put_back_to_the_letter(name, copied):
    before = (copied / name).read_bytes()
    (copied / name).write_bytes(before[:-9])
    with pytest.raises(RunError, match="--repair"):
        fitting.resume(copied, show="quiet")
    fitting.resume(copied, repair=True, show="quiet")
    assert (copied / name).read_bytes() == before


@pytest.mark.parametrize("name", TENSORS)
def test_a_run_survives_the_loss_of_any_one_of_its_files_of_tensors(name, copied):
    expected = outcome(copied)
    (copied / name).unlink()
    if name == "last.safetensors":
        with pytest.raises(RunError, match=r"checkpoint before it is good \(update 1\): .*--checkpoint previous"):
            fitting.resume(copied, show="quiet")
    fitting.resume(copied, which="previous" if name == "last.safetensors" else "last", show="quiet")
    assert outcome(copied) == expected


def test_a_run_whose_checkpoints_are_all_gone_does_not_start_again_unasked(copied):
    for name in ("last.safetensors", "previous.safetensors"):
        (copied / name).unlink()
    with pytest.raises(RunError, match="got neither, although the run wrote them"):
        fitting.resume(copied, show="quiet")


def test_a_damaged_run_hides_no_other_in_the_list(copied, tmp_path, capsys):
    shutil.copytree(copied, tmp_path / "other")
    (copied / "status.json").write_text('{"state": ["finished"], "update": "x"}')
    (copied / "config.yaml").write_bytes(b"\xff: [")
    (copied / "metrics.jsonl").write_bytes((copied / "metrics.jsonl").read_bytes()[:-40] + b"\n")
    assert ls(tmp_path) == 0
    said = capsys.readouterr().out
    assert "finished" in said
    assert said.count("damaged: `") == 3
    assert show(copied) == 0


# ---------------------------------------------------------------- files of other runs


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "metrics.jsonl", "config.yaml", "run.json"])
def test_a_file_of_another_run_is_refused(name, copied, tmp_path):
    start(tmp_path / "other", seed=1)
    shutil.copy(tmp_path / "other" / name, copied / name)
    with pytest.raises((RunError, InputError), match=r"must belong to the run of its folder|another run"):
        (kreiss.load if name == "best.safetensors" else to_resume)(copied)


def test_without_its_file_the_best_validation_is_in_the_checkpoint(tmp_path):
    start(tmp_path / "run", steps=6, eval_every=1, lr=0.03, seed=2)
    validations = [line for line in read_records(tmp_path / "run") if line.get("split") == "valid"]
    expected = min(validations, key=lambda line: line["loss"])["update"]
    best = weights(tmp_path / "run")
    at = storage.read_tensors(tmp_path / "run" / "best.safetensors")[1]["update"]
    assert at == expected < 6  # the last validation is not the best
    (tmp_path / "run" / "best.safetensors").unlink()
    assert weights(tmp_path / "run") == best


def test_the_best_of_updates_that_were_abandoned_is_not_reported(tmp_path):
    """Killed after a better validation, and resumed with settings that never reach it again."""
    run = tmp_path / "run"
    start(run, steps=8, eval_every=1, checkpoint_every=4, lr=0.03, seed=1)
    assert storage.read_tensors(run / "best.safetensors")[1]["update"] == 8
    fitting.resume(run, {"lr": 0.3}, which="previous", show="quiet")  # from update 4, and worse from there on
    best = min((line for line in read_records(run) if line.get("split") == "valid"), key=lambda line: line["loss"])
    told = storage.read_tensors(run / "best.safetensors")[1]
    assert (told["update"], told["metrics"]["loss"]) == (best["update"], best["loss"]) == (4, best["loss"])
    tested = [line["loss"] for line in read_records(run) if line.get("split") == "test"]
    assert tested == [kreiss.training.evaluate(kreiss.load(run), Stream())["loss"]]


# ---------------------------------------------------------------- folders of earlier versions


def as_by_an_earlier_version(run: Path) -> None:
    """Take away identity, checksums, and what only present checkpoints hold."""
    new = ("run", "checksum", "records", "checkpoint", "about", "settings", "best_at")

    def stripped(content: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in content.items() if name not in new}

    for name in ("run.json", "status.json"):
        (run / name).write_text(json.dumps(stripped(json.loads((run / name).read_text()))))
    (run / "config.yaml").write_text((run / "config.yaml").read_text().rpartition("# kreiss run")[0])
    for name, joined in (("metrics.jsonl", "{}\n"), ("spectra.jsonl", "\n{}")):
        lines = [stripped(json.loads(line)) for line in (run / name).read_text().splitlines()]
        kept = [line for line in lines if line.get("event") != "started" and (name[0] == "m" or "event" not in line)]
        (run / name).write_text("".join(joined.format(json.dumps(line)) for line in kept))
    for name in TENSORS:
        tensors, content = storage.read_tensors(run / name)
        kept = {key: tensor for key, tensor in tensors.items() if not key.startswith("best.")}
        storage.write_tensors(run / name, kept, stripped(content))


def test_a_folder_of_an_earlier_version_resumes(tmp_path):
    settings = {"steps": 6, "eval_every": 1, "lr": 0.03, "seed": 2}
    start(tmp_path / "whole", **settings)
    start(tmp_path / "run", **{**settings, "steps": 5})
    as_by_an_earlier_version(tmp_path / "run")
    assert not damage(tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    fitting.resume(tmp_path / "run", {"steps": 6}, show="quiet")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_without_the_best_validation_a_run_of_an_earlier_version_is_not_resumed_with_another(tmp_path):
    start(tmp_path / "run", steps=6, eval_every=1, lr=0.03, seed=2)
    as_by_an_earlier_version(tmp_path / "run")
    (tmp_path / "run" / "best.safetensors").unlink()
    with pytest.raises(InputError, match=r"best\.safetensors` must be a readable file"):
        fitting.resume(tmp_path / "run", {"steps": 7}, show="quiet")
    assert resumption(tmp_path / "run").settings["steps"] == 6


# ---------------------------------------------------------------- settings that may not change


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimiser": "adam"}, "`optimiser.name` of a run must stay 'rmsprop'; got 'adam'"),
        ({"seed": 1}, "`seed` of a run must stay 0; got 1"),
        ({"batch": 3}, "`batch` of a run must stay 2; got 3"),
        ({"optimiser.momentum": 0.9}, r"`optimiser.momentum` of a run must stay at 0; got 0\.9"),
        ({"hidden": 9}, "the model of a run must stay as it is"),
        ({"stepps": 9}, "unknown setting 'stepps'"),
        ({"device": "gpu"}, "`device` must be available"),
        ({"lr": 1e30, "steps": 9, "checkpoint_every": 99}, "must be finite; got"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_resumption_that_fails_leaves_the_settings_alone(changes, said, copied):
    before = (copied / "config.yaml").read_bytes()
    with pytest.raises((InputError, RunError), match=said):
        fitting.resume(copied, changes, show="quiet")
    assert (copied / "config.yaml").read_bytes() == before
    fitting.resume(copied, show="quiet")


def test_settings_that_may_change_are_written_with_the_first_checkpoint(copied):
    fitting.resume(copied, {"steps": 3, "lr": 1e-3}, show="quiet")
    assert record.read_config(copied).steps == 3
    assert resumption(copied).settings["optimiser"]["lr"] == 1e-3


def test_a_model_of_the_users_own_must_be_the_same_when_it_is_resumed(tmp_path):
    kreiss.fit(kreiss.RNN(5, 3), Stream(), steps=2, out=tmp_path / "run", show="quiet")
    for other in (kreiss.RNN(5, 4), kreiss.RNN(5, 3, nonlinearity="relu")):
        with pytest.raises(InputError, match="the model of a run must stay as it is"):
            kreiss.fit(other, Stream(), steps=4, out=tmp_path / "run", resume=True, show="quiet")


# ---------------------------------------------------------------- checkpoints that are good


def test_weights_that_are_not_finite_are_never_kept(tmp_path):
    """Without eps a gradient of exactly zero is divided by zero in the step, after a finite loss."""
    run = tmp_path / "run"
    with pytest.raises(
        RunError, match=r"must be finite; got NaN or Inf after update 1\. The last good .*last\.saf.* 0\)"
    ):
        start(run, **{"optimiser.eps": 0})
    assert read_status(run)["state"] == "failed"
    assert resumption(run).update == 0


def test_a_checkpoint_of_which_only_infinity_comes_is_not_called_good(tmp_path):
    run = tmp_path / "run"
    settings = {"model": "rnn", "model.nonlinearity": "relu", "lr": 1e30, "optimiser": "sgd", "steps": 9}
    with pytest.raises(
        RunError, match=r"The last good checkpoint is .*previous\.safetensors \(update \d+; resume from"
    ):
        start(run, **settings)
    fitting.resume(run, {"lr": 1e-3, "steps": 4}, which="previous", show="quiet")
    assert read_status(run)["state"] == "finished"


def test_a_bad_checkpoint_does_not_take_the_place_of_the_good_one_before_it(copied):
    (copied / "last.safetensors").write_bytes(b"bad")
    good = (copied / "previous.safetensors").read_bytes()
    with pytest.raises(RunError, match="must be finite"):
        fitting.resume(copied, {"lr": 1e30, "steps": 9}, which="previous", show="quiet")
    assert resumption(copied, "previous").update == 1
    assert (copied / "previous.safetensors").read_bytes() == good


def test_half_precision_stops_when_no_gradient_is_ever_finite():
    class Steep(Stream):
        def loss(self, output: torch.Tensor, batch: Any) -> torch.Tensor:
            return super().loss(output, batch) + (output - output.detach()).pow(2).sum().sqrt()  # 0, with slope 0/0

    with pytest.raises(
        RunError, match=r"the gradient of \S+ must be finite; got NaN or Inf at update 40 after 40 skipped"
    ):
        kreiss.fit(kreiss.RNN(5, 4), Steep(), steps=150, precision="fp16", show="quiet")


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "spectra.jsonl"])
def test_nothing_is_written_through_a_link(name, copied, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes((copied / name).read_bytes() or b"precious")
    before = other.read_bytes()
    (copied / name).unlink()
    (copied / name).symlink_to(other)
    assert read_status(copied)["state"] == "finished"
    with pytest.raises(RunError, match=rf"{name}` must be a plain file; got a symbolic link"):
        fitting.resume(copied, {"steps": 4}, show="quiet")
    assert other.read_bytes() == before


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(copied):
    (copied / "metrics.jsonl").unlink()
    os.mkfifo(copied / "metrics.jsonl")
    with pytest.raises(RunError, match="must be"):
        fitting.resume(copied, show="quiet")


def test_new_folders_and_those_above_them_reach_the_disk(tmp_path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    start(tmp_path / "a" / "b" / "run")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_half_written_files_are_removed_when_a_run_starts_or_resumes(copied, tmp_path):
    for run in (copied, tmp_path / "new"):
        run.mkdir(exist_ok=True)
        (run / ".last.safetensors.1.partial").write_bytes(b"half")
    fitting.resume(copied, show="quiet")
    start(tmp_path / "new")
    assert not list(tmp_path.glob("*/.*.partial"))
