"""Products with triangles, small turns of an orthogonal matrix, and its upkeep."""

from __future__ import annotations

import pytest
import torch

import kreiss
from kreiss import linalg

F64 = torch.float64


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quasi_lower(n: int) -> torch.Tensor:
    """Lower triangular but for 2×2 diagonal blocks at even places."""
    m = torch.randn(n, n, dtype=F64, generator=seeded(n)).tril()
    for i in range(0, n - 1, 2):
        m[i, i + 1] = 1.0 + i
    return m


def orthogonal(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=F64, generator=seeded(n)))[0].to(dtype)


def small_skew(n: int, size: float, dtype: torch.dtype) -> torch.Tensor:
    a = torch.randn(n, n, dtype=F64, generator=seeded(3))
    a = a - a.mT
    return (a * (size / torch.linalg.matrix_norm(a, 2))).to(dtype)


@pytest.mark.parametrize("n", [1, 7, 511, 512, 513, 514, 517, 530])
def test_products_with_a_triangle_leave_out_nothing_but_zeros(n):
    m, x = quasi_lower(n), torch.randn(n, n, dtype=F64, generator=seeded(1))
    torch.testing.assert_close(linalg.times_lower(x, m), x @ m, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(linalg.times_lower_transposed(x, m), x @ m.mT, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("size", [0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0])
def test_a_turn_is_the_cayley_retraction_to_rounding_however_small_or_large(size, dtype):
    base, a = orthogonal(40, dtype), small_skew(40, size, dtype)
    exact = base.double() @ linalg.cayley(-a.double() / 2)
    assert (linalg.turned(base, a).double() - exact).abs().max() <= 10 * torch.finfo(dtype).eps


@pytest.mark.parametrize(("size", "inverses"), [(1e-3, 0), (1e-2, 0), (1.0, 1)])
def test_a_small_turn_takes_no_inverse(size, inverses, monkeypatch):
    taken, inverse = [], torch.linalg.inv
    monkeypatch.setattr(torch.linalg, "inv", lambda m: (taken.append(1), inverse(m))[1])
    linalg.turned(orthogonal(40, torch.float32), small_skew(40, size, torch.float32))
    assert len(taken) == inverses


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_an_orthogonal_matrix_is_left_alone_and_a_worn_one_is_polished(dtype):
    p = linalg.newton_schulz(orthogonal(64, dtype))
    assert linalg.polished(p) is p
    worn = p + 100 * torch.finfo(dtype).eps * torch.randn(64, 64, generator=seeded(5), dtype=dtype)
    error = lambda q: float(torch.linalg.matrix_norm(q.double().mT @ q.double() - torch.eye(64), 2))  # noqa: E731
    assert error(linalg.polished(worn)) < error(worn) / 20
    assert torch.isnan(linalg.polished(torch.full((3, 3), torch.nan))).all()


def test_a_base_point_moved_after_every_step_stays_orthogonal_and_the_matrix_where_it_was():
    layer = kreiss.NNRNN(2, 64, generator=seeded(0))
    for step in range(300):
        with torch.no_grad():
            layer.orthogonal_l0.copy_(1e-4 * torch.randn(layer.orthogonal_l0.shape, generator=seeded(step)))
        before = layer.weight_hh_l0.detach()
        layer.rebase()
        assert (layer.weight_hh_l0 - before).abs().max() <= 2e-6
        assert not layer.orthogonal_l0.any()
    assert layer.constraint_error() <= 2e-6


def test_the_gradient_of_a_large_schur_map_is_that_of_the_plain_functions():
    schur = kreiss.Schur(514, real=(1, 1))
    free = schur.initial("random", generator=seeded(2), dtype=F64)
    free = tuple((t + 1e-3 * torch.randn(t.shape, generator=seeded(7), dtype=F64)).requires_grad_() for t in free)
    outer = torch.randn(514, 514, dtype=F64, generator=seeded(4))
    found = torch.autograd.grad(schur(*free), free, outer)
    p = schur.orthogonal(free[0])
    expected = torch.autograd.grad(p @ schur.core(*free) @ p.mT, free, outer)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max()))


