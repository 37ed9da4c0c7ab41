"""What a run does: schedules, clipping, accumulation, carried states, the guard, records, displays; nothing is lost."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import resource
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kreiss
from kreiss.errors import InputError, MissingExtra, RunError
from kreiss.networks import RecurrentNetwork
from kreiss.settings import ScheduleSection
from kreiss.storage import files as storage
from kreiss.tasks import TASKS, Batch, Copy
from kreiss.training import Run, evaluate, fitting, read_records
from kreiss.training.config import resolved
from kreiss.training.display import Display, JsonLines, Live, Now, Plain, choose, evaluation_words
from kreiss.training.distributed import Processes, pieces, terms
from kreiss.training.loop import Supervised
from kreiss.training.optimisers import Schedule, make_optimiser
from kreiss.training.planning import make_network, make_task, planned
from kreiss.training.record import RunFolder, read_status
from kreiss.training.spectrum import glance, read_spectra, spectrum_record
from stream import Stream

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _with_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "stream", Stream)


def prepared(settings: dict[str, Any], task: Any = None) -> Supervised:
    config = resolved({"hidden": 6, "batch": 4, "steps": 12, "task": "stream"}, settings)
    task = task or make_task(config)
    return Supervised(make_network(config, task), task, planned(config, task), Processes(CPU))


def ran(out: Path | None = None, show: str = "quiet", **settings: Any) -> Run:
    named = {"hidden": 6, "batch": 4, "steps": 12, "eval_every": 4, **settings}
    return kreiss.fit(named.pop("model", "nnrnn"), named.pop("task", "stream"), named, out=out, show=show)


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


# ---------------------------------------------------------------- optimisers and schedules


@pytest.mark.parametrize("name", ["rmsprop", "adam", "adamw", "sgd"])
def test_an_optimiser_has_the_rates_of_its_roles(name):
    model = RecurrentNetwork(kreiss.NNRNN(3, 4), 2)
    rates = {"lr": 0.1, "orthogonal_lr": 0.01, "optimiser.coupling_decay": 0.3, "optimiser.weight_decay": 0.2}
    made = make_optimiser(model, resolved({"optimiser": name, **rates}).optimiser)
    assert type(made).__name__.lower() == name
    found = {group["name"]: (group["lr"], group["weight_decay"]) for group in made.param_groups}
    assert found == {"orthogonal": (0.01, 0.2), "coupling": (0.1, 0.3), "other": (0.1, 0.2)}


def schedule(steps: int = 10, **settings: Any) -> Schedule:
    optimiser = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (1.0, 0.1)])
    return Schedule(ScheduleSection(**settings), optimiser, steps)


def test_a_constant_schedule_changes_nothing_and_a_warm_up_rises_to_it():
    assert [schedule().factor(update) for update in (0, 5, 9)] == [1, 1, 1]
    assert [schedule(warmup=4).factor(update) for update in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_cosine_goes_down_to_its_minimum():
    found = [schedule(10, name="cosine", minimum=0.2).factor(update) for update in range(11)]
    expected = [0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * update / 10)) for update in range(11)]
    assert found == pytest.approx(expected)
    assert found[10] == pytest.approx(0.2)


def test_a_plateau_halves_every_rate_after_each_evaluation_without_improvement():
    made = schedule(name="plateau")
    for improved in (True, False, False, True, False):
        made.observe(improved)
    made.apply(3)
    assert [group["lr"] for group in made.optimiser.param_groups] == pytest.approx([1 / 8, 0.1 / 8])
    patient = schedule(name="plateau", patience=1, factor=0.1)
    for improved in (False, False, False):
        patient.observe(improved)
    assert patient.factor(0) == pytest.approx(0.1)


def test_a_schedule_taken_up_again_goes_on_from_its_plateaus():
    first, second = (schedule(name="plateau", patience=1, factor=0.1) for _ in range(2))
    for _ in range(3):
        first.observe(improved=False)
    second.restore(first.state())
    assert second.factor(0) == first.factor(0) == pytest.approx(0.1)
    for made in (first, second):
        made.observe(improved=False)
    assert second.factor(0) == first.factor(0) == pytest.approx(0.01)


# ---------------------------------------------------------------- updates


def gradients(training: Supervised) -> dict[str, torch.Tensor]:
    training._backward(training.task.train(0, training.config.batch, 0))
    return {name: p.grad.clone() for name, p in training.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("accumulate", [2, 3, 4])
def test_pieces_of_a_batch_give_the_gradient_of_the_whole(accumulate):
    whole, parts = gradients(prepared({})), gradients(prepared({"accumulate": accumulate}))
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-6)


def test_pieces_that_differ_in_length_give_the_gradient_of_the_whole():
    class Ragged(Stream):
        def train(self, update: int, batch: int, seed: int) -> Batch:
            made = super().train(update, batch, seed)
            lengths = torch.tensor([6, 1, 3, 5])
            targets = made.targets.masked_fill(torch.arange(6)[:, None] >= lengths, -100)
            return Batch(made.inputs, targets, lengths)

    assert terms(Ragged().train(0, 4, 0), "every") == 15
    whole, parts = (gradients(prepared({"accumulate": count}, Ragged())) for count in (1, 3))
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-6)


def test_a_batch_smaller_than_its_pieces_is_refused():
    with pytest.raises(InputError, match="a sequence for each of its pieces; got 2 sequences and 3 pieces"):
        pieces(Batch(torch.zeros(5, 2), torch.zeros(5, 2)), 3, "every")


def test_answers_at_the_end_are_cut_along_their_sequences():
    cut = pieces(Batch(torch.arange(10.0).view(2, 5), torch.arange(5), torch.ones(5)), 2, "last")
    assert [piece.targets.tolist() for piece in cut] == [[0, 1], [2, 3, 4]]
    assert [piece.inputs.shape[1] for piece in cut] == [2, 3]


def test_gradients_are_clipped_by_norm_or_by_value():
    def moved(**settings: Any) -> torch.Tensor:
        training = prepared({"optimiser": "sgd", "lr": 1.0, **settings})
        before = nn.utils.parameters_to_vector(training.model.parameters()).clone()
        norm = training.update().norm
        assert norm > 0.5  # what is shown is the norm before clipping
        return (nn.utils.parameters_to_vector(training.model.parameters()) - before).detach()

    assert float(moved(clip_norm=0.01).norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(moved(**{"optimiser.clip_value": 1e-3}).abs().max()) == pytest.approx(1e-3, rel=1e-3)
    assert float(moved().norm()) > 0.5


def test_the_state_is_carried_detached_within_an_epoch_and_starts_anew_with_the_next():
    seen: list[Any] = []
    training = prepared({"model": "lstm"})
    forward = training.model.forward

    def noting(inputs: Any, state: Any = None, lengths: Any = None) -> Any:
        seen.append(state)
        return forward(inputs, state, lengths)

    training.model.forward = noting  # type: ignore[method-assign]
    ends = []
    for _ in range(9):
        training.update()
        ends.append(training.states[0])
    assert [state is None for state in seen] == [True, False, False, False] * 2 + [True]
    for given, left in zip(seen[1:4], ends[:3], strict=True):
        assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(given, left, strict=True))


def test_two_chunks_leave_the_state_that_one_long_chunk_leaves():
    network = RecurrentNetwork(kreiss.NNRNN(5, 6), 5, symbols=5)
    text = Stream(6, 4).text(3, 4)[:-1]
    _, whole = network(text)
    state = None
    for chunk in text.split(6):
        _, state = network(chunk, state)
    torch.testing.assert_close(state, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("chunk", "batch"), [(6, 1), (6, 4), (12, 6), (24, 5)])
def test_an_evaluation_that_carries_its_state_depends_on_neither_chunk_nor_batch(chunk, batch):
    network = RecurrentNetwork(kreiss.NNRNN(5, 6), 5, symbols=5)
    whole = evaluate(network, Stream(24, 1), "valid", batch=6)
    assert evaluate(network, Stream(chunk, 24 // chunk), "valid", batch=batch) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("model", ["nnrnn", "lstm"])
def test_half_precision_trains_and_keeps_parameters_and_constraints_in_single(model, precision):
    run = ran(model=model, precision=precision, steps=40, eval_every=20, lr=1e-2, optimiser="adam")
    losses = [record["loss"] for record in run.records if "split" not in record]
    assert losses[-1] < losses[0]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.model.layer.constraint_error() < 1e-5


def test_double_precision_is_double_throughout():
    run = ran(steps=2, **{"model.dtype": "float64"})
    assert {p.dtype for p in run.model.parameters()} == {torch.float64}


# ---------------------------------------------------------------- evaluations


class Told(Stream):
    """A task whose validations are told beforehand."""

    metric = "score"
    higher_is_better = True
    told = (0.1, 0.5, 0.4, 0.3, 0.9)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def held_out(self, split: str, batch: int) -> Any:
        self.asked.append(split)
        return super().held_out(split, batch)

    def metrics(self, totals: Any) -> dict[str, float]:
        valid = self.asked.count("valid")
        return {"score": self.told[valid - 1], "loss": 1.0}


def test_the_best_validation_is_tested_once_and_is_what_comes_back(tmp_path):
    task = Told()
    run = kreiss.fit(kreiss.RNN(5, 4), task, steps=4, eval_every=1, out=tmp_path / "run", show="quiet")
    assert task.asked == ["valid"] * 4 + ["test"]
    content = storage.read_tensors(tmp_path / "run" / "best.safetensors")[1]
    assert (content["update"], content["metrics"]["score"]) == (2, 0.5)
    best, last = kreiss.load(tmp_path / "run" / "best.safetensors"), kreiss.load(tmp_path / "run" / "last.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), best.parameters(), strict=True))
    assert not torch.equal(run.model.readout.weight, last.readout.weight)


def test_a_run_without_a_folder_comes_back_with_its_best_validation_too():
    layers = [kreiss.RNN(5, 4, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    one = kreiss.fit(layers[0], Told(), steps=2, eval_every=1, show="quiet")
    two = kreiss.fit(layers[1], Told(), steps=4, eval_every=1, show="quiet")
    assert torch.equal(one.model.layer.weight_hh_l0, two.model.layer.weight_hh_l0)


def test_a_run_stops_when_nothing_has_improved_for_long_enough():
    task = Told()
    run = kreiss.fit(kreiss.RNN(5, 4), task, steps=5, eval_every=1, patience=2, show="quiet")
    assert run.records[-1]["update"] == 4
    assert task.asked == ["valid"] * 4 + ["test"]


@pytest.mark.parametrize(
    ("stop", "validations"),
    [
        ({"stop_at": 0.5}, 2),
        ({"stop_at": 0.6}, 5),
        ({"stop_at": 1}, 5),
        ({"stop_at": 1.0, "stop_metric": "loss"}, 1),
        ({"stop_at": 0.99, "stop_metric": "loss"}, 5),
    ],
    ids=str,
)
def test_a_run_stops_once_a_validation_is_good_enough(stop, validations):
    task = Told()
    run = kreiss.fit(kreiss.RNN(5, 4), task, stop, steps=5, eval_every=1, show="quiet")
    assert run.records[-1]["update"] == validations
    assert task.asked == ["valid"] * validations + ["test"]


def test_a_metric_at_another_delay_is_better_in_the_same_direction():
    task = Told()
    names = ("score", "loss", "accuracy", "accuracy@400", "loss@400")
    assert [task.is_higher_better(name) for name in names] == [True, False, True, True, False]


def test_what_a_run_cannot_stop_at_is_refused():
    with pytest.raises(InputError, match=r"^`stop_metric` must be a metric of a validation; got 'acuracy'\. Choose"):
        kreiss.fit(kreiss.RNN(5, 4), Told(), steps=1, stop_at=1, stop_metric="acuracy", show="quiet")
    with pytest.raises(InputError, match=r"^`stop_at` must be given with `stop_metric`; got stop_metric='loss' alone"):
        kreiss.fit("rnn", "copy", steps=1, stop_metric="loss", show="quiet")
    with pytest.raises(InputError, match=r"stop_at"):
        kreiss.fit("rnn", "copy", steps=1, stop_at=math.nan, show="quiet")


def test_a_validation_that_is_not_a_number_solves_nothing():
    training = prepared({"stop_at": 3.0})
    assert not training.observe({"loss": math.nan})
    assert not training.solved
    training.observe({"loss": 3.0})
    assert training.solved
    assert training.done


def test_a_validation_that_is_not_a_number_is_never_the_best():
    training = prepared({})
    assert not training.observe({"loss": math.nan})
    assert training.observe({"loss": 2.0})
    assert not training.observe({"loss": math.nan})
    assert training.best == 2.0


# ---------------------------------------------------------------- the guard


class Poisoned(Stream):
    """Its loss is not finite at some updates."""

    def __init__(self, bad: float, where: tuple[int, ...]) -> None:
        super().__init__()
        self.bad, self.where, self.update = bad, where, 0

    def train(self, update: int, batch: int, seed: int) -> Batch:
        self.update = update + 1
        return super().train(update, batch, seed)

    def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        loss = super().loss(output, batch)
        return loss * self.bad if self.update in self.where and torch.is_grad_enabled() else loss


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_with_step_quantity_and_checkpoint(bad, tmp_path):
    layer, out = kreiss.NNRNN(5, 6), tmp_path / "run"
    with pytest.raises(RunError) as caught:
        kreiss.fit(layer, Poisoned(bad, (6,)), steps=9, checkpoint_every=4, out=out, show="quiet")
    said = str(caught.value)
    assert said == (
        f"the loss must be finite; got {bad} at update 6. The last good checkpoint is {out}/last.safetensors (update 4)"
        "; lower the learning rate or clip gradients (--clip-norm 1), or pass --on-nan skip."
    )
    assert all(torch.isfinite(p).all() for p in layer.parameters())
    assert read_status(out) == {**read_status(out), "state": "failed", "update": 5, "message": said}
    kept = storage.read_tensors(out / "last.safetensors")[0].values()
    assert all(torch.isfinite(tensor).all() for tensor in kept)


def test_a_gradient_that_is_not_finite_is_named():
    class Steep(Stream):
        def loss(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
            return super().loss(output, batch) + (output - output.detach()).pow(2).sum().sqrt()  # 0, with slope 0/0

    said = r"the gradient of \S+ must be finite; got NaN or Inf at update 1\. No checkpoint was written"
    with pytest.raises(RunError, match=said):
        kreiss.fit(kreiss.RNN(5, 4), Steep(), steps=3, show="quiet")


def test_updates_with_such_numbers_are_skipped_if_asked_and_counted():
    model = RecurrentNetwork(kreiss.NNRNN(5, 6), 5, symbols=5)
    run = kreiss.fit(model, Poisoned(math.nan, (2, 3, 7)), steps=9, on_nan="skip", log_every=1, show="quiet")
    train = [record for record in run.records if "split" not in record]
    assert [record.get("skipped", 0) for record in train] == [0, 1, 2, 2, 2, 2, 3, 3, 3]
    assert ["loss" in record for record in train] == [True, False, False, True, True, True, False, True, True]
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_skipping_comes_to_an_end_when_there_is_nothing_else():
    with pytest.raises(RunError, match=r"got nan at update 100 after 100 skipped updates in a row"):
        kreiss.fit(kreiss.RNN(5, 4), Poisoned(math.nan, tuple(range(1, 200))), steps=200, on_nan="skip", show="quiet")


# ---------------------------------------------------------------- folders and records


def test_a_run_folder_says_what_ran_where_and_how_it_ended(tmp_path):
    run = ran(tmp_path / "run", log_every=3)
    files = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")}
    assert files == {
        "config.yaml", "run.json", "metrics.jsonl", "spectra.jsonl", "status.json",
        "last.safetensors", "previous.safetensors", "best.safetensors",
    }  # fmt: skip
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"kreiss", "torch", "python", "git", "seed", "threads", "command", "started"} <= set(about)
    assert read_status(tmp_path / "run")["state"] == "finished"
    records = read_records(tmp_path / "run")
    assert records == run.records
    assert [record["update"] for record in records if "split" not in record] == [3, 6, 9, 12]
    assert [(record["update"], record["split"]) for record in records if "split" in record] == [
        (4, "valid"), (8, "valid"), (12, "valid"), (12, "test"),
    ]  # fmt: skip
    assert {"loss", "gradient_norm", "lr"} <= set(records[0])
    assert {"modulus_min", "modulus_mean", "modulus_max", "departure"} <= set(records[1])


def test_a_second_run_does_not_write_over_a_first(tmp_path):
    ran(tmp_path / "run", steps=2)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(InputError, match=r"`out` must be a new folder; got .*kreiss resume .*kreiss runs rm"):
        ran(tmp_path / "run", steps=2)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_only_one_process_trains_in_a_folder(tmp_path):
    ran(tmp_path / "run", steps=2)
    other = RunFolder(tmp_path / "run")
    other._open()
    with pytest.raises(RunError, match="only one process may train in"):
        fitting.resume(tmp_path / "run", {"steps": 4}, show="quiet")
    other.close()
    fitting.resume(tmp_path / "run", {"steps": 4}, show="quiet")


def test_a_torn_last_line_is_left_out_and_ended_before_more_is_written(tmp_path):
    ran(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    whole = read_records(tmp_path / "run")
    path.write_bytes(path.read_bytes() + b'{"update": 12, "lo')
    assert read_records(tmp_path / "run") == whole
    fitting.resume(tmp_path / "run", {"steps": 14, "eval_every": 14}, show="quiet")
    assert [record["update"] for record in read_records(tmp_path / "run")][-2:] == [14, 14]


@pytest.mark.parametrize("line", ["[1]", "3", "null", "{", "\udcff"])
def test_lines_that_are_no_records_are_left_out(line, tmp_path):
    text = f'{{"update": 1}}\n{line}\n{{"update": 2}}\n'
    (tmp_path / "metrics.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    assert [record["update"] for record in read_records(tmp_path)] == [1, 2]


# ---------------------------------------------------------------- disks that are full or closed


def test_a_disk_that_is_full_loses_nothing(tmp_path, monkeypatch):
    out = tmp_path / "run"
    ran(out, steps=4, checkpoint_every=2)
    before = storage.read_tensors(out / "last.safetensors")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.raises(RunError, match="could not be written: No space left on device"):
            fitting.resume(out, {"steps": 8}, show="quiet")
    assert not list(out.glob(".*.partial"))
    after = storage.read_tensors(out / "last.safetensors")
    assert after[1] == before[1]
    fitting.resume(out, {"steps": 8}, show="quiet")
    assert read_status(out)["state"] == "finished"


def test_a_file_that_may_not_grow_is_one_sentence_and_the_old_one_stays(tmp_path):
    path = tmp_path / "model.safetensors"
    kreiss.save(kreiss.RNN(2, 2), path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), limits[1]))
    try:
        with pytest.raises(RunError, match="could not be written: File too large"):
            kreiss.save(kreiss.RNN(2, 40), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("out", ["/proc/kreiss/run", "/dev/null/run"])
def test_a_folder_that_cannot_be_made_is_one_sentence(out):
    with pytest.raises(RunError, match=r"the run folder `.*` could not be made: .*\. Choose another with --out"):
        ran(Path(out))


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").mkdir()  # for root every folder is writable
    with pytest.raises(RunError, match=r"the run folder `.*` must be writable; got Is a directory\. Choose another"):
        ran(tmp_path / "run")


# ---------------------------------------------------------------- displays and trackers


def test_json_lines_say_everything_there_is(capsys):
    run = ran(show="json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["event"] == "started"
    assert lines[0]["config"]["model"]["hidden"] == 6
    assert lines[1:] == run.records


def test_quiet_says_nothing(capsys):
    ran(show="quiet")
    assert capsys.readouterr() == ("", "")


def test_plain_lines_are_a_table_whose_rows_are_of_one_update_each(capsys):
    run = ran(show="plain", task="copy")
    first, second, headings, *rows, test = capsys.readouterr().out.splitlines()
    assert "--hidden 6" in first
    assert f"loss without memory {Copy(100).baseline()['loss']:.4g}" in second
    assert headings.split() == ["update", "loss", "valid", "loss", "best", "|λ|", "min", "mean", "max", "left"]
    valid = [record for record in run.records if record.get("split") == "valid"]
    for row, record in zip(rows, valid, strict=True):
        update, _, loss, best, *moduli, _ = row[: len(headings)].split()
        assert update == str(record["update"])
        assert loss == f"{record['loss']:.4g}"
        assert float(best) <= float(loss)
        assert moduli == [f"{record[f'modulus_{which}']:.3f}" for which in ("min", "mean", "max")]
    assert test.startswith("test loss ")
    assert len(headings) <= 80


def test_every_setting_is_printed_when_asked(capsys):
    ran(show="verbose")
    assert "orthogonal_lr: null" in capsys.readouterr().out


def on_a_terminal(monkeypatch, width: int, **constants: float) -> io.StringIO:
    """What displays write to a terminal of this width."""
    from rich.console import Console

    from kreiss.training import display

    screen = io.StringIO()
    terminal = lambda **options: Console(file=screen, force_terminal=True, width=width, **options)  # noqa: E731
    monkeypatch.setattr(display, "Console", terminal)
    for name, value in constants.items():
        monkeypatch.setattr(display, name, value)
    return screen


def test_the_live_row_shows_loss_best_spectrum_time_left_and_gradient_of_one_update(monkeypatch):
    screen = on_a_terminal(monkeypatch, 120, REFRESH=0.0, GLANCE_SHARE=1.0)
    assert choose("auto") is Live
    run = ran(show="live")
    for part in (f"{run.records[-1]['modulus_max']:.3f}", "0:00", "‖∇‖", "best", "departure"):
        assert part in screen.getvalue()  # the last for want of other metrics: 120 columns have room


@pytest.mark.parametrize(("cost", "looks"), [(0.0, 100), (60.0, 0)])
def test_the_live_row_has_a_spectrum_where_that_is_cheap(cost, looks, monkeypatch):
    screen = on_a_terminal(monkeypatch, 80, REFRESH=0.0)
    clock, made = iter(range(10**6)), []
    monkeypatch.setattr("kreiss.training.display.time.monotonic", lambda: cost * next(clock))
    spectrum = {"modulus_min": 0.25, "modulus_mean": 0.5, "modulus_max": 1.0}
    shown = Live(100, "loss", None, lambda: made.append(1) or spectrum)
    shown.start(resolved({"device": "cpu"}), "nowhere", 0)
    for update in range(100):
        shown.show(Now(update, 1.0, 1.0))
    shown.close()
    assert len(made) == 1 + looks
    assert ("0.250 0.500 1.000" in screen.getvalue()) == bool(looks)


def test_a_pipe_gets_plain_lines(capsys):
    assert choose("auto") is Plain
    assert [choose(kind) for kind in ("json", "quiet")] == [JsonLines, Display]


def test_an_evaluation_names_every_number():
    record = {"update": 7, "split": "test", "bpc": 2.5, "loss": 1.7, "seconds": 3.0}
    assert evaluation_words(record, "bpc", 3.0, "without memory") == "test bpc 2.5 (without memory 3)  loss 1.7"


def test_the_spectrum_is_that_of_the_recurrent_matrix():
    matrix = torch.tensor([[0.5, 2.0], [0.0, -0.25]])
    layer = kreiss.RNN(3, 2)
    layer.weight_hh_l0 = nn.Parameter(matrix)
    found = glance(RecurrentNetwork(layer, 2))
    assert found == pytest.approx(
        {"modulus_min": 0.25, "modulus_mean": 0.375, "modulus_max": 0.5, "departure": 2.0}, rel=1e-6
    )
    assert glance(RecurrentNetwork(kreiss.LSTM(3, 2), 2)) == {}


def test_a_run_keeps_its_spectra_and_half_a_line_spoils_no_other(tmp_path):
    values = torch.tensor([0.5 + 0.5j, 0.5 - 0.5j])
    assert read_spectra(tmp_path) == {}
    folder = RunFolder(tmp_path)
    for update in (0, 5, 10):
        folder.keep_spectrum(spectrum_record(update, values * (1 + update)))
    folder.close()
    with open(tmp_path / "spectra.jsonl", "a") as file:
        file.write('{"update": 15, "eigen')  # killed here, and resumed at 5
    kept = [spectrum_record(update, values * (1 + update)) for update in (0, 5)]
    folder.spectra.resume(5, kept)
    folder.keep_spectrum(spectrum_record(10, values))
    found = read_spectra(tmp_path)
    assert list(found) == [0, 5, 10]
    assert found[10] == [0.5 + 0.5j, 0.5 - 0.5j]
    assert found[5][0] == 3 + 3j


def test_tensorboard_gets_the_records(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = ran(tmp_path / "run", track="tensorboard", log_every=1)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = [event.value for event in events.Scalars("train/loss")]
    assert found == pytest.approx([record["loss"] for record in run.records if "split" not in record])
    assert [event.step for event in events.Scalars("valid/loss")] == [4, 8, 12]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_with_the_verbs_of_wandb_get_the_records(name, monkeypatch):
    calls: list[Any] = []
    fake = types.SimpleNamespace(
        init=lambda project, name, config: calls.append(("init", config["model"]["hidden"])),
        log=lambda numbers, step: calls.append((step, sorted(numbers))),
        finish=lambda: calls.append("finish"),
    )
    monkeypatch.setitem(sys.modules, name, fake)
    ran(track=name, steps=4)
    assert calls[0] == ("init", 6)
    assert calls[-1] == "finish"
    assert [step for step, _ in calls[1:-1]] == [4, 4, 4]


def test_mlflow_gets_the_records(monkeypatch):
    calls: list[Any] = []
    verbs = ("set_experiment", "start_run", "log_params", "log_metrics", "end_run")
    fake = types.SimpleNamespace(**{verb: lambda *a, verb=verb, **k: calls.append(verb) for verb in verbs})
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    ran(track="mlflow", steps=4)
    assert calls == ["set_experiment", "start_run", "log_params", *["log_metrics"] * 3, "end_run"]


@pytest.mark.parametrize(("name", "extra"), [("tensorboard", "tb"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_tracker_that_is_not_installed_is_the_command_that_installs_it(name, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'kreiss\[{extra}\]'"):
        ran(track=name, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # nothing was begun


# ---------------------------------------------------------------- fit


def test_fit_takes_names_layers_networks_and_settings():
    by_name = kreiss.fit("nnrnn", "copy", {"task.delay": 3, "model.blocks": "paper"}, steps=2, hidden=4, show="quiet")
    assert by_name.model.layer.config["blocks"] == "paper"
    layer = kreiss.NNRNN(10, 4, blocks="paper")
    by_layer = kreiss.fit(layer, Copy(3), steps=2, show="quiet")
    assert by_layer.model.layer is layer
    assert by_layer.config.model.model_extra == {"blocks": "paper"}
    assert by_layer.config.task.model_extra["delay"] == 3


def test_fit_puts_a_readout_on_a_layer_of_the_users_own():
    class Mine(kreiss.RNN):
        pass

    run = kreiss.fit(Mine(10, 4), Copy(delay=2), steps=2, show="quiet")
    assert isinstance(run.model, kreiss.networks.RecurrentNetwork)
    assert isinstance(run.model.layer, Mine)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: kreiss.fit("rnn", "copy", resume=True), "`out` must be the folder of the run to resume"),
        (lambda: kreiss.fit("rnn", "copy", out="/nowhere", resume=True), "must be the folder of a run"),
        (
            lambda: kreiss.fit("rnn", "copy", embedding=3, device="gpu", show="quiet"),
            "`device` must be available; got device='gpu'",
        ),
        (lambda: kreiss.fit("rnn", "copy", stepps=3), "unknown setting 'stepps'"),
    ],
)
def test_fit_refuses_what_does_not_fit_together(call, said):
    with pytest.raises(InputError, match=said):
        call()


def test_an_embedding_without_symbols_is_refused():
    class Vectors(Stream):
        symbols = False

    with pytest.raises(InputError, match="an embedding needs symbols; got embedding=3"):
        make_network(resolved({"embedding": 3}), Vectors())
