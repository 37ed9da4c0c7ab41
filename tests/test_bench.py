"""The benchmark measures what it says: the same work by each, memory to the byte, pages made from what was recorded."""

from __future__ import annotations

import importlib.util
import json
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest
import torch
from rich.console import Console

import kreiss
import scripts
from kreiss import cli
from kreiss.bench import roofline
from kreiss.bench import run as bench
from kreiss.bench.allocation import peak_bytes
from kreiss.bench.contenders import GEOTORCH, LAYER, MEMORY, WORKS, GeotorchLoop, Work, contenders
from kreiss.recurrence import run_plain

ROOT = Path(__file__).parents[1]
TINY = (
    Work("tiny", 2, 12, 4, 2, rounds=9),
    Work("letters", 2, 6, 4, 5, symbols=True, rounds=2),
    Work("stored", 2, 12, 4, 2, rounds=9, memory=True),
)


@pytest.fixture
def screen(monkeypatch) -> StringIO:
    """A screen to write to, works that take no time, and no wait for the roof."""
    monkeypatch.setattr(bench, "WORKS", TINY)
    monkeypatch.setattr(bench, "gflops", lambda: 1.0)
    return StringIO()


def run(screen: StringIO, **options: Any) -> dict[str, Any]:
    return bench.run(console=Console(file=screen, width=140), **{"quick": False, **options})


# ---------------------------------------------------------------- kreiss bench


def test_every_contender_is_timed_and_weighed_on_the_same_work(screen):
    found = run(screen)
    assert set(found["works"]) == {"tiny", "letters", "stored"}
    for work in TINY:
        entry = found["works"][work.name]
        assert list(entry["contenders"]) == list(contenders(work))
        for measured in entry["contenders"].values():
            assert len(measured["all"]) == work.rounds
            assert 0 < min(measured["all"]) <= measured["low"] <= measured["ms"] <= measured["high"]
            assert measured["high"] <= max(measured["all"])
            assert measured["peak_bytes"] > 0
    assert set(run(screen, names=["letters"])["works"]) == {"letters"}


def test_the_last_table_names_every_comparison_and_their_ratios_are_those_of_the_rounds(screen):
    found = run(screen)
    last = screen.getvalue().split("time of kreiss by theirs")[1]
    assert [name for name, _, _ in bench.SUMMARY] == [
        "layer / nn.LSTM", "layer / loop of products", "update / nn.LSTM update",
        "ExpRNN update / nn.LSTM update",
        "GORU / nn.LSTM", "GORU / nn.GRU", "GatedNNRNN / nn.LSTM", "GatedNNRNN / nn.GRU", "RelRNN / nn.LSTM",
        "RelLSTM / nn.LSTM", "MemRNN / nn.LSTM", "MemLSTM / nn.LSTM", "RelRNN / its plain loop",
    ]  # fmt: skip
    for name, ours, theirs in bench.SUMMARY:
        assert name in last
        entry = found["works"]["stored" if ours in MEMORY else "tiny"]
        times = [entry["contenders"][which]["all"] for which in (ours, theirs)]
        ratios = sorted(one / other for one, other in zip(*times, strict=True))
        assert entry["ratios"][name]["ratio"] == ratios[4]  # the middle one of nine


def test_a_quick_run_is_shorter_and_says_how_long(screen, monkeypatch):
    monkeypatch.setattr(bench, "LARGE", 4)
    found = run(screen, quick=True)
    assert found["quick"]
    shape = found["works"]["tiny"]["shape"]
    assert (shape["steps"], shape["rounds"]) == (2, 2)
    assert "tiny: batch 2, 2 steps" in screen.getvalue()
    weighed = [name for name, entry in found["works"]["tiny"]["contenders"].items() if entry["peak_bytes"] is not None]
    assert weighed == [LAYER, "nn.LSTM"]


