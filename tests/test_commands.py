"""The command line: every verb, every exit code, one sentence for everything that goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kreiss
from catalogue import mostly_slow
from kreiss import cli
from kreiss.experiments import COMPUTED, EXPERIMENTS, names
from kreiss.networks import LAYERS, NETWORKS
from kreiss.report.plots import comparison
from kreiss.storage.files import read_tensors
from kreiss.tasks import TASKS
from kreiss.training import read_records
from kreiss.training.record import RunFolder, read_status
from stream import Stream

HERE = Path(__file__).parent
SMALL = ["--hidden", "6", "--batch", "4", "--steps", "6", "--eval-every", "3", "--task.delay", "3"]


@pytest.fixture(autouse=True)
def _with_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(TASKS, "stream", Stream)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("COLUMNS", raising=False)


class Said:
    """What a command printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def kreiss_does(monkeypatch, capsys):
    def run(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["kreiss", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return Said(ended.value.code or 0, shown.out, shown.err)

    return run


# ---------------------------------------------------------------- train, resume, eval


def test_the_line_of_the_documentation_trains(kreiss_does):
    line = "train copy --model nnrnn --hidden 8 --model.blocks exact --task.delay 2 --steps 9 --seed 0"
    done = kreiss_does(*line.split(), "--checkpoint-every", 4, "--out", "RUN")
    assert done.code == 0, done.err
    line = "kreiss train copy --model nnrnn --task.delay 2 --hidden 8 --steps 9 --checkpoint-every 4"
    assert done.out.splitlines()[0] == line  # what differs from defaults, of which blocks and seed are none
    assert "valid loss" in done.out
    assert "test loss" in done.out
    assert done.out.splitlines()[-1] == "saved to RUN; next: kreiss analyze RUN"
    assert "blocks: exact" in Path("RUN/config.yaml").read_text()
    assert read_status(Path("RUN"))["state"] == "finished"
    assert kreiss.load("RUN").layer.hidden_size == 8


def test_a_file_a_preset_and_the_command_line_are_put_together_in_this_order(kreiss_does):
    Path("my.yaml").write_text("hidden: 5\nlr: 0.25\n")
    sources = ("--preset", "000/table2/rnn-128", "--config", "my.yaml", "--lr", "0.5")
    done = kreiss_does("train", *sources, *SMALL[2:], "--json", "--out", "RUN")
    config = json.loads(done.out.splitlines()[0])["config"]
    assert config["model"] == {**config["model"], "name": "rnn", "hidden": 5}
    assert config["optimiser"] == {**config["optimiser"], "lr": 0.5, "alpha": 0.9}


def test_train_without_out_makes_a_folder_in_runs_and_never_the_same(kreiss_does):
    for _ in range(2):
        assert kreiss_does("train", "copy", *SMALL, "--quiet").code == 0
    made = list(Path("runs").iterdir())
    assert len(made) == 2
    assert all(path.name.startswith("copy-nnrnn-") for path in made)


def test_train_resume_and_resume_are_the_same(kreiss_does):
    for out in ("a", "b"):
        kreiss_does("train", "copy", *SMALL, "--quiet", "--out", out)
    assert kreiss_does("train", "--resume", "a", "--steps", 9, "--quiet").code == 0
    assert kreiss_does("resume", "b", "--steps", 9, "--quiet").code == 0
    one, two = (read_tensors(Path(out) / "last.safetensors")[0] for out in ("a", "b"))
    assert all(torch.equal(value, two[key]) for key, value in one.items())
    assert read_status(Path("a"))["update"] == 9


def test_eval_measures_the_best_of_a_run_and_a_saved_model(kreiss_does):
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "RUN")
    tested = next(record for record in read_records(Path("RUN")) if record.get("split") == "test")
    done = kreiss_does("eval", "RUN", "--json")
    assert json.loads(done.out) == {"split": "test", "loss": tested["loss"], "accuracy": tested["accuracy"]}
    assert "without memory" in kreiss_does("eval", "RUN", "--split", "valid").out
    longer = json.loads(kreiss_does("eval", "RUN", "--task.delay", 50, "--json").out)  # transfer
    assert longer["loss"] != tested["loss"]
    kreiss.save(kreiss.load("RUN"), "model.safetensors")
    words = ("eval", "model.safetensors", "copy", "--task.delay", 3, "--batch", 7, "--json")
    assert json.loads(kreiss_does(*words).out)["loss"] == pytest.approx(tested["loss"], rel=1e-6)


def test_a_run_that_is_asked_to_stop_exits_with_130_and_says_how_to_go_on(kreiss_does, monkeypatch):
    from kreiss.training.guard import Interruption

    entered = Interruption.__enter__
    monkeypatch.setattr(Interruption, "__enter__", lambda self: (setattr(self, "asked", True), entered(self))[1])
    done = kreiss_does("train", "copy", *SMALL, "--out", "RUN")
    assert done.code == 130
    assert "resume with: kreiss resume RUN" in done.out
    assert read_status(Path("RUN")) == {**read_status(Path("RUN")), "state": "interrupted", "update": 1}


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["train", "cpoy"], 2, "unknown task 'cpoy'. Did you mean 'copy'?"),
        (["train", "copy", "--model", "nrnn"], 2, "unknown model 'nrnn'. Did you mean 'nnrnn'?"),
        (["train", "copy", "--hiden", "3"], 2, "unknown setting 'hiden'. Did you mean 'hidden'?"),
        (["train", "copy", "--model.block", "exact"], 2, "Did you mean 'model.blocks'?"),
        (["train", "copy", "--model.blocks", "exactly"], 2, "'exactly'"),
        (["train", "copy", "--task.delay", "long"], 2, "`task.delay` must be a valid integer"),
        (["train", "copy", "--task.delay", "0"], 2, "`delay` must be at least 1"),
        (["train", "copy", "copy"], 2, "there must be one task; got 'copy copy'"),
        (["train", "copy", "--config", "nothing.yaml"], 2, "`nothing.yaml` must be a readable text file"),
        (["train", "copy", "--config", "wrong.yaml"], 2, "`model.hidden` must be a valid integer"),
        (["train", "copy", "--preset", "none"], 2, "unknown preset 'none'"),
        (["train", "copy", "--device", "gpu"], 2, "`device` must be available"),
        (["train", "copy", "--epochs", "3"], 2, "`epochs` must be left out"),
        (["train", "copy", "--out", "/proc/run"], 1, "the run folder `/proc/run` could not be made"),
        (["train", "copy", "--out", "wrong.yaml/run"], 1, "could not be made: Not a directory"),
        (["train", "copy", "--track", "wandb", "--out", "RUN"], 3, "pip install 'kreiss[wandb]'"),
        (["resume", "nowhere"], 2, "`nowhere` must be the folder of a run"),
        (["resume", "nowhere", "else"], 2, "takes one run; got 'else' too"),
        (["eval", "nowhere"], 2, "`nowhere` must be a readable file"),
        (["eval", "wrong.yaml"], 1, "not written by kreiss"),
        (["show", "nnrn"], 2, "Did you mean 'nnrnn'?"),
        (["runs", "show", "nowhere"], 2, "`nowhere` must be the folder of a run"),
        (["runs", "rm", "."], 2, "`.` must be the folder of a run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_goes_wrong_is_one_sentence_and_an_exit_code(words, code, said, kreiss_does, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    Path("wrong.yaml").write_text("hidden: many\n")
    done = kreiss_does(*words)
    assert done.code == code, done.err
    assert done.err.startswith("error: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert not Path("RUN").exists()


def test_numbers_that_are_not_finite_end_a_run_with_one_sentence_and_exit_code_1(kreiss_does):
    words = ["--model.nonlinearity", "relu", "--lr", "1e30", "--optimiser", "sgd"]
    done = kreiss_does("train", "copy", *SMALL, "--model", "rnn", *words, "--quiet", "--out", "RUN")
    assert done.code == 1
    assert re.match(r"error: the (loss|gradient of \S+) must be finite; got .* at update \d+\. ", done.err)
    assert read_status(Path("RUN"))["state"] == "failed"


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    def broken(words: list[str]) -> int:
        raise TypeError("a fault")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(TypeError, match="a fault"):
        cli.main()


# ---------------------------------------------------------------- runs, list, show


def test_runs_are_listed_shown_and_removed(kreiss_does):
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "runs/one")
    kreiss_does("train", "copy", *SMALL, "--quiet", "--model", "lstm", "--out", "runs/more/two")
    rows = [json.loads(line) for line in kreiss_does("runs", "ls", "--json").out.splitlines()]
    assert [(row["run"], row["model"], row["state"], row["update"]) for row in rows] == [
        ("runs/more/two", "lstm", "finished", "6/6"), ("runs/one", "nnrnn", "finished", "6/6"),
    ]  # fmt: skip
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "easy/run", "--stop-at", 99)
    solved = json.loads(kreiss_does("runs", "ls", "easy", "--json").out)
    assert (solved["state"], solved["update"]) == ("solved", "3/6")
    assert rows[1]["test"] == pytest.approx(read_records(Path("runs/one"))[-1]["loss"])
    assert "runs/one" in kreiss_does("runs", "ls").out
    shown = kreiss_does("runs", "show", "runs/one").out
    assert "name: nnrnn" in shown
    assert "state: finished" in shown
    assert "split test" in shown
    assert "removed runs/one" in kreiss_does("runs", "rm", "runs/one", "--yes").out
    assert not Path("runs/one").exists()
    assert Path("runs/more/two").exists()
    assert "no runs in" in kreiss_does("runs", "ls", "elsewhere").out


