"""Tensors whose numbers are not what lies at their address, and inputs of every size: each native path is right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

import kreiss
from catalogue import OURS
from kreiss.recurrence import NONLINEARITIES, REAL_NONLINEARITIES, last_state, reference_only, run_gated, run_plain
from kreiss.recurrence import library as compiled
from kreiss.recurrence.plain import fused, kernel
from test_kernel import F64, problem

STEPS, BATCH, N, INPUTS = 5, 3, 8, 4


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@pytest.fixture(autouse=True, scope="module")
def short_pieces():
    """So that sequences as short as those here are cut into several pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "PIECE_ROWS", 6)
        yield


# ---------------------------------------------------------------- tensors in disguise


def imaginary_part_of_a_conjugate(tensor: Tensor) -> Tensor:
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


def negated_view(tensor: Tensor) -> Tensor:
    return torch._neg_view(-tensor)


def expanded(tensor: Tensor) -> Tensor:
    """One row or number for all."""
    return tensor[:1].clone().expand(tensor.shape)


def overlapping(tensor: Tensor) -> Tensor:
    """Rows that share numbers."""
    return tensor.flatten().clone().as_strided(tensor.shape, (1,) * tensor.dim())


def zeros_without_memory(tensor: Tensor) -> Tensor:
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)


DISGUISES: dict[str, Callable[[Tensor], Tensor]] = {
    "negated view": negated_view,
    "conjugated view": imaginary_part_of_a_conjugate,
    "zero tensor": zeros_without_memory,
    "expanded": expanded,
    "overlapping": overlapping,
}
by_disguise = pytest.mark.parametrize("disguise", DISGUISES)


def test_the_disguises_are_what_they_are_called():
    plain = torch.arange(6.0).view(2, 3)
    assert torch._neg_view(plain).data_ptr() == plain.data_ptr()
    assert all(DISGUISES[name](plain).is_neg() for name in ("negated view", "conjugated view"))
    assert all(torch.equal(DISGUISES[name](plain), plain) for name in ("negated view", "conjugated view"))
    assert zeros_without_memory(plain)._is_zerotensor()
    assert all(not DISGUISES[name](plain).is_contiguous() for name in ("expanded", "overlapping"))


def by_cell(x, weight=None, *, matrix, h0, **options) -> Tensor:
    return run_plain(x, weight, matrix, h0, **options)[0]


def by_last_state(x, weight=None, *, matrix, h0, **options) -> Tensor:
    return last_state(x, weight, matrix, h0, **options)


def by_operator(x, *, matrix, h0, bias, lengths, nonlinearity) -> Tensor:
    return torch.ops.kreiss.recur(x, matrix, h0, bias, lengths, nonlinearity, False)[0]


def by_gates(x, *, matrix, h0, **options) -> Tensor:
    gates = torch.cat([matrix.mT, matrix]).clone()
    return run_gated(torch.cat([x, x, -x], -1), None, matrix, gates, h0, **options)[0]


NATIVE = {"cell": by_cell, "last state": by_last_state, "operator": by_operator, "gates": by_gates}
PLAIN = {**NATIVE, "operator": by_cell}
by_path = pytest.mark.parametrize("path", NATIVE)


def arguments(path: str, dtype: torch.dtype = F64) -> dict[str, Tensor]:
    """Of that path; those without input weights take u (T, B, N)."""
    inputs = INPUTS if path in ("cell", "last state") else N
    made = {name: tensor.detach() for name, tensor in problem(STEPS, BATCH, N, inputs, dtype).items()}
    if inputs == N:
        del made["weight"]
    return {**made, "lengths": torch.tensor([5, 2, 4])}


def with_symbols(path: str) -> dict[str, Tensor]:
    symbols = torch.randint(INPUTS, (STEPS, BATCH), generator=seeded(1))
    return {**arguments(path), "x": symbols}


def results(run, given: dict[str, Tensor], nonlinearity: str, grad: Callable[[Tensor], Tensor] = torch.clone):
    """What the path computes and its gradients, where the gradient of the output is `grad` of fixed numbers."""
    leaves = {name: t.detach().requires_grad_(t.is_floating_point()) for name, t in given.items()}
    out = run(**leaves, nonlinearity=nonlinearity)
    weights = torch.randn(out.shape, generator=seeded(3), dtype=F64).to(out.dtype)
    return [
        out.detach(),
        *torch.autograd.grad(out, [leaf for leaf in leaves.values() if leaf.requires_grad], grad(weights)),
    ]


