"""Hostile input: whatever a file or a command line holds, one sentence, exit code 2, and nothing left behind."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import kreiss
from kreiss import InputError, cli, errors
from kreiss.experiments import Experiment, Row, Scale
from kreiss.networks import LAYERS, RecurrentNetwork
from kreiss.networks.saving import content_of
from kreiss.preprocessing.sound import read_sound
from kreiss.report import tables
from kreiss.report.comparison import Comparison, Line
from kreiss.storage import files as storage
from kreiss.tasks import Adding, Characters, Copy, Frames, Pixels, Sequence, Task
from kreiss.tasks.sources import data
from kreiss.tasks.sources.archives import unpack
from sounds import riff, speech

SMALL = ("--hidden", 4, "--batch", 2, "--steps", 2, "--task.valid_sequences", 3, "--task.test_sequences", 3)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _a_machine_of_64_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers on every machine."""
    for module in (errors, data):
        monkeypatch.setattr(module, "machine_memory", lambda: 64 * 10**9)


def files() -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def refused(monkeypatch, capsys):
    """The command line refuses with code 2 and one line, and every file is as it was."""

    def run(*words: object) -> str:
        before = files()
        monkeypatch.setattr(sys, "argv", ["kreiss", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr().err
        assert ended.value.code == 2, said
        assert said.startswith("error: ")
        assert said.count("\n") == 1, said
        assert files() == before
        return said.strip()

    return run


def refusal(make: Callable[[], Any], kind: type[Exception] = InputError) -> str:
    """The sentence that `make` is refused with."""
    with pytest.raises(kind) as caught:
        make()
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


# ---------------------------------------------------------------- files of settings

GROWN = "".join(f"{b}: &{b} {{{', '.join(f'k{i}: *{a}' for i in range(9))}}}\n" for a, b in zip("abcdefg", "bcdefgh"))  # noqa: B905
MERGED = "".join(f"{b}: &{b} {{<<: [{', '.join(['*' + a] * 9)}]}}\n" for a, b in zip("abcdefg", "bcdefgh"))  # noqa: B905
TOO_MUCH = "must hold at most 10000 settings in 20 levels; got more, or a part that contains itself"
SETTINGS = {
    "deep.yaml": ("a: " + "[" * 500 + "]" * 500, TOO_MUCH),
    "deep-names.yaml": ("{a: " * 500 + "1" + "}" * 500, TOO_MUCH),
    "self.yaml": ("task: &a\n  x: *a\n", TOO_MUCH),
    "grown.yaml": ("a: &a {x: 1}\n" + GROWN, TOO_MUCH),
    "merged.yaml": ("a: &a {x: 1}\n" + MERGED, TOO_MUCH),
    "deep.toml": ("a = " + "[" * 3000 + "]" * 3000, TOO_MUCH),
    "deep-names.toml": (".".join("a" * 1200) + " = 1", TOO_MUCH),
    "digits.yaml": ("seed: " + "9" * 5000, "a number or date is out of range"),
    "digits.toml": ("seed = " + "9" * 5000, "a number or date is out of range"),
    "date.yaml": ("seed: 2001-99-99\n", "a number or date is out of range"),
    "long.yaml": ("#" * 1_500_000, "must be a file of settings of at most 1 MB; got 1.5 MB"),
    "below.yaml": ("steps: {a: 1}\n", "unknown setting 'steps.a'"),
    "layers.yaml": ("layers: 1000000\n", "`num_layers` must be at most 1000; got num_layers=1000000"),
    "lstm.yaml": (
        "model: {name: lstm, layers: 1000000}\n",
        "`num_layers` must be at most 1000; got num_layers=1000000",
    ),
    "huge.yaml": ("epochs: 99999999999999999999\n", "`epochs` must be less than or equal to 9223372036854775807; got"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_hostile_file_of_settings_is_refused(refused, name):
    text, said = SETTINGS[name]
    Path(name).write_text(text)
    assert said in refused("train", "--config", name, *SMALL, "--out", "RUN")


def test_a_name_below_a_plain_setting_is_unknown_in_any_order(refused):
    assert "unknown setting 'steps.a'" in refused("train", "copy", "--steps", 3, "--steps.a", 3, "--out", "RUN")


# ---------------------------------------------------------------- sizes and numbers on the command line

HUGE = 10**30
WORDS = {
    "--hidden 1000000": "the triangle of a 1000000×1000000 matrix must fit in memory, 64 GB on this machine; got sizes",
    "--model lstm --hidden 1000000": "must fit in memory, 64 GB on this machine; got sizes that take at least 16 TB",
    f"--hidden {2**62}": "must fit in memory, 64 GB on this machine; got sizes that take at least 184 EB",
    f"--hidden {HUGE}": "`model.hidden` must be less than or equal to 9223372036854775807; got",
    "--embedding 10000000000": "the parameters must fit in memory, 64 GB on this machine; got sizes that take at",
    "--model eurnn --model.capacity 99999999999": "99999999999 layers of rotations must fit in memory",
    "--model.layers 1000000": "`num_layers` must be at most 1000; got num_layers=1000000",
    "--task.delay 10000000000": "a batch of task copy with its states must fit in memory, 64 GB",
    f"--task.delay {2**62}": "a batch of task copy with its states must fit in memory, 64 GB",
    f"--task.delay {HUGE}": "`delay` must be at most 2⁶³ − 1; got delay=1e+30",
    "--task.test_delays 100000000000": "a batch of task copy with its states must fit in memory, 64 GB",
    f"--task.sequences {2**62}": "the order of the training set must fit in memory",
    "--task.valid_sequences 1000000000": "the validation set must fit in memory, 64 GB on this machine; got sizes that",
    "--batch 1000000000": "a batch of task copy with its states must fit in memory",
    f"--batch {HUGE}": "`batch` must be less than or equal to 9223372036854775807; got",
    "--accumulate 3": "`accumulate` must be at most `batch`, a sequence for each piece; got accumulate=3 and batch=2",
    f"--seed {2**64}": "`seed` must be less than 18446744073709551616; got",
    "--lr 1e300": "`optimiser.lr` must be at most 1e38 to fit in float32; got 1e+300",
    "--optimiser adam --optimiser.betas 1,1": "must be less than 1; got",
    "--device meta": "`device` must hold numbers; got device='meta', which holds shapes alone",
    "--device hpu": "`device` must be available; got device='hpu'",
    "--model lstm --model.forget_bias nan": "`forget_bias` must be a finite number; got forget_bias=nan",
}


@pytest.mark.parametrize("words", WORDS)
def test_what_cannot_be_is_refused_before_a_folder_is_made(refused, words):
    defaults = [str(word) for word in SMALL]
    kept = [w for pair in zip(defaults[::2], defaults[1::2], strict=True) if pair[0] not in words for w in pair]
    assert WORDS[words] in refused("train", "copy", *kept, *words.split(), "--out", "RUN")


def test_a_permutation_that_numpy_has_no_seed_for_is_refused():
    assert "`permutation` must be below 2³²; got permutation=4294967296" in refusal(lambda: Pixels(permutation=2**32))


def test_a_floor_of_infinity_is_refused():
    assert "`floor` must be positive; got floor=inf" in refusal(lambda: Frames(floor=float("inf")))


def test_a_batch_of_a_task_that_no_memory_holds_is_refused():
    for task in (Copy(10**11), Adding(10**11)):
        assert "a batch of 3 sequences of" in refusal(lambda task=task: task.train(0, 3, 0))
        assert "steps must fit in memory" in refusal(lambda task=task: next(task.held_out("valid", 3)))


def test_an_allocation_that_fails_ends_the_command_line_with_one_line(monkeypatch, capsys):
    torchs = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 16000000000 bytes. Error 12"
    )
    for raised, wanted in (
        (torchs, "16 GB"),
        (MemoryError("Unable to allocate 9 GiB"), "9 GiB"),
        (MemoryError(), "an"),
    ):

        def fail(words: list[str], raised: Exception = raised) -> int:
            raise raised

        monkeypatch.setattr(cli, "app", fail)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 1
        assert f"error: memory must be free; got too little for {wanted}" in capsys.readouterr().err


# ---------------------------------------------------------------- layers from Python


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_says_how_much_memory_it_would_take(name):
    make = LAYERS[name]
    assert "must fit in memory, 64 GB on this machine; got sizes that take at least" in refusal(lambda: make(3, 2**40))
    assert "got sizes that take at least" in refusal(lambda: make(2**62, 4))
    assert "got sizes that take at least" in refusal(lambda: make(3, 10_000, 1000))  # layer by layer it would fit
    assert "`num_layers` must be at most 1000; got num_layers=1000000" in refusal(lambda: make(3, 4, 10**6))
    assert "the state must fit in memory" in refusal(lambda: make(3, 4).init_state(2**62))
    for sizes in ((2**63, 4), (3, 2**63), (3, 4, 2**63)):
        assert "must be at most 2⁶³ − 1; got" in refusal(lambda sizes=sizes: make(*sizes))


def test_a_layer_on_the_meta_device_may_have_any_size():
    assert kreiss.RNN(3, 10**6, device="meta").weight_hh_l0.numel() == 10**12


PAIR = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
STATES = {  # (LSTM, GRU): what is said of it
    "empty": ((), ()),
    "three": ((*PAIR, PAIR[0]), (*PAIR, PAIR[0])),
    "nothing inside": ([None, None], [None]),
    "text": ("x", "x"),
    "other kind": (PAIR[0], PAIR),
}


@pytest.mark.parametrize("case", STATES)
def test_a_gated_layer_refuses_a_state_that_is_none(case):
    for make, state, wanted in zip(
        (kreiss.LSTM, kreiss.GRU), STATES[case], ("a pair of Tensors", "a Tensor"), strict=True
    ):
        said = refusal(lambda make=make, state=state: make(3, 4)(torch.zeros(5, 2, 3), state), TypeError)
        assert said.startswith(f"`hx` must be {wanted}")
        assert "; got " in said


@pytest.mark.parametrize(
    "given", [[1.0, 2.0], None, "x", 3, np.zeros((5, 2, 3))], ids=lambda given: type(given).__name__
)
@pytest.mark.parametrize("make", [kreiss.LSTM, kreiss.GRU])
def test_a_gated_layer_refuses_what_is_no_tensor(make, given):
    said = refusal(lambda: make(3, 4)(given), TypeError)
    assert said.startswith(f"`input` must be a Tensor or a PackedSequence; got {type(given).__name__}")


@pytest.mark.parametrize("make", [kreiss.LSTM, kreiss.GRU])
def test_a_gated_layer_refuses_tensors_that_do_not_fit_in_our_words(make):
    layer, x = make(3, 4), torch.zeros(5, 2, 3)
    assert "must have at least one step; got length 0" in refusal(lambda: layer(x[:0]))
    assert "must be input_size=3; got 2" in refusal(lambda: layer(x[..., :2]))
    assert "must be torch.float32, as the parameters are; got torch.float64" in refusal(lambda: layer(x.double()))
    wrong = torch.zeros(1, 7, 4)
    state = (wrong, wrong) if make is kreiss.LSTM else wrong
    assert "`hx` must be of shape (1, 2, 4) and torch.float32; got (1, 7, 4)" in refusal(lambda: layer(x, state))


# ---------------------------------------------------------------- tables and arrays

ROWS = [(f"s{i // 4}", i * 0.5, i % 2) for i in range(24)]
TABLE = "who,x,target\n" + "".join(f"{who},{x},{y}\n" for who, x, y in ROWS)
X = np.random.RandomState(0).randn(8, 4, 2)

TABLES = {
    "twice": (
        "who,x,x,target\n" + "s,1,2,0\n" * 4,
        "columns of t.csv must have different names; got 'x' more than once",
    ),
    "missing label": (
        TABLE.replace("s1,2.0,0", "s1,2.0,"),
        "column 'target' of t.csv must have a value in every row; got none in line 6",
    ),
    "missing group": (
        TABLE.replace("s1,2.0", ",2.0"),
        "column 'who' of t.csv must have a value in every row; got none",
    ),
    "missing input": (TABLE.replace("s1,2.0", "s1,"), "column 'x' of t.csv must have a value in every row; got none"),
    "beyond 64 bits": (
        TABLE.replace("2.0", "9" * 30).replace(".5", "").replace(".0", ""),
        "'x' of t.csv must fit in 64 bits",
    ),
    "beyond 64 bits, label": (TABLE.replace("2.0,0", "2.0," + "9" * 30), "'target' of t.csv must fit in 64 bits"),
    "long cell": (TABLE.replace("s1", "s" * 5000), "must have at most 1000 characters; got 5000 in column 'who'"),
    "huge cell": (
        TABLE.replace("s1", "s" * 200_000),
        "must be a table of text in UTF-8; got field larger than field limit",
    ),
    "empty": ("", "must have a line of names and then lines of 0 cells; got no further lines"),
    "ragged by a return": (TABLE.replace("s1,2.0", "s1\r,2.0"), "lines of 3 cells; got 1 in line 6"),
    "no number": (TABLE.replace("2.0", "nan"), "'x' of t.csv must have a value in every row; got none in line 6"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_would_be_read_as_something_else_is_refused(refused, case):
    text, said = TABLES[case]
    Path("t.csv").write_text(text, newline="")
    assert said in refused(
        "train", "sequence", "--task.path", "t.csv", "--task.group", "who", *SMALL[:6], "--out", "RUN"
    )


def test_text_that_is_not_utf8_is_refused():
    Path("t.csv").write_bytes(TABLE.encode().replace(b"s1", b"\xff"))
    assert "must be a table of text in UTF-8; got 'utf-8' codec" in refusal(lambda: Sequence("t.csv", group="who"))


def test_carriage_returns_alone_end_lines():
    Path("mac.csv").write_text(TABLE.replace("\n", "\r"), newline="")
    Path("unix.csv").write_text(TABLE)
    mac, unix = (Sequence(name, group="who").train(0, 2, 0) for name in ("mac.csv", "unix.csv"))
    assert torch.equal(mac.inputs, unix.inputs)


def test_parquet_with_columns_of_one_name_or_missing_labels_is_refused():
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0])] * 3, ["x", "x", "target"]), "t.parquet")
    assert "must have different names; got 'x' more than once" in refusal(lambda: Sequence("t.parquet"))
    parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "target": ["a", None]}), "t.parquet")
    assert "column 'target' of t.parquet must have a value in every row; got none in row 1" in refusal(
        lambda: Sequence("t.parquet")
    )
    parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "target": [[1], [2]]}), "t.parquet")
    assert "must be numbers or text; got ndarray" in refusal(lambda: Sequence("t.parquet"))


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1.0])
def test_inputs_of_any_size_are_standardised(scale):
    np.savez("a.npz", inputs=X * scale, targets=X.sum(-1))
    inputs = np.concatenate(Sequence("a.npz").encoded)
    np.savez("b.npz", inputs=X, targets=X.sum(-1))
    np.testing.assert_allclose(inputs, np.concatenate(Sequence("b.npz").encoded), rtol=1e-9)