def test_a_run_is_removed_only_when_the_answer_is_yes_and_nobody_trains_in_it(kreiss_does, monkeypatch):
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "RUN")
    monkeypatch.setattr("builtins.input", lambda question: "")
    assert kreiss_does("runs", "rm", "RUN").code == 0
    assert Path("RUN").exists()
    other = RunFolder(Path("RUN"))
    other._open()
    other.set_status("running", 3)
    done = kreiss_does("runs", "rm", "RUN", "-y")
    assert (done.code, Path("RUN").exists()) == (2, True)
    assert "which is running" in done.err
    other.close()
    assert json.loads(kreiss_does("runs", "ls", ".", "--json").out)["state"] == "killed"


def test_lists_have_every_name_and_can_be_filtered(kreiss_does):
    assert [line.split()[0] for line in kreiss_does("list", "tasks").out.splitlines()] == list(TASKS)
    lines = kreiss_does("list", "presets").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(" ")] == names()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [*EXPERIMENTS, *COMPUTED]
    assert {line.split()[0] for line in kreiss_does("list", "presets", "γ = 1").out.splitlines()} < {
        *names(),
        *EXPERIMENTS,
    }
    assert first_column(kreiss_does("list", "models").out) == list(NETWORKS)
    found = first_column(kreiss_does("list", "models", "orthogonal").out)
    assert {"orthrnn", "exprnn"} <= set(found) < set(LAYERS)


