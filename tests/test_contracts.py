"""The contracts of step, network and learner hold for things that are not in the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import kreiss
from kreiss.contracts import Network, Sizes
from kreiss.errors import InputError, RunError
from kreiss.networks.building import NETWORKS
from kreiss.options import Option, options_of
from kreiss.recurrence import unroll
from kreiss.recurrence.plain.reference import drive
from kreiss.sets import Free
from kreiss.settings import NetworkSettings
from kreiss.storage import files
from kreiss.tasks import TASKS, Batch, Task
from kreiss.training import Learner, read_records
from kreiss.training.config import resolved
from kreiss.training.distributed import Processes
from kreiss.training.guard import Interruption
from kreiss.training.learner import Now
from kreiss.training.record import read_config
from kreiss.training.resuming import resumption
from kreiss.training.session import Session

# ---------------------------------------------------------------- steps


def counting(x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A step whose state is a sum and a count."""
    total, count = state[0] + x, state[1] + 1
    return (total, total / count[:, None]), (total, count)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_step_with_any_state_is_unrolled_with_lengths_and_in_both_directions(reverse):
    x, lengths = torch.randn(5, 3, 2), torch.tensor([5, 2, 3])
    (sums, means), (total, count) = unroll(
        counting, x, (torch.zeros(3, 2), torch.zeros(3)), lengths=lengths, reverse=reverse
    )
    assert torch.equal(count, lengths.float())
    for i, length in enumerate(lengths.tolist()):
        own = x[:length, i].flip(0) if reverse else x[:length, i]
        expected = own.cumsum(0).flip(0) if reverse else own.cumsum(0)
        torch.testing.assert_close(sums[:length, i], expected)
        torch.testing.assert_close(total[i], own.sum(0))
        torch.testing.assert_close(means[length - 1 if not reverse else 0, i], own.mean(0))


def test_the_batch_of_a_state_may_be_its_second_dimension():
    x = torch.randn(4, 3, 2)
    step = lambda x_t, state: (x_t, state + x_t)  # noqa: E731
    _, total = unroll(step, x, torch.zeros(1, 3, 2), lengths=torch.tensor([4, 1, 2]), batch_dim=1)
    torch.testing.assert_close(total[0], torch.stack([x[:4, 0].sum(0), x[:1, 1].sum(0), x[:2, 2].sum(0)]))