ARRAYS = {
    "inputs too large": (
        {"inputs": X * 1e300},
        {"standardise": False},
        "inputs must be between 1e-30 and 1e+30 in size",
    ),
    "inputs too small": (
        {"inputs": X * 1e-300},
        {"standardise": False},
        "inputs must be between 1e-30 and 1e+30 in size",
    ),
    "targets too large": (
        {"targets": X * 1e300},
        {},
        "targets of a regression must be between 1e-30 and 1e+30 in size",
    ),
    "missing labels": ({"targets": np.full((8, 4), "")}, {}, "targets of a.npz must have a value everywhere; got none"),
    "labels not a number": (
        {"targets": np.full((8, 4), np.nan)},
        {"kind": "classification"},
        "targets of a.npz must have a value everywhere; got none in sequence 0, step 0, target 0",
    ),
    "no features": ({"inputs": X[..., :0]}, {}, "inputs must be (N, T) or (N, T, D)"),
    "lengths of text": ({"lengths": np.array(["a"] * 8)}, {}, "lengths of a.npz must be whole numbers; got <U1"),
    "lengths of fractions": ({"lengths": np.full(8, 2.5)}, {}, "lengths of a.npz must be whole numbers; got float64"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_would_be_read_as_something_else_are_refused(case):
    arrays, options, said = ARRAYS[case]
    np.savez("a.npz", **{"inputs": X, "targets": X, **arrays})
    assert said in refusal(lambda: Sequence("a.npz", **options))


def test_an_archive_of_arrays_under_the_name_of_one_is_refused():
    np.savez("a.npz", inputs=X)
    Path("a.npz").rename("a.npy")
    assert "must hold one array; got an archive of several" in refusal(lambda: Sequence("a.npy", targets="a.npy"))


# ---------------------------------------------------------------- flipped, cut and exploding files


def written(kind: str) -> tuple[bytes, Callable[[Path], Task]]:
    """A file of a kind, and what reads it."""
    if kind in ("npz", "compressed.npz"):
        (np.savez if kind == "npz" else np.savez_compressed)("made.npz", inputs=X, targets=X.sum(-1))
        return Path("made.npz").read_bytes(), Sequence
    if kind == "csv.gz":
        return gzip.compress(TABLE.encode()), lambda path: Sequence(path, group="who")
    return gzip.compress(b"to be or not to be, " * 9), lambda path: Characters(path.with_suffix(""))


def contents(task: Any) -> list[Any]:
    """All data of a task."""
    parts = [*task.encoded, *task.asked] if isinstance(task, Sequence) else list(task.parts.values())
    return [np.asarray(part).tolist() for part in parts]


@pytest.mark.parametrize("kind", ["npz", "compressed.npz", "csv.gz", "txt.gz"])
def test_a_flipped_bit_is_refused_in_a_sentence_or_changes_nothing(kind):
    raw, read = written(kind)
    path, source = Path(f"file.{kind}"), random.Random(0)
    said: list[str] = []
    path.write_bytes(raw)
    right = contents(read(path))
    for _ in range(60):
        flipped = bytearray(raw)
        flipped[source.randrange(len(raw))] ^= 1 << source.randrange(8)
        path.write_bytes(flipped)
        try:
            assert contents(read(path)) == right
        except InputError as error:
            said.append(str(error))
    assert len(said) > 20
    assert all("\n" not in sentence for sentence in said)


@pytest.mark.parametrize("kind", ["npz", "compressed.npz", "csv.gz", "txt.gz"])
def test_a_file_that_is_cut_short_is_refused(kind):
    raw, read = written(kind)
    path = Path(f"file.{kind}")
    for end in (1, 9, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:end])
        assert path.name in refusal(lambda: read(path))


def test_a_small_file_that_holds_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(data, "machine_memory", lambda: 4 * 10**6)
    Path("t.csv.gz").write_bytes(gzip.compress(b"x,target\n" + b"0,0\n" * 10**6))
    said = refusal(lambda: Sequence("t.csv.gz"))
    assert "t.csv.gz must hold at most 1 MB, a quarter of this machine's memory; got" in said
    np.savez_compressed("a.npz", inputs=np.zeros((10, 10, 2000)), targets=np.zeros((10, 10)))
    assert "a.npz must hold at most 1 MB, a quarter of this machine's memory; got 1.6 MB" in refusal(
        lambda: Sequence("a.npz")
    )


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch):
    import zipfile

    from kreiss.tasks.sources import archives

    monkeypatch.setattr(archives, "MOST", 1000)
    with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("big", bytes(2000))
    assert "an archive must hold at most 1 kB; got 2 kB in a.zip" in refusal(
        lambda: unpack(Path("a.zip"), Path("out"), {"big"})
    )
    assert not Path("out").exists()