def first_column(tables: str) -> list[str]:
    """Names in the first column of tables in which every row is one line, headings excepted."""
    names = [line.split()[0] for line in tables.splitlines()]
    return [name for name, below in zip(names, [*names[1:], ""], strict=True) if "─" not in name + below]


@pytest.mark.parametrize("words", [("list", "models"), ("data", "list"), ("doctor",), ("runs", "ls")])
def test_no_table_is_cut_at_80_columns(words, kreiss_does, monkeypatch):
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "a-folder-whose-name-is-longer-than-its-column-can-be")
    whole = kreiss_does(*words).out
    monkeypatch.setenv("COLUMNS", "80")
    folded = kreiss_does(*words).out
    assert max(map(len, folded.splitlines())) <= 80
    assert sorted(re.sub(r"[\s─]", "", folded)) == sorted(re.sub(r"[\s─]", "", whole))  # every letter is there


def test_runs_are_found_where_out_has_put_them(kreiss_does, tmp_path, monkeypatch):
    kreiss_does("train", "copy", *SMALL, "--quiet")
    for out in ("here", tmp_path / "elsewhere" / "there"):
        kreiss_does("train", "copy", *SMALL, "--quiet", "--out", out)
    kreiss_does("train", "copy", *SMALL, "--quiet", "--out", "gone")
    kreiss_does("runs", "rm", "gone", "--yes")
    found = [json.loads(line)["run"] for line in kreiss_does("runs", "ls", "--json").out.splitlines()]
    assert found[1:] == ["here", "elsewhere/there"]
    assert found[0].startswith("runs/copy-nnrnn-")
    (tmp_path / "here").rename(tmp_path / "seed-0")  # a folder of several runs, as --seeds and `kreiss compare` make
    (tmp_path / "here").mkdir()
    (tmp_path / "seed-0").rename(tmp_path / "here" / "seed-0")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    found = [json.loads(line)["run"] for line in kreiss_does("runs", "ls", "--json").out.splitlines()]
    assert found == [str(tmp_path / "here" / "seed-0"), str(tmp_path / "elsewhere" / "there")]