class Leaky(kreiss.RecurrentLayer):
    """A layer with two tensors of state: h, and a running mean m of h, which is put out."""

    elman = False

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Any) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, make_set=lambda: Free(hidden_size), nonlinearity="tanh", **options
        )

    def _run_cell(
        self, suffix: str, x: Tensor, h0: Any, lengths: Tensor | None, backwards: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        weight, bias = self.recurrent_matrix(suffix), self._bias(suffix)

        def step(u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            h = (u + state[0] @ weight.mT + bias).tanh()
            mean = 0.5 * state[1] + 0.5 * h
            return mean, (h, mean)

        zero = weight.new_zeros(x.shape[1], self.hidden_size)
        u = drive(x, getattr(self, f"weight_ih_{suffix}"))
        return unroll(step, u, (zero, zero) if h0 is None else h0, lengths=lengths, reverse=backwards)

    def init_state(self, batch_size: int | None = None) -> tuple[Tensor, Tensor]:
        zero = super().init_state(batch_size)
        return zero, zero.clone()

    def _check_state(self, hx: Any, batch_size: int | None, x: Tensor) -> None:
        for part in hx or ():
            super()._check_state(part, batch_size, x)


def test_a_layer_with_another_state_steps_streams_and_resumes_a_sequence_exactly():
    layer, x = Leaky(3, 4, 2).double(), torch.randn(6, 2, 3, dtype=torch.float64)
    whole, last = layer(x)
    first, middle = layer(x[:2])
    rest, end = layer(x[2:], middle)
    assert torch.equal(torch.cat([first, rest]), whole)
    assert all(torch.equal(one, other) for one, other in zip(end, last, strict=True))
    state, stream = layer.init_state(2), kreiss.Stream(layer, batch_size=2)
    for x_t, expected in zip(x, whole, strict=True):
        out, state = layer.step(x_t, state)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(stream.step(x_t), expected)


def test_a_layer_with_another_state_takes_packed_sequences_in_two_directions():
    layer = Leaky(3, 4, bidirectional=True)
    sequences = [torch.randn(length, 3) for length in (2, 5, 3)]
    packed, (h, mean) = layer(pack_sequence(sequences, enforce_sorted=False))
    out, _ = pad_packed_sequence(packed)
    for i, sequence in enumerate(sequences):
        alone, (h_alone, mean_alone) = layer(sequence)
        torch.testing.assert_close(out[: len(sequence), i], alone)
        torch.testing.assert_close(h[:, i], h_alone)
        torch.testing.assert_close(mean[:, i], mean_alone)


def test_a_layer_with_another_state_is_trained_and_resumed_bit_for_bit(tmp_path):
    from stream import Stream as StreamTask

    settings = {"batch": 4, "seed": 3, "checkpoint_every": 5, "eval_every": 5, "show": "quiet"}
    make = lambda: Leaky(5, 6, generator=torch.Generator().manual_seed(0))  # noqa: E731
    whole = kreiss.fit(make(), StreamTask(), steps=10, **settings)
    kreiss.fit(make(), StreamTask(), steps=7, out=tmp_path / "run", **settings)
    again = kreiss.fit(make(), StreamTask(), steps=10, out=tmp_path / "run", resume=True, **settings)
    assert again.metrics == whole.metrics


# ---------------------------------------------------------------- networks


class Images(Task):
    """Whether the images of a sequence are bright: inputs (T, B, 4, 4), one answer per sequence."""

    input_size, output_size, answers, metric = 16, 2, "last", "loss"

    def __init__(self, length: int = 3) -> None:
        self.length = length

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (4, 4)

    def _batch(self, seed: int, batch: int) -> Batch:
        images = torch.randn(self.length, batch, 4, 4, generator=torch.Generator().manual_seed(seed))
        return Batch(images, (images.mean((0, 2, 3)) > 0).long())

    def train(self, update: int, batch: int, seed: int) -> Batch:
        return self._batch(update, batch)

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        yield self._batch({"valid": 10**6, "test": 10**6 + 1}[split], batch)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        return {"loss": (float(self.loss(output, batch)) * len(output), len(output))}

    def baseline(self) -> dict[str, float]:
        return {"loss": 0.6931}


class Bag(Network):
    """The mean over time of an image, read linearly; pulls its weights towards 0.

    Args:
        pixels: of an image.
        classes: answers.
        pull: weight of the penalty.
    """

    def __init__(self, pixels: int, classes: int, *, pull: float = 0.0) -> None:
        super().__init__()
        self.pull = pull
        self.readout = nn.Linear(pixels, classes, bias=False)

    @classmethod
    def options(cls, name: str) -> dict[str, Option]:
        return options_of(cls, without=("pixels", "classes"))

    @classmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Bag:
        network = cls(task.input_shape[0] * task.input_shape[1], task.output_size, **(settings.model_extra or {}))
        nn.init.normal_(network.readout.weight, generator=generator)
        return network

    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        return self.readout(inputs.mean(0).flatten(1)), None

    def penalty(self) -> Tensor:
        return self.pull * self.readout.weight.square().sum()


@pytest.fixture
def _bag(monkeypatch):
    monkeypatch.setitem(NETWORKS, "bag", Bag)
    monkeypatch.setitem(TASKS, "images", Images)


@pytest.mark.usefixtures("_bag")
def test_a_network_over_images_is_trained_by_name_with_its_own_options_resumed_saved_and_loaded(tmp_path):
    settings = {"lr": 0.05, "batch": 20, "eval_every": 10, "show": "quiet"}
    whole = kreiss.fit("bag", "images", {"model.pull": 0.01}, steps=30, **settings)
    kreiss.fit("bag", "images", {"model.pull": 0.01}, steps=10, out=tmp_path / "run", **settings)
    again = kreiss.fit("bag", "images", steps=30, out=tmp_path / "run", resume=True, **settings)
    assert again.metrics == whole.metrics
    assert again.config.model.model_dump() == {"name": "bag", "dtype": "float32", "pull": 0.01}
    loaded = kreiss.load(tmp_path / "run")
    assert isinstance(loaded, Bag)
    x = torch.randn(3, 2, 4, 4)
    assert torch.equal(loaded(x)[0], again.model(x)[0])


@pytest.mark.usefixtures("_bag")
def test_the_penalty_of_a_network_joins_its_loss():
    settings = {"lr": 0.05, "batch": 20, "steps": 60, "show": "quiet"}
    free, pulled = (kreiss.fit("bag", "images", {"model.pull": pull}, **settings) for pull in (0.0, 1.0))
    sizes = [float(run.model.readout.weight.detach().norm()) for run in (free, pulled)]
    assert sizes[1] < 0.3 * sizes[0]


@pytest.mark.usefixtures("_bag")
def test_options_of_the_recurrent_network_are_not_those_of_another():
    with pytest.raises(InputError, match=r"unknown setting 'model\.hidden'"):
        resolved({"model": "bag", "hidden": 8})
    with pytest.raises(InputError, match=r"unknown setting 'model\.pul'. Did you mean 'model\.pull'"):
        resolved({"model": "bag", "model.pul": 8})


@pytest.mark.usefixtures("_bag")
def test_a_recurrent_layer_refuses_images_with_a_sentence():
    with pytest.raises(InputError, match=r"got a task whose inputs are of shape \(4, 4\)"):
        kreiss.fit("nnrnn", "images", steps=1, show="quiet")


@pytest.mark.parametrize("answers", ["every", "last"])
def test_a_recurrent_network_refuses_lengths_that_no_sequence_has(answers):
    network, x = kreiss.RecurrentNetwork(kreiss.RNN(3, 8), 2, answers=answers), torch.randn(20, 4, 3)
    for lengths in ([20, 0, 3, 4], [20, -3, 3, 4], [20, 21, 3, 4]):
        with pytest.raises(InputError, match=r"^`lengths` must be from 1 to the 20 steps of the inputs; got "):
            network(x, None, torch.tensor(lengths))
    with pytest.raises(
        InputError, match=r"^`lengths` must have a number for each of the 4 sequences; got shape \(2,\)"
    ):
        network(x, None, torch.tensor([3, 4]))
    whole, _ = network(x, None, torch.full((4,), 20))
    torch.testing.assert_close(whole, network(x)[0])


@pytest.mark.usefixtures("_bag")
def test_a_network_of_other_sizes_than_its_tensors_is_not_built(tmp_path):
    path = tmp_path / "bag.safetensors"
    network = Bag(16, 2)
    network.config["classes"] = 3
    kreiss.save(network, path)
    with pytest.raises((InputError, RunError), match="sizes must be those of the tensors"):
        kreiss.load(path)


# ---------------------------------------------------------------- learners


class Bandit(Learner):
    """Learns from its own actions which of three arms pays most: the batch depends on what it does."""

    kind, metric = "bandit", "regret"
    pays = torch.tensor([0.1, 0.2, 0.9])

    def __init__(self, steps: int) -> None:
        self.model = nn.Linear(1, 3, bias=False)
        nn.init.zeros_(self.model.weight)
        self.steps, self.best = steps, float("inf")
        self.source = torch.Generator().manual_seed(0)

    def update(self) -> Now:
        weights = self.model.weight.detach()[:, 0].softmax(0)
        arm = int(torch.multinomial(weights, 1, generator=self.source))
        paid = float(torch.rand((), generator=self.source) < self.pays[arm])
        with torch.no_grad():
            self.model.weight[arm] += 0.3 * (paid - 0.4)
        self.updates += 1
        return Now(self.updates, -paid, 0.0)

    def evaluate(self, split: Literal["valid", "test"]) -> dict[str, float]:
        chances = self.model.weight.detach()[:, 0].softmax(0)
        return {"regret": float(self.pays.max() - (chances * self.pays).sum())}

    def observe(self, metrics: dict[str, float]) -> bool:
        better = metrics["regret"] < self.best
        self.best = min(self.best, metrics["regret"])
        return better

    @property
    def done(self) -> bool:
        return self.updates >= self.steps

    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        from kreiss.training import checkpoint

        tensors = checkpoint.model_tensors(self.model.state_dict()) | {"bandit.source": self.source.get_state()}
        return tensors, {"updates": self.updates, "best": self.best, "seconds": self.seconds}

    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        self.source.set_state(tensors["bandit.source"])
        self.updates, self.best, self.seconds = content["updates"], content["best"], content["seconds"]


def session(steps: int, folder: Path | None, resume: bool = False) -> Any:
    config = resolved({"task": "copy", "steps": steps, "eval_every": 10, "checkpoint_every": 7, "log_every": 5})
    found = resumption(folder) if resume and folder else None
    with Interruption() as interruption:
        processes = Processes(torch.device("cpu"))
        return Session(config, folder, Bandit(steps), processes, "quiet", found).go(interruption)


def test_a_learner_that_acts_has_a_run_folder_and_resumes_bit_for_bit(tmp_path):
    whole = session(60, tmp_path / "whole")
    session(25, tmp_path / "parts")
    again = session(60, tmp_path / "parts", resume=True)
    assert whole.state == again.state == "finished"
    assert whole.metrics == again.metrics
    assert whole.metrics["regret"] < 0.3
    timeless = [
        [{key: value for key, value in record.items() if key != "seconds"} for record in read_records(tmp_path / name)]
        for name in ("whole", "parts")
    ]
    ended = [record for record in timeless[1] if record["update"] == 25 and record.get("split") == "test"]
    assert [record for record in timeless[1] if record not in ended and record["update"] != 25] == [
        record for record in timeless[0] if record["update"] != 25
    ]


def test_a_run_of_one_learner_is_not_resumed_by_another(tmp_path):
    session(10, tmp_path / "run")
    with pytest.raises(InputError, match="the learner of a run must stay 'bandit'; got 'supervised'"):
        kreiss.fit("rnn", "copy", steps=20, out=tmp_path / "run", resume=True, show="quiet")


def test_a_checkpoint_whose_learner_has_no_name_is_foreign(tmp_path):
    session(10, tmp_path / "run")
    path = tmp_path / "run" / "last.safetensors"
    tensors, content = files.read_tensors(path)
    files.write_tensors(path, tensors, {**content, "learner": []})
    with pytest.raises((InputError, RunError), match="a learner without a name"):
        session(20, tmp_path / "run", resume=True)


# ---------------------------------------------------------------- settings


def test_every_setting_of_the_recurrent_network_is_shown(does):
    code, shown, _ = does("show", "config")
    assert code == 0
    for line in (
        "--model.name (or --model) = 'nnrnn'",
        "--model.hidden (or --hidden) = 128",
        "--model.dtype = 'float32'",
    ):
        assert line in shown


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_truth_value_is_a_flag_with_a_value(value, does, tmp_path):
    words = ["train", "copy", "--task.delay", 3, "--hidden", 4, "--steps", 2, "--quiet", "--out", tmp_path / "run"]
    code, _, error = does(*words, "--bidirectional", value)
    assert (code, error) == (0, "")
    assert read_config(tmp_path / "run").model.bidirectional is (value == "true")


def test_a_model_in_half_precision_is_refused_with_a_sentence():
    layer = kreiss.NNRNN(10, 8, dtype=torch.bfloat16)
    with pytest.raises(InputError, match=r"`model\.dtype` must be 'float32' or 'float64'; got 'bfloat16'"):
        kreiss.fit(layer, "copy", steps=1, show="quiet")


def test_a_module_without_parameters_is_not_saved_and_that_is_said(tmp_path):
    with pytest.raises(InputError, match="must be a layer of kreiss"):
        kreiss.save(nn.Identity(), tmp_path / "model.safetensors")
