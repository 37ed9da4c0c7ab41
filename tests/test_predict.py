"""A network answers raw data as it was trained to: what prepares them travels with it, and streams equal the whole."""

from __future__ import annotations

import io
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import kreiss
from kreiss import InputError
from kreiss.preprocessing import Preprocessing
from kreiss.preprocessing.sound import Sound
from kreiss.storage.files import read_tensors, write_tensors
from kreiss.tasks import Characters, Copy, Pixels, Sequence
from small_tasks import SMALL

ROOT = Path(__file__).parents[1]


def trained(task, model="rnn", **settings):
    return kreiss.fit(model, task, hidden=5, steps=3, batch=2, show="quiet", **settings).model


def frame(rows: int = 120) -> pd.DataFrame:
    """Interleaved sequences with a time, two inputs of different size, a number and a class."""
    source = np.random.RandomState(0)
    return pd.DataFrame(
        {
            "time": np.arange(rows), "who": ["a", "b", "c", "d"] * (rows // 4), "x": 50 + 9 * source.randn(rows),
            "z": 1e-3 * source.randn(rows), "y": source.randn(rows), "label": ["up", "down", "up"] * (rows // 3),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def regression() -> kreiss.Network:
    return trained(Sequence(frame(), group="who", targets="y", ignore="time,label"))


# ---------------------------------------------------------------- what travels


@pytest.mark.parametrize(
    "name", ["sequence-steps", "sequence-end", "sequence-table", "audio", "frames", "pixels-permuted"]
)
def test_predictions_from_raw_data_are_those_on_the_data_of_the_task(name, files, tmp_path):
    task = SMALL[name](files)
    kreiss.save(trained(task), tmp_path / "m.safetensors")
    network = kreiss.load(tmp_path / "m.safetensors")
    raw = {
        "audio": lambda: task.sounds, "frames": lambda: task.files, "pixels-permuted": lambda: Pixels().pixels,
    }.get(name, lambda: list(task.sequences.inputs))()  # fmt: skip
    members = task.splits["test"][:5]
    found = network.predict([raw[member] for member in members])
    batch = task.assemble(members)
    with torch.no_grad():
        wanted = network(batch.inputs, None, batch.lengths)[0]
    for place, answer in enumerate(found):
        numbers = answer.numbers if answer.classes is None else np.log(answer.numbers)
        length = len(numbers) if batch.lengths is None else int(batch.lengths[place])
        out = wanted[place] if task.answers == "last" else wanted[:length, place]
        numbers = numbers if task.answers == "last" else numbers[:length]  # the last frame is a target alone
        out = out if answer.classes is None else out.log_softmax(-1)
        np.testing.assert_allclose(numbers, out.numpy(), atol=2e-5)
        if answer.classes is not None:
            assert np.atleast_1d(answer.classes).tolist() == [
                network.preprocessing.classes[i] for i in out.reshape(-1, out.shape[-1]).argmax(-1)
            ]


def test_a_run_a_file_and_a_frozen_copy_know_how_data_are_prepared(tmp_path):
    task = Sequence(frame(), group="who", targets="label", ignore=["time", "y"], missing="mean")
    kreiss.fit("rnn", task, hidden=4, steps=2, out=tmp_path / "run", show="quiet")
    network = kreiss.load(tmp_path / "run")
    kept = network.preprocessing
    assert (kept.columns, kept.group, kept.classes, kept.fill) == (("x", "z"), "who", ("down", "up"), kept.mean)
    np.testing.assert_allclose((kept.mean, kept.scale), (task.mean, task.scale), rtol=0)
    assert network.freeze().preprocessing == kept
    for file in ("best.safetensors", "last.safetensors"):
        assert read_tensors(tmp_path / "run" / file)[1]["preprocessing"] == kept.plain()
        assert kreiss.load(tmp_path / "run" / file).preprocessing == kept
    assert {name: json.loads(text) for name, text in kept.strings().items()} == kept.plain()
    assert all(type(text) is str for text in kept.strings().values())


@pytest.mark.parametrize(
    "kept",
    [
        Preprocessing(),
        Preprocessing(classes=(True, False)),
        Preprocessing(classes=(1, 2.5, "3"), mean=(1.0,), scale=(2.0,), order=(1, 0)),
        Preprocessing(alphabet="a\xff\n", sound=Sound(8000, 64, 32, "mel", 4)),
    ],
)
def test_preprocessing_survives_json_with_its_types(kept):
    back = Preprocessing.read(json.loads(json.dumps(kept.plain())))
    assert back == kept
    assert [*map(type, back.classes)] == [*map(type, kept.classes)]


HOSTILE = {
    "no object": ([1], "`preprocessing`"),
    "unknown": ({"evil": 1}, "preprocessing.evil"),
    "text for numbers": ({"mean": ["a"], "scale": [1]}, "preprocessing.mean.0"),
    "zero": ({"mean": [1.0], "scale": [0.0]}, "no scale zero"),
    "uneven": ({"columns": ["a", "b"], "mean": [1.0], "scale": [1.0]}, "one for each column"),
    "alone": ({"mean": [1.0]}, "one for each column"),
    "order": ({"order": [0, 0]}, "`order` must be a permutation"),
    "alphabet": ({"alphabet": "aa"}, "`alphabet` must be different bytes"),
    "sound": ({"sound": {"rate": 1, "window": 2, "hop": 1}}, "`rate` must be from 1000"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_preprocessing_that_cannot_be_is_refused_on_loading(case, regression, tmp_path):
    wrong, said = HOSTILE[case]
    kreiss.save(regression, tmp_path / "m.safetensors")
    tensors, content = read_tensors(tmp_path / "m.safetensors")
    write_tensors(tmp_path / "m.safetensors", tensors, {**content, "preprocessing": wrong})
    with pytest.raises(InputError, match="a model that cannot be built") as caught:
        kreiss.load(tmp_path / "m.safetensors")
    assert said in str(caught.value)


def test_a_file_without_preprocessing_loads_and_says_what_it_lacks(regression, tmp_path):
    kreiss.save(regression, tmp_path / "m.safetensors")
    tensors, content = read_tensors(tmp_path / "m.safetensors")
    del content["preprocessing"]
    write_tensors(tmp_path / "m.safetensors", tensors, content)
    network = kreiss.load(tmp_path / "m.safetensors")
    assert network.preprocessing is None
    assert trained(Copy(3)).preprocessing is None
    with pytest.raises(InputError, match=r"must have been saved with its preprocessing to predict; got RecurrentNet"):
        network.predict([[1.0, 2.0]])


# ---------------------------------------------------------------- forms of raw data


def test_tables_arrays_and_files_of_the_same_rows_are_answered_alike(regression, tmp_path):
    table = frame(12)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", table[["x", "z"]].to_numpy())
    one = table.drop(columns="who")
    wanted = regression.predict(table[["x", "z"]].to_numpy()).numbers
    assert wanted.shape == (12, 1)
    forms = [one, one[["y", "z", "x"]], one.to_dict("list"), one.to_dict("records"), tmp_path / "t.npy",
             torch.tensor(table[["x", "z"]].to_numpy()), table[["x", "z"]].to_numpy().tolist()]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(regression.predict(form).numbers, wanted)
    groups = [regression.predict(table[table.who == name][["x", "z"]]).numbers for name in "abcd"]
    for form in (
        table,
        tmp_path / "t.csv",
        str(tmp_path / "t.parquet"),
        np.stack([table[table.who == n][["x", "z"]] for n in "abcd"]),
    ):
        found = regression.predict(form)
        assert len(found) == 4
        np.testing.assert_allclose([part.numbers for part in found], groups, atol=1e-6)
    assert next(regression.predict(one).rows()).keys() == {"y"}
    assert regression.predict(one.iloc[0][["x", "z"]].to_numpy(float)).numbers.shape == (1, 1)  # a single row


def test_a_missing_input_is_filled_as_in_training_or_named():
    task = Sequence(frame(), group="who", targets="y", ignore="time,label", missing="mean")
    network, kept = trained(task), task.preprocessing()
    found, wanted = network.predict({"x": [1.0, None], "z": [0.0, 0.0]}), [[1.0, 0.0], [kept.fill[0], 0.0]]
    np.testing.assert_array_equal(found.numbers, network.predict(wanted).numbers)
    np.testing.assert_array_equal(found.numbers, network.predict([[1.0, 0.0], [np.nan, 0.0]]).numbers)


REFUSED = {
    "another size": (lambda: np.zeros((4, 3)), r"a step must have 2 inputs \(x, z\); got shape \(4, 3\)"),
    "no columns": (lambda: {"x": [1.0]}, "must have the columns x, z; got x, without 'z'"),
    "text": (lambda: {"x": ["a"], "z": [1.0]}, "column 'x' of the table must be numbers; got <U1, such as 'a'"),
    "gap": (lambda: {"x": [1.0, None], "z": [1.0, 1.0]}, "'x' of the table must have a value in every row; got none"),
    "nan": (lambda: [[1.0, np.nan]], "inputs must be finite; got nan in step 0, column 'z'"),
    "inf": (lambda: {"x": [np.inf], "z": [1.0]}, "column 'x' of the table must be finite; got Inf in row 0"),
    "uneven": (lambda: {"x": [1.0], "z": [1.0, 2.0]}, "columns of the table must be of one length"),
    "rows": (lambda: [{"x": 1.0, "z": 1.0}, {"x": 1.0}], "must have the same names; got others in row 1"),
    "no numbers": (lambda: object(), "data must be numbers, a table or a list of such; got object"),
    "no rows": (lambda: np.zeros((0, 2)), r"a sequence must be \(T, D\); got shape \(0, 2\)"),
    "no file": (lambda: "nothing.csv", "a data file must exist; got nothing.csv"),
    "an archive": (lambda: "a.npz", "`a.npz` must be a table, .csv or .parquet; got an array"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_data_that_cannot_be_answered_are_refused_in_a_sentence(case, regression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", inputs=np.zeros((3, 2)))
    make, said = REFUSED[case]
    with pytest.raises(InputError, match=said) as caught:
        regression.predict(make())
    assert "\n" not in str(caught.value)


def test_sounds_and_texts_that_cannot_be_read_are_refused(files):
    spoken, written = trained(SMALL["audio"](files)), trained(Characters(chunk=20_000))
    for data, said in (
        (np.zeros(900), r"a sound must be the path of a file, or \(rate, samples\); got ndarray"),
        ((10, np.zeros(900)), "finite samples at 1000 to 768000 Hz; got 900 samples at 10 Hz"),
        ((8000, np.full(9, np.nan)), "a sound must be finite samples"),
        ("nothing.wav", "nothing.wav must be readable"),
    ):
        with pytest.raises(InputError, match=said):
            spoken.predict(data)
    with pytest.raises(InputError, match=r"must have the characters that the network was trained on, .*; got 'é'"):
        written.predict("thé")
    with pytest.raises(InputError, match=r"a text must be str or bytes; got int"):
        written.predict(3)
    pixels = trained(Pixels())
    with pytest.raises(InputError, match=r"a sequence must have 64 steps; got 8"):
        pixels.predict(np.zeros((8, 8)))


def test_an_output_too_many_for_its_names_is_refused(regression):
    with pytest.raises(InputError, match=r"there must be 1 outputs, as there are names; got 2"):
        regression.preprocessing.decode(torch.zeros(3, 2))


# ---------------------------------------------------------------- characters


def test_text_is_generated_from_a_seed_and_at_temperature_zero_it_is_the_likeliest():
    network = trained(Characters(chunk=20_000), "lstm", embedding=4)
    one, two, three = (
        "".join(network.generate("the ", 30, temperature=t, seed=s)) for t, s in ((0.8, 0), (0.8, 0), (0.8, 1))
    )
    assert one == two != three
    assert len(one) == 30
    text = "the "
    for letter in network.generate(text, 8, temperature=0.0):
        assert network.predict(text).classes[-1] == letter
        text += letter


def test_characters_of_several_bytes_are_generated_whole(tmp_path):
    (tmp_path / "t.txt").write_text("é" * 2000)
    task = Characters(tmp_path / "t.txt", chunk=100)
    network = trained(task)
    with torch.no_grad():  # the other byte always follows
        network.readout.weight.zero_()
        network.layer.weight_ih_l0.zero_()
        network.layer.weight_ih_l0[0] = torch.tensor([5.0, -5.0])
        network.readout.weight[:, 0] = torch.tensor([-9.0, 9.0])
    made = list(network.generate("é", 6, temperature=0.0))
    assert set(made) <= {"é", "\ufffd"}


def test_a_blank_is_an_underscore_where_the_alphabet_has_no_other():
    kept = Preprocessing(alphabet="_ab")
    assert kept.encode("a b").tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1.0}, "`temperature` must be at least 0; got temperature=-1.0"),
        ({"prompt": ""}, "`prompt` must have a character; got an empty one"),
        ({"length": 0}, "`length` must be at least 1"),
    ],
)
def test_what_cannot_be_generated_is_refused_before_anything_is(options, said, regression):
    network = trained(Characters(chunk=20_000))
    with pytest.raises(InputError, match=said):
        network.generate(**options)
    with pytest.raises(InputError, match="only a network of characters can generate"):
        regression.generate("a")


# ---------------------------------------------------------------- the command line


@pytest.fixture
def fed(does, monkeypatch):
    """The command line with a standard input."""

    def run(*words: object, stdin: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return does(*words)

    return run


@pytest.fixture
def place(regression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kreiss.save(regression, "m.safetensors")
    frame(12).to_csv("t.csv", index=False)
    return tmp_path


def test_a_file_and_its_lines_one_by_one_have_the_same_answers(place, does, fed):
    code, out, _ = does("predict", "m.safetensors", "t.csv")
    lines = out.splitlines()
    assert (code, lines[0], len(lines)) == (0, "who,y", 13)
    assert [line[0] for line in lines[1:]] == ["a", "b", "c", "d"] * 3  # in the order of the file
    code, streamed, _ = fed("predict", "m.safetensors", "-", stdin=Path("t.csv").read_text())
    whole, stream = (pd.read_csv(io.StringIO(text)) for text in (out, streamed))
    assert whole.who.tolist() == stream.who.tolist()
    np.testing.assert_allclose(whole.y, stream.y, atol=1e-6)


def test_lines_of_numbers_and_of_json_are_steps_and_an_empty_one_begins_again(place, fed):
    text = '50,0.001\n[51, 0.002]\n{"z": 0.003, "x": 52}\n\n50,0.001\n'
    code, out, _ = fed("predict", "m.safetensors", "-", "--json", stdin=text)
    rows = [json.loads(line)["y"] for line in out.splitlines()]
    wanted = kreiss.load("m.safetensors").predict([[50, 0.001], [51, 0.002], [52, 0.003]]).numbers[:, 0]
    assert code == 0
    np.testing.assert_allclose(rows, [*wanted, wanted[0]], atol=1e-6)


def test_each_line_is_answered_before_the_next_is_read(regression):
    from kreiss.commands.predict import _stream

    read = []

    def lines():
        for line in ("50,0.001\n", "51,0.002\n"):
            read.append(line)
            yield line

    for number, _ in enumerate(_stream(regression, lines()), 1):
        assert len(read) == number


@pytest.mark.slow
def test_a_process_answers_a_line_while_its_input_is_open(place):
    command = [sys.executable, "-m", "kreiss", "predict", "m.safetensors", "-", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        for line in ("50,0.001\n", "51,0.002\n"):
            process.stdin.write(line)
            assert json.loads(process.stdout.readline()).keys() == {"y"}  # would wait for ever otherwise
        process.stdin.close()
    assert process.returncode == 0


def test_several_sounds_are_named_and_classified(files, does, tmp_path):
    task = SMALL["audio"](files)
    kreiss.save(trained(task), tmp_path / "m.safetensors")
    code, out, _ = does("predict", tmp_path / "m.safetensors", *task.sounds[:2])
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "file,class,p(high),p(low)")
    assert [line.split(",")[0] for line in lines[1:]] == [str(file) for file in task.sounds[:2]]


def test_generate_prints_the_prompt_and_what_follows(does, fed, tmp_path):
    network = trained(Characters(chunk=20_000))
    kreiss.save(network, tmp_path / "m.safetensors")
    words = (
        "generate",
        tmp_path / "m.safetensors",
        "--prompt",
        "the ",
        "--length",
        20,
        "--temperature",
        0.8,
        "--seed",
        0,
    )
    code, out, _ = does(*words)
    assert (code, out) == (0, "the " + "".join(network.generate("the ", 20, temperature=0.8, seed=0)) + "\n")
    _, answer, _ = fed("predict", tmp_path / "m.safetensors", "-", "--json", stdin="to be\n")
    assert json.loads(answer)["class"] == network.predict("to be\n").classes[-1]


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        ((), "", "`kreiss predict` needs files, or - alone; got 'none'"),
        (("t.csv", "-"), "", "needs files, or - alone; got 't.csv -'"),
        (("-",), "1,2,3\n", "line 1 of standard input must have 2 cells, x, z; got 3"),
        (("-",), "[1,\n", "line 1 of standard input must be JSON, as it begins with [; got Expecting value"),
        (("-",), "1,2\n1,\n", "column 'z' of standard input must have a value in every row; got none in line 2"),
        (("-",), '{"x": 1}\n', "standard input must have the columns x, z; got x, without 'z'"),
        (("-",), "1,2\n1,a\n", "column 'z' of standard input must be numbers"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence_and_exit_code_2(words, stdin, said, place, fed):
    code, _, err = fed("predict", "m.safetensors", *words, stdin=stdin)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_stream_of_lines_needs_a_recurrent_network_of_steps(files):
    from kreiss.prediction import Lines

    with pytest.raises(InputError, match="lines must be steps of a recurrent network; got RecurrentNetwork of sounds"):
        Lines(trained(SMALL["audio"](files)))


# ---------------------------------------------------------------- the whole way


def test_the_journey_from_a_table_to_a_stream_in_onnx_ends_where_predict_does(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    journey = runpy.run_path(str(ROOT / "docs" / "journeys" / "csv_to_stream.py"))
    assert journey["main"](tmp_path) < 2e-6
