"""`kreiss compare`, `train --seeds` and `sweep --search`: equal sizes, equal tuning, resumed runs, one table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kreiss.commands.experiments import report
from kreiss.errors import InputError, RunError
from kreiss.experiments import experiment
from kreiss.report import own, tables
from kreiss.report.comparison import compare
from kreiss.studies import comparing, places, sweeping
from kreiss.studies.reproducing import updates_made
from kreiss.studies.searching import Range, choices, ends
from kreiss.training.planning import make_task
from kreiss.training.record import read_config, read_status
from test_reproduce import Inside, environment, wait_until

SMALL = {"task.delay": 2, "task.valid_sequences": 5, "task.test_sequences": 5, "steps": 2, "batch": 2}
SETTINGS = {"task": "copy", **SMALL}
WORDS = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places.Here, "made", Inside.made)  # without the time that new processes take


def searched_here(sweep: sweeping.Sweep, trials: int, workers: int) -> object:
    sweep.check()
    sweeping.take_up(sweep)
    sweeping.work(sweep, trials)
    return sweeping.study_of(sweep)


# ---------------------------------------------------------------- what is compared


def test_networks_have_equal_units_or_about_equal_parameters():
    models = ["nnrnn", "lstm", "exprnn", "urnn"]
    units = comparing.candidates(models, {**SETTINGS, "hidden": 24})
    assert {config.model.hidden for config in units.values()} == {24}
    matched = comparing.candidates(models, {**SETTINGS, "hidden": 24}, "parameters")
    counts = [comparing.parameters(config, make_task(config)) for config in matched.values()]
    assert matched["nnrnn"].model.hidden == 24
    assert matched["lstm"].model.hidden < 24 < matched["exprnn"].model.hidden
    assert all(abs(count / counts[0] - 1) < 0.1 for count in counts)


def test_a_setting_of_models_applies_to_those_that_have_it():
    configs = comparing.candidates(["nnrnn", "lstm"], {**SETTINGS, "hidden": 4, "model.blocks": "paper"})
    assert configs["nnrnn"].model.blocks == "paper"
    assert "blocks" not in configs["lstm"].model.model_dump()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "nnrnn,lstm", "--equal", "size"], "unknown equal 'size'. Choose one of: parameters, units."),
        (["--models", "nnrnn,nnrnn"], "models must be different names; got nnrnn, nnrnn"),
        (["--models", "nnrnn,"], "models must be different names"),
        (["--models", "nnrnn,lstn"], "unknown model 'lstn'. Did you mean 'lstm'?"),
        (["--models", "rnn,lstm", "--model.blocks", "exact"], "`model.blocks` must be a setting of at least one"),
        (["--models", "rnn,lstm", "--search", "model.blocks=exact,paper"], "`model.blocks` must be a setting of at"),
        (["--models", "rnn,lstm", "--search", "lr"], "a search must be written as name=low..high"),
        (["--models", "rnn,lstm", "--search", "lr=1e-3..1e-4"], "a range must run from a number to a larger one"),
        (["--models", "rnn,lstm", "--search", "lr=0.1,0.1"], "values must be different and not empty"),
        (["--models", "rnn,lstm", "--search", "lr=1,2", "lr=3,4"], "a setting must be searched once; got lr twice"),
        (["--models", "rnn,lstm", "--search", "seed=1,2"], "`seed` must be the same in all trials"),
        (["--models", "rnn,lstm", "--equal", "parameters", "--search", "hidden=4,8"], "`hidden` must follow from the"),
        (["--models", "rnn,lstm", "--search", "lr=small,large"], "`optimiser.lr` must be a valid number"),
        (["--models", "rnn,lstm", "--hidden", "1", "--equal", "parameters"], "got lstm, which has at least"),
        (["--models", "nowhere:Net"], "the module nowhere must be importable"),
    ],
    ids=lambda value: "-".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_comparison_that_cannot_be_made_is_one_sentence_and_no_folder(words, said, does):
    code, out, complaint = does("compare", "copy", *words, *WORDS, "--out", "OUT")
    assert (code, out) == (2, ""), complaint
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not Path("OUT").exists()


def test_a_network_without_a_hidden_size_is_not_matched_in_parameters():
    settings = {"task": "samedifferent", "hidden": 8}
    with pytest.raises(InputError, match=r"must have a hidden size to be matched in parameters; got corelnet"):
        comparing.candidates(["rnn", "corelnet"], settings, "parameters")


# ---------------------------------------------------------------- from the command to the table


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_every_network_is_tuned_alike_and_run_with_every_seed_and_more_can_be_added(does, monkeypatch):
    monkeypatch.setattr(comparing, "sweep_here", searched_here)
    search = ["--search", "lr=1e-3..1e-1", "model.blocks=exact,paper", "--trials", "3"]
    words = ["--hidden", "3", *WORDS, *search, "--out", "O"]
    code, said, complaint = does("compare", "copy", "--models", "nnrnn,rnn", "--seeds", "2", *words)
    assert code == 0, complaint
    for model, tried in (("nnrnn", {"optimiser.lr", "model.blocks"}), ("rnn", {"optimiser.lr"})):
        best = read_config(Path(f"O/runs/{model}/seed-1"))
        assert f"{model}: best of 3 trials" in said
        sweep = comparing.searches({model: best}, ["lr=1e-3..1e-1"], Path("O/search"))[model]
        assert 1e-3 <= best.optimiser.lr <= 1e-1
        assert Path(f"O/search/{model}/best.yaml").exists()
        study = sweeping.optuna_here().load_study(study_name="kreiss", storage=sweeping.storage_of(sweep.folder))
        assert len(study.trials) == 3
        assert set(study.trials[0].params) == tried
    code, said, _ = does("compare", "copy", "--models", "nnrnn,rnn,irnn", "--seeds", "3", *words)
    assert code == 0
    assert "9 runs, 4 done, 5 to make" in said
    table = Path("O/table.md").read_text()
    assert table.count("**") >= 4  # the best loss and the best accuracy
    assert "| irnn | 3 |" in table
    assert {"table.tex", "curves.svg", "curves.png", "index.html"} <= {path.name for path in Path("O").iterdir()}


def test_other_settings_in_the_same_folder_are_refused(does):
    words = ["compare", "copy", "--models", "rnn", "--seeds", "1", "--hidden", "3", *WORDS, "--out", "O", "--quiet"]
    assert does(*words)[0] == 0
    code, _, complaint = does(*words, "--lr", "0.5")
    assert code == 2
    assert "got O/runs/rnn/seed-0, a run with other settings" in complaint


def test_seeds_of_one_network_are_runs_in_one_folder_and_what_is_done_stays(does):
    words = ["train", "copy", "--model", "rnn", "--hidden", "3", *WORDS, "--out", "RUN", "--seeds"]
    assert "| rnn | 3 |" in does(*words, "2")[1]
    code, said, _ = does(*words, "3")
    assert code == 0
    assert "3 runs, 2 done, 1 to make" in said
    assert [read_config(Path(f"RUN/seed-{seed}")).seed for seed in range(3)] == [0, 1, 2]
    assert "| 3 |" in Path("RUN/table.md").read_text().splitlines()[4]


def test_what_was_not_finished_is_said_and_made_by_the_next_command(does, monkeypatch):
    words = ["compare", "copy", "--models", "rnn", "--seeds", "2", "--hidden", "3", *WORDS, "--out", "O"]
    with monkeypatch.context() as patched:
        patched.setattr(places.Here, "made", lambda self, jobs, *_: ((job, RunError("no room")) for job in jobs))
        code, _, complaint = does(*words)
        assert code == 1
        assert "2 of 2 runs of O/runs were not finished; rerun the command: rnn seed 0, rnn seed 1" in complaint
    assert does(*words)[0] == 0


@pytest.mark.slow
def test_a_comparison_goes_on_after_a_kill_and_ends_with_the_numbers_of_an_uninterrupted_one(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    longer = ["--task.delay", "60", "--steps", "90", "--eval-every", "3", "--batch", "8", "--hidden", "4"]
    start = [
        sys.executable,
        "-m",
        "kreiss",
        "compare",
        "copy",
        "--models",
        "rnn,irnn",
        "--seeds",
        "1",
        *longer,
        "--out",
    ]
    subprocess.run([*start, "WHOLE"], env=environment(), check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*start, "KILLED"], env=environment(), stdout=subprocess.DEVNULL)
    run = Path("KILLED/runs/rnn/seed-0")
    wait_until(lambda: updates_made(run) >= 12)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: read_status(run)["state"] == "killed")
    subprocess.run([*start, "KILLED"], env=environment(), check=True, stdout=subprocess.DEVNULL)
    assert Path("KILLED/table.md").read_text() == Path("WHOLE/table.md").read_text()


# ---------------------------------------------------------------- searches


def test_words_of_a_search_are_ranges_and_lists():
    found = choices(["lr=1e-4..1e-1", "hidden=16..64", "model.blocks=exact,paper", "momentum=0..0.9"])
    assert found["optimiser.lr"] == Range(1e-4, 1e-1)
    assert found["optimiser.lr"].logarithmic
    assert found["model.hidden"].whole
    assert not found["momentum"].logarithmic
    assert found["model.blocks"] == ends(found["model.blocks"]) == ("exact", "paper")


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_search_takes_any_task_and_model(does, monkeypatch):
    monkeypatch.setattr(sweeping, "sweep_here", searched_here)
    words = ["--model", "lstm", *WORDS, "--search", "lr=1e-3..1e-1", "hidden=2,3", "--trials", "2", "--out", "S"]
    code, said, complaint = does("sweep", "copy", *words)
    assert code == 0, complaint
    assert "--optimiser.lr" in said
    assert "--model.hidden" in said
    assert Path("S/best.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cpoy", "--search", "lr=1,2"], "unknown task 'cpoy'. Did you mean 'copy'?"),
        (["copy"], "a search must try something; got no setting"),
        (["copy", "--grid", "nnrn"], "unknown grid 'nnrn'. Did you mean 'nnrnn'?"),
        (["copy", "--search", "model.blocks=exact,exactly"], "'exactly'"),
        (["copy", "--search", "hiden=1,2"], "unknown setting 'hiden'. Did you mean 'hidden'?"),
        (["copy", "--search", "task.delay=0..5"], "`delay` must be at least 1"),
        (["copy", "rnn", "--search", "lr=1,2"], "takes one task; got 'rnn' too"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_search_is_one_sentence_and_leaves_no_folder(words, said, does):
    code, out, complaint = does("sweep", *words, "--out", "S")
    assert (code, out) == (2, "")
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not Path("S").exists()


# ---------------------------------------------------------------- reports of one's own runs


def test_seeds_are_merged_tasks_are_apart_and_the_best_is_bold(does, capsys):
    for model, seeds in (("rnn", 2), ("lstm", 1)):
        words = ["train", "copy", "--model", model, "--hidden", "3", *WORDS, "--seeds", str(seeds), "--out", model]
        assert does(*words)[0] == 0
    sizes = [
        "--task.length",
        "4",
        "--task.sequences",
        "20",
        "--task.valid_sequences",
        "5",
        "--task.test_sequences",
        "5",
    ]
    assert does("train", "adding", "--model", "rnn", "--hidden", "3", *sizes, "--steps", "2", "--out", "a_b")[0] == 0
    copying, adding = own.compare_runs([Path("rnn"), Path("lstm"), Path("a_b")])
    assert [len(line.values) for line in copying.lines] == [2, 1]
    means = [line.mean for line in copying.lines]
    rows = own.markdown(copying).splitlines()
    assert rows[2] == "| network | units | parameters | loss | accuracy | seeds | \\|λ\\| |"
    assert [row.split(" | ")[3].startswith("**") for row in rows[4:6]] == [mean == min(means) for mean in means]
    assert "±" in rows[4]
    assert "|λ|" in own.as_html(copying)
    assert "**" not in own.markdown(adding)  # nothing to compare
    report("rnn", "lstm", "a_b", output=Path("r.html"))
    page = Path("r.html").read_text()
    assert "<b>" in page
    assert not any(word in page for word in ("<th scope='col'>paper", "<th scope='col'>difference", "ambiguous"))
    assert "Validation loss against updates" in page
    with pytest.raises(InputError, match="`latex` must be asked of your own runs; got the experiment 001/table1"):
        report("001/table1", latex=True)
    Path("nothing").mkdir()
    with pytest.raises(InputError, match="must be a run or hold runs; got neither"):
        own.compare_runs([Path("nothing")])


def test_names_are_escaped_in_latex():
    assert own._tex("a_b & 50% ± |λ|") == r"a\_b \& 50\% $\pm$ $|\lambda|$"


def test_a_column_that_is_empty_in_every_row_is_left_out():
    assert tables.without_empty(["a", "b"], [["1", "–"], ["2", "–"]]) == (["a"], [["1"], ["2"]])
    headings, rows = tables.main(compare(experiment("001/fig2-copy"), "laptop", {}))
    assert "paper" not in headings
    assert all(len(row) == len(headings) for row in rows)
