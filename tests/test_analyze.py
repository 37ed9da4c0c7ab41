"""`kreiss analyze` and `kreiss figure`: matrices, saved models, checkpoints, runs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import kreiss
from catalogue import mostly_slow
from kreiss import analysis
from kreiss.commands import figures as figure_verb
from kreiss.commands.sources import source
from kreiss.errors import InputError
from kreiss.experiments import experiment
from kreiss.networks import LAYERS, RecurrentNetwork
from kreiss.report import network_findings
from kreiss.report.analyses import of_network, shown_matrix
from kreiss.report.figures import FIGURES
from kreiss.studies import results
from kreiss.studies.jobs import job_of
from kreiss.tasks import Adding, Copy, Task

MATRIX_KEYS = ["spectrum", "structure", "memory", "growth", "starts"]
NETWORK_KEYS = ["jacobian-growth", "gradients", "dependence", "lyapunov", "fixed-points"]


def keys(folder: Path) -> list[str]:
    return [finding["key"] for finding in json.loads((folder / "analysis.json").read_text())["findings"]]


# ---------------------------------------------------------------- every network


@pytest.fixture
def short(monkeypatch):
    """Short inputs: what is tested is that there is something to say, and that it can be drawn."""
    inputs = network_findings.random_inputs
    monkeypatch.setattr(network_findings, "random_inputs", lambda system, *_: inputs(system, 12, 2))
    monkeypatch.setattr(network_findings, "DESCENT", 30)


FOUND_QUICKLY = ("rnn", "nnrnn", "enrnn", "goru", "lstm", "scurnn", "torch-lstm", "deep")


@pytest.mark.parametrize("name", mostly_slow([*LAYERS, "torch-lstm", "deep"], *FOUND_QUICKLY))
def test_every_network_has_findings_with_pictures(name, short):
    torch.manual_seed(0)
    others = {"torch-lstm": lambda: nn.LSTM(2, 6), "deep": lambda: kreiss.NNRNN(2, 4, num_layers=2)}
    layer = others[name]() if name in others else LAYERS[name](2, 6)
    found = list(of_network(layer, "all"))
    # fixed points and exponents are those of a state of fixed meaning, which a memory is not
    keys = ["attention", "gradients"] if hasattr(layer, "attention") else NETWORK_KEYS
    assert [one.key for one in found] == MATRIX_KEYS + keys
    assert all("nan" not in one.sentence for one in found)
    assert all(one.draw().axes for one in found if one.key in ("structure", *keys))


def test_transients_of_a_linear_network_are_those_of_its_matrix_and_of_others_are_not():
    torch.manual_seed(0)
    linear = kreiss.NNRNN(2, 6, nonlinearity="identity").double()
    v = linear.weight_hh_l0.detach().numpy()
    (found,) = network_findings.network_findings(linear, "transients")
    norms = analysis.transient_growth(v, 60).norms
    assert np.allclose(found.numbers["along_trajectories"], norms)
    assert np.allclose(found.numbers["fixed_point_peaks"], norms.max())
    assert f"{norms.max():.3g}" in found.sentence
    bent = kreiss.NNRNN(2, 6, nonlinearity="tanh").double()
    bent.load_state_dict(linear.state_dict())
    (found,) = network_findings.network_findings(bent, "transients")
    assert found.numbers["along_trajectories"][20] < 0.9 * norms[20]


def test_of_a_gated_network_the_matrix_of_the_candidate_is_shown():
    assert shown_matrix(nn.LSTM(2, 3)) == "l0.cell"
    assert shown_matrix(kreiss.GRU(2, 3)) == "l0.new"
    assert shown_matrix(kreiss.NNRNN(2, 3)) == "l0"


def test_directions_that_are_lost_for_good_are_counted_not_drawn(short):
    layer = kreiss.RNN(2, 3, nonlinearity="relu")
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.diag(torch.tensor([0.5, 0.5, 0.0])))
    found = {one.key: one for one in of_network(layer, "gradients")}["lyapunov"]
    lost = found.numbers["lost_directions"]
    assert lost >= 1
    assert f"{lost} of its 3 directions" in found.sentence or "every disturbance" in found.sentence
    assert f"{lost} more at −∞" in [text.get_text() for text in found.draw().axes[0].texts]


def test_a_network_whose_states_grow_is_called_unstable_and_not_chaotic():
    layer = kreiss.Henaff(2, 4)
    with torch.no_grad():
        layer.weight_hh_l0 = nn.Parameter(1.1 * torch.eye(4))
    found = {one.key: one for one in of_network(layer, "gradients")}
    assert "it is unstable" in found["lyapunov"].sentence
    assert "grow by a factor of 1.1 per step" in found["gradients"].sentence


def test_a_network_that_holds_a_bit_is_not_said_to_forget():
    layer = kreiss.RNN(1, 1, nonlinearity="tanh", bias=False)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([[2.0]]))
        layer.weight_ih_l0.copy_(torch.tensor([[2.0]]))
        pulses = torch.zeros(30, 2, 1)
        pulses[0] = torch.tensor([[1.0], [-1.0]])
        assert (layer(pulses)[0][-1] * pulses[0] > 0.9).all()  # the bit is held for 30 steps,
    drive = network_findings.Drive(pulses, "pulses")
    found = {one.key: one.sentence for part in ("gradients", "fixed-points") for one in of_network(layer, part, drive)}
    assert "10 % of its largest 2 steps after the input" in found["dependence"]  # though its derivative vanishes
    assert all("This is local" in found[key] for key in ("dependence", "lyapunov"))
    assert "can hold the choice between them for any number of steps" in found["fixed-points"]
    assert not any("forgets its start" in sentence or "influence" in sentence for sentence in found.values())


def test_a_batch_first_layer_has_the_findings_of_the_same_layer_time_first(short):
    layers = [kreiss.NNRNN(2, 4, batch_first=batch_first) for batch_first in (False, True)]
    layers[1].load_state_dict(layers[0].state_dict())
    one, other = ([finding.numbers for finding in of_network(layer, "gradients")] for layer in layers)
    assert one == other


# ---------------------------------------------------------------- runs


def trained(folder: Path, task: Task, model: str, **settings: object) -> Path:
    given = {"hidden": 6, "steps": 6, "eval_every": 2, "batch": 4, **settings}
    kreiss.fit(model, task, given, out=folder, show="quiet")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    kreiss.fit("nnrnn", "copy", {"hidden": 6, "steps": 6, "eval_every": 2, "task.delay": 3}, out=folder, show="quiet")
    return folder


def test_a_run_is_analysed_under_its_own_task_with_its_history(run, tmp_path, does):
    code, said, complained = does("analyze", run, "-o", tmp_path)
    assert code == 0, complained
    assert "index.html" in said
    assert keys(tmp_path) == ["training", "spectrum-frames", *MATRIX_KEYS, *NETWORK_KEYS]
    content = json.loads((tmp_path / "analysis.json").read_text())
    assert "driven by sequences of copy" in content["about"]
    sentences = {one["key"]: one["sentence"] for one in content["findings"]}
    assert sentences["training"].startswith("In 6 updates the validation loss went from")
    assert "From update 0 to 6 the eigenvalues moved by" in sentences["spectrum-frames"]
    assert "The gradient of the loss itself" in sentences["gradients"]
    numbers = {one["key"]: one["numbers"] for one in content["findings"]}
    assert list(numbers["spectrum-frames"]["eigenvalues"]) == ["0", "2", "4", "6"]
    assert all((tmp_path / f"{key}.{form}").exists() for key in keys(tmp_path) for form in ("svg", "png"))


def test_the_last_frame_of_a_run_is_the_spectrum_of_its_last_network(run):
    (frames,) = [one for one in source(run, "spectrum").findings if one.key == "spectrum-frames"]
    last = [complex(*pair) for pair in frames.numbers["eigenvalues"]["6"]]
    v = analysis.learned_structure(kreiss.load(run / "last.safetensors"))["l0"].matrix
    assert np.allclose(
        np.sort_complex(np.round(np.linalg.eigvals(v), 4)), np.sort_complex(np.round(last, 4)), atol=2e-4
    )


def test_a_checkpoint_of_a_run_and_a_saved_model_are_analysed(run, tmp_path, does):
    assert does("analyze", run / "last.safetensors", "memory", "-o", tmp_path / "one")[0] == 0
    assert keys(tmp_path / "one") == ["memory"]
    kreiss.save(kreiss.NNRNN(2, 4), tmp_path / "model.safetensors")
    assert does("analyze", tmp_path / "model.safetensors", "transients")[0] == 0
    assert keys(tmp_path / "model-analysis") == ["growth", "starts", "jacobian-growth"]


@pytest.mark.parametrize(("model", "task"), [("lstm", Adding(6)), ("gru", Copy(2)), ("enrnn", Adding(6))])
def test_the_gradient_of_the_loss_is_that_of_training(model, task, tmp_path):
    torch.manual_seed(0)
    folder = trained(tmp_path / "run", task, model)
    (found,) = [one for one in source(folder, "gradients").findings if one.key == "gradients"]
    network = kreiss.load(folder)
    assert isinstance(network, RecurrentNetwork)
    batch = next(iter(task.held_out("valid", 4)))
    state = network.layer.init_state(4)
    leaves = [part.requires_grad_() for part in (state if isinstance(state, tuple) else (state,))]
    loss = task.loss(network.eval()(batch.inputs, state)[0], batch) * 4
    gradients = torch.cat([g[0] for g in torch.autograd.grad(loss, leaves)], -1)
    assert found.numbers["norms_of_loss"][0] == pytest.approx(float(gradients.norm(dim=-1).mean()), rel=1e-4)


def test_a_run_whose_data_are_gone_is_driven_by_random_input_and_says_so(run, tmp_path, monkeypatch):
    from kreiss.training import planning

    def gone(config):
        raise InputError("the data must be there; got none. Fetch them.")

    monkeypatch.setattr(planning, "make_task", gone)
    found = source(run, "gradients")
    assert "driven by Gaussian input of variance 1" in found.about
    assert "The run's own data were unavailable: the data must be there" in found.about
    assert next(one.key for one in source(run, "spectrum").findings) == "training"


def test_a_figure_of_trained_networks_takes_runs(run, tmp_path):
    assert figure_verb.make("001/fig3", (f"copy={run}", f"characters={run}"), tmp_path) == 0
    assert figure_verb.make("003/fig6", (f"even={run}",), tmp_path) == 0
    assert figure_verb.make("002/fig1", (f"free={run}",), tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 6


def test_the_gradients_of_one_short_training_are_measured_on_its_way(monkeypatch):
    monkeypatch.setitem(
        figure_verb.SHORT, "gradients",
        ("nnrnn", "copy", {"hidden": 6, "steps": 6, "task.delay": 3, "log_every": 1, "optimiser.radius_penalty": 1.0}),
    )  # fmt: skip
    history = figure_verb.gradient_history(0.958, moments=2)
    assert history.updates == [3, 6]
    assert list(history.recorded) == [1, 2, 3, 4, 5, 6]
    assert not torch.equal(history.norms[0], history.norms[1])


# ---------------------------------------------------------------- matrices, and what is refused


def test_analyze_writes_a_page_beside_the_matrix(tmp_path, does):
    np.save(tmp_path / "v.npy", analysis.delay_line(6, 0.9))
    assert does("analyze", tmp_path / "v.npy", "memory")[0] == 0
    assert sorted(path.name for path in (tmp_path / "v-analysis").iterdir()) == [
        "analysis.json", "index.html", "memory.png", "memory.svg",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("array", "part", "message"),
    [
        (np.ones((2, 3)), "all", "must be a square matrix"),
        (np.zeros((0, 0)), "all", "must be a square matrix"),
        (np.array([[np.nan]]), "all", "must be finite"),
        (1j * np.eye(2), "all", "must be real"),
        (np.eye(2), "gradients", "gradients need a network, with its inputs and nonlinearity; got a matrix alone"),
        (None, "all", "must be a .npy file with a matrix; got No such file"),
    ],
)
def test_analyze_refuses_in_one_line(tmp_path, does, array, part, message):
    if array is not None:
        np.save(tmp_path / "v.npy", array)
    code, _, complained = does("analyze", tmp_path / "v.npy", part, "-o", tmp_path / "out")
    assert code == 2
    assert message in complained
    assert len(complained.strip().splitlines()) == 1


def test_a_path_that_is_not_there_and_a_file_that_holds_no_model_are_refused(tmp_path, does):
    code, _, complained = does("analyze", tmp_path / "nothing")
    assert code == 2
    assert "got no such file" in complained
    (tmp_path / "text.safetensors").write_text("no model")
    code, _, complained = does("analyze", tmp_path / "text.safetensors")
    assert code in (1, 2)
    assert len(complained.strip().splitlines()) == 1


def test_figure_writes_both_forms_and_lists_what_there_is(tmp_path, does):
    assert does("figure", "001/fig1c", "-o", tmp_path)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["001-fig1c.png", "001-fig1c.svg"]
    assert set(FIGURES) <= set(does("figure", "--list")[1].split())
    code, _, complained = does("figure", "thesis/figB.3", f"LSTM={tmp_path}", "-o", tmp_path)
    assert code == 2
    assert f"curves must be of runs; got {tmp_path}, which is no folder of a run" in complained
    code, _, complained = does("figure", "001/fig3", "copy", "-o", tmp_path)
    assert code == 2
    assert "a network must be given as ROLE=PATH; got 'copy'" in complained


def test_curves_are_drawn_from_runs_and_by_default_from_recorded_results(tmp_path, does, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = experiment("004/figB.3")
    job = job_of(made, made.row("lstm-300"), "laptop", 0)
    curve = [{"update": update, "loss": 1 / update} for update in (10, 20)]
    run = {"row": job.row, "scale": "laptop", "seed": 0, "state": "finished", "curve": curve}
    assert does("figure", "thesis/figB.3")[0] == 2
    results.add(results.FOLDER, made.name, {job.key: run})
    curves, note = figure_verb._filled("thesis/figB.3", {}, train=False)
    assert curves == {"LSTM, T = 300": ([10, 20], [0.1, 0.05])}
    assert note == "results at scale laptop, means over seeds"
    assert does("figure", "thesis/figB.3", "-o", "drawn")[0] == 0
    assert sorted(path.name for path in Path("drawn").iterdir()) == ["thesis-figB.3.png", "thesis-figB.3.svg"]
    kreiss.fit("rnn", "denoise", {"hidden": 4, "task.delay": 3, "steps": 2}, out="mine", show="quiet")
    assert list(figure_verb._filled("thesis/figB.4", {"mine": "mine"}, train=False)[0]["mine"][0]) == [1, 2]


def test_what_is_left_out_of_a_large_network_is_said(monkeypatch):
    monkeypatch.setattr(network_findings, "LARGEST_STATE", 3)
    found = list(network_findings.network_findings(kreiss.RNN(2, 4), "gradients"))
    assert [finding.key for finding in found] == ["gradients"]
    assert "were left out" in found[0].sentence


def test_the_spectrum_through_training_moves(run, tmp_path, does):
    from PIL import Image

    code, said, _ = does("figure", "training/spectrum", f"NNRNN={run}", "-o", tmp_path)
    assert code == 0
    assert said.splitlines()[-1] == str(tmp_path / "training-spectrum.gif")
    with Image.open(tmp_path / "training-spectrum.gif") as animation:
        assert animation.n_frames == 4  # updates 0, 2, 4 and 6
    lstm = tmp_path / "lstm"
    kreiss.fit("lstm", "copy", {"hidden": 4, "steps": 2, "task.delay": 3}, out=lstm, show="quiet")
    code, _, complained = does("figure", "training/spectrum", f"LSTM={lstm}", "-o", tmp_path)
    assert code == 2
    assert "runs must have recorded their spectra at the same updates" in complained