@pytest.mark.parametrize(
    "name", [*NETWORKS, *TASKS, "001/table1", "001/table1/nnrnn-150", "002/table1/nnrnn-1-300", "config"]
)
def test_show_says_what_everything_can_be_told(name, kreiss_does):
    done = kreiss_does("show", name)
    assert done.code == 0
    assert len(done.out) > 50
    if name == "nnrnn":
        assert "--model.blocks = 'exact'" in done.out
        assert "hidden_size" not in done.out.split("Settings:")[1]
    if name == "config":
        assert "--optimiser.lr (or --lr) = 0.001  learning rate" in done.out
    if name == "001/table1/nnrnn-150":
        assert "published: test bpc 1.47 ± 0.003" in done.out
        assert "--hidden 1024" in done.out
        assert "model.hidden: 1024 → 128" in kreiss_does("show", name, "--scale", "laptop").out
    if name == "002/table1/nnrnn-1-300":
        assert "2 of 5 runs failed" in done.out


# ---------------------------------------------------------------- the demonstration


def test_the_demonstration_trains_four_networks_and_ends_with_a_table_and_a_picture(kreiss_does):
    done = kreiss_does("demo", "--delay", 5, "--hidden", 8, "--steps", 10, "--out", "compared")
    assert done.code == 0, done.err
    table = done.out[done.out.index("After training") :]
    assert all(heading in table for heading in ("test loss", "accuracy", "min |λ|", "mean |λ|", "max |λ|"))
    rows = {line.split()[1]: line.split("│")[1:-1] for line in table.splitlines() if line.startswith("│")}
    assert list(rows) == ["nnrnn", "exprnn", "rnn", "lstm"]
    assert [float(cell) for cell in rows["exprnn"][4:]] == [1.0, 1.0, 1.0]
    smallest, mean, largest = (float(cell) for cell in rows["rnn"][4:])
    assert 0 < smallest < mean < largest
    assert [cell.strip() for cell in rows["lstm"][4:]] == ["–"] * 3  # four gates, no single matrix
    assert Path("compared/comparison.png").read_bytes().startswith(b"\x89PNG")
    assert read_status(Path("compared/lstm"))["state"] == "finished"


def test_a_picture_of_networks_without_a_recurrent_matrix_is_drawn_too():
    records = [{"update": 1, "loss": 2.0}, {"update": 1, "split": "valid", "loss": 1.0}]
    losses, moduli = comparison({"lstm": records}, 0.5).axes
    assert len(losses.lines) == 3  # training, validation, without memory
    assert not moduli.lines


def test_without_matplotlib_the_demonstration_says_how_to_get_the_picture(kreiss_does, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = kreiss_does("demo", "--delay", 2, "--hidden", 4, "--steps", 2, "--out", "compared")
    assert done.code == 0
    assert "no plot: " in done.out
    assert "pip install 'kreiss[plots]'" in done.out


# ---------------------------------------------------------------- in processes of their own


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}


