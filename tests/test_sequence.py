"""A user's own sequences, from arrays and tables."""

from __future__ import annotations

import gzip
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import kreiss
from kreiss import InputError
from kreiss.tasks import Sequence
from kreiss.tasks.stored import divided
from kreiss.training.config import up_to_date
from kreiss.training.record import read_config
from small_tasks import SMALL, answers, same

# ---------------------------------------------------------------- a user's own sequences


@pytest.fixture
def arrays() -> dict[str, Any]:
    source = np.random.RandomState(1)
    return {"inputs": source.randn(20, 5, 3) * [1, 10, 100] + [0, 5, -7], "targets": source.randn(20, 5, 2)}


def test_arrays_with_an_answer_at_every_step(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    task = Sequence(tmp_path / "a.npz", standardise=False)
    assert (task.kind, task.answers, task.input_size, task.output_size) == ("regression", "every", 3, 2)
    members = task.splits["test"]
    batch = next(task.held_out("test", 5))
    np.testing.assert_allclose(batch.inputs.numpy(), arrays["inputs"][members].transpose(1, 0, 2), rtol=1e-6)
    np.testing.assert_allclose(batch.targets.numpy(), arrays["targets"][members].transpose(1, 0, 2), rtol=1e-6)
    assert batch.lengths is None


def test_inputs_are_standardised_by_the_training_part(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    task = Sequence(tmp_path / "a.npz")
    steps = np.concatenate([task.encoded[member] for member in task.splits["train"]])
    np.testing.assert_allclose(steps.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(steps.std(0), 1, atol=1e-12)
    arrays["inputs"][..., 1] = 4.0  # a constant stays finite
    np.savez(tmp_path / "a.npz", **arrays)
    assert all(np.isfinite(part).all() for part in Sequence(tmp_path / "a.npz").encoded)


def test_two_npy_files_and_one_npz_are_the_same_task(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    np.save(tmp_path / "x.npy", arrays["inputs"])
    np.save(tmp_path / "y.npy", arrays["targets"])
    one, two = Sequence(tmp_path / "a.npz"), Sequence(tmp_path / "x.npy", targets=str(tmp_path / "y.npy"))
    assert same(one.train(0, 4, 0), two.train(0, 4, 0))


def test_classes_at_the_end_may_be_any_names(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", inputs=arrays["inputs"], targets=np.array(["no", "yes"] * 10))
    task = Sequence(tmp_path / "a.npz", answers="last")
    assert (task.kind, task.answers, task.metric, task.higher_is_better) == ("classification", "last", "accuracy", True)
    assert task.classes.tolist() == ["no", "yes"]
    batch = next(task.held_out("valid", 5))
    assert batch.targets.tolist() == [int(member % 2) for member in task.splits["valid"]]
    assert task.baseline()["accuracy"] in (0, 0.5, 1)


def table(folder: Path, kind: str, columns: dict[str, list[Any]]) -> Path:
    """The columns as a file of that kind."""
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)
        return path
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = ("\n".join(lines) + "\n").encode()
    if kind == "csv.gz":
        text = gzip.compress(text)
    path.write_bytes(text)
    return path


COLUMNS: dict[str, list[Any]] = {
    "who": ["b", "a", "b", "c", "a", "d", "c", "b"],
    "x": [1.5, 2, 3, 4, 5, 6, 7, 8],
    "y": [8, 7, 6, 5, 4, 3, 2, 1],
    "label": [0, 1, 0, 1, 1, 0, 0, 1],
}


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_tables_are_grouped_in_sequences(tmp_path, kind):
    task = Sequence(table(tmp_path, kind, COLUMNS), group="who", targets="label", standardise=False)
    assert (task.input_size, task.output_size, task.kind) == (2, 2, "classification")
    assert [part.tolist() for part in task.encoded] == [
        [[1.5, 8], [3, 6], [8, 1]],
        [[2, 7], [5, 4]],
        [[4, 5], [7, 2]],
        [[6, 3]],
    ]
    assert [part.tolist() for part in task.asked] == [[0, 0, 1], [1, 1], [1, 0], [0]]
    last = Sequence(table(tmp_path, kind, COLUMNS), group="who", targets="label", answers="last")
    assert [int(part) for part in last.asked] == [1, 1, 0, 0]


def test_several_targets_are_several_outputs(tmp_path):
    task = Sequence(table(tmp_path, "csv", COLUMNS), group="who", targets="x, y", kind="regression", standardise=False)
    assert (task.input_size, task.output_size) == (1, 2)
    assert task.asked[1].tolist() == [[2, 7], [5, 4]]


def test_one_long_sequence_is_cut_in_windows_that_keep_the_order_of_time(tmp_path):
    steps = list(range(100))
    path = table(tmp_path, "csv", {"x": steps, "target": [step / 2 for step in steps]})
    task = Sequence(path, window=8, standardise=False)
    parts = [np.concatenate([task.encoded[m] for m in task.splits[part]])[:, 0] for part in ("train", "valid", "test")]
    assert np.concatenate(parts).tolist() == steps
    assert [len(part) for part in task.encoded] == [8] * 12 + [4]
    assert task.baseline()["loss"] == pytest.approx(0, abs=1e-18)  # a line needs no memory


def test_windows_of_one_sequence_stay_in_one_part(tmp_path):
    inputs = np.repeat(np.arange(10.0)[:, None], 9, axis=1)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=inputs)
    task = Sequence(tmp_path / "a.npz", window=4, standardise=False)
    owners = [{task.encoded[member][0, 0] for member in members} for members in task.splits.values()]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 10
    assert len(task.encoded) == 30


def test_padding_of_classes_and_numbers_does_not_count(files):
    for name in ("sequence-steps", "sequence-table"):
        task = SMALL[name](files)
        batch = task.train(0, 4, 0)
        assert batch.lengths is not None
        output = answers(task, batch)
        spoiled = output.clone()
        for place, length in enumerate(batch.lengths):
            spoiled[length:, place] = 1e6
        assert task.loss(spoiled, batch) == task.loss(output, batch)
        assert task.totals(spoiled, batch) == task.totals(output, batch)


# ---------------------------------------------------------------- data in memory

X, Y = np.zeros((6, 4, 2)), np.zeros((6, 4))


def same_data(one: Sequence, two: Sequence) -> None:
    """Two tasks have the same inputs and answers in the same parts."""
    for first, second in zip([*one.encoded, *one.asked], [*two.encoded, *two.asked], strict=True):
        np.testing.assert_array_equal(first, second)
    assert {part: m.tolist() for part, m in one.splits.items()} == {part: m.tolist() for part, m in two.splits.items()}


def test_arrays_in_memory_are_those_of_a_file(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    x, y = arrays["inputs"], arrays["targets"]
    in_file = Sequence(tmp_path / "a.npz")
    for made in (
        Sequence(x, targets=y), Sequence(torch.tensor(x), targets=torch.tensor(y)), Sequence(list(x), targets=list(y)),
        Sequence(arrays), Sequence(x.tolist(), targets=y.tolist()),
    ):  # fmt: skip
        same_data(made, in_file)
    ends = [np.float64(part[0, 0]) for part in y]
    same_data(Sequence(list(x), targets=ends, answers="last"), Sequence(x, targets=y[:, 0, 0], answers="last"))
    lengths = [1 + number % 5 for number in range(20)]
    uneven = Sequence([a[:n] for a, n in zip(x, lengths, strict=True)],
                      targets=[b[:n] for b, n in zip(y, lengths, strict=True)])  # fmt: skip
    same_data(uneven, Sequence({**arrays, "lengths": np.array(lengths)}))


def test_tables_in_memory_are_those_of_a_file(tmp_path):
    in_file = Sequence(table(tmp_path, "csv", COLUMNS), group="who", targets="label")
    frame = pd.DataFrame(COLUMNS)
    rows = frame.to_dict("records")
    for made in (frame, frame.astype({"label": "Int64", "who": "string"}), COLUMNS, rows):
        same_data(Sequence(made, group="who", targets="label"), in_file)
    apart = [frame[frame.who == name].drop(columns="who") for name in "bacd"]
    same_data(Sequence(apart, targets=["label"]), in_file)
    same_data(Sequence([part.to_dict("list") for part in apart], targets="label"), in_file)


def test_a_run_on_data_in_memory_records_no_data_and_is_resumed_with_them(tmp_path, arrays):
    task = Sequence(arrays["inputs"].tolist(), targets=arrays["targets"].tolist())
    kreiss.fit("rnn", task, hidden=3, steps=2, out=tmp_path / "run", show="quiet")
    assert len((tmp_path / "run" / "config.yaml").read_text()) < 3000
    done = kreiss.fit("rnn", task, {"steps": 4}, hidden=3, out=tmp_path / "run", resume=True, show="quiet")
    assert done.records[-1]["update"] == 4
    with pytest.raises(InputError, match=r"`path` must name a file .* data in memory is resumed by kreiss.fit"):
        kreiss.training.fitting.resume(tmp_path / "run", {"steps": 6})


def test_inputs_are_chosen_and_a_column_of_time_is_left_out_unless_it_is_named():
    columns = {"Time": np.arange(8) / 2, "label": [0, 1] * 4, "x": np.arange(8.0), "y": np.ones(8)}
    options: dict[str, Any] = {"targets": "label", "window": 2, "kind": "regression"}
    for chosen, found in (
        ({}, ("x", "y")), ({"ignore": "y"}, ("x",)), ({"ignore": ["y", "Time"]}, ("x",)), ({"inputs": "x"}, ("x",)),
        ({"inputs": ["y", "Time"]}, ("y", "Time")),
    ):  # fmt: skip
        task = Sequence(columns, **options, **chosen)
        assert task.preprocessing().columns == found
        assert task.input_size == len(found)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_masked_steps_count_neither_in_loss_nor_in_metrics_nor_in_the_baseline(kind):
    source = np.random.RandomState(0)
    x, mask = source.randn(12, 5, 2), source.rand(12, 5) > 0.4
    mask[:, 0] = True
    y = source.randint(3, size=(12, 5)) if kind == "classification" else source.randn(12, 5)
    nonsense = np.where(mask, y, 99 if kind == "classification" else 1e20)
    one, two = (Sequence(x, targets=targets, mask=mask) for targets in (y, nonsense))
    assert (one.kind, one.output_size) == (kind, two.output_size)
    same_data(one, two)
    assert one.baseline() == two.baseline()
    batch = next(two.held_out("test", 9))
    members = two.splits["test"]
    output, asked, weights = torch.randn(5, len(members), one.output_size), torch.tensor(y[members]).T, mask[members]
    if kind == "classification":
        error = cross_entropy(output.flatten(0, 1), asked.flatten(), reduction="none")
    else:
        error = (output[..., 0] - asked).square().flatten()
    wanted = float((error * torch.tensor(weights).T.flatten()).sum() / weights.sum())
    assert float(two.loss(output, batch)) == pytest.approx(wanted, rel=1e-5)
    assert two.totals(output, batch)["loss"][1] == weights.sum()
    output.requires_grad_()
    two.loss(output, batch).backward()
    assert torch.equal(output.grad.abs().sum(-1) > 0, torch.tensor(weights).T)


def test_a_mask_is_a_column_of_a_table_and_what_counts_nowhere_is_left_out():
    columns = {
        "x": np.arange(12.0),
        "ok": [0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0],
        "target": [math.nan, 1.5, 2, 3, *[math.nan] * 4, 9, 10, 11, math.nan],
    }
    with pytest.raises(InputError, match=r"a split needs at least one sequence"):
        Sequence(columns, mask="ok", window=4)  # the second window counts nowhere, two are too few
    task = Sequence(columns, mask="ok", window=2, standardise=False)
    assert [part[:, 0].tolist() for part in task.encoded] == [[0, 1], [2, 3], [8, 9], [10, 11]]
    np.testing.assert_array_equal(np.concatenate(task.asked)[:, 0], [math.nan, 1.5, 2, 3, 9, 10, 11, math.nan])
    same_data(Sequence(columns, mask="ok", window=2, standardise=False, missing="drop"), task)


def test_pieces_of_a_masked_batch_have_the_gradient_of_the_whole(tmp_path):
    source = np.random.RandomState(0)
    task = Sequence(source.randn(12, 5, 2), targets=source.randn(12, 5), mask=source.rand(12, 5) > 0.5)
    options: dict[str, Any] = {"hidden": 3, "steps": 3, "batch": 4, "show": "quiet"}
    one, two = (kreiss.fit("rnn", task, accumulate=pieces, **options).model for pieces in (1, 4))
    for first, second in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


GAPS = "who,x,y,target\n" + "".join(f"s{i // 3},{i},{i * i},{i % 2}\n" for i in range(24)).replace(
    "s1,4,16,0", "s1,NA,16,0"
)


def test_a_missing_cell_is_named_filled_or_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(GAPS)
    with pytest.raises(InputError, match=r"column 'x' of .* got none in line 6\. Fill it, or set `missing` \(--task"):
        Sequence(path, group="who")
    dropped = Sequence(path, group="who", missing="drop", standardise=False)
    assert (dropped.kind, [len(part) for part in dropped.encoded]) == ("classification", [3, 2, *[3] * 6])
    assert dropped.encoded[1].tolist() == [[3, 9], [5, 25]]
    filled = Sequence(path, group="who", missing="mean", standardise=False)
    train = np.concatenate([filled.sequences.inputs[member] for member in filled.splits["train"]])
    assert filled.encoded[1][1].tolist() == [pytest.approx(np.nanmean(train[:, 0])), 16]
    scaled = Sequence(path, group="who", missing="mean")
    assert scaled.encoded[1][1, 0] == pytest.approx(0, abs=1e-12)
    path.write_text(GAPS.replace("s1,NA,16,0", "s1,4,16,"))
    with pytest.raises(InputError, match=r"column 'target' .* got none in line 6\. Fill it, or set .* to drop, which"):
        Sequence(path, group="who", missing="mean")
    assert Sequence(path, group="who", missing="drop").kind == "classification"  # whole numbers stay whole
    only_last = Sequence(path, group="who", answers="last")  # the label of a sequence is in its last row
    assert [int(part) for part in only_last.asked] == [0, 1, 0, 1, 0, 1, 0, 1]


def test_missing_numbers_of_arrays_are_named_filled_or_left_out(arrays):
    x, y = arrays["inputs"].copy(), arrays["targets"].copy()
    x[2, 3, 1], y[4, 0, 0] = math.nan, math.nan
    with pytest.raises(InputError, match=r"inputs of the arrays .* got none in sequence 2, step 3, input 1"):
        Sequence(x, targets=y)
    with pytest.raises(InputError, match=r"targets of the arrays .* got none in sequence 4, step 0, target 0"):
        Sequence(x, targets=y, missing="mean")
    task = Sequence(x, targets=y, missing="drop")
    assert [len(part) for part in task.encoded[:6]] == [5, 5, 4, 5, 4, 5]
    labels = np.array(["a", "", "b", *["a", "b"] * 8, "a"])
    assert len(Sequence(arrays["inputs"], targets=labels, answers="last", missing="drop").encoded) == 19


IN_MEMORY = {
    "nothing": (lambda: 3, {}, "data must be arrays, lists of arrays, tables or a path; got int"),
    "ragged": (lambda: [[[1.0], [2.0, 3.0]]], {"targets": [1]}, "data must be arrays, lists .* got setting an array"),
    "no targets": (lambda: X, {}, "`targets` must be given as an array with the arrays; got None"),
    "named targets": (lambda: X, {"targets": "y"}, "`targets` must be given as an array with the arrays; got 'y'"),
    "arrays for columns": (lambda: COLUMNS, {"targets": Y}, "`targets` must name columns of the table; got ndarray"),
    "uneven": (lambda: [X[0], X[1]], {"targets": [Y[0]]}, r"got 2 inputs such as \(4, 2\) and 1 targets such as"),
    "shorter": (lambda: [X[0]] * 3, {"targets": [Y[0, :3]] * 3}, "must be .* with a target at every step"),
    "empty": (lambda: [X[0], X[0, :0]], {"targets": [Y[0], Y[0, :0]]}, "each sequence must be"),
    "deep": (lambda: [X, X], {"targets": [Y, Y]}, r"each sequence must be \(T, D\)"),
    "mask": (lambda: X, {"targets": Y, "mask": Y[:, :3]}, r"`mask` must have a number for every step .* \(6, 4\); got"),
    "masks": (lambda: list(X), {"targets": list(Y), "mask": [Y[0, 0:1]] * 6}, r"every step of the arrays, \(4,\); got"),
    "mask at the end": (lambda: X, {"targets": Y[:, 0], "mask": Y, "answers": "last"}, "`mask` needs an answer"),
    "mask of a table": (lambda: COLUMNS, {"targets": "label", "mask": Y}, "`mask` must name columns of the table"),
    "no mask": (lambda: COLUMNS, {"targets": "label", "mask": "ok"}, "unknown column of the table 'ok'"),
    "empty mask": (lambda: {**COLUMNS, "ok": [0] * 8}, {"targets": "label", "group": "who", "mask": "ok"}, "leave a"),
    "no input": (lambda: COLUMNS, {"targets": "label", "inputs": "xx"}, "unknown column of the table 'xx'"),
    "no ignored": (lambda: COLUMNS, {"targets": "label", "ignore": "z"}, "unknown column of the table 'z'"),
    "all ignored": (lambda: COLUMNS, {"targets": "label", "group": "who", "ignore": "x,y"}, "besides .* got none"),
    "other columns": (lambda: [{"x": [1.0]}, {"z": [1.0]}], {}, "must have the same columns; got z in table 1"),
    "group": (lambda: [COLUMNS], {"group": "who"}, "`group` must be left out for a list of tables"),
    "mixed": (lambda: [COLUMNS, X], {}, "all of a list must be tables if the first is; got ndarray"),
    "missing": (lambda: X, {"targets": Y, "missing": "maen"}, "unknown missing 'maen'. Did you mean 'mean'"),
    "empty input": (
        lambda: {"x": [math.nan] * 8, "target": np.arange(8.0)}, {"missing": "mean", "window": 1},
        "must have values in the training part for missing='mean'; got none for 'x'",
    ),
    "all dropped": (
        lambda: {"x": [math.nan] * 8, "target": np.arange(8.0)}, {"missing": "drop", "window": 1},
        "must have rows without missing cells; got none",
    ),
    "arrays all dropped": (lambda: X + math.nan, {"targets": Y, "missing": "drop"}, "without missing values; got none"),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_MEMORY)
def test_data_in_memory_that_do_not_fit_are_refused(case):
    make, options, said = IN_MEMORY[case]
    with pytest.raises(InputError, match=said) as caught:
        Sequence(make(), **options)
    assert "\n" not in str(caught.value)


def test_settings_of_earlier_runs_name_their_targets_as_before(tmp_path):
    path = table(tmp_path, "csv", COLUMNS)
    kreiss.fit("rnn", Sequence(path, group="who", targets="x"), hidden=3, steps=2, out=tmp_path / "run", show="quiet")
    for former in ("  target: x\n  targets: null\n", "  target: x\n"):
        written = {"task": {"name": "sequence", "path": str(path), "group": "who", "target": "x"}}
        written["task"] |= {"targets": None} if "null" in former else {}
        assert up_to_date(written)["task"]["targets"] == "x"
    both = {"task": {"targets": "y.npy", "target": "target"}}
    assert up_to_date(both)["task"] == {"targets": "y.npy"}
    config = read_config(tmp_path / "run")
    assert Path(config.task.model_extra["path"]).is_absolute()
    assert config.task.model_extra["targets"] == "x"  # a column, no path


def failing(tmp_path: Path, **arrays: np.ndarray) -> Path:
    np.savez(tmp_path / "bad.npz", **arrays)
    return tmp_path / "bad.npz"


AT_THE_END = {"answers": "last", "window": 2}
CLASSES_AT_THE_END = {"answers": "last", "kind": "classification"}


@pytest.mark.parametrize(
    ("arrays", "options", "said"),
    [
        ({"inputs": X}, {}, "lacks the array 'targets'"),
        ({"inputs": X, "targets": Y[:, :3]}, {}, r"got \(6, 4, 2\) and \(6, 3\) in .*bad.npz"),
        ({"inputs": X, "targets": Y}, CLASSES_AT_THE_END, "must have one target; got 4"),
        ({"inputs": X, "targets": Y[:, 0]}, {}, 'pass answers="last"'),
        (
            {"inputs": X + np.nan, "targets": Y},
            {},
            "inputs of .* must have a value everywhere; got none in sequence 0, step 0, input 0",
        ),
        ({"inputs": X + np.inf, "targets": Y}, {}, "inputs of .* must be finite; got 8 Inf"),
        ({"inputs": X.astype(str), "targets": Y}, {}, "inputs of .* must be numbers; got <U"),
        ({"inputs": X, "targets": Y + np.inf}, {}, "targets of a regression must be finite numbers"),
        (
            {"inputs": X, "targets": Y, "lengths": np.arange(6)},
            {},
            "lengths must be 6 numbers from 1 to 4; got .* from 0 to 5",
        ),
        ({"inputs": X[:2], "targets": Y[:2]}, {}, "fewer than three sequences must be cut in windows; got 2"),
        ({"inputs": X, "targets": Y[:, 0]}, AT_THE_END, "`window` needs an answer at every step"),
        ({"inputs": X, "targets": Y}, {"valid": 0.0}, "must be positive shares"),
        ({"inputs": X, "targets": Y}, {"kind": "clasification"}, "Did you mean 'classification'"),
        ({"inputs": X, "targets": Y}, {"answers": "first"}, "unknown answers 'first'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, options, said):
    with pytest.raises(InputError, match=said) as caught:
        Sequence(failing(tmp_path, **arrays), **options)
    assert "\n" not in str(caught.value)


def test_a_file_must_be_given():
    with pytest.raises(InputError, match=r"^`path` must name a file of sequences; got none\. Pass an \.npz"):
        Sequence()


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = table(tmp_path, "csv", COLUMNS)
    with pytest.raises(InputError, match=r"unknown column of .* 'lable'. Did you mean 'label'"):
        Sequence(path, targets="lable", group="who")
    with pytest.raises(InputError, match=r"column 'who' of .* must be numbers"):
        Sequence(path, targets="label", window=2)
    path.write_text("x,target\n1,2\n3\n")
    with pytest.raises(InputError, match=r"lines of 2 cells; got 1 in line 3"):
        Sequence(path, window=1)
    path.write_text("x,target\n")
    with pytest.raises(InputError, match=r"got no further lines"):
        Sequence(path, window=1)
    path.write_text("x,target\n1,2\n,3\n")
    with pytest.raises(InputError, match=r"column 'x' of .* must have a value in every row; got none in line 3"):
        Sequence(path, window=1)
    with pytest.raises(InputError, match=r"^a data file must exist; got .*nothing.csv"):
        Sequence(tmp_path / "nothing.csv")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"^unknown format '.txt'"):
        Sequence(tmp_path / "a.txt")
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    with pytest.raises(InputError, match=r"^`targets` must be given with a .npy file"):
        Sequence(tmp_path / "x.npy")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("executed",))


def test_a_numpy_file_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", inputs=np.array([Evil()], dtype=object), targets=np.zeros(1))
    with pytest.raises(InputError, match=r"must hold plain NumPy arrays; got Object arrays cannot be loaded"):
        Sequence("a.npz")
    assert not Path("executed").exists()


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(kreiss.errors.MissingExtra, match=r"Run: pip install 'kreiss\[parquet\]'\.$") as caught:
        Sequence(tmp_path / "a.parquet")
    assert caught.value.exit_code == 3
    assert isinstance(caught.value, InputError)


def test_a_damaged_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(InputError, match=r"a\.parquet must be a parquet file"):
        Sequence(tmp_path / "a.parquet")


@given(count=st.integers(3, 500))
def test_every_part_of_a_division_has_members_and_none_twice(count):
    parts = divided(count, 0.1, 0.1)
    joined = np.concatenate(list(parts.values()))
    assert sorted(joined.tolist()) == list(range(count))
    assert all(len(members) for members in parts.values())
