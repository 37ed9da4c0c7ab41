"""Large products of the kernel: those of torch, for any strides, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from kreiss import native
from kreiss.recurrence import products, reference_only
from test_hostile_kernel import DISGUISES, shown

F64, NAN, INF = torch.float64, float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert native.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor where the kernel's products are used."""
    monkeypatch.setattr(native, "is_fast", lambda: True)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def drawn(rows: int, columns: int, dtype: torch.dtype, laid: str, seed: int) -> Tensor:
    """A matrix whose numbers lie by rows, by columns, or every third number of a larger one."""
    g = torch.Generator().manual_seed(seed)
    if laid == "by columns":
        return torch.randn(columns, rows, dtype=dtype, generator=g).mT
    if laid == "apart":
        return torch.randn(2 * rows, 3 * columns, dtype=dtype, generator=g)[::2, ::3]
    return torch.randn(rows, columns, dtype=dtype, generator=g)


LAID = ("by rows", "by columns", "apart")


@given(
    shape=st.tuples(st.integers(0, 80), st.integers(0, 140), st.integers(0, 900)),
    laid=st.tuples(st.sampled_from(LAID), st.sampled_from(LAID)),
    add=st.booleans(),
    vector_bytes=st.sampled_from([16, 32, 64]),
)
def test_a_product_is_that_of_torch_for_every_instruction_set(shape, laid, add, vector_bytes):
    rows, columns, depth = shape
    a, b = drawn(rows, depth, F64, laid[0], 1), drawn(depth, columns, F64, laid[1], 2)
    out = drawn(rows, columns, F64, "by rows", 3)
    expected = a @ b + out if add else a @ b
    library = native.loaded()
    best = {b"avx512": 64, b"avx2": 32}.get(library.kreiss_isa(), 16)
    library.kreiss_use_isa(min(vector_bytes, best))
    try:
        products.multiply(out, a, b, add=add)
    finally:
        library.kreiss_use_isa(best)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_product_has_the_same_bits_for_any_number_of_threads(dtype, threads):
    a, b = drawn(200, 700, dtype, "by columns", 1), drawn(700, 130, dtype, "by rows", 2)
    found = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        out = torch.full((200, 130), NAN, dtype=dtype)
        products.multiply(out, a, b, add=False)
        found.append(out)
    assert all(torch.equal(found[0], other) for other in found)
    torch.testing.assert_close(found[0], a @ b, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_what_is_not_finite_reaches_the_same_numbers_as_in_torch(bad):
    a, b = drawn(13, 40, F64, "by rows", 1), drawn(40, 50, F64, "by rows", 2)
    a[7, 33], b[2, 49] = bad, bad
    out = torch.empty(13, 50, dtype=F64)
    products.multiply(out, a, b, add=False)
    assert torch.equal(out.isfinite(), (a @ b).isfinite())


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("place", [0, 1])
def test_a_factor_in_disguise_means_its_numbers(disguise, place, fast):
    factors = [drawn(6, 8, F64, "by rows", 1), drawn(8, 6, F64, "by rows", 2)]
    factors[place] = DISGUISES[disguise](factors[place])
    expected = shown(factors[0]) @ shown(factors[1])
    for act, start in ((products.write, NAN), (products.add, 0.0)):
        out = torch.full((6, 6), start, dtype=F64)
        act(out, *factors)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_a_result_that_is_not_contiguous_is_written_by_torch(fast):
    a, b = drawn(6, 8, F64, "by rows", 1), drawn(8, 5, F64, "by rows", 2)
    whole = torch.zeros(6, 10, dtype=F64)
    products.write(whole[:, ::2], a, b)
    torch.testing.assert_close(whole[:, ::2], a @ b)
    assert not whole[:, 1::2].any()


@pytest.mark.parametrize("width", [40, 3])  # wide inputs are one large product, too
@pytest.mark.parametrize("name", ["NNRNN", "GORU", "GatedNNRNN", "RelRNN", "RelLSTM", "MemRNN"])
def test_layers_give_the_same_with_products_of_the_kernel_and_of_torch(name, width, monkeypatch):
    g = torch.Generator().manual_seed(0)
    layer = getattr(kreiss, name)(width, 12, dtype=F64, generator=g)
    x = torch.randn(30, 3, width, dtype=F64, generator=g, requires_grad=True)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()]))

    found = []
    for is_fast in (True, False):
        monkeypatch.setattr(native, "is_fast", lambda is_fast=is_fast: is_fast)
        found.append(gradients())
    with reference_only():
        found.append(gradients())
    for one, *others in zip(*found, strict=True):
        for other in others:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