def launched(*words: object, processes: int) -> subprocess.CompletedProcess[str]:
    """The command line in several processes, as `torchrun` starts them."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*torchrun, str(HERE / "stream.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())


# Where a gradient is 0 but for rounding, RMSprop and Adam make a whole step of it. NNRNN starts at such a point
# (rotations of P inside a block commute with it), so there the optimiser must be one that does not.
SHARED = {
    "nnrnn": [
        "--optimiser",
        "sgd",
        "--optimiser.momentum",
        "0.9",
        "--optimiser.radius_penalty",
        "0.1",
        "--accumulate",
        2,
    ],
    "lstm": ["--optimiser", "rmsprop", "--clip-norm", 1, "--layers", 2],
}


def losses(out: Path) -> list[float]:
    return [record["loss"] for record in read_records(out)]


@pytest.mark.parametrize("model", mostly_slow(SHARED, "nnrnn"))
def test_two_processes_give_the_losses_of_one_with_the_whole_batch_and_go_on_alone(model, kreiss_does):
    size = ["--hidden", 6, "--batch", 4, "--lr", "1e-2", "--log-every", 1, "--steps", 12, "--eval-every", 6]
    words = ["train", "stream", "--model", model, *size, *SHARED[model], "--quiet"]
    assert kreiss_does(*words, "--out", "alone").code == 0
    done = launched(*words, "--out", Path("shared").absolute(), processes=2)
    assert done.returncode == 0, done.stderr[-2000:]
    alone, shared = losses(Path("alone")), losses(Path("shared"))
    assert len(alone) == len(shared) == 12 + 2 + 1
    assert shared == pytest.approx(alone, abs=1e-5)
    # what two processes left, one takes up: the carried state is that of the whole batch
    for out in ("alone", "shared"):
        assert kreiss_does("resume", out, "--steps", 18, "--quiet").code == 0
    assert losses(Path("shared")) == pytest.approx(losses(Path("alone")), abs=1e-5)


def test_several_processes_must_be_told_where_to_write(kreiss_does, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = kreiss_does("train", "copy", *SMALL)
    assert done.code == 2
    assert "several processes must write to one folder" in done.err


@pytest.mark.parametrize("verb", [[], ["train"], ["resume"], ["eval"], ["runs"], ["list"], ["show"]])
def test_help_is_shown_without_torch(verb):
    heavy = {"torch", "numpy", "yaml", "safetensors"} | ({"pydantic"} if verb != ["train"] else set())  # its settings
    program = (
        f"import sys; sys.argv = ['kreiss', *{verb}, '--help']\n"
        "from kreiss.cli import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n"
        f"heavy = {heavy} & set(sys.modules)\n"
        "sys.exit(f'{heavy} was imported' if heavy else 0)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize("verb", ["train", "reproduce", "report", "sweep", "show", "analyze", "figure", "bench"])
def test_help_has_no_option_that_says_no(verb, kreiss_does):
    shown = kreiss_does(verb, "--help").out
    assert "--no-" not in shown
    assert "--empty-" not in shown


def test_help_puts_common_options_above_advanced_ones(kreiss_does):
    common, advanced = kreiss_does("train", "--help").out.split("Common options")[1].split("Advanced options")
    assert all(f"--{name} " in common for name in ("model", "hidden", "lr", "steps", "seed", "out", "verbose"))
    assert all(f"--{name} " in advanced for name in ("accumulate", "precision", "stop-metric"))


def test_a_reader_that_has_read_enough_is_no_error():
    command = f"{sys.executable} -m kreiss list presets | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=environment())
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_a_run_whose_reader_has_left_was_interrupted(monkeypatch):
    def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("kreiss.training.display.Plain.record", gone)
    with pytest.raises(BrokenPipeError):
        kreiss.fit("nnrnn", "copy", hidden=6, steps=6, out="RUN", show="plain")
    assert read_status(Path("RUN"))["state"] == "interrupted"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_verbs_and_settings(shell):
    script = cli.app.generate_completion(prog_name="kreiss", shell=shell)
    for word in ("train", "resume", "eval", "runs", "checkpoint-every"):
        assert word in script


def test_python_minus_m_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "kreiss", "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == kreiss.__version__