def test_the_json_says_everything_the_numbers_depend_on(screen, tmp_path):
    path = tmp_path / "bench.json"
    found = run(screen, quick=True)
    path.write_text(json.dumps(found))
    again = json.loads(path.read_text())
    assert again == found
    assert torch.__version__.startswith(again["machine"]["versions"]["torch"].split("+")[0])
    assert {"python", "kreiss", "torch", "geotorch"} <= set(again["machine"]["versions"])
    assert {"processor", "cores", "threads", "system", "kernel"} <= set(again["machine"])
    assert again["works"]["letters"]["shape"] == {
        "name": "letters", "batch": 2, "steps": 6, "hidden": 4, "inputs": 5, "symbols": True, "rounds": 2, "repeats": 1,
        "memory": False,
    }  # fmt: skip


def test_the_command_writes_its_numbers_and_its_picture(screen, tmp_path, capsys):
    assert cli.bench(quick=True, json=tmp_path / "bench.json", plot=tmp_path / "roof.png") == 0
    assert json.loads((tmp_path / "bench.json").read_text())["works"]
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
    assert "layer / nn.LSTM" in capsys.readouterr().out


def test_without_geotorch_the_table_says_so(screen, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "geotorch" else find(name))
    found = run(screen)
    assert GEOTORCH not in found["works"]["tiny"]["contenders"]
    row = next(line for line in screen.getvalue().splitlines() if GEOTORCH in line)
    assert "not installed" in row


