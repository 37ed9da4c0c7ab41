"""Models and tasks of the user's own: named, trusted, trained, saved, resumed, analysed and reported."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import kreiss
from kreiss import own
from kreiss.commands.sources import source
from kreiss.errors import InputError
from kreiss.networks import LAYERS, NETWORKS
from kreiss.storage.files import read_tensors
from kreiss.studies import places
from kreiss.studies.jobs import Job
from kreiss.tasks import TASKS, Copy
from kreiss.training import registering
from kreiss.training.config import resolved
from test_reproduce import Inside

JOURNEYS = Path(__file__).parents[1] / "docs" / "journeys"
TINY = ["--task.delay", "2", "--batch", "4", "--eval-every", "2", "--task.test-sequences", "20", "--steps"]

LAYER = """
import kreiss, torch
from torch import nn

class Twice(kreiss.NNRNN):
    "A layer."
    def __init__(self, input_size, hidden_size, num_layers=1, *, gain: float = 2.0, **options):
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.gain = gain

class Sealed(kreiss.NNRNN):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)

class Unlike(nn.Module):
    def forward(self, x):
        return x

class Short(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.readout = nn.Linear(input_size, output_size)
    def forward(self, inputs, state=None, lengths=None):
        return self.readout(nn.functional.one_hot(inputs, 10).float())[:-1], None

class Floats(Short):
    def forward(self, inputs, state=None, lengths=None):
        return self.readout(inputs), None

class Alone(Short):
    def forward(self, inputs, state=None, lengths=None):
        return self.readout(nn.functional.one_hot(inputs, 10).float())

class Needs(Short):
    def __init__(self, input_size, output_size, more):
        super().__init__(input_size, output_size)

function = len
"""


MODULES = ("my_model", "my_task", "my_layers", "my_broken")


@pytest.fixture(autouse=True)
def _apart(monkeypatch, tmp_path):
    """A folder with modules of the user's own; what they register is forgotten afterwards."""
    monkeypatch.setattr(own, "TRUSTED", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    for path in JOURNEYS.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    (tmp_path / "my_layers.py").write_text(LAYER)
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    yield
    forget()


def forget() -> None:
    """As in a new process: nothing of the user's own is imported, trusted or registered."""
    own.TRUSTED.clear()
    for name in MODULES:
        sys.modules.pop(name, None)
    for registry in (LAYERS, NETWORKS, TASKS):
        for name in [name for name in registry if own.is_own(name)]:
            del registry[name]


# ---------------------------------------------------------------- journeys


@pytest.mark.parametrize("script", sorted(JOURNEYS.glob("*.sh")), ids=lambda path: path.stem)
def test_the_journeys_of_the_documentation_run(script, does, monkeypatch):
    monkeypatch.setattr(places.Here, "made", Inside.made)  # without the time that new processes take
    for line in script.read_text().splitlines():
        if not line.startswith("#"):
            code, said, complaint = does(*shlex.split(line)[1:])
            assert code == 0, complaint
            assert said
    assert "<svg" in Path("report.html").read_text()
    if script.stem == "my_task":
        assert "sequences of my_task:Before" in Path("PAGE/index.html").read_text()
        assert "| nnrnn | 8 |" in Path("RUNS/table.md").read_text()
    else:
        table = Path("COMPARISON/table.md").read_text()
        assert all(f"| {name} |" in table for name in ("Leaky", "nnrnn", "exprnn", "lstm"))
        assert "\\textbf" in Path("COMPARISON/table.tex").read_text()
        assert Path("COMPARISON/curves.png").stat().st_size > 10_000


# ---------------------------------------------------------------- trust


def test_a_run_of_ones_own_model_imports_nothing_until_its_module_is_named(does):
    model = ["--model", "my_model:Leaky", "--hidden", "4", *TINY]
    assert does("train", "copy", *model, "3", "--out", "RUN")[0] == 0
    assert does("train", "copy", *model, "6", "--out", "WHOLE")[0] == 0
    content = read_tensors(Path("RUN/best.safetensors"))[1]["model"]
    assert content["source"] == content["name"] == "my_model:Leaky"
    forget()
    untrusted = (
        ["eval", "RUN"],
        ["resume", "RUN", "--steps", "6"],
        ["analyze", "RUN"],
        ["train", "--config", "c.yaml"],
    )
    Path("c.yaml").write_text("model: my_model:Leaky\n")
    for words in untrusted:
        code, said, complaint = does(*words)
        assert (code, said) == (2, "")
        assert "got my_model:Leaky of the module my_model. If you trust it, pass --trust my_model" in complaint
        assert complaint.count("\n") == 1
    with pytest.raises(own.Untrusted, match="importing it runs its code"):
        kreiss.load("RUN")
    assert "my_model:Leaky" in does("runs", "ls", ".")[1]  # lists and reports need no class
    assert "| Leaky, steps 3 | 4 |" in does("report", "RUN", "WHOLE", "--markdown")[1]
    assert "my_model" not in sys.modules
    assert does("resume", "RUN", "--steps", "6", "--model", "my_model:Leaky")[0] == 0
    one, other = (read_tensors(Path(run) / "last.safetensors")[0] for run in ("RUN", "WHOLE"))
    assert all(torch.equal(one[name], other[name]) for name in one if name.startswith("model."))
    forget()
    assert "loss" in does("eval", "RUN", "--trust", "my_model")[1]


def test_a_layer_of_ones_own_has_its_options_and_comes_back_with_them(does):
    words = ["--model", "my_layers:Twice", "--hidden", "4", "--model.gain", "3", "--model.blocks", "paper", *TINY, "3"]
    assert does("train", "copy", *words, "--out", "RUN")[0] == 0
    layer = kreiss.load("RUN").layer
    assert (layer.gain, layer.config["blocks"], type(layer).__name__) == (3.0, "paper", "Twice")
    forget()
    assert "loss" in does("eval", "RUN", "--trust", "my_layers")[1]


def test_in_python_a_class_or_a_module_is_trusted():
    class Inner(kreiss.NNRNN):
        """Cannot be imported by name."""

    kreiss.save(Inner(3, 4), "inner.safetensors")
    with pytest.raises(own.Untrusted):
        kreiss.load("inner.safetensors")
    assert type(kreiss.load("inner.safetensors", trust=(Inner,))) is Inner
    sys.path.insert(0, "")
    run = kreiss.fit("my_model:Leaky", "my_task:Before", hidden=4, steps=2, out="RUN", show="quiet")
    kreiss.save(run.model, "leaky.safetensors")
    forget()
    loaded = kreiss.load("leaky.safetensors", trust=("my_model",))
    x = torch.randn(3, 2, 4)
    assert torch.equal(loaded(x)[0], run.model(x)[0])
    kreiss.save(loaded, "again.safetensors")


def test_a_module_that_hides_the_arguments_of_its_constructor_is_not_saved():
    class Hides(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.readout = nn.Linear(width, 2)

        def forward(self, inputs, state=None, lengths=None):
            return self.readout(inputs), None

    with pytest.raises(InputError, match=r"got Hides without `width` .* Write self\.width = width"):
        kreiss.save(Hides(3), "model.safetensors")


# ---------------------------------------------------------------- names of one's own


class Mine(kreiss.NNRNN):
    """A layer of one's own."""


class MyCopy(Copy):
    """A task of one's own."""


def test_a_registered_name_is_taken_everywhere_and_found_again_by_where_it_came_from():
    kreiss.register("mine", Mine)
    kreiss.register("mycopy", MyCopy)
    run = kreiss.fit("mine", "mycopy", {"task.delay": 2}, hidden=4, steps=1, out="RUN", show="quiet")
    assert yaml.safe_load(Path("RUN/config.yaml").read_text())["model"]["name"] == "mine"
    assert type(kreiss.load("RUN").layer) is Mine
    assert registering.classes_of(run.config) == {"mine": "test_own:Mine", "mycopy": "test_own:MyCopy"}
    assert kreiss.hidden_size_for("mine", 200, input_size=3) > 1
    del LAYERS["mine"], NETWORKS["mine"]
    with pytest.raises(own.Untrusted, match="got test_own:Mine of the module test_own"):
        kreiss.load("RUN")
    assert type(kreiss.load("RUN", trust=("test_own",)).layer) is Mine


def test_a_name_of_kreiss_is_not_taken_and_only_classes_are_registered():
    for name, cls in (("lstm", Mine), ("copy", MyCopy)):
        with pytest.raises(InputError, match=f"`name` must be new; got '{name}'"):
            kreiss.register(name, cls)
    for wrong in (Path, Mine(3, 4)):
        with pytest.raises(InputError, match="`cls` must be a class of layers, networks or tasks"):
            kreiss.register("other", wrong)


def test_a_class_that_other_processes_cannot_import_is_named():
    with pytest.raises(InputError, match=r"other processes can import; got __main__:Net\. Move it into a file"):
        registering.take_over({"net": "__main__:Net"})


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nowhere:Net"], "the module nowhere must be importable; got no module named 'nowhere'"),
        (["--model", "my_broken:Net"], "must be imported without an error; got ZeroDivisionError"),
        (
            ["--model", "my_layers:Twise"],
            "must hold the class Twise; got none of that name. Did you mean my_layers:Twice?",
        ),
        (["--model", "my_layers:function"], "`my_layers:function` must be a class"),
        (
            ["--model", "my_layers:Unlike"],
            "a module with forward(inputs, state, lengths) -> (outputs, state); got a class",
        ),
        (["--model", "my_layers:Short"], "must give outputs of shape (22, 2, 9)"),
        (
            ["--model", "my_layers:Floats"],
            "must have forward(inputs, state, lengths) -> (outputs, state) and take inputs",
        ),
        (["--model", "my_layers:Alone"], "got a Tensor. Return outputs and state"),
        (["--model", "my_layers:Needs"], "missing 1 required positional argument: 'more'. Arguments of its own"),
        (["--model", "my_layers:Sealed"], "must be called as that of kreiss.RecurrentLayer"),
        (
            ["--model", "my_task:Before"],
            "`my_task:Before` must be a kreiss.RecurrentLayer, a kreiss.Network or a torch",
        ),
        (["--task", "my_model:Leaky"], "`my_model:Leaky` must be a kreiss.tasks.Task"),
        (["--model", "my_model:Leaky", "--model.leek", "1"], "Did you mean 'model.leak'?"),
        (["--trust", "nowhere"], "the module nowhere must be importable"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_class_that_does_not_fit_is_one_sentence(words, said, does):
    task = [] if "--task" in words else ["copy", "--task.delay", "2"]
    code, out, complaint = does("train", *task, *words, "--out", "RUN")
    assert (code, out) == (2, "")
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not Path("RUN").exists()


def test_a_setting_is_read_from_a_base_class_too():
    sys.path.insert(0, "")
    own.trust("my_layers")
    config = resolved({"model": "my_layers:Twice", "model.radius": 0.5, "model.gain": "2"})
    assert (config.model.radius, config.model.gain) == (0.5, 2.0)


def test_a_process_of_its_own_finds_the_classes_of_the_current_folder():
    sys.path.insert(0, os.getcwd())
    own.trust("my_model", "my_task")
    config = resolved({"model": "my_model:Leaky", "task": "my_task:Before", "hidden": 4, "steps": 2})
    job = Job("leaky", config, "leaky/seed-0")
    ((_, record),) = places.Here(1).made([job], Path("runs"), lambda: None)
    assert record["state"] == "finished"


def test_a_network_with_a_recurrence_of_its_own_is_analysed_as_a_map_of_its_states(does):
    assert (
        does("train", "my_task:Before", "--model", "my_model:Leaky", "--hidden", "4", "--steps", "2", "--out", "R")[0]
        == 0
    )
    network = kreiss.load("R")
    x = torch.randn(6, 2, 4)
    states = kreiss.analysis.dynamics(network, input_size=4).states(x)
    torch.testing.assert_close(states[-1], network(x)[1][0])
    found = source(Path("R"), "gradients")
    assert "Leaky with 4 inputs and a state of 4 numbers" in found.about
    assert {"norms", "norms_of_loss"} <= next(finding for finding in found.findings).numbers.keys()
    with pytest.raises(InputError, match="must return its state as a tensor"):
        kreiss.analysis.dynamics(Stateless(), input_size=4)
    with pytest.raises(InputError, match="spectrum must be asked of a network with one recurrent layer"):
        list(source(Path("R"), "spectrum").findings)


class Stateless(nn.Module):
    """A network without a state."""

    def forward(self, inputs, state=None, lengths=None):
        return inputs, None
