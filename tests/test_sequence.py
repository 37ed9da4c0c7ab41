"""A user's own sequences, from arrays and tables."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kreiss
from kreiss import InputError
from kreiss.tasks import Sequence
from kreiss.tasks.stored import divided
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


def failing(tmp_path: Path, **arrays: np.ndarray) -> Path:
    np.savez(tmp_path / "bad.npz", **arrays)
    return tmp_path / "bad.npz"


X, Y = np.zeros((6, 4, 2)), np.zeros((6, 4))
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