def test_the_loop_of_geotorch_is_the_orthogonal_recurrence():
    loop, x = GeotorchLoop(3, 6).double(), torch.randn(5, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        loop.bias.normal_()
    matrix = loop.recurrent.weight
    assert kreiss.Orthogonal(6).contains(matrix, 1e-5)
    expected = run_plain(
        x, loop.drive.weight, matrix, x.new_zeros(2, 6), bias=loop.bias, nonlinearity="modrelu"
    )  # fmt: skip
    for one, other in zip(loop(x), expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


# ---------------------------------------------------------------- memory


def test_peak_memory_is_counted_to_the_byte():
    def work() -> None:
        a = torch.empty(1000)
        b = torch.empty(500)
        del a
        c = torch.empty(600)
        del b, c

    assert peak_bytes(work) == 4 * 1500
    assert peak_bytes(lambda: None) == 0


@pytest.mark.parametrize("nonlinearity", ["modrelu", "tanh"])
def test_a_training_pass_keeps_little_more_than_the_states(nonlinearity):
    steps, batch, n = 784, 100, 16  # of psMNIST; the share of N × N matrices in it is no larger there
    layer = kreiss.NNRNN(1, n, nonlinearity=nonlinearity).freeze().requires_grad_(True)
    x, grad = torch.randn(steps, batch, 1), torch.randn(steps, batch, n)
    work = lambda: layer(x)[0].backward(grad)  # noqa: E731
    work()
    peak = peak_bytes(work)
    assert 4 * steps * batch * n <= peak <= 1.4 * 4 * steps * batch * n


# ---------------------------------------------------------------- the picture


def test_rates_count_every_gate():
    work = Work("tiny", 2, 3, 4, 2)
    products = 6 * 2 * 3 * 16  # forward, backward and the gradient of V, two operations each
    assert roofline.reached(work, LAYER, 1.0) == pytest.approx(1e-6 * products)
    assert roofline.reached(work, "nn.LSTM", 1.0) == pytest.approx(4e-6 * products)
    assert roofline.reached(work, "nn.GRU", 2.0) == pytest.approx(1.5e-6 * products)
    assert roofline.reached(work, "NNRNN update", 1.0) is None


def test_every_contender_with_a_rate_looks_like_no_other():
    assert set(roofline.GATES) <= set(contenders(TINY[0]))
    assert len({colour for colour, _ in roofline.LOOKS.values()}) == len(roofline.LOOKS)
    assert len({marker for _, marker in roofline.LOOKS.values()}) == len(roofline.LOOKS)


def test_the_picture_shows_every_contender_and_the_roof(screen, tmp_path):
    run(screen, plot=tmp_path / "roof.svg")
    drawn = (tmp_path / "roof.svg").read_text()
    for name in (*roofline.GATES, "a product of 2048²", "tiny", "letters"):
        assert f"<!-- {name}" in drawn, name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("roof.pgn", "`plot` must end in the name of a picture format"),
        ("no/roof.png", "the folder of `plot` must exist"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(name, said, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "gflops", lambda: pytest.fail("it measured"))
    with pytest.raises(kreiss.InputError, match=said):
        bench.run(quick=True, plot=tmp_path / name)


def test_without_matplotlib_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(kreiss.MissingExtra, match=r"pip install 'kreiss\[plots\]'"):
        bench.run(quick=True, plot=tmp_path / "roof.png")


# ---------------------------------------------------------------- benchmarks/long_sequences.py


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("long_sequences")


def test_the_page_of_measurements_is_what_the_script_makes_of_the_results(script):
    results, bench = script.read(script.RESULTS), script.read(script.BENCH)
    assert script.table(results, bench, script.runs_in(script.KEPT)) == script.TABLE.read_text()


def test_what_was_not_run_is_shown_as_not_run(script, tmp_path):
    parts = script.table(script.read(tmp_path / "none.json"), {}).split("### ")[1:]
    assert len(parts) == 5
    assert all(part.strip().endswith("not run") for part in parts)


def test_numbers_of_every_part_reach_the_page(script, screen):
    found = {
        "time": script.measure_time((2, 4), rounds=2, widths=(4,)),
        "memory": {"peak_by_states": {"100": 1.5}, "psMNIST": {"kreiss": {"counted": 1.25, "resident": 1.75}}},
        "recompute": script.measure_recompute(rounds=2, lengths=(4, 9)),
        "compile": {"seconds": {"20": 3.0, "2000": 3.5}, "ratio": 1.17},
    }
    results = {part: {**entry, "machine": bench.machine()} for part, entry in found.items()}
    page = script.table(*json.loads(json.dumps([results, run(screen)])))
    assert "not run" not in page
    for shown in ("1.50×", "1.25× | 1.75×", "1.17", "tiny (2, 12, 4, 2)", "| layer / nn.LSTM |"):
        assert shown in page
    assert set(found["time"]["widths"]["4"]["ms_per_step"]) == {"2", "4"}
    assert found["time"]["widths"]["4"]["ratio"] >= 1
    assert set(found["recompute"]["lengths"]) == {"4", "9"}


def test_runs_on_one_processor_stand_in_one_cell(script, screen):
    measured = run(screen)
    first, second, other = (script.shortened(measured, label) for label in ("A", "A", "B"))
    second["ratios"]["tiny"]["layer / nn.LSTM"] = 0.125
    page = script.table({}, measured, [first, second, other])
    ratio = f"{measured['works']['tiny']['ratios']['layer / nn.LSTM']['ratio']:.3f}"
    assert "| time of ours by theirs | A | B |" in page
    assert f"| tiny: layer / nn.LSTM | {ratio}, 0.125 | {ratio} |" in page


def test_every_work_can_be_asked_for():
    (choices,) = get_args(get_args(get_type_hints(cli.bench, include_extras=False)["work"])[0])
    assert get_args(choices) == tuple(work.name for work in WORKS)


def test_the_works_are_those_of_the_papers():
    assert [(work.name, work.batch, work.steps, work.hidden, work.inputs, work.symbols) for work in WORKS] == [
        ("copy", 10, 220, 128, 10, False),
        ("psMNIST", 100, 784, 512, 1, False),
        ("PTB", 128, 150, 1024, 50, True),
        ("streaming", 1, 1000, 64, 1, False),
        ("memory", 10, 220, 128, 10, False),
    ]
