"""Matrices at their base point in the compiled kernel: values, gradients and moves are those of the plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from kreiss import linalg, native
from kreiss.sets import basepoint
from test_kernel_input import from_odd_bytes, spread_out, turned

F64 = torch.float64
FORMS = {
    "exact": {},
    "one fixed radius": {"radius": 0.9},
    "rotation": {"blocks": "rotation"},
    "paper": {"blocks": "paper"},
    "paper, fixed": {"blocks": "paper", "radius": 1.1},
    "real": {"real": (3, 2)},
    "real of one sign": {"real": (0, 3), "radius": 0.5},
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert native.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@pytest.fixture
def isa(request: pytest.FixtureRequest) -> Iterator[None]:
    """An instruction set with vectors of that many bytes, if the machine has it."""
    library = native.loaded()
    best = {b"avx512": 64, b"avx2": 32}.get(library.kreiss_isa(), 16)
    library.kreiss_use_isa(min(request.param, best))
    try:
        yield
    finally:
        library.kreiss_use_isa(best)


every_isa = pytest.mark.parametrize("isa", [16, 32, 64], indirect=True)


def drawn(n: int, dtype: torch.dtype = F64, **options: object) -> tuple[kreiss.Schur, list[Tensor]]:
    """A set at its base point, with parameters of Λ and T away from where they start."""
    schur = kreiss.Schur(n, **options)
    free = [tensor.clone() for tensor in schur.initial("random", generator=seeded(n), dtype=dtype)]
    for i, tensor in enumerate(free[1:]):
        tensor += 0.5 * torch.randn(tensor.shape, generator=seeded(i), dtype=dtype)
    return schur, [tensor.requires_grad_() for tensor in free]


def plain(schur: kreiss.Schur, free: list[Tensor]) -> Tensor:
    p = plain_turn(schur.orthogonal, free[0])
    return p @ schur.core(*free) @ p.mT


def plain_turn(orthogonal: kreiss.Orthogonal, free: Tensor) -> Tensor:
    method = orthogonal.map
    return method.base @ linalg.cayley(method.skew(free) / -2)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    size = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * max(1.0, size))


def check_schur(n: int, tolerance: float = 1e-12, dtype: torch.dtype = F64, **options: object) -> None:
    schur, free = drawn(n, dtype, **options)
    assert basepoint.schur(schur, schur.orthogonal.map.base, free) is not None
    grad = torch.randn(n, n, dtype=dtype, generator=seeded(1))
    found, expected = schur(*free), plain(schur, free)
    close(found, expected, tolerance)
    gradients = zip(torch.autograd.grad(found, free, grad), torch.autograd.grad(expected, free, grad), strict=True)
    for one, other in gradients:
        close(one, other, tolerance)


# ---------------------------------------------------------------- the Schur map


@every_isa
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [5, 13, 37, 65])
def test_the_map_and_its_gradients_are_those_of_the_plain_functions(form, n, isa):
    check_schur(n, **FORMS[form])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 128, 255, 256])
def test_also_for_the_smallest_and_the_largest(n):
    check_schur(n)


def test_larger_ones_are_taken_where_products_of_the_kernel_are_faster_than_those_of_torch(monkeypatch):
    n = basepoint.LARGEST + 3
    for is_fast in (False, True):
        monkeypatch.setattr(native, "is_fast", lambda is_fast=is_fast: is_fast)
        schur, free = drawn(n)
        assert (basepoint.schur(schur, schur.orthogonal.map.base, free) is not None) == is_fast
        base, a = schur.orthogonal.map.base.clone(), 1e-3 * free[0].detach()
        moved = base @ linalg.cayley(schur.orthogonal.map.skew(a) / -2)
        assert basepoint.move(base, a, True) == is_fast
    close(base, moved)
    check_schur(n, 1e-11)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 80), blocks=st.sampled_from(["exact", "rotation", "paper"]), data=st.data())
def test_and_for_any_size_and_any_blocks(n, blocks, data):
    single = n - 2 * data.draw(st.integers(0, n // 2))
    positive = data.draw(st.integers(0, single))
    radius = data.draw(st.sampled_from(["free", 0.7]))
    check_schur(n, blocks=blocks, radius=radius, real=(positive, single - positive))
    check_schur(n, 2e-5, torch.float32, blocks=blocks, radius=radius, real=(positive, single - positive))


@every_isa
def test_results_do_not_depend_on_the_number_of_threads(isa, monkeypatch):
    monkeypatch.setattr(basepoint, "WORK", 1)
    schur, free = drawn(83)
    base, grad = schur.orthogonal.map.base.clone(), torch.randn(83, 83, dtype=F64, generator=seeded(2))
    step = 1e-3 * torch.randn(free[0].shape, dtype=F64, generator=seeded(3))
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            moved = base.clone()
            assert basepoint.move(moved, step.clone(), True)
            matrix = schur(*free)
            results.append([matrix.detach(), moved, *torch.autograd.grad(matrix, free, grad)])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))


def test_gradients_are_those_of_finite_differences_and_can_be_differentiated():
    schur, free = drawn(5)
    assert torch.autograd.gradcheck(lambda *f: schur(*f), free)
    assert torch.autograd.gradgradcheck(lambda *f: schur(*f), free)


@pytest.mark.parametrize("wanted", range(5))
def test_one_gradient_alone(wanted):
    schur, free = drawn(9)
    grad = torch.randn(9, 9, dtype=F64, generator=seeded(1))
    alone = [tensor.detach().requires_grad_(i == wanted) for i, tensor in enumerate(free)]
    (found,) = torch.autograd.grad(schur(*alone), [alone[wanted]], grad)
    close(found, torch.autograd.grad(plain(schur, free), free, grad)[wanted])


# ---------------------------------------------------------------- an orthogonal matrix


@every_isa
@pytest.mark.parametrize("n", [1, 2, 7, 33, 128])
@pytest.mark.parametrize("size", [0.0, 0.3])
def test_an_orthogonal_matrix_and_its_gradient_are_those_of_the_plain_functions(n, size, isa):
    orthogonal = kreiss.Orthogonal(n)
    (free,) = orthogonal.initial("random", generator=seeded(n), dtype=F64)
    free = (free + size * torch.randn(free.shape, generator=seeded(1), dtype=F64)).requires_grad_()
    grad = torch.randn(n, n, dtype=F64, generator=seeded(2))
    found, expected = orthogonal(free), plain_turn(orthogonal, free)
    close(found, expected)
    close(*(torch.autograd.grad(matrix, free, grad)[0] for matrix in (found, expected)))


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_its_gradient_can_be_differentiated(size):
    orthogonal = kreiss.Orthogonal(4)
    (free,) = orthogonal.initial("random", generator=seeded(0), dtype=F64)
    free = (free + size).requires_grad_()
    assert torch.autograd.gradcheck(orthogonal, (free,))
    assert torch.autograd.gradgradcheck(orthogonal, (free,))


def test_the_matrix_is_not_the_base_itself():
    orthogonal = kreiss.Orthogonal(4)
    (free,) = orthogonal.initial("random")
    base = orthogonal.map.base.clone()
    orthogonal(free).zero_()
    assert torch.equal(orthogonal.map.base, base)


# ---------------------------------------------------------------- tensors in disguise

DISGUISES: dict[str, Callable[[Tensor], Tensor]] = {
    "at an odd address": from_odd_bytes,
    "spread out": spread_out,
    "stored the other way round": turned,
    "negated": lambda t: torch.complex(torch.zeros_like(t), -t).conj().imag,
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_gradient_in_disguise(disguise):
    schur, free = drawn(11)
    orthogonal = schur.orthogonal
    for function, inputs in ((schur, free), (orthogonal, free[:1])):
        grad = torch.randn(11, 11, dtype=F64, generator=seeded(1))
        odd = DISGUISES[disguise](grad.clone())
        expected = torch.autograd.grad(function(*inputs), inputs, grad)
        for one, other in zip(torch.autograd.grad(function(*inputs), inputs, odd), expected, strict=True):
            assert torch.equal(one, other)


def test_a_gradient_that_is_one_number_or_not_there_at_all():
    schur, free = drawn(6)
    ones = torch.autograd.grad(schur(*free), free, torch.ones(6, 6, dtype=F64))
    for one, other in zip(torch.autograd.grad(schur(*free).sum(), free), ones, strict=True):
        assert torch.equal(one, other)  # an expanded number
    zeros = torch.autograd.grad(schur(*free), free, torch._efficientzerotensor((6, 6), dtype=F64))
    assert not any(gradient.any() for gradient in zeros)


@pytest.mark.parametrize("disguise", DISGUISES)
def test_free_tensors_and_a_base_in_disguise(disguise):
    schur, free = drawn(11)
    expected, method = schur(*free), schur.orthogonal.map
    odd = [DISGUISES[disguise](tensor.detach().clone()) for tensor in free]
    close(schur(*odd), expected)
    method.base = DISGUISES[disguise](method.base)
    close(schur(*free), expected)
    close(schur.orthogonal(free[0]), method.base)
    step = 1e-3 * torch.randn(free[0].shape, dtype=F64, generator=seeded(1))
    with torch.no_grad():
        free[0].copy_(step)
    before = schur(*free)
    schur.rebase(*free)
    close(schur(*free), before)


def test_a_map_without_numbers_or_with_others_around_it_is_left_to_torch():
    schur, free = drawn(4)
    assert kreiss.Schur(4).to("meta")(*(tensor.to("meta") for tensor in free)).is_meta
    single, numbers = drawn(4, torch.float32)
    with torch.autocast("cpu"):
        assert single(*numbers).dtype == torch.bfloat16
    many = [torch.stack([tensor, tensor + 0.1]).detach() for tensor in free]
    for i, matrix in enumerate(torch.func.vmap(schur)(*many)):
        close(matrix, plain(schur, [tensor[i] for tensor in many]))


@pytest.mark.parametrize("place", range(5))
def test_nan_spreads_as_in_the_plain_functions(place):
    schur, free = drawn(7)
    with torch.no_grad():
        free[place].view(-1)[0] = torch.nan
    if place:  # with NaN in A, an inverse of it is left to torch
        found, expected = schur(*free), plain(schur, free)
        assert torch.equal(found.isnan(), expected.isnan())
        grad = torch.randn(7, 7, dtype=F64, generator=seeded(1))
        for one, other in zip(
            torch.autograd.grad(found, free[1:], grad), torch.autograd.grad(expected, free[1:], grad), strict=True
        ):
            assert torch.equal(one.isnan(), other.isnan())
    else:
        assert basepoint.schur(schur, schur.orthogonal.map.base, free) is None


# ---------------------------------------------------------------- moving the base


@every_isa
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n", [1, 2, 7, 40, 65])
@pytest.mark.parametrize("size", [0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
def test_a_move_is_that_of_the_plain_functions(n, size, dtype, isa):
    orthogonal = kreiss.Orthogonal(n)
    (free,) = orthogonal.initial("random", generator=seeded(n), dtype=dtype)
    free += size / n**0.5 * torch.randn(free.shape, generator=seeded(1), dtype=dtype)
    base = orthogonal.map.base.clone()
    expected = linalg.turned(base, orthogonal.map.skew(free))
    for project in (False, True):
        moved, step = base.clone(), free.clone()
        done = basepoint.move(moved, step, project)
        assert done or size >= 0.01
        assert done != step.any() or size == 0.0 or n == 1
        error = float((moved - (expected if done else base)).abs().max())
        assert error <= (10 * torch.finfo(dtype).eps if done else 0)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_worn_base_is_corrected_where_it_is_asked(dtype):
    p = linalg.newton_schulz(torch.linalg.qr(torch.randn(64, 64, dtype=F64, generator=seeded(0)))[0]).to(dtype)
    eps = torch.finfo(dtype).eps
    worn = p + 100 * eps * torch.randn(64, 64, generator=seeded(5), dtype=dtype)
    for project in (False, True):
        moved = worn.clone()
        assert basepoint.move(moved, torch.zeros(64 * 63 // 2, dtype=dtype), project)
        close(moved, linalg.polished(worn) if project else worn, 4 * eps)


def test_a_step_that_is_not_finite_is_left_to_the_plain_functions():
    for value in (torch.nan, torch.inf, 1e30):
        base, free = torch.eye(5), torch.full((10,), value)
        assert not basepoint.move(base, free, True)
        assert torch.equal(base, torch.eye(5))


def test_a_backward_pass_after_the_move_fails():
    layer = kreiss.NNRNN(2, 8)
    loss = layer.weight_hh_l0.sum()
    layer.rebase()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_move_inside_inference_mode():
    with torch.inference_mode():
        layer = kreiss.ExpRNN(2, 6)
        layer.orthogonal_l0.add_(1e-3)
        before = layer.weight_hh_l0
        layer.rebase()
        close(layer.weight_hh_l0, before, 1e-6)
        assert not layer.orthogonal_l0.any()


@pytest.mark.parametrize("n", [8, 33])
def test_the_error_of_ten_thousand_moves_is_rounding_alone(n):
    base, free = torch.eye(n), torch.zeros(n * (n - 1) // 2)
    g = seeded(0)
    for _ in range(10_000):
        free.copy_(torch.randn(free.shape, generator=g)).mul_(1e-2)
        assert basepoint.move(base, free, True)
    assert linalg.orthogonality_error(base) <= 1e-5