def shown(tensor: Tensor) -> Tensor:
    """The same numbers without a disguise."""
    return tensor.clone(memory_format=torch.contiguous_format)


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def cases(path: str, disguise: str) -> Iterator[tuple[dict[str, Tensor], str]]:
    """Arguments, and the name of the one to disguise."""
    yield from (
        (arguments(path), name) for name in arguments(path) if disguise != "conjugated view" or name != "lengths"
    )
    if path in ("cell", "last state") and disguise != "conjugated view":  # there are no complex integers
        yield with_symbols(path), "x"


@by_disguise
@by_path
def test_an_argument_in_disguise_means_its_numbers(path, disguise):
    for nonlinearity in ("tanh", "modrelu" if path == "gates" else "cmodrelu"):
        for given, name in cases(path, disguise):
            hidden = DISGUISES[disguise](given[name])
            found = results(NATIVE[path], {**given, name: hidden}, nonlinearity)
            with reference_only():
                expected = results(PLAIN[path], {**given, name: shown(hidden)}, nonlinearity)
            assert_same(found, expected)


@by_disguise
@by_path
def test_a_gradient_of_the_output_in_disguise_means_its_numbers(path, disguise):
    hide = DISGUISES[disguise]
    found = results(NATIVE[path], arguments(path), "modrelu", hide)
    assert_same(found, results(NATIVE[path], arguments(path), "modrelu", lambda grad: shown(hide(grad))))


@by_disguise
def test_a_step_of_the_kernel_takes_arguments_in_disguise(disguise):
    given = {name: arguments("cell")[name] for name in ("matrix", "weight", "bias")}
    inputs = {"x": arguments("cell")["x"][0], "symbols": torch.tensor([3, 0, 2])}
    for name in (*given, *inputs):
        if name == "symbols" and disguise == "conjugated view":
            continue
        found = []
        for change in (DISGUISES[disguise], lambda t: shown(DISGUISES[disguise](t))):
            weights = kernel.Weights(**{k: change(t) if k == name else t for k, t in given.items()})
            step = kernel.Step([weights], nonlinearity="tanh", batch=3)
            found.append([step(change(t) if k == name else t).clone() for k, t in inputs.items()])
        assert_same(*found)


@by_disguise
@pytest.mark.parametrize("name", ["nnrnn", "scurnn", "goru"])
def test_a_stream_takes_inputs_and_states_in_disguise(name, disguise):
    stream, hide = kreiss.Stream(OURS[name](INPUTS, N, dtype=F64), BATCH), DISGUISES[disguise]
    state, x = torch.randn_like(stream.state), torch.randn(BATCH, INPUTS, dtype=F64)
    found = []
    for change in (hide, lambda tensor: shown(hide(tensor))):
        stream.state = change(state)
        found.append([stream.step(change(x)).clone(), stream.feed(change(x[None])).clone()])
    assert_same(*found)


# ---------------------------------------------------------------- integers of another size

OTHER_INTEGERS = [torch.int8, torch.int16, torch.uint8, torch.uint16, torch.bool]


@pytest.mark.parametrize("name", OURS)
def test_a_stream_refuses_symbols_that_are_not_int64_or_int32(name):
    stream = kreiss.Stream(OURS[name](INPUTS, N), BATCH)
    for dtype in OTHER_INTEGERS:
        refused(stream, torch.ones(BATCH).to(dtype))


def refused(stream: kreiss.Stream, symbols: Tensor) -> None:
    with pytest.raises(kreiss.InputError, match=r"symbols in `input` must be int64 or int32; got torch\.\w+\. Convert"):
        stream.step(symbols)


@pytest.mark.parametrize("dtype", OTHER_INTEGERS)
@by_path
def test_lengths_of_another_integer_type_are_refused_or_right(path, dtype):
    assert refused_or_right(
        path, {**arguments(path), "lengths": torch.ones(BATCH, dtype=torch.int64)}, "lengths", dtype
    )


@pytest.mark.parametrize("dtype", OTHER_INTEGERS)
@pytest.mark.parametrize("path", ["cell", "last state"])
def test_symbols_of_another_integer_type_are_refused_or_right(path, dtype):
    given = {**arguments(path), "x": torch.ones(STEPS, BATCH, dtype=torch.int64)}
    assert refused_or_right(path, given, "x", dtype)


def refused_or_right(path: str, given: dict[str, Tensor], name: str, dtype: torch.dtype) -> bool:
    expected = results(NATIVE[path], given, "tanh")
    try:
        found = results(NATIVE[path], {**given, name: given[name].to(dtype)}, "tanh")
    except (RuntimeError, ValueError, NotImplementedError):
        return True
    return all(torch.allclose(one, other, rtol=1e-12) for one, other in zip(found, expected, strict=True))