@pytest.mark.parametrize("rate", [0, 999, 2**30 + 1])
def test_a_sound_of_no_possible_rate_is_refused_before_it_is_resampled(rate):
    Path("a.wav").write_bytes(riff(speech(600), rate=rate))
    assert f"got a rate of {rate} Hz. Convert it" in refusal(lambda: read_sound(Path("a.wav")))


def test_a_sound_of_numbers_that_are_not_finite_is_refused():
    whole = riff(np.zeros(50), bits=32)
    floats = whole[:20] + b"\3\0" + whole[22:-200] + np.full(50, np.nan, "<f4").tobytes()
    Path("a.wav").write_bytes(floats)
    assert "got samples that are not finite. Convert it" in refusal(lambda: read_sound(Path("a.wav")))


def test_a_damaged_matrix_is_refused(refused):
    np.save("v.npy", np.eye(3))
    raw = Path("v.npy").read_bytes()
    for bad in (raw[:-1], raw[:50], raw.replace(b"(3, 3)", b"(9, 9)"), raw.replace(b"'shape'", b"'shap}'"), b""):
        Path("v.npy").write_bytes(bad)
        assert "`v.npy` must be a .npy file with a matrix; got" in refused("analyze", "v.npy")


# ---------------------------------------------------------------- models and checkpoints whose checksum is right

