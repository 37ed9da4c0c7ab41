"""Tasks keep their contract: data by number, totals that add up, fixed held-out sets, true baselines."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import kreiss
from kreiss import InputError
from kreiss.options import NOTHING, described, options_of
from kreiss.tasks import TASKS, Adding, Batch, Characters, Copy, Denoise, SelectiveCopy
from kreiss.tasks.generated import Generated
from kreiss.tasks.losses import NO_TARGET
from kreiss.tasks.recall import delays
from kreiss.tasks.relational.base import Relational
from kreiss.tasks.stored import Stored
from small_tasks import SMALL, answers, metrics, same

every_task = pytest.mark.parametrize("name", SMALL)


# ---------------------------------------------------------------- every task


@every_task
def test_a_training_batch_is_the_same_whenever_it_is_asked_for(name, files):
    one, two = SMALL[name](files), SMALL[name](files)
    first = [one.train(update, 4, seed=1) for update in range(5)]
    torch.manual_seed(99)
    np.random.seed(99)
    assert all(same(two.train(update, 4, seed=1), first[update]) for update in (4, 0, 2, 3, 1))


@every_task
def test_updates_differ_and_so_do_seeds(name, files):
    task = SMALL[name](files)
    assert not same(task.train(0, 4, seed=1), task.train(1, 4, seed=1))
    if not name.startswith("characters"):  # a text is read in its own order
        assert not same(task.train(0, 4, seed=1), task.train(0, 4, seed=2))
        assert not same(task.train(0, 4, seed=1), task.train(0, 4, seed=-1))


@every_task
def test_batches_have_the_shapes_that_the_task_says(name, files):
    task = SMALL[name](files)
    for batch in (task.train(0, 4, seed=0), next(task.held_out("valid", 4)), next(task.held_out("test", 4))):
        steps, count = batch.inputs.shape[:2]
        if task.symbols:
            assert batch.inputs.dtype == torch.int64
            assert batch.inputs.shape == (steps, count)
            assert batch.inputs.min() >= 0
            assert batch.inputs.max() < task.input_size
        else:
            assert batch.inputs.dtype == torch.get_default_dtype()
            assert batch.inputs.shape == (steps, count, task.input_size)
        assert batch.targets.shape[: 2 if task.answers == "every" else 1] in ((steps, count), (count,))
        assert batch.lengths is None or batch.lengths.shape == (count,)
        if not batch.targets.is_floating_point():
            assert batch.targets.max() < task.output_size
        else:
            assert batch.targets.shape[-1] == task.output_size
        output = answers(task, batch).requires_grad_()
        loss = task.loss(output, batch)
        assert loss.shape == ()
        loss.backward()
        assert torch.isfinite(output.grad).all()
        assert output.grad.abs().sum() > 0


@every_task
def test_the_loss_is_what_the_totals_say(name, files):
    task = SMALL[name](files)
    batch = task.train(2, 4, seed=0)
    output = answers(task, batch)
    total, count = task.totals(output, batch)["loss"]
    assert total / count == pytest.approx(float(task.loss(output, batch)), rel=1e-9)


@every_task
@pytest.mark.parametrize("split", ["valid", "test"])
def test_metrics_of_a_held_out_set_do_not_depend_on_the_batch_size(name, split, files):
    task = SMALL[name](files)
    whole = metrics(task, split, 1000)
    assert task.metric in whole
    for batch in (1, 3):
        assert metrics(SMALL[name](files), split, batch) == pytest.approx(whole, rel=1e-9)
    assert all(piece.inputs.shape[1] <= 3 for piece in task.held_out(split, 3))


@every_task
def test_validation_and_test_are_different_sets_and_always_the_same(name, files):
    one, two = SMALL[name](files), SMALL[name](files)
    assert same(next(one.held_out("test", 2)), next(two.held_out("test", 2)))
    assert not same(next(one.held_out("valid", 2)), next(one.held_out("test", 2)))


@every_task
def test_no_held_out_sequence_is_trained_on(name, files):
    task = SMALL[name](files)
    if isinstance(task, Stored):
        parts = [set(members.tolist()) for members in task.splits.values()]
        assert sum(map(len, parts)) == len(set.union(*parts))
    elif isinstance(task, Characters):
        assert sum(map(len, task.parts.values())) == 935_804
    else:
        seen = {bytes(column.numpy()) for u in range(50) for column in task.train(u, 5, 0).inputs.unbind(1)}
        held = {
            bytes(column.numpy())
            for split in ("valid", "test")
            for p in task.held_out(split, 5)
            for column in p.inputs.unbind(1)
        }
        assert not seen & held


@every_task
def test_the_baseline_has_the_metrics_and_no_memory_is_needed_to_reach_it(name, files):
    task = SMALL[name](files)
    found = task.baseline()
    assert set(found) == set(metrics(task, "test", 100))
    assert all(math.isfinite(value) for value in found.values())
    # a random function of each step's own input has no memory either, and does worse
    assert metrics(task, "test", 100)["loss"] > found["loss"]


@every_task
def test_sizes_and_numbers_that_cannot_be_are_refused(name, files):
    task = SMALL[name](files)
    with pytest.raises(InputError, match=r"^`batch` must be at least 1; got batch=0\."):
        task.train(0, 0, 0)
    with pytest.raises(InputError, match=r"^`batch` must be at least 1; got batch=0\."):
        next(task.held_out("test", 0))
    with pytest.raises(InputError, match=r"^`update` must be at least 0; got update=-1\."):
        task.train(-1, 2, 0)


@pytest.mark.parametrize(
    "name", ["copy-fixed", "selectivecopy-fixed", "adding", "pixels", "frames", "sequence-steps", "sequence-end"]
)
@pytest.mark.parametrize("batch", [1, 4, 10_000])
def test_an_epoch_takes_every_training_sequence_at_most_once_and_the_next_takes_another_order(name, batch, files):
    task = SMALL[name](files)
    updates = task.updates_per_epoch(batch)
    orders = []
    for epoch in range(2):
        columns = [c for u in range(updates) for c in task.train(epoch * updates + u, batch, 0).inputs.unbind(1)]
        orders.append([hashlib.sha1(column.numpy().tobytes()[: 8 * 64]).hexdigest() for column in columns])
    count = task.sequences if isinstance(task, Generated) else len(task.splits["train"])
    assert len(orders[0]) == min(count // batch * batch or count, count)
    if name not in ("pixels", "frames", "sequence-steps"):  # padding and short prefixes make these look alike
        assert len(set(orders[0])) == len(orders[0])
    assert orders[0] != orders[1]


@every_task
def test_generated_tasks_have_no_epochs_unless_their_set_is_fixed(name, files):
    task = SMALL[name](files)
    endless = name in (
        "copy",
        "copy-enrnn",
        "copy-transfer",
        "denoise",
        "denoise-mixed",
        "denoise-transfer",
        "selectivecopy",
        "adding-fresh",
    )
    assert (task.updates_per_epoch(3) is None) == endless


@every_task
def test_a_task_keeps_its_options_by_name_and_can_be_made_again_from_them(name, files):
    task = SMALL[name](files)
    options = {option: getattr(task, option) for option in inspect.signature(type(task)).parameters}
    again = type(task)(**options)
    assert same(again.train(3, 4, 0), task.train(3, 4, 0))
    assert same(next(again.held_out("test", 4)), next(task.held_out("test", 4)))


@pytest.mark.parametrize("name", [name for name, made in TASKS.items() if issubclass(made, Relational)])
def test_every_option_of_a_task_of_objects_is_described_by_it_or_by_its_base_and_has_a_default(name):
    said, options = described(TASKS[name]), options_of(TASKS[name])
    assert set(options) <= set(said)
    assert all(option.default is not NOTHING for option in options.values())
    assert all(len(text) > 10 for text in said.values())


@pytest.mark.parametrize("name", [name for name, made in TASKS.items() if not issubclass(made, Relational)])
def test_every_option_of_a_task_is_plain_and_documented(name):
    made = TASKS[name]
    assert made.__name__.lower() == name
    assert made.__module__ in (f"kreiss.tasks.{name}", f"kreiss.tasks.worlds.{name}")
    documented = set(re.findall(r"^        (\w+): ", made.__doc__.split("Args:")[1], re.MULTILINE))
    options = inspect.signature(made).parameters
    assert set(options) == documented
    plain = {"str", "int", "float", "bool", "Path", "None", "tuple[int, ...]", "list[int]", "list[str]"}
    plain |= {"Any"} if name == "sequence" else set()  # data in memory
    for option in options.values():
        assert set(option.annotation.split(" | ")) <= plain, option


# ---------------------------------------------------------------- copy and denoise


@pytest.mark.parametrize(
    ("convention", "steps", "cues"), [("nnrnn", 50, [39]), ("enrnn-text", 52, [10, 41]), ("enrnn", 52, [10, 41])]
)
def test_the_two_conventions_of_the_copy_task(convention, steps, cues):
    task = Copy(30, convention=convention)
    batch = task.train(0, 4, 0)
    assert batch.inputs.shape == batch.targets.shape == (steps, 4) == (task.steps, 4)
    assert [t for t in range(steps) if (batch.inputs[t] == 9).all()] == cues
    assert (batch.inputs == 9).sum() == 4 * len(cues)
    assert batch.inputs[:10].max() < 8
    blank = torch.ones(steps, dtype=torch.bool)
    blank[[*range(10), *cues]] = False
    assert (batch.inputs[blank] == 8).all()
    assert (batch.targets[:-10] == 8).all()
    assert torch.equal(batch.targets[-10:], batch.inputs[:10])
    assert task.baseline()["loss"] == pytest.approx(10 * math.log(8) / steps)


def test_symbols_of_the_copy_task_are_the_one_hot_inputs_of_its_samples():
    inputs, targets = Copy(4).sample(3, torch.Generator().manual_seed(0))
    assert inputs.shape == (24, 3, 10)
    assert torch.equal(inputs.argmax(-1)[:10], targets[-10:])


def test_the_samples_of_two_updates_seeds_or_batch_sizes_have_nothing_in_common():
    drawn = [
        Copy(1).train(update, batch, seed).inputs[:10, 0]
        for update in range(9)
        for batch in (1, 2)
        for seed in range(9)
    ]
    assert len({tuple(column.tolist()) for column in drawn}) == len(drawn)


@pytest.mark.parametrize("made", [Copy, Denoise])
def test_a_network_is_tested_at_other_delays_under_their_names(made):
    task = made(5, test_delays=(8, 5, 13), test_sequences=6, valid_sequences=4)
    assert [len(piece.inputs) for piece in task.held_out("test", 4)] == [25, 25, 28, 28, 33, 33]
    assert {len(piece.inputs) for piece in task.held_out("valid", 4)} == {25}
    names = {f"{metric}{delay}" for metric in ("loss", "accuracy") for delay in ("", "@8", "@13")}
    assert set(metrics(task, "test", 4)) == names == set(task.baseline())
    assert task.baseline()["loss@13"] == pytest.approx(10 * math.log(8) / 33)
    apart = metrics(task.at(13), "test", 4)
    assert metrics(task, "test", 4)["loss@13"] == pytest.approx(apart["loss"])


@pytest.mark.parametrize("made", [Copy, Denoise])
def test_training_batches_have_delays_uniform_in_their_logarithm_and_held_out_ones_have_t(made):
    task = made(800, shortest=50, test_delays=(20,), test_sequences=3, valid_sequences=2)
    drawn = [len(task.train(update, 1, seed=4).inputs) - 20 for update in range(300)]
    assert min(drawn) >= 50
    assert max(drawn) <= 800
    # four doublings from 50 to 800: as many batches in each
    counts, _ = np.histogram(drawn, [50, 100, 200, 400, 801])
    assert all(abs(count - 75) < 4 * math.sqrt(300 * 0.25 * 0.75) for count in counts)
    for update in (0, 7):  # a batch is that of the task at its delay
        batch = task.train(update, 2, seed=4)
        assert same(batch, made(len(batch.inputs) - 20).train(update, 2, seed=4))
    assert [len(piece.inputs) for split in ("valid", "test") for piece in task.held_out(split, 9)] == [820, 820, 40]


def test_delays_of_training_batches_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"^`shortest` must be at most the delay; got shortest=6 and delay=5\. "):
        Copy(5, shortest=6)
    with pytest.raises(InputError, match=r"^`shortest` must be 0 with a fixed training set.*; got shortest=2 and seq"):
        Denoise(5, shortest=2, sequences=10)


@pytest.mark.parametrize("value", ["200,400", "200, 400,", (200, 400), [200, 400]], ids=repr)
def test_delays_are_read_from_text_or_numbers(value):
    assert delays(value) == (200, 400)
    assert delays(7) == (7,)
    assert delays("") == ()


@pytest.mark.parametrize(("value", "kind"), [("many", InputError), ("3,-1", InputError), ((2.5,), TypeError)], ids=repr)
def test_delays_that_are_none_are_refused(value, kind):
    with pytest.raises(kind, match=r"^`test_delays` must be .*; got "):
        Copy(5, test_delays=value)


def test_an_unknown_convention_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown convention 'nnrn'\. Did you mean 'nnrnn'\?"):
        Copy(5, convention="nnrn")


@given(delay=st.integers(1, 40), batch=st.integers(1, 6), update=st.integers(0, 10**6), seed=st.integers(-5, 2**70))
def test_denoise_shows_ten_symbols_anywhere_and_asks_for_them_in_their_order(delay, batch, update, seed):
    task = Denoise(delay)
    made = task.train(update, batch, seed)
    assert made.inputs.shape == made.targets.shape == (delay + 20, batch)
    assert (made.inputs[delay + 9] == 10).all()
    assert (made.inputs[delay + 10 :] == 0).all()
    assert (made.targets[:-10] == 0).all()
    for column, target in zip(made.inputs.T, made.targets.T, strict=True):
        before = column[: delay + 9]
        shown = before[before > 0]
        assert torch.equal(shown, target[-10:])
        assert shown.min() >= 1
        assert shown.max() <= 8


def test_denoise_has_the_sizes_behind_the_published_parameter_counts():
    assert (Denoise.input_size, Denoise.output_size) == (11, 10)
    layer = kreiss.RNN(11, 128)
    readout = nn.Linear(128, 10)
    count = sum(p.numel() for p in [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, *readout.parameters()])
    assert count == 19_210


def test_the_places_of_denoise_are_uniform():
    source = np.random.default_rng(0)
    _, places = Denoise(11).draw(20_000, source)  # ten of twenty places
    assert (np.diff(places, axis=1) > 0).all()
    shares = np.bincount(places.ravel(), minlength=20) / 20_000
    assert abs(shares - 0.5).max() < 0.015  # four standard deviations


# ---------------------------------------------------------------- selective copying


def test_the_paper_defines_the_defaults_of_selective_copying():
    task = SelectiveCopy()
    assert (task.steps, task.tokens, task.vocabulary, task.input_size, task.output_size) == (4096, 16, 16, 16, 16)
    assert task.baseline() == {"loss": pytest.approx(math.log(14)), "accuracy": 1 / 14}


@given(tokens=st.integers(1, 6), noise=st.integers(0, 20), vocabulary=st.integers(4, 9), update=st.integers(0, 10**6))
def test_selective_copying_asks_for_the_tokens_in_their_order_and_for_nothing_else(tokens, noise, vocabulary, update):
    made = SelectiveCopy(2 * tokens + noise, tokens=tokens, vocabulary=vocabulary).train(update, 4, 0)
    assert made.inputs.shape == made.targets.shape == (2 * tokens + noise, 4)
    assert (made.inputs[-tokens:] == vocabulary - 1).all()
    assert (made.targets[:-tokens] == NO_TARGET).all()
    for column, target in zip(made.inputs.T, made.targets.T, strict=True):
        before = column[:-tokens]
        assert torch.equal(before[before > 0], target[-tokens:])
        assert before.max() < vocabulary - 1


def test_tokens_and_places_of_selective_copying_are_uniform():
    data, places = SelectiveCopy(20, tokens=10, vocabulary=6).draw(20_000, np.random.default_rng(0))
    assert places.min() == 0
    assert places.max() == 9
    shares = np.bincount(data.ravel(), minlength=5)[1:] / data.size
    assert abs(shares - 0.25).max() < 4 * math.sqrt(0.25 * 0.75 / data.size)
    _, places = SelectiveCopy(30, tokens=10).draw(20_000, np.random.default_rng(0))  # ten of twenty places
    assert (np.diff(places, axis=1) > 0).all()
    assert abs(np.bincount(places.ravel(), minlength=20) / 20_000 - 0.5).max() < 0.015  # four standard deviations


def test_a_sequence_too_short_for_its_tokens_is_refused():
    with pytest.raises(InputError, match=r"^`length` must be at least twice `tokens`.*; got length=9 and tokens=5\."):
        SelectiveCopy(9, tokens=5)


# ---------------------------------------------------------------- adding


@given(length=st.integers(2, 30), batch=st.integers(1, 6), update=st.integers(0, 10**6))
def test_adding_marks_one_number_in_each_half_and_asks_for_their_sum(length, batch, update):
    made = Adding(length, sequences=0).train(update, batch, 0)
    numbers, marker = made.inputs.unbind(-1)
    assert ((numbers >= 0) & (numbers <= 1)).all()
    assert (marker[: length // 2].sum(0) == 1).all()
    assert (marker[length // 2 :].sum(0) == 1).all()
    assert set(marker.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(made.targets, (numbers * marker).sum(0)[:, None])


def test_the_baseline_of_adding_is_the_error_of_answering_one():
    task = Adding(40, test_sequences=10_000)
    pieces = list(task.held_out("test", 5000))
    totals = [task.totals(torch.ones(5000, 1), piece)["loss"] for piece in pieces]
    measured = sum(total for total, _ in totals) / sum(count for _, count in totals)
    assert measured == pytest.approx(task.baseline()["loss"], abs=0.008)  # four standard deviations
    assert task.baseline()["loss"] == pytest.approx(0.167, abs=5e-4)


def test_the_paper_defines_the_defaults_of_adding():
    task = Adding()
    assert (task.length, task.sequences, task.test_sequences) == (750, 100_000, 10_000)
    assert task.updates_per_epoch(50) == 2000


# ---------------------------------------------------------------- fixed for ever


def digest(batches: Iterator[Batch]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        for tensor in (batch.inputs, batch.targets):
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()[:16]


HELD_OUT = {
    "copy": "eada5e8ea84fa984",
    "copy-enrnn": "3e787b6e3ec8afaf",
    "copy-transfer": "caa73dc67def3c1b",
    "denoise": "e89a9364115720a6",
    "adding": "7df816f5482cb032",
    "pixels": "6eb654638fea76de",
    "characters": "495b40bf7f0a1f1a",
}


@pytest.mark.parametrize("name", HELD_OUT)
def test_the_test_sets_are_those_of_every_version_so_far(name, files):
    assert digest(SMALL[name](files).held_out("test", 9)) == HELD_OUT[name]
