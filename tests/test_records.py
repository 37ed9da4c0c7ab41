"""What a run's record says is what was: settings, status, and where its data lie."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from torch import nn

import kreiss
from kreiss.errors import Diverged, InputError, MissingExtra
from kreiss.layers.contract.base import RecurrentLayer
from kreiss.networks import RecurrentNetwork
from kreiss.storage import files as storage
from kreiss.tasks import Characters, Copy, Frames, Pixels, Sequence, Task
from kreiss.training import display, fitting
from kreiss.training.config import resolved
from kreiss.training.journal import Tally
from kreiss.training.provenance import checksum
from kreiss.training.record import read_status

# ---------------------------------------------------------------- models of the user's own


class Symmetric(RecurrentLayer):
    """A layer of a user's own."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, slope: float = 1.0, **options):
        make_set = lambda: kreiss.Free(hidden_size)  # noqa: E731
        super().__init__(
            input_size, hidden_size, num_layers, make_set=make_set, nonlinearity="modrelu", init="random", **options
        )


class Plain(nn.Module):
    """A module of a user's own, which happens to hold a layer of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.readout = kreiss.RNN(10, 6), nn.Linear(6, 9)

    def forward(self, inputs, state=None, lengths=None):
        hidden, state = self.layer(nn.functional.one_hot(inputs, 10).float(), state)
        return self.readout(hidden), state


def recorded(model: nn.Module, out: Path, **settings: object) -> dict[str, object]:
    """The section of the model in the record of a run."""
    kreiss.fit(model, Copy(2), steps=1, out=out, show="quiet", **settings)
    return yaml.safe_load((out / "config.yaml").read_text())["model"]


def test_the_record_of_a_users_own_layer_says_its_size(tmp_path):
    said = recorded(Symmetric(10, 5, 2, slope=0.5), tmp_path / "bare")
    assert said == {
        "name": "test_records:Symmetric", "hidden": 5, "layers": 2, "bidirectional": False, "dtype": "float32",
        "embedding": 0, "dropout": 0.0, "slope": 0.5,
    }  # fmt: skip
    said = recorded(RecurrentNetwork(Symmetric(3, 5), 9, symbols=10, embedding=3), tmp_path / "network")
    assert (said["name"], said["hidden"], said["embedding"]) == ("test_records:Symmetric", 5, 3)


def test_the_record_of_any_other_module_says_its_name_and_nothing_else(tmp_path):
    assert recorded(Plain(), tmp_path / "run", hidden=77) == {"name": "test_records:Plain"}
    run = kreiss.fit(Plain(), Copy(2), steps=2, out=tmp_path / "run", resume=True, show="quiet")
    assert not hasattr(run.config.model, "hidden")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"] == {"name": "test_records:Plain"}


def test_dropout_that_differs_between_layers_and_before_the_readout_is_not_recorded_as_one_number(tmp_path):
    assert "dropout" not in recorded(kreiss.NNRNN(10, 4, 2, dropout=0.5), tmp_path / "bare")
    assert recorded(kreiss.NNRNN(10, 4, 2), tmp_path / "none")["dropout"] == 0.0


# ---------------------------------------------------------------- what is shown


def test_a_run_cannot_be_resumed_for_fewer_updates_than_it_has_made(tmp_path):
    out = tmp_path / "run"
    kreiss.fit("rnn", "copy", {"hidden": 4, "task.delay": 2, "steps": 7}, out=out, show="quiet")
    before = {path: path.read_bytes() for path in out.iterdir()}
    said = r"`steps` must be at least the 7 updates that the run has made; got steps=3\. For 3 more pass steps=10\."
    with pytest.raises(InputError, match=said):
        fitting.resume(out, {"steps": 3}, show="quiet")
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_every_number_of_a_row_is_of_the_update_that_it_begins_with(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        display, "Console", lambda **options: Console(file=screen, force_terminal=True, width=80, **options)
    )
    monkeypatch.setattr(display, "REFRESH", 0.0)
    monkeypatch.setattr(display, "GLANCE_SHARE", 1e9)
    update = 0
    spectrum = lambda: {f"modulus_{which}": update / 100 for which in ("min", "mean", "max")}  # noqa: E731
    shown = display.Live(100, "loss", None, lambda: spectrum())
    shown.start(resolved({"device": "cpu"}), "nowhere", 0)
    for update in (3, 8):
        shown.show(display.Now(update, update / 10, 1.0))
        assert rows(screen)[-1][:5] == [str(update), f"{update / 10}", *[f"0.0{update}0"] * 3]
    shown.best = 0.5
    shown.record({"update": 8, "split": "valid", "loss": 0.5, **spectrum()})
    assert rows(screen)[-1][:7] == ["8", "0.8", "0.5", "0.5", "0.080", "0.080", "0.080"]
    shown.close()


def rows(screen: io.StringIO) -> list[list[str]]:
    """The rows of the table in the order in which they were drawn, as words."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", screen.getvalue()).replace("\r", "\n")
    return [line.split() for line in plain.splitlines() if re.match(r" +\d", line)]


