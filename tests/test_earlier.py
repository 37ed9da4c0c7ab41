"""What version 0.1.0 wrote before networks had a room of their own is still read: a run, a model, recorded results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import kreiss
from kreiss.experiments import EXPERIMENTS
from kreiss.studies import results
from kreiss.studies.jobs import keys_of
from kreiss.studies.sweeping import Sweep
from kreiss.training import read_records, resume
from kreiss.training.config import first_name
from kreiss.training.record import read_config

GOLDEN = Path(__file__).parent / "golden"
RESULTS = Path(__file__).parents[1] / "results" / "experiments"


@pytest.fixture
def run(tmp_path) -> Path:
    """A copy of a run of four updates, with a penalty on eigenvalue moduli under its former name."""
    shutil.copytree(GOLDEN / "earlier", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_read_measured_and_resumed(run, does):
    assert "radius: 0.01" in (run / "config.yaml").read_text()
    assert read_config(run).optimiser.radius_penalty == 0.01
    before = read_records(run)
    code, out, _ = does("eval", run)
    assert code == 0
    assert f"test loss {before[-1]['loss']:.4g}"[:14] in out
    again = resume(run, {"steps": 6}, show="quiet")
    assert again.state == "finished"
    assert read_records(run)[: len(before) - 1] == before[:-1]
    assert read_config(run).steps == 6


def test_settings_of_a_run_start_another(run, tmp_path, does):
    code, _, error = does("train", "copy", "--config", run / "config.yaml", "--out", tmp_path / "new", "--quiet")
    assert (code, error) == (0, "")
    assert read_config(tmp_path / "new").optimiser.radius_penalty == 0.01


def test_a_search_records_settings_under_the_names_they_first_had(tmp_path):
    sweep = Sweep("001/fig2-copy/nnrnn", "smoke", "nnrnn", {"steps": 1}, tmp_path)
    assert sweep.config({"optimiser.radius": 0.1, "optimiser.lr": 1e-3}).optimiser.radius_penalty == 0.1
    assert first_name("optimiser.radius_penalty") == "optimiser.radius"
    assert first_name("optimiser.lr") == "optimiser.lr"


def test_a_saved_model_is_read():
    layer = kreiss.load(GOLDEN / "earlier-goru.safetensors")
    same = kreiss.GORU(3, 4, generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(layer(x)[0], same(x)[0])


def test_recorded_results_are_found_under_the_keys_of_their_settings():
    known = results.read_all(RESULTS)
    experiment = EXPERIMENTS["001/fig2-copy"]
    for row in experiment.rows:
        for seed, key in enumerate(keys_of(experiment, row, "laptop", 3)):
            assert known[key]["seed"] == seed
            assert known[key]["config"]["model"]["name"] == row.settings["model"]  # equal set-ups share a run