NETWORK = RecurrentNetwork(kreiss.NNRNN(10, 4), 9, symbols=10)
SIZE, LAYER, SET = ("model", "layer", "config", "hidden_size"), ("model", "layer"), ("model", "layer", "sets", "l0")
EDITS: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "format": (("format",), "1", "got format '1'"),
    "no model": (("model",), None, "a model that cannot be built"),
    "model of numbers": (("model",), 3, "a model that cannot be built"),
    "kind": (("model", "kind"), "window", "must be 'layer'; got 'window'"),
    "no layer": (LAYER, None, "`layer`"),
    "layer's config": ((*LAYER, "config"), [1], "`layer.config`"),
    "class": ((*LAYER, "name"), "Linear", "unknown model 'Linear'"),
    "dtype": ((*LAYER, "dtype"), "int64", "`layer.dtype`"),
    "size of another tensor": (
        SIZE,
        30_000,
        "sizes must be those of the tensors; got input_size=10 and hidden_size=30000",
    ),
    "huge size": (SIZE, 2**70, "sizes must be those of the tensors"),
    "size of text": (SIZE, "4", "sizes must be those of the tensors; got input_size=10 and hidden_size='4'"),
    "layers": ((*LAYER, "config", "num_layers"), 10**6, "`num_layers` must be at most 1000"),
    "device": ((*LAYER, "config", "device"), "meta", "unknown option of NNRNN 'device'"),
    "maker": ((*LAYER, "config", "make_set"), "print", "unknown option of NNRNN 'make_set'"),
    "radius": ((*LAYER, "config", "radius"), float("nan"), "radius"),
    "bias": ((*LAYER, "config", "bias"), [], "`NNRNN.bias` must be a valid boolean; got []"),
    "dropout": (("model", "config", "dropout"), 5.0, "`dropout` must be a probability"),
    "outputs": (("model", "config", "output_size"), 10**12, "the parameters must fit in memory"),
    "embedding": (("model", "config", "embedding"), -1, "`embedding` must be at least 0; got embedding=-1"),
    "function for a set": ((*SET, "name"), "constrain", "unknown set of matrices 'constrain'"),
    "set's config": ((*SET, "config"), {"n": 4, "blocks": 3.5}, "got"),
    "size of a set": ((*SET, "config"), {"n": 6}, "a set must be of size 4, as the state is; got n=6"),
    "set of no layer": (
        (*LAYER, "sets"),
        {"l9": {"name": "Free", "config": {"n": 4}}},
        "unknown layer and direction 'l9'",
    ),
    "fixed": (("model", "fixed"), 3, "`fixed`"),
}