# ---------------------------------------------------------------- how a run ended


def test_a_package_that_the_test_needs_is_asked_for_before_the_first_update(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pesq", None)
    task = Frames(path=files / "fsdd", window=32, hop=16, quality=True)
    with pytest.raises(MissingExtra, match=r"needs the package pesq; .*pip install 'kreiss\[audio\]'"):
        kreiss.fit("rnn", task, {"hidden": 2, "steps": 1}, out=tmp_path / "run", show="quiet")
    assert not (tmp_path / "run").exists()


class Failing(Copy):
    """Raises an error at a point of the run."""

    def __init__(self, error: BaseException, where: str) -> None:
        super().__init__(2)
        self.error, self.where = error, where

    def baseline(self):
        return self.fails("start") or super().baseline()

    def train(self, update, batch, seed):
        return (update == 1 and self.fails("update")) or super().train(update, batch, seed)

    def held_out(self, split, batch):
        return self.fails(split) or super().held_out(split, batch)

    def fails(self, where: str) -> None:
        if where == self.where:
            raise self.error


def status_after(task: Task, error: type[BaseException], out: Path, **settings: object) -> dict[str, object]:
    with pytest.raises(error):
        kreiss.fit("rnn", task, {"hidden": 4, "steps": 3, **settings}, out=out, show="quiet")
    status = read_status(out)
    return {name: status[name] for name in ("state", "update", "message", "cause")}


@pytest.mark.parametrize(
    ("error", "where", "expected"),
    [
        (ValueError("no"), "test", ("failed", 3, "ValueError: no", "error")),
        (MemoryError(), "valid", ("failed", 1, "MemoryError", "error")),
        (OSError(28, "No space left on device"), "start", ("failed", 0, "OSError: [Errno 28] No space", "error")),
        (InputError("the data must be there."), "update", ("failed", 1, "the data must be there.", "error")),
        (KeyboardInterrupt(), "update", ("interrupted", 1, "KeyboardInterrupt", "")),
    ],
)  # fmt: skip
def test_whatever_ends_a_run_is_in_its_status(error, where, expected, tmp_path):
    found = status_after(Failing(error, where), type(error), tmp_path / "run")
    state, update, message, cause = expected
    assert (found["state"], found["update"], found["cause"]) == (state, update, cause)
    assert found["message"].startswith(message)


def test_divergence_is_told_from_all_other_errors(tmp_path):
    found = status_after(Copy(2), Diverged, tmp_path / "run", lr=1e30, **{"model.nonlinearity": "relu", "steps": 9})
    assert (found["state"], found["cause"]) == ("failed", "diverged")
    assert "must be finite" in found["message"]


# ---------------------------------------------------------------- where the data lie


@pytest.fixture
def elsewhere(files, tmp_path, monkeypatch, does) -> Path:
    """A run on a file that was named by a relative path, from the sight of another folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "away").mkdir()
    shutil.copy(files / "steps.npz", tmp_path / "data" / "mine.npz")
    monkeypatch.chdir(tmp_path / "data")
    settings = ["--task.path", "mine.npz", "--model", "rnn", "--hidden", 3, "--steps", 2, "--out", "../run"]
    assert does("train", "sequence", *settings)[0] == 0
    monkeypatch.chdir(tmp_path / "away")
    return Path("../run")


def test_a_run_on_a_file_is_measured_resumed_and_analysed_from_another_folder(elsewhere, does):
    for words in (("eval", elsewhere), ("resume", elsewhere, "--steps", 3)):
        code, _, complained = does(*words)
        assert code == 0, complained
    code, said, _ = does("analyze", elsewhere, "gradients", "-o", "out")
    assert code == 0
    assert "Gaussian" not in said
    assert "driven by sequences of sequence" in Path("out/analysis.json").read_text()


def test_data_that_were_moved_are_asked_for_and_found_again(elsewhere, does):
    Path("../data/mine.npz").rename("../data/moved.npz")
    for verb in ("eval", "resume"):
        code, _, complained = does(verb, elsewhere)
        assert code == 2
        assert "the data of ../run must be where they were; got nothing at " in complained
        assert "--task.path" in complained
    assert does("resume", elsewhere, "--steps", 3, "--task.path", "../data/moved.npz")[0] == 0
    assert does("eval", elsewhere)[0] == 0  # the new place was recorded


def test_data_that_were_changed_are_refused_unless_others_are_named(elsewhere, does, files):
    inputs = np.random.RandomState(1).randn(30, 6, 3)
    np.savez("../data/mine.npz", inputs=inputs, targets=inputs)
    named = ("--task.path", "../data/mine.npz")
    for words in (
        ("eval", elsewhere),
        ("resume", elsewhere, "--steps", 3),
        ("resume", elsewhere, "--steps", 3, *named),
    ):
        code, _, complained = does(*words)
        assert code == 2
        assert "the data must be those that ../run was trained on; got SHA-256 " in complained
    code, said, complained = does("eval", elsewhere, *named)
    assert code == 0
    assert "test loss" in said
    assert complained.startswith("these are not the data that ../run was trained on: SHA-256 ")


def test_gaussian_input_instead_of_the_runs_own_is_said_on_the_terminal(elsewhere, does):
    Path("../data/mine.npz").unlink()
    code, said, _ = does("analyze", elsewhere, "gradients", "-o", "out")
    assert code == 0
    assert said.startswith("driven by Gaussian input of variance 1: The run's own data were unavailable: the data of ")


def test_a_run_that_an_earlier_version_recorded_finds_its_data_by_the_option(elsewhere, does):
    config, about, best = (elsewhere / name for name in ("config.yaml", "run.json", "best.safetensors"))
    config.write_text(re.sub(r"path: .*", "path: mine.npz", config.read_text()).partition("# kreiss run")[0])
    known = json.loads(about.read_text()).items()
    about.write_text(json.dumps({name: value for name, value in known if name not in ("data", "run", "checksum")}))
    tensors, content = storage.read_tensors(best)
    storage.write_tensors(best, tensors, {name: value for name, value in content.items() if name != "run"})
    assert does("eval", elsewhere)[0] == 2
    code, _, complained = does("eval", elsewhere, "--task.path", "../data/mine.npz")
    assert (code, complained) == (0, "")


def test_every_task_that_reads_files_of_the_users_knows_them(files, tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be " * 20)
    tasks = [Frames(path=files / "fsdd"), Characters(tmp_path / "text.txt"), Sequence(files / "table.csv", group="who")]
    for task in tasks:
        assert all(path.is_file() for path in task.data_files())
        assert len(checksum(task)) == 64
    assert checksum(tasks[1]) == hashlib.sha256((tmp_path / "text.txt").read_bytes()).hexdigest()
    assert [checksum(task) for task in (Copy(2), Pixels(), Characters())] == [None] * 3


def test_the_checksum_of_records_sees_every_one_of_them_and_their_order():
    records = [{"update": update, "loss": 1 / update} for update in (1, 2, 3)]
    whole = Tally(records).said()
    for other in ([{"update": 1, "loss": 2.0}, *records[1:]], [records[1], records[0], records[2]], records[:2]):
        assert Tally(other).said() != whole
    assert Tally(list(records)).said() == whole
