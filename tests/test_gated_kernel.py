"""The compiled kernel of the gated recurrence against the plain loop: values, gradients, every instruction set."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from catalogue import GATED
from kreiss import native as compiled
from kreiss.recurrence import REAL_NONLINEARITIES, reference_only, run_gated
from kreiss.recurrence.gated import fused, kernel

F64 = torch.float64


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def problem(
    steps: int, batch: int, n: int, inputs: int, dtype: torch.dtype = F64, seed: int = 0
) -> dict[str, Tensor | None]:
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=F64).to(dtype)  # noqa: E731
    return {
        "x": draw(steps, batch, inputs),
        "weight": draw(3 * n, inputs) / inputs**0.5,
        "matrix": draw(n, n) / n**0.5,
        "gates": draw(2 * n, n) / n**0.5,
        "h0": draw(batch, n),
        "bias": 0.3 * draw(n),
        "gate_bias": draw(2 * n),
    }


def results(tensors: dict[str, Tensor | None], run=run_gated, **options) -> list[Tensor]:
    """States, last state, and the gradients of a sum over both, weighted at random."""
    leaves = {name: t if t is None else t.detach().requires_grad_(t.is_floating_point()) for name, t in tensors.items()}
    states, last = run(**leaves, **options)
    g = torch.Generator().manual_seed(1)
    weights = [torch.randn(out.shape, generator=g, dtype=F64).to(out.dtype) for out in (states, last)]
    wanted = [t for t in leaves.values() if t is not None and t.requires_grad]
    return [states.detach(), last.detach(), *torch.autograd.grad((states, last), wanted, weights)]


def assert_close(found: list[Tensor], expected: list[Tensor], tol: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= tol * (1 + other.abs().max())


def assert_paths_agree(tensors: dict[str, Tensor | None], tol: float = 1e-12, **options) -> None:
    assert fused.usable(*tensors.values(), options.get("lengths"))
    found = results(tensors, **options)
    with reference_only():
        expected = results(tensors, **options)
    assert_close(found, expected, tol)


@settings(max_examples=60)
@given(
    steps=st.integers(1, 9),
    batch=st.integers(1, 9),
    n=st.integers(1, 40),
    inputs=st.sampled_from([1, 3, 11, 33]),
    nonlinearity=st.sampled_from(REAL_NONLINEARITIES),
    dtype=st.sampled_from([F64, F64, torch.float32]),
    reverse=st.booleans(),
    ragged=st.booleans(),
    absent=st.sets(st.sampled_from(["h0", "bias", "gate_bias"])),
    number=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_the_kernel_equals_the_plain_loop(
    steps, batch, n, inputs, nonlinearity, dtype, reverse, ragged, absent, number, seed
):
    tensors = {**problem(steps, batch, n, inputs, dtype, seed), **dict.fromkeys(absent)}
    lengths = torch.randint(1, steps + 1, (batch,)) if ragged else None
    with threads(number):
        tol = 1e-12 if dtype == F64 else 2e-3  # in single precision, relu and modReLU turn on rounding at z = 0
        assert_paths_agree(tensors, tol, nonlinearity=nonlinearity, lengths=lengths, reverse=reverse)


def test_any_number_of_threads_gives_the_same_states_and_two_passes_the_same_bits():
    tensors, found = problem(8, 7, 20, 3), []
    for number in (1, 2, 3, 3):
        with threads(number):
            found.append(results(tensors, nonlinearity="tanh"))
    assert all(torch.equal(found[0][0], other[0]) for other in found)
    assert all(torch.equal(one, two) for one, two in zip(found[2], found[3], strict=True))
    for other in found[1:]:
        assert_close(other, found[0], 1e-13)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_every_instruction_set_of_this_machine_gives_the_same(vector_bytes):
    library = compiled.library()
    best = {"generic": 16, "neon": 16, "avx2": 32, "avx512": 64}[library.kreiss_isa().decode()]
    try:
        library.kreiss_use_isa(min(vector_bytes, best))
        for nonlinearity in REAL_NONLINEARITIES:
            assert_paths_agree(problem(4, 5, 38, 3), nonlinearity=nonlinearity)
            assert_paths_agree(problem(4, 5, 38, 3, torch.float32), 2e-3, nonlinearity=nonlinearity)
    finally:
        assert library.kreiss_use_isa(best) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_join_without_a_seam(reverse, monkeypatch):
    monkeypatch.setattr(fused, "PIECE_ROWS", 6)
    for lengths in (None, torch.tensor([7, 1, 5])):
        for absent in ({}, {"h0": None}):
            tensors = {**problem(7, 3, 6, 2), **absent}
            assert_paths_agree(tensors, nonlinearity="tanh", reverse=reverse, lengths=lengths)
            with torch.no_grad():  # pieces going forward
                found = run_gated(**tensors, nonlinearity="tanh", reverse=reverse, lengths=lengths)
            assert_close(found, results(tensors, nonlinearity="tanh", reverse=reverse, lengths=lengths)[:2], 1e-14)


def test_sums_over_several_blocks_of_depth_are_whole():
    assert_paths_agree(problem(2, 7, 530, 5), nonlinearity="tanh")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_symbols_are_one_hot_vectors(dtype):
    tensors, symbols = problem(7, 5, 14, 4), torch.randint(4, (7, 5), dtype=dtype)
    one_hot = torch.nn.functional.one_hot(symbols.long(), 4).to(F64)
    expected = results({**tensors, "x": one_hot}, nonlinearity="modrelu")
    del expected[2]  # the gradient of the one-hot vectors themselves
    assert_close(results({**tensors, "x": symbols}, nonlinearity="modrelu"), expected, 1e-12)
    assert_paths_agree({**tensors, "x": symbols}, nonlinearity="modrelu")
    with pytest.raises(kreiss.InputError, match=r"symbols must be in \[0, 4\)"):
        run_gated(**{**tensors, "x": symbols + 1}, nonlinearity="modrelu")


def test_inputs_can_be_given_as_u_and_s():
    tensors = problem(5, 3, 6, 18)
    driven = {**tensors, "x": tensors["x"] @ tensors["weight"].mT, "weight": None}
    assert_paths_agree(driven, nonlinearity="relu")
    with reference_only():
        expected = run_gated(**tensors, nonlinearity="relu")
    assert_close(run_gated(**driven, nonlinearity="relu"), expected, 1e-12)


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 4e-7), (F64, 1e-15)])
def test_the_sigmoid_has_full_relative_accuracy(dtype, tol):
    far = torch.tensor([-1e30, 1e30, -float("inf"), float("inf")], dtype=F64)
    s = torch.cat([torch.linspace(-86, 86, 4001, dtype=F64), torch.logspace(-30, 0, 100, dtype=F64), far]).to(dtype)
    n, kept = len(s), torch.zeros(1, 1, 4 * len(s), dtype=dtype)
    kept[0, 0, n : 2 * n] = kept[0, 0, 2 * n : 3 * n] = s
    zero = torch.zeros(2 * n, n, dtype=dtype)
    run = kernel.Forward(zero[:n], zero, None, None, None, "identity", False)
    run.piece(0, None, torch.empty(1, 1, n, dtype=dtype), kept)
    exact = s.double().sigmoid()
    for found in kept[0, 0, n : 3 * n].double().split(n):
        assert ((found - exact).abs() <= tol * exact).all()


@pytest.mark.parametrize("nonlinearity", REAL_NONLINEARITIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_travel_as_in_the_plain_loop(nonlinearity, value):
    for where in problem(1, 1, 1, 1):
        tensors = problem(3, 4, 10, 2)
        tensors[where].view(-1)[1] = value
        found = run_gated(**tensors, nonlinearity=nonlinearity)[0]
        with reference_only():
            expected = run_gated(**tensors, nonlinearity=nonlinearity)[0]
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11, equal_nan=True)


def test_arguments_need_not_be_contiguous_and_may_be_negative_views():
    tensors = problem(5, 3, 6, 4)
    expected = results(tensors, nonlinearity="relu")
    odd = {name: t.mT.contiguous().mT if t.dim() > 1 else t.repeat_interleave(2)[::2] for name, t in tensors.items()}
    negative = {name: torch._neg_view(-t) for name, t in tensors.items()}
    assert not any(t.is_contiguous() for t in odd.values())
    for given_ in (odd, negative):
        assert_close(results(given_, nonlinearity="relu"), expected, 1e-13)


def test_second_derivatives_are_right():
    tensors = {name: t.requires_grad_() for name, t in problem(3, 2, 3, 2).items()}

    def call(*values):
        return run_gated(**dict(zip(tensors, values, strict=True)), nonlinearity="tanh")

    assert torch.autograd.gradgradcheck(call, tuple(tensors.values()))


def test_only_the_gradients_that_are_asked_for_are_made():
    tensors = problem(5, 3, 6, 2)
    expected = dict(zip(tensors, results(tensors, nonlinearity="tanh")[2:], strict=True))
    g = torch.Generator().manual_seed(1)
    weights = [torch.randn(shape, generator=g, dtype=F64) for shape in ((5, 3, 6), (3, 6))]
    for name in tensors:
        only = {key: t.detach().requires_grad_(key == name) for key, t in tensors.items()}
        torch.autograd.backward(run_gated(**only, nonlinearity="tanh"), weights)
        assert torch.allclose(only[name].grad, expected[name], rtol=0, atol=1e-12)


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    layer, x = kreiss.GORU(3, 8, dtype=F64), torch.randn(6, 2, 3, dtype=F64)
    out = layer(x)[0].square().sum()
    first, second = (torch.autograd.grad(out, list(layer.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


def test_an_output_changed_in_place_is_noticed_in_backward():
    tensors = {name: t.requires_grad_() for name, t in problem(3, 2, 4, 2).items()}
    states, _ = run_gated(**tensors, nonlinearity="tanh")
    states.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        states.sum().backward()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("nonlinearity", ["modrelu", "tanh"])
def test_the_operator_of_compiled_code_equals_the_plain_loop(nonlinearity, reverse):
    tensors = problem(5, 3, 6, 18)
    tensors["x"], tensors["weight"] = tensors["x"], None
    lengths = torch.tensor([5, 1, 3])

    def by_operator(x, weight, matrix, gates, h0, bias, gate_bias, nonlinearity, reverse, lengths):
        arguments = (x, matrix, gates, h0, bias, gate_bias, lengths, nonlinearity, reverse)
        states = torch.ops.kreiss.gated(*arguments)[0]
        return states, states[0 if reverse else -1]

    for given_ in (tensors, {**tensors, "bias": None, "gate_bias": None}):
        options = {"nonlinearity": nonlinearity, "reverse": reverse, "lengths": lengths}
        with reference_only():
            expected = results(given_, **options)
        assert_close(results(given_, by_operator, **options), expected, 1e-12)
    arguments = [tensors[name].requires_grad_() for name in ("x", "matrix", "gates", "h0", "bias", "gate_bias")]
    torch.library.opcheck(torch.ops.kreiss.gated.default, (*arguments, lengths, nonlinearity, reverse))


# ---------------------------------------------------------------- layers on it


@pytest.mark.parametrize("name", GATED)
def test_every_gated_layer_runs_on_the_kernel_and_equals_its_reference(name, monkeypatch):
    layer = GATED[name](3, 10, 2, bidirectional=True, dtype=F64)
    calls, run = [], kernel._run
    monkeypatch.setattr(kernel, "_run", lambda *a, **k: (calls.append(1), run(*a, **k))[1])
    x = torch.randn(6, 4, 3, dtype=F64)
    found, last = layer(x)
    assert len(calls) == 4  # one pass per layer and direction
    with reference_only():
        expected, last_expected = layer(x)
    assert len(calls) == 4
    assert_close([found, last], [expected, last_expected], 1e-12)


def test_without_the_kernel_the_loop_gives_the_same(monkeypatch):
    tensors = problem(5, 3, 6, 2)
    expected = results(tensors, nonlinearity="modrelu")
    monkeypatch.setattr(fused, "takes", lambda matrix: False)
    assert_close(results(tensors, nonlinearity="modrelu"), expected, 1e-12)


def test_the_struct_is_the_one_of_the_header():
    header = (Path(compiled.__file__).parent / "recurrence" / "csrc" / "kernel.h").read_text()
    body = header.split("struct kreiss_gated_pass {")[1].split("};")[0]
    lines = [line.split("//")[0].strip().rstrip(";") for line in body.splitlines()]
    names = [part.split()[-1].lstrip("*") for line in lines if line for part in line.split(",")]
    assert names == [field[0] for field in kernel.Pass._fields_]
    assert ctypes.sizeof(kernel.Pass) == 5 * 8 + 8 * 4 + 18 * 8
