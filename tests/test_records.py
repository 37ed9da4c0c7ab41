"""What a run's record says is what was: settings, status, and where its data lie."""

from __future__ import annotations

from pathlib import Path

import yaml
from torch import nn

import kreiss
from kreiss.layers.base import RecurrentLayer
from kreiss.tasks import Copy
from kreiss.training import Network

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
        "name": "Symmetric", "hidden": 5, "layers": 2, "bidirectional": False, "dtype": "float32", "embedding": 0,
        "dropout": 0.0, "slope": 0.5,
    }  # fmt: skip
    said = recorded(Network(Symmetric(3, 5), 9, symbols=10, embedding=3), tmp_path / "network")
    assert (said["name"], said["hidden"], said["embedding"]) == ("Symmetric", 5, 3)


def test_the_record_of_any_other_module_says_its_name_and_nothing_else(tmp_path):
    assert recorded(Plain(), tmp_path / "run", hidden=77) == {"name": "Plain"}
    run = kreiss.fit(Plain(), Copy(2), steps=2, out=tmp_path / "run", resume=True, show="quiet")
    assert not hasattr(run.config.model, "hidden")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"] == {"name": "Plain"}


def test_dropout_that_differs_between_layers_and_before_the_readout_is_not_recorded_as_one_number(tmp_path):
    assert "dropout" not in recorded(kreiss.NNRNN(10, 4, 2, dropout=0.5), tmp_path / "bare")
    assert recorded(kreiss.NNRNN(10, 4, 2), tmp_path / "none")["dropout"] == 0.0