# ---------------------------------------------------------------- inputs of every size


def relative_errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    return [float((a.double() - b).norm() / b.norm().clamp_min(1e-300)) for a, b in zip(found, exact, strict=True)]


def errors_at(scale: float, path: str, nonlinearity: str) -> tuple[list[float], list[float]]:
    """Relative errors in single precision, of this path and of the plain loop, with a threshold of 0.5 and h0 = 0."""
    given = arguments(path, torch.float32)
    given.update(x=scale * given["x"], bias=torch.full((N,), 0.5), h0=torch.zeros(BATCH, N))
    found = results(NATIVE[path], given, nonlinearity)
    with reference_only():
        wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in given.items()}
        exact, loop = (results(PLAIN[path], numbers, nonlinearity) for numbers in (wide, given))
    return relative_errors(found, exact), relative_errors(loop, exact)


@pytest.mark.parametrize(
    ("path", "nonlinearity"),
    [(path, name) for path in NATIVE for name in (REAL_NONLINEARITIES if path == "gates" else NONLINEARITIES)],
)
def test_states_and_gradients_are_as_exact_as_those_of_the_plain_loop_at_every_scale(path, nonlinearity):
    for power in range(-8, 9, 2):
        for ours, loop in zip(*errors_at(10.0**power, path, nonlinearity), strict=True):
            assert ours <= 2e-6 + 4 * loop, power
            assert loop <= 1e-5 or nonlinearity == "tanh", power  # where tanh saturates nothing is left of 1 − h²


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_a_complex_number_whose_square_is_out_of_range_keeps_its_direction(vector_bytes):
    library = compiled.library()
    best = {"generic": 16, "neon": 16, "avx2": 32, "avx512": 64}[library.kreiss_isa().decode()]
    library.kreiss_use_isa(min(vector_bytes, best))
    try:
        for power in (-30, -20, 20, 30, 37):  # one step, whose gradients grow as fast as inputs become small
            given = {
                name: tensor[:1] if name == "x" else tensor for name, tensor in arguments("cell", torch.float32).items()
            }
            given.update(x=10.0**power * given["x"], bias=torch.full((N,), 0.5), h0=torch.zeros(BATCH, N))
            wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in given.items()}
            found = results(by_cell, given, "cmodrelu")
            with reference_only():
                exact, loop = (results(by_cell, numbers, "cmodrelu") for numbers in (wide, given))
            assert exact[0].any(-1).all()
            assert max(relative_errors(found, exact) + relative_errors(loop, exact)) <= 1e-6, power
    finally:
        library.kreiss_use_isa(best)


@pytest.mark.parametrize("power", [0, -2, -4, -6, -12])
def test_gradients_of_a_complex_layer_are_right_to_rounding_however_small_its_input(power):
    """Where |z| is far below the threshold b it cannot be had from |h| − b."""
    layer = kreiss.ScuRNN(3, 8, generator=seeded(0))
    with torch.no_grad():
        layer.bias_l0.fill_(0.5)
    wide = copy.deepcopy(layer).double()
    x, ways = 10.0**power * torch.randn(12, 4, 3, generator=seeded(1)), torch.randn(4, 16, generator=seeded(2))
    for run in (lambda net, inputs: net(inputs)[0], lambda net, inputs: net.final_state(inputs)):
        found = torch.autograd.grad((run(layer, x) * ways).sum(), list(layer.parameters()))
        with reference_only():
            exact = torch.autograd.grad((run(wide, x.double()) * ways).sum(), list(wide.parameters()))
        assert max(relative_errors(found, exact)) <= 1e-5


# ---------------------------------------------------------------- threads


def test_backward_passes_of_several_threads_through_one_graph_do_not_disturb_each_other():
    layer = kreiss.NNRNN(2, 24, dtype=F64, generator=seeded(0))
    x = torch.randn(300, 3, 2, dtype=F64, generator=seeded(1))
    last, wanted = layer.final_state(x), list(layer.parameters())
    grads = list(torch.randn(12, *last.shape, dtype=F64, generator=seeded(2)))
    alone = [torch.autograd.grad(layer.final_state(x), wanted, grad) for grad in grads]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda grad: torch.autograd.grad(last, wanted, grad, retain_graph=True), grads))
    for found, expected in zip(together, alone, strict=True):
        assert_same(found, expected)
