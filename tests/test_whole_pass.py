"""Backward passes in one call, and the work space that passes hand on: equal to the plain loop, and never shared."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from kreiss import native
from kreiss.recurrence import NONLINEARITIES, REAL_NONLINEARITIES, reference_only, run_plain
from kreiss.recurrence import library as compiled
from kreiss.recurrence.plain import fused, spare
from test_hostile_kernel import DISGUISES, shown
from test_kernel import F64, problem, results

NAN, INF = float("nan"), float("inf")
WAYS = ("by the kernel", "by torch")  # of large products, which differ by processor


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@contextmanager
def using(*, threads: int = 2, whose: str = "by the kernel", piece: int = fused.PIECE_ROWS) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "SMALL_PRODUCT", 0)
        patch.setattr(fused, "PIECE_ROWS", piece)
        patch.setattr(native, "is_fast", lambda: whose == "by the kernel")
        try:
            yield
        finally:
            torch.set_num_threads(before)


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12, equal_nan=True)


@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 5), st.integers(1, 70)),
    inputs=st.integers(1, 3),
    nonlinearity=st.sampled_from(NONLINEARITIES),
    whose=st.sampled_from(WAYS),
    options=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    threads=st.integers(1, 4),
    piece=st.sampled_from([6, fused.PIECE_ROWS]),
)
def test_a_pass_in_one_piece_or_in_several_is_that_of_the_plain_loop(
    shape, inputs, nonlinearity, whose, options, threads, piece
):
    steps, batch, n = shape
    reverse, ragged, starts = options
    tensors = problem(steps, batch, n + n % 2 if nonlinearity == "cmodrelu" else n, inputs, F64)
    if not starts:
        tensors.pop("h0")
    lengths = torch.randint(0, steps + 1, (batch,), generator=torch.Generator().manual_seed(steps)) if ragged else None
    chosen = {"h0": None, **tensors}
    run = {"nonlinearity": nonlinearity, "reverse": reverse, "lengths": lengths}
    with using(threads=threads, whose=whose, piece=piece):
        found = given_all(chosen, run)
    with reference_only():
        assert_same(found, given_all(chosen, run))


def given_all(tensors: dict[str, Tensor | None], options: dict[str, Any]) -> list[Tensor]:
    """States, last state and all gradients; a state h0 may be absent."""
    leaves = {name: None if t is None else t.detach().clone().requires_grad_() for name, t in tensors.items()}
    states, last = run_plain(**leaves, **options)
    g = torch.Generator().manual_seed(1)
    ways = [torch.randn(t.shape, generator=g, dtype=F64).to(t.dtype) for t in (states, last)]
    wanted = [leaf for leaf in leaves.values() if leaf is not None]
    return [states.detach(), last.detach(), *torch.autograd.grad([states, last], wanted, ways)]


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_every_instruction_set_gives_a_row_alone_and_the_gradient_of_its_matrix(vector_bytes, dtype):
    library = compiled.library()
    best = {"generic": 16, "neon": 16, "avx2": 32, "avx512": 64}[library.kreiss_isa().decode()]
    library.kreiss_use_isa(min(vector_bytes, best))
    try:
        for n in (1, 7, 31, 32, 33, 48, 64, 96, 130):
            tensors = problem(9, 1, n, 2, dtype)
            with using():
                found = results(tensors, nonlinearity="tanh")
            with reference_only():
                expected = results(tensors, nonlinearity="tanh")
            for one, other in zip(found, expected, strict=True):
                tol = 1e-12 if dtype == F64 else 1e-4
                torch.testing.assert_close(one, other, rtol=tol, atol=tol)
    finally:
        library.kreiss_use_isa(best)


def test_the_gradient_of_the_matrix_has_the_same_bits_for_any_number_of_threads():
    tensors, found = problem(40, 7, 45, 2, torch.float32), []
    for threads in (1, 2, 3, 5):
        with using(threads=threads):
            found.append(given_all(dict(tensors), {"nonlinearity": "modrelu"})[5])
    assert found[0].shape == (45, 45)
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("name", ["x", "matrix", "h0"])
@pytest.mark.parametrize("nonlinearity", REAL_NONLINEARITIES)
def test_what_is_not_finite_reaches_the_gradient_of_the_matrix_as_in_the_plain_loop(nonlinearity, name, bad):
    tensors = {key: tensor.detach().clone() for key, tensor in problem(4, 2, 6, 2, F64).items()}
    tensors[name].view(-1)[3] = bad
    found = []
    for whose in WAYS:
        with using(whose=whose):
            found.append(given_all(tensors, {"nonlinearity": nonlinearity})[5])
    assert torch.equal(found[0].isfinite(), found[1].isfinite())
    with reference_only():
        expected = given_all(tensors, {"nonlinearity": nonlinearity})[5]
    assert torch.equal(found[0].isfinite(), expected.isfinite())


@pytest.mark.parametrize("disguise", DISGUISES)
def test_an_argument_in_disguise_means_its_numbers_in_one_piece_too(disguise):
    plain = {name: tensor.detach() for name, tensor in problem(5, 3, 8, 4, F64).items()}
    for name in plain:
        hidden = DISGUISES[disguise](plain[name])
        found = []
        for tensor in (hidden, shown(hidden)):
            leaves = {k: t.requires_grad_() for k, t in {**plain, name: tensor}.items()}
            with using():
                states, _ = run_plain(**leaves, nonlinearity="tanh")
                found.append(list(torch.autograd.grad(states.square().sum(), list(leaves.values()))))
        assert_same(*found)


def test_the_gradient_of_the_gradient_is_right_after_a_pass_in_one_piece():
    tensors = problem(3, 2, 4, 2, F64)
    inputs = tuple(tensors.values())
    names = list(tensors)
    run = lambda *leaves: run_plain(**dict(zip(names, leaves, strict=True)), nonlinearity="tanh")  # noqa: E731
    with using():
        assert torch.autograd.gradcheck(run, inputs)
        assert torch.autograd.gradgradcheck(run, inputs)


# ---------------------------------------------------------------- work space


def layer_and_input(hidden: int, steps: int = 30, seed: int = 0) -> tuple[kreiss.NNRNN, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return kreiss.NNRNN(2, hidden, dtype=F64, generator=g), torch.randn(steps, 3, 2, dtype=F64, generator=g)


def gradients(layer: kreiss.NNRNN, x: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters())))


def test_passes_do_not_write_into_what_earlier_ones_returned():
    layer, x = layer_and_input(12)
    states, last = layer(x)
    first = torch.autograd.grad(states.square().sum(), list(layer.parameters()), retain_graph=True)
    kept = [t.detach().clone() for t in (states, last, *first)]
    for _ in range(3):
        gradients(layer, x + 1)
    assert all(torch.equal(a, b) for a, b in zip([states, last, *first], kept, strict=True))
    again = torch.autograd.grad(states.square().sum(), list(layer.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(again, first, strict=True))


def test_two_forward_passes_before_their_backward_passes_do_not_mix():
    layer, x = layer_and_input(12)
    other, y = layer_and_input(12, seed=1)
    expected = [gradients(layer, x), gradients(other, y), gradients(layer, 2 * x)]
    losses = [layer(x)[0].square().sum(), other(y)[0].square().sum(), layer(2 * x)[0].square().sum()]
    for turn in (2, 0, 1):
        of = other if turn == 1 else layer
        found = torch.autograd.grad(losses[turn], list(of.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(found, expected[turn], strict=True))


def test_threads_that_go_back_at_the_same_time_do_not_share_work_space():
    problems = [layer_and_input(12, seed=seed) for seed in range(6)]
    alone = [gradients(*problem) for problem in problems]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda i: gradients(*problems[i % 6]), range(120)))
    for i, found in enumerate(together):
        assert all(torch.equal(a, b) for a, b in zip(found, alone[i % 6], strict=True))


def test_no_result_lies_in_work_space():
    layer, x = layer_and_input(12)
    u = torch.randn(30, 3, 12, dtype=F64, requires_grad=True)
    grad_u = torch.autograd.grad(run_plain(u, None, layer.weight_hh_l0, None, nonlinearity="tanh")[0].sum(), u)
    given_out = [*layer(x), *gradients(layer, x), *grad_u]
    kept = {tensor.untyped_storage().data_ptr() for tensor in spare._spare.values()}
    assert kept
    assert not kept & {tensor.untyped_storage().data_ptr() for tensor in given_out}


def test_work_space_that_is_kept_is_bounded_and_that_of_one_pass_serves_the_next():
    for hidden in range(8, 24):
        gradients(*layer_and_input(hidden))
        assert len(spare._spare) <= spare.MOST
    first = spare.take(torch.empty(30, 3, 5))
    spare.give(first)
    assert spare.take(torch.empty(3, 30, 5)).data_ptr() == first.data_ptr()
    assert spare.take(torch.empty(30, 3, 5)).data_ptr() != first.data_ptr()  # it is taken
    spare.give(torch.empty(spare.LARGEST + 1, dtype=torch.uint8))
    with torch.inference_mode():
        spare.give(torch.empty(77))
    assert all(tensor.nbytes <= spare.LARGEST and tensor.numel() != 77 for tensor in spare._spare.values())
