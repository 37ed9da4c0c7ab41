"""Objects and relations as people see them: examples of a task, analyses of a run, reports with curves against m."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import kreiss
from kreiss.commands.pictures import in_terminal
from kreiss.commands.sources import source
from kreiss.errors import InputError
from kreiss.experiments import experiment
from kreiss.report import objects
from kreiss.report.comparison import compare
from kreiss.report.plots import objects as objects_plots
from kreiss.report.relational_findings import relational_findings
from kreiss.report.style import DIVERGING
from kreiss.studies.jobs import keys_of
from kreiss.tasks import Comparison, SameDifferent


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("objects") / "run"
    options = {"task.held_out": 98, "task.valid_sequences": 40, "task.test_sequences": 40}
    kreiss.fit(
        "corelnet", "samedifferent", options, optimiser="adam", lr=5e-4, batch=16, steps=12, eval_every=6, out=folder,
        show="quiet",
    )  # fmt: skip
    return folder


def test_a_run_on_objects_is_analysed_with_its_answers_and_relations(run, tmp_path, does):
    assert does("analyze", run, "--out", tmp_path / "page")[0] == 0
    found = json.loads((tmp_path / "page" / "analysis.json").read_text())["findings"]
    assert [finding["key"] for finding in found] == ["training", "answers", "relations"]
    accuracy = found[1]["numbers"]["accuracy"]
    assert accuracy["on unseen objects"] > 0.8
    assert found[1]["numbers"]["chance"] == 0.5
    assert (tmp_path / "page" / "relations.png").exists()


def test_similarities_of_equal_and_other_pairs_are_told_apart(run):
    network, task = kreiss.load(run), SameDifferent(held_out=98, split=0, valid_sequences=40)
    (finding,) = relational_findings(network, task, "relations")
    assert finding.numbers["mean_of_equal_pairs"] == pytest.approx(0.5, abs=1e-6)  # the exact case of two equal images
    assert finding.numbers["mean_of_other_pairs"] < 0.05
    finding.draw()


def test_the_differences_of_a_network_are_drawn_in_two_colours():
    torch.manual_seed(0)
    network = kreiss.relational.CoRelNet(2, 2, relation="difference")
    (finding,) = relational_findings(network, Comparison(held_out=50, valid_sequences=20), "relations")
    figure = finding.draw()
    ranges = {image.get_clim() for axes in figure.axes for image in axes.images if image.get_cmap().name == DIVERGING}
    ((low, high),) = ranges  # one scale for all, as there is one bar
    assert low < 0
    assert low == -high


def test_findings_say_what_was_drawn_and_held_out(run):
    network = kreiss.load(run)
    (finding,) = relational_findings(network, SameDifferent(held_out=0, valid_sequences=40), "relations")
    assert finding.sentence.startswith("What the decision is made from, on the sequences held out: ")
    assert "wrong answer" not in finding.sentence  # there are none
    (finding,) = relational_findings(network, SameDifferent(held_out=98, split=0, valid_sequences=40), "answers")
    assert "on unseen objects" in finding.sentence


def test_what_a_network_does_not_have_is_refused_in_one_sentence(run, tmp_path):
    with pytest.raises(InputError, match="gradients must be asked of another network; got CoRelNet"):
        list(source(run, "gradients").findings)
    kreiss.save(kreiss.load(run), tmp_path / "saved.safetensors")
    with pytest.raises(InputError, match="must be in the folder of a run"):
        source(tmp_path / "saved.safetensors", "all")


def test_a_recurrent_network_over_objects_is_analysed_like_any_other(tmp_path):
    options = {"task.held_out": 98, "task.valid_sequences": 10, "task.test_sequences": 10}
    settings = {"hidden": 6, "batch": 4, "steps": 2, "eval_every": 1}
    kreiss.fit("nnrnn", "samedifferent", {**options, **settings}, out=tmp_path / "run", show="quiet")
    found = [finding.key for finding in source(tmp_path / "run", "gradients").findings]
    assert "gradients" in found


def test_examples_are_drawn_in_the_terminal_and_into_a_file(tmp_path, does):
    code, shown, _ = does("show", "samedifferent", "--task.held_out", "98")
    assert code == 0
    assert "--task.held_out = 0  m, glyphs that are not shown in training" in shown
    assert "answer 0 of 0 to 1" in shown
    assert "█" in shown
    assert does("show", "dist3", "--out", tmp_path / "dist3.png")[0] == 0
    assert (tmp_path / "dist3.png").stat().st_size > 5000


def test_games_are_drawn_as_boards_and_other_objects_in_lines():
    images = np.random.default_rng(0).random((5, 9, 3, 12, 12))
    panels = [axes for axes in objects_plots.drawn(images, ["answer"] * 5, 3).axes if axes.images]
    assert len(panels) == 5
    board = np.asarray(panels[1].images[0].get_array())
    assert board.shape == (3 * 14, 3 * 14, 3)  # with frames
    np.testing.assert_allclose(board[14 + 1 : 14 + 13, 1:13], images[1, 3].transpose(1, 2, 0))  # the fourth: second row
    (line, *_) = [axes for axes in objects_plots.drawn(images, ["answer"] * 5, 6).axes if axes.images]
    assert np.asarray(line.images[0].get_array()).shape == (14, 9 * 14, 3)


def test_equal_objects_look_equal_in_the_terminal():
    task = SameDifferent(held_out=50)
    for text, answer in zip(in_terminal(task).split("\n\n"), task.train(0, 2, 0).targets.tolist(), strict=False):
        lines = [line.ljust(25) for line in text.split("\n")[:-1]]
        first, second = ([line[start : start + 12] for line in lines] for start in (0, 13))
        assert (first == second) == (answer == 0)


def test_bad_files_and_other_tasks_have_no_examples(tmp_path, does):
    assert does("show", "copy", "--out", tmp_path / "x.png")[0] == 2
    code, _, complaint = does("show", "dist3", "--out", tmp_path / "x.pdf")
    assert code == 2
    assert "must end in .png or .svg" in complaint


def _known(name, networks):
    """Invented results of some networks: accuracy by m and seed."""
    made = experiment(name)
    known = {}
    for one in made.rows:
        network, _, m = one.name.rpartition("-")
        if network in networks:
            for seed, key in enumerate(keys_of(made, one, "paper", 3)):
                accuracy = networks[network] - int(m) / 1000 + seed / 100
                known[key] = {
                    "state": "finished", "scale": "paper", "test": {"accuracy@unseen": accuracy},
                    "baseline": {"accuracy@unseen": 0.25},
                }  # fmt: skip
    return made, known


def test_accuracies_are_drawn_against_what_was_held_out(tmp_path):
    made, known = _known("004/figC.6-dist3", {"corelnet": 0.98, "transformer": 0.5})
    comparison = compare(made, "paper", known)
    figure = objects.against_held_out(comparison)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(lines["CoRelNet"], [0.99 - m / 1000 for m in (0, 50, 85, 95)])
    np.testing.assert_allclose(lines["Transformer"][-1], 0.51 - 0.095)
    assert "guessing" in lines
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "50", "85", "95"]
    said = [sentence for _, sentence in objects.pictures(comparison, tmp_path)]
    assert len(said) == 2
    assert "Examples" in said[0]


def test_experiments_of_other_tasks_have_no_pictures_of_objects(tmp_path):
    made = experiment("004/table4.1")
    assert list(objects.pictures(compare(made, "laptop", {}), tmp_path)) == []