def edited(content: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    *inner, last = path
    at = changed
    for key in inner:
        at = at[key]
    at[last] = value
    return changed


@pytest.mark.parametrize("case", EDITS)
def test_a_model_of_hostile_json_is_refused(refused, case):
    path, value, said = EDITS[case]
    storage.write_tensors(Path("m.safetensors"), NETWORK.state_dict(), edited(content_of(NETWORK), path, value))
    shown = refused("eval", "m.safetensors", "copy")
    assert shown.startswith("error: `m.safetensors` must hold what kreiss writes; got ")
    assert said in shown


PARTS = [
    ("model", "kind"), ("model", "config"), ("model", "fixed"), ("model", "config", "output_size"), SIZE,
    (*LAYER, "name"), (*LAYER, "dtype"), (*LAYER, "config"), (*SET, "name"), (*SET, "config"),
]  # fmt: skip


@pytest.mark.parametrize("path", PARTS, ids=".".join)
def test_a_model_that_lacks_a_part_is_refused(path):
    content = copy.deepcopy(content_of(NETWORK))
    at: Any = content
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    storage.write_tensors(Path("m.safetensors"), NETWORK.state_dict(), content)
    assert "`m.safetensors` must hold what kreiss writes; got a model that cannot be" in refusal(
        lambda: kreiss.load("m.safetensors")
    )


TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "none": (dict.fromkeys(NETWORK.state_dict()), "for a first weight of shape ()"),
    "missing": ({"readout.bias": None}, "missing keys ['readout.bias']"),
    "more": ({"more": torch.zeros(2)}, "unexpected keys ['more']"),
    "other shape": ({"readout.weight": torch.zeros(3, 3)}, "other shapes for ['readout.weight']"),
    "other shape of a base": ({"layer.sets.l0.orthogonal.map.base": torch.zeros(3, 3)}, "other shapes for"),
    "whole numbers": ({"readout.weight": torch.zeros(9, 4, dtype=torch.int32)}, "numbers of another type in"),
    "complex numbers": ({"layer.bias_l0": torch.zeros(4, dtype=torch.complex64)}, "numbers of another type in"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_model_of_hostile_tensors_is_refused(refused, case):
    changes, said = TENSORS[case]
    tensors = {name: value for name, value in {**NETWORK.state_dict(), **changes}.items() if value is not None}
    storage.write_tensors(Path("m.safetensors"), tensors, content_of(NETWORK))
    assert said in refused("eval", "m.safetensors", "copy")


GOOD = {storage.FIELD: json.dumps(content_of(NETWORK)), storage.COMPLEX: "[]"}
METADATA = {
    "no pairs": {storage.FIELD: GOOD[storage.FIELD]},
    "pairs of text": {**GOOD, storage.COMPLEX: "x"},
    "pairs of nothing": {**GOOD, storage.COMPLEX: '["zz"]'},
    "pairs of four": {**GOOD, storage.COMPLEX: '["readout.weight"]'},
    "pairs of a number": {**GOOD, storage.COMPLEX: "3"},
    "no JSON": {**GOOD, storage.FIELD: "{"},
    "a list": {**GOOD, storage.FIELD: "[1]"},
    "deep": {**GOOD, storage.FIELD: "[" * 100_000},
    "digits": {**GOOD, storage.FIELD: '{"format": ' + "9" * 5000 + "}"},
}


@pytest.mark.parametrize("case", METADATA)
def test_a_model_of_hostile_metadata_is_refused(monkeypatch, refused, case):
    from safetensors.torch import save

    monkeypatch.setattr(
        storage.safetensors.torch,
        "save",
        lambda tensors, found: save(tensors, {**METADATA[case], "checksum": found["checksum"]}),
    )
    storage.write_tensors(Path("m.safetensors"), NETWORK.state_dict(), {})
    assert "`m.safetensors` must hold what kreiss writes; got " in refused("eval", "m.safetensors", "copy")


def test_a_network_refuses_a_foreign_state_dict_and_stays_as_it_was():
    network, before = copy.deepcopy(NETWORK), copy.deepcopy(NETWORK.state_dict())
    other = RecurrentNetwork(kreiss.NNRNN(10, 4), 7, symbols=10)
    assert "the state_dict must fit RecurrentNetwork(" in refusal(lambda: network.load_state_dict(other.state_dict()))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


FORMS: dict[str, tuple[tuple[str, ...], Any]] = {
    "updates": (("updates",), "x"),
    "best": (("best",), []),
    "stale": (("stale",), -1),
    "window": (("window",), []),
    "seconds": (("seconds",), None),
    "schedule": (("schedule",), {}),
    "moments": (("optimiser",), {"a": 1}),
    "generators": (("random",), {}),
    "Python's generator": (("random", "python"), []),
    "NumPy's generator": (("random", "numpy"), ["MT19937", [1, 2], 1, 0, 0.0]),
    "state": (("state",), {}),
    "state of no tensor": (("state",), "nowhere"),
    "scaler": (("scaler",), 3),
    "skipped": (("skipped",), None),
}


@pytest.fixture(scope="module")
def run_files(tmp_path_factory):
    """The files of a small run."""
    folder = tmp_path_factory.mktemp("run") / "RUN"
    task = Copy(2, valid_sequences=3, test_sequences=3)
    kreiss.fit("nnrnn", task, out=folder, hidden=4, batch=2, steps=2, show="quiet")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("case", FORMS)
def test_a_checkpoint_of_hostile_json_is_refused_and_the_run_stays_as_it_was(refused, run_files, case):
    Path("RUN").mkdir()
    for name, content in run_files.items():
        Path("RUN", name).write_bytes(content)
    Path("RUN/previous.safetensors").unlink(missing_ok=True)
    tensors, content = storage.read_tensors(Path("RUN/last.safetensors"))
    storage.write_tensors(Path("RUN/last.safetensors"), tensors, edited(content, *FORMS[case]))
    shown = refused("resume", "RUN", "--steps", 4, "--quiet")
    assert "`RUN/last.safetensors` must hold what kreiss writes; got a c" in shown


def test_moments_that_are_not_those_of_the_parameters_are_refused():
    from kreiss.training.checkpoint import optimiser_state, restore_optimiser

    linear = nn.Linear(3, 2)
    optimiser = torch.optim.RMSprop(linear.parameters())
    linear(torch.zeros(1, 3)).sum().backward()
    optimiser.step()
    tensors, numbers = optimiser_state(optimiser)
    restore_optimiser(optimiser, tensors, numbers)
    lacking = {name: tensor for name, tensor in tensors.items() if name != "optimiser.1.square_avg"}
    for hostile in (
        lacking,
        {**tensors, "optimiser.0.square_avg": torch.zeros(9)},
        {**tensors, "optimiser.7.step": tensors["optimiser.0.step"]},
    ):
        said = refusal(lambda hostile=hostile: restore_optimiser(optimiser, hostile, numbers))
        assert "the moments of the optimiser must be those of the model's parameters; got others" in said


# ---------------------------------------------------------------- names in reports


def test_names_are_shown_as_they_are_in_markdown():
    name = "a|b `c` *d* _e_ f_g <script> [x](y)\n| new"
    row = Row(name, name, {"model": "rnn", "task": "copy"})
    made = Experiment("runs", "", "runs of your own", "Runs", "loss", (row,), {"own": Scale("as each was told")})
    line = Line(row, None, [{"key": "k", "state": "finished", "test": {"loss": 1.0}}], [1.0], False)
    comparison = Comparison(made, "own", [line])
    shown = next(one for one in tables.table(comparison).splitlines() if "script" in one)
    assert shown.startswith(r"| a\|b \`c\` \*d\* \_e\_ f_g \<script\> \[x\](y) \| new | 1 |")
    assert shown.replace(r"\|", "").count("|") == len(tables.main(comparison)[0]) + 1