# ---------------------------------------------------------------- exponential and Cayley map of large skew matrices


def skew_of_norm(n: int, norm: float, dtype: torch.dtype) -> torch.Tensor:
    """A skew matrix, skew-Hermitian where the dtype is complex."""
    a = torch.randn(n, n, dtype=torch.complex128 if dtype.is_complex else F64, generator=seeded(3))
    a = a - a.mH
    return (a * (norm / torch.linalg.matrix_norm(a, 2))).to(dtype)


def unitarity_error(p: torch.Tensor) -> float:
    p = p.detach().to(torch.complex128)
    return float((p.mH @ p - torch.eye(len(p))).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("n", [2, 24, 25])
def test_an_exponential_is_orthogonal_and_as_exact_as_its_argument_however_large_that_is(n, dtype):
    eps = torch.finfo(dtype).eps
    for norm in (0.0, 1.0, 40.0, 100.0, 400.0, 800.0, 2e3, 1e4, 1e6, 1e9):
        a = skew_of_norm(n, norm, dtype).requires_grad_()
        p = linalg.expm_skew(a)
        assert unitarity_error(p) <= 64 * eps, norm
        values, vectors = torch.linalg.eigh(1j * a.detach().to(torch.complex128))
        exact = (vectors * torch.exp(-1j * values)) @ vectors.mH
        assert (p - exact).abs().max() <= eps * (32 + 4 * norm), norm
        (gradient,) = torch.autograd.grad(p, a, torch.ones_like(p))
        assert gradient.norm() <= 2 * n, norm  # the derivative of the exponential has norm 1 at most


def test_an_exponential_of_ordinary_norm_takes_no_more_products_than_three_squarings(monkeypatch):
    polish, taken = linalg.newton_schulz, []
    monkeypatch.setattr(linalg, "newton_schulz", lambda p: (taken.append(1), polish(p))[1])
    linalg.expm_skew(skew_of_norm(64, 20.0, F64))
    assert not taken
    linalg.expm_skew(skew_of_norm(64, 1e3, F64))
    assert 4 <= len(taken) <= 7


def test_an_exponential_of_numbers_that_are_none_is_none_and_comes_back():
    for value in (float("nan"), float("inf"), 1e30):
        a = torch.zeros(4, 4)
        a[1, 0], a[0, 1] = value, -value
        assert linalg.expm_skew(a).isnan().any()


def test_exponentials_of_unlike_norms_under_vmap_equal_those_alone():
    both = torch.stack([skew_of_norm(6, 1.0, F64), skew_of_norm(6, 3e3, F64)])
    alone = torch.stack([linalg.expm_skew(a) for a in both])
    torch.testing.assert_close(torch.func.vmap(linalg.expm_skew)(both), alone, rtol=0, atol=1e-11)
    assert linalg.expm_skew(both.to("meta")[0]).shape == (6, 6)


@pytest.mark.parametrize("dtype", [F64, torch.complex128])
def test_a_compiled_exponential_has_the_values_and_gradients_of_the_eager_one(dtype):
    compiled = torch.compile(linalg.expm_skew, fullgraph=True, backend="aot_eager")
    outer = torch.randn(6, 6, dtype=dtype, generator=seeded(1))
    for norm in (1.0, 3e3):
        a = skew_of_norm(6, norm, dtype).requires_grad_()
        (found, expected) = (
            (p.detach(), *torch.autograd.grad(p, a, outer)) for p in (compiled(a), linalg.expm_skew(a))
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n", [24, 25, 127])
def test_a_cayley_map_is_orthogonal_to_rounding_times_the_norm_of_its_argument(n, dtype):
    for norm in (1.0, 1e2, 1e3, 1e4, 1e6):
        a = skew_of_norm(n, norm, dtype)
        assert linalg.orthogonality_error(linalg.cayley(a)) <= torch.finfo(dtype).eps * (64 + norm), norm
