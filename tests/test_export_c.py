"""Networks as C: one file that compiles without a warning and computes what the network does, step by step."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kreiss
from catalogue import VARIANTS, mostly_slow, moved
from kreiss import InputError
from kreiss.commands.export import export as export_command
from kreiss.errors import RunError
from kreiss.memory.screening import RULES
from kreiss.networks import LAYERS, RecurrentNetwork
from kreiss.networks.export import ccode, compiled
from kreiss.networks.export.tracing import plain

ROOT = Path(__file__).parents[1]
IN, HIDDEN = 3, 5
NONLINEARITIES = ("tanh", "modrelu", "relu", "identity")
REFUSED = {
    "complex": ("scurnn", "urnn", "eurnn", "fullurnn", "complexnnrnn"),
    "memory grows": ("memrnn", "memlstm", "sab"),
}
IN_C = [name for name in LAYERS if name not in sum(REFUSED.values(), ())]


def source_of(model: nn.Module, symbols: bool = False) -> ccode.Source:
    return ccode.source(plain(model.eval()), "model", symbols, {})


@torch.no_grad()
def assert_c_equals(model: nn.Module, x: torch.Tensor, symbols: bool = False) -> None:
    """Outputs of each step for one sequence x (T, …) are those of the model, to a millionth of the largest."""
    built = compiled.Compiled(source_of(model, symbols))
    whole = model(x.unsqueeze(1))[0][:, 0]
    for _ in range(2):
        steps = torch.stack([built.step(x_t) for x_t in x])
        torch.testing.assert_close(steps, whole, rtol=0, atol=1e-6 * max(1.0, float(whole.abs().max())))
        built.reset()


# ---------------------------------------------------------------- every cell


# stacked, so that every cell also has another below it
@pytest.mark.parametrize("name", mostly_slow(IN_C, "nnrnn", "goru", "henaff", "lstm", "gru", "hdetach", "rellstm"))
def test_a_compiled_layer_computes_every_step(name):
    assert_c_equals(moved(VARIANTS[name](IN, HIDDEN, 2)), torch.randn(12, IN))


@pytest.mark.parametrize("name", ["rnn", "henaff", "goru", "relrnn"])
@pytest.mark.parametrize("bias", mostly_slow([True, False], False))
@pytest.mark.parametrize("nonlinearity", mostly_slow(NONLINEARITIES, "modrelu", "relu"))
def test_a_compiled_layer_computes_every_step_for_each_nonlinearity(name, nonlinearity, bias):
    assert_c_equals(moved(VARIANTS[name](IN, HIDDEN, nonlinearity=nonlinearity, bias=bias)), torch.randn(12, IN))


@pytest.mark.parametrize("rule", RULES)
def test_a_compiled_layer_screens_states_by_every_rule(rule):
    assert_c_equals(
        moved(kreiss.RelRNN(IN, HIDDEN, short=3, relevant=2, mixing=0.7, screening=rule)), torch.randn(40, IN)
    )


def test_a_state_with_an_equal_score_does_not_enter_the_memory_of_a_compiled_layer():
    layer = moved(kreiss.RelRNN(IN, HIDDEN, short=2, relevant=2, screening="learned"))
    layer.screening_l0.data.zero_()
    assert_c_equals(layer, torch.randn(20, IN))


@pytest.mark.parametrize(
    ("embedding", "layer"), [(0, kreiss.NNRNN), (0, kreiss.GRU), (4, kreiss.RelLSTM)], ids=["nnrnn", "gru", "embedded"]
)
def test_a_compiled_network_reads_symbols(embedding, layer):
    network = RecurrentNetwork(layer(embedding or 7, HIDDEN), 2, symbols=7, embedding=embedding)
    assert_c_equals(moved(network), torch.randint(7, (12,)))


def test_a_bare_layer_reads_symbols_if_asked_to():
    assert_c_equals(moved(kreiss.GatedNNRNN(7, HIDDEN)), torch.randint(7, (12,)), symbols=True)


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("make", [partial(kreiss.RelLSTM, screening="random"), kreiss.GORU], ids=["rellstm", "goru"])
def test_a_file_needs_nothing_but_two_functions_and_stays_silent_under_all_warnings(make, tmp_path):
    path = kreiss.export(make(IN, HIDDEN), tmp_path / "a-filter.c", to="c").path
    flags = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-O1")
    subprocess.run([compiled.compiler(), *flags, "-c", path, "-o", tmp_path / "filter.o"], check=True)
    wanted = subprocess.run(["nm", "-u", tmp_path / "filter.o"], check=True, capture_output=True, text=True).stdout
    allowed = {"expf", "tanhf", "memset", "memcpy", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}  # by the compiler
    assert set(wanted.split()) - {"U"} <= allowed
    assert "malloc" not in path.read_text()


def test_the_program_of_the_documentation_streams(tmp_path):
    network = RecurrentNetwork(kreiss.ExpRNN(3, HIDDEN), 2)
    kreiss.export(network, tmp_path / "filter.c", to="c", metadata={"unit": "m@s */ %d ??/"})
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    (tmp_path / "main.c").write_text(program)
    words = ["-std=c99", "-Wall", "-Werror", "main.c", "filter.c", "-lm", "-o", "run"]
    subprocess.run([compiled.compiler(), *words], check=True, cwd=tmp_path)
    x = torch.randn(9, 1, 3)
    given = "\n".join(" ".join(f"{value:.9g}" for value in row) for row in x[:, 0].tolist())
    said = subprocess.run([tmp_path / "run"], check=True, capture_output=True, text=True, input=given).stdout
    found = torch.tensor([[float(word) for word in line.split()] for line in said.splitlines()])
    torch.testing.assert_close(found, network(x)[0][:, 0].detach(), rtol=1e-5, atol=1e-6)
    assert "unit: m@s * / %d ? ?/" in (tmp_path / "filter.c").read_text()


def test_the_export_says_how_large_the_file_is_and_that_it_is_right(tmp_path):
    network = RecurrentNetwork(kreiss.LSTM(IN, HIDDEN, batch_first=False), 2, answers="last").double()
    done = kreiss.export(network, tmp_path / "9.c", to="c", verify=True)
    weights = 4 * HIDDEN * (IN + HIDDEN + 1) + 2 * HIDDEN + 2
    assert done.c.array_bytes == 4 * weights
    assert done.c.state_bytes == 4 * 2 * HIDDEN
    assert done.c.step_seconds > 0
    assert done.largest_difference < 1e-6
    assert re.search(r"arrays 768 bytes, state 40 bytes, \S+ µs a step \(\w+ -O2\)", str(done))
    assert "void model_9_step(model_9_state *state, const float *input, float *output);" in done.path.read_text()


# ---------------------------------------------------------------- what is refused


class Own(kreiss.memory.Screening):
    """A rule that C does not have."""

    def score(self, candidate: Any) -> torch.Tensor:
        return candidate.reads


class OwnStep(kreiss.RNN):
    """A layer with another step."""

    def _run_cell(self, *args: Any) -> Any:
        return super()._run_cell(*args)


def refused() -> dict[str, tuple[nn.Module, str]]:
    return {
        **{name: (VARIANTS[name](IN, HIDDEN), why) for why, names in REFUSED.items() for name in names},
        "directions": (kreiss.RNN(IN, HIDDEN, bidirectional=True), "backward direction needs the whole sequence"),
        "rule": (kreiss.RelRNN(IN, HIDDEN, screening=Own()), "screening rule is none of those"),
        "step": (OwnStep(IN, HIDDEN), "whose step is none of those"),
        "module": (nn.Linear(IN, HIDDEN), "which is no recurrent layer"),
        "projection": (nn.LSTM(IN, HIDDEN, proj_size=2), "which has a projection"),
        "images": (RecurrentNetwork(kreiss.RNN(128, HIDDEN), 2, image=(1, 8, 8)), "which encodes images"),
    }


@pytest.mark.parametrize("name", refused())
def test_what_has_no_step_in_c_is_refused_with_a_sentence(name, tmp_path):
    model, why = refused()[name]
    with pytest.raises(InputError, match=f"to be written in C; got .*{why}.* Export it to ONNX"):
        kreiss.export(model, tmp_path / "model.c", to="c")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_refused(tmp_path):
    layer = kreiss.RNN(IN, HIDDEN)
    layer.weight_ih_l0.data[0, 0] = torch.nan
    with pytest.raises(InputError, match="weights must be finite to be written in C; got NaN or Inf in model_l0_u"):
        kreiss.export(layer, tmp_path / "model.c", to="c")


def test_a_state_cannot_be_left_out_of_c(tmp_path):
    with pytest.raises(InputError, match="a step must take and return a state; got to='c' with state=False"):
        kreiss.export(kreiss.RNN(IN, HIDDEN), tmp_path / "model.c", to="c", state=False)


def test_without_a_compiler_the_file_is_written_and_only_a_check_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    kreiss.save(kreiss.RNN(IN, HIDDEN), tmp_path / "layer.safetensors")
    assert export_command(str(tmp_path / "layer.safetensors"), c=True) == 0
    assert (tmp_path / "layer.c").exists()
    assert "no C compiler here to measure a step" in capsys.readouterr().out
    with pytest.raises(InputError, match="a C compiler must be installed to check a C file; got none"):
        kreiss.export(kreiss.RNN(IN, HIDDEN), tmp_path / "model.c", to="c", verify=True)


def test_a_file_that_does_not_compile_or_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(ccode.HELPERS, "start", ccode.HELPERS["start"].replace(": 0.0f", ": 1.0f"))
    with pytest.raises(InputError, match="must compute what the model does; got a difference of"):
        kreiss.export(kreiss.RNN(IN, HIDDEN, bias=False), tmp_path / "model.c", to="c", verify=True)
    monkeypatch.setitem(ccode.HELPERS, "start", "nonsense")
    with pytest.raises(RunError, match=r"the C file must compile; got from .*error.*Install gcc or clang"):
        kreiss.export(kreiss.RNN(IN, HIDDEN), tmp_path / "model.c", to="c", verify=True)
    assert list(tmp_path.iterdir()) == []
