"""Complex layers: each against a naive transcription in complex arithmetic, its theorem, and its published size."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import kreiss
from catalogue import COMPLEX, STRUCTURED, many_steps
from kreiss import linalg
from kreiss.networks import LAYERS, RecurrentNetwork
from kreiss.recurrence import reference_only
from kreiss.sets import initial

F64 = torch.float64
double: dict[str, Any] = {"dtype": F64}
by_complex_layer = pytest.mark.parametrize("name", COMPLEX)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(layer: nn.Module, scale: float = 0.3) -> nn.Module:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=seeded(7), dtype=parameter.dtype))
    return layer


def number(layer: nn.Module, name: str) -> np.ndarray:
    return getattr(layer, f"{name}_l0").detach().numpy()


# ---------------------------------------------------------------- naive transcriptions


def skew_hermitian(packed: np.ndarray, n: int) -> np.ndarray:
    """Real parts below the diagonal row by row, imaginary ones, then the diagonal over √2, if any."""
    a, pairs = np.zeros((n, n), dtype=complex), [(i, j) for i in range(n) for j in range(i)]
    for k, (i, j) in enumerate(pairs):
        a[i, j] = packed[k] + 1j * packed[len(pairs) + k]
        a[j, i] = -a[i, j].conjugate()
    for i, value in enumerate(packed[2 * len(pairs) :]):
        a[i, i] = 1j * 2**0.5 * value
    return a


def around_its_base(layer: nn.Module, base: Tensor, n: int) -> np.ndarray:
    half = skew_hermitian(number(layer, "unitary"), n) / 2
    b = base.numpy()
    return (b[..., 0] + 1j * b[..., 1]) @ np.linalg.inv(np.eye(n) - half) @ (np.eye(n) + half)


def scurnn(layer: nn.Module, n: int) -> np.ndarray:
    a = skew_hermitian(number(layer, "unitary"), n)
    return np.linalg.inv(np.eye(n) + a) @ (np.eye(n) - a) @ np.diag(np.exp(1j * number(layer, "phase")))


def fullurnn(layer: nn.Module, n: int) -> np.ndarray:
    return around_its_base(layer, layer.sets["l0"].map.base, n)


def urnn(layer: nn.Module, n: int) -> np.ndarray:
    d1, d2, d3 = (np.diag(np.exp(1j * angles)) for angles in number(layer, "phase"))
    r1, r2 = (
        np.eye(n) - 2 * np.outer(v, v.conj()) / np.vdot(v, v)
        for v in (part[:, 0] + 1j * part[:, 1] for part in number(layer, "reflection"))
    )
    f = np.array([[np.exp(-2j * np.pi * j * k / n) for k in range(n)] for j in range(n)]) / n**0.5
    scattered = np.eye(n)[layer.sets["l0"].map.constant("permutation", torch.device("cpu")).numpy()]
    return d3 @ r2 @ f.conj().T @ d2 @ scattered @ r1 @ f @ d1


def rotations(layer: nn.Module, n: int, pairs: list[list[tuple[int, int]]]) -> np.ndarray:
    v, angles = np.eye(n, dtype=complex), iter(number(layer, "rotation").T)
    for one_layer in pairs:
        for i, j in one_layer:
            theta, phi = next(angles)
            turn = np.eye(n, dtype=complex)
            turn[i, i], turn[i, j] = np.exp(1j * phi) * np.cos(theta), -np.sin(theta)
            turn[j, i], turn[j, j] = np.exp(1j * phi) * np.sin(theta), np.cos(theta)
            v = turn @ v
    assert next(angles, None) is None
    return np.diag(np.exp(1j * number(layer, "phase"))) @ v


def tunable(layer: nn.Module, n: int) -> np.ndarray:
    capacity = layer.sets["l0"].map.options["capacity"]
    return rotations(layer, n, [[(i, i + 1) for i in range(k % 2, n - 1, 2)] for k in range(capacity)])


def fft_style(layer: nn.Module, n: int) -> np.ndarray:
    strides = [2**k for k in range(20) if 2**k < n]
    return rotations(layer, n, [[(i, i + s) for i in range(n - s) if (i // s) % 2 == 0] for s in strides])


def complexnnrnn(layer: nn.Module, n: int) -> np.ndarray:
    p = around_its_base(layer, layer.sets["l0"].unitary.map.base, n)
    gamma = number(layer, "radius") if hasattr(layer, "radius_l0") else np.full(n, 0.95)
    core = np.diag(gamma * np.exp(1j * number(layer, "angle")))
    packed, pairs = number(layer, "coupling"), [(i, j) for i in range(n) for j in range(i)]
    for k, (i, j) in enumerate(pairs):
        core[i, j] = packed[k] + 1j * packed[len(pairs) + k]
    return p @ core @ p.conj().T


NAIVE: dict[str, Callable[[nn.Module, int], np.ndarray]] = {
    "scurnn": scurnn,
    "urnn": urnn,
    "eurnn": tunable,
    "fullurnn": fullurnn,
    "complexnnrnn": complexnnrnn,
    "urnn-structured": urnn,
    "eurnn-structured": tunable,
    "eurnn-fft": fft_style,
    "eurnn-fft-structured": fft_style,
    "complexnnrnn-clamped": complexnnrnn,
}


def test_every_complex_layer_has_a_transcription():
    assert set(NAIVE) == set(COMPLEX)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
@by_complex_layer
def test_every_complex_layer_is_its_equation_in_complex_numbers(name, n):
    layer = moved(COMPLEX[name](3, n, **double))
    x, h0 = torch.randn(6, 2, 3, **double), torch.randn(1, 2, 2 * n, **double)
    out, last = layer(x, h0)
    v, u, b = NAIVE[name](layer, n), number(layer, "weight_ih"), number(layer, "bias")
    u = u[0::2] + 1j * u[1::2]
    for i in range(2):
        h = h0[0, i, 0::2].numpy() + 1j * h0[0, i, 1::2].numpy()
        for t in range(6):
            z = v @ h + u @ x[t, i].numpy()
            h = z / np.abs(z) * np.maximum(np.abs(z) + b, 0)
            assert np.allclose(layer.as_complex(out.detach())[t, i], h, atol=1e-11)
        assert np.allclose(layer.as_complex(last.detach())[0, i], h, atol=1e-11)


@given(name=st.sampled_from(list(COMPLEX)), n=st.integers(1, 9), seed=st.integers(0, 1000))
def test_the_real_matrix_is_the_complex_one_of_the_transcription(name, n, seed):
    layer = moved(COMPLEX[name](1, n, generator=seeded(seed), **double))
    expected = linalg.real_image(torch.from_numpy(NAIVE[name](layer, n)))
    assert torch.allclose(layer.weight_hh_l0, expected, atol=1e-11)


def test_the_complex_view_shares_the_numbers_of_the_state():
    state = torch.randn(2, 3, 8)
    view = kreiss.ScuRNN.as_complex(state)
    assert view.shape == (2, 3, 4)
    state[0, 0, :2] = torch.tensor([3.0, -4.0])
    assert view[0, 0, 0] == 3 - 4j


def test_modrelu_on_the_modulus_commutes_with_a_turn_of_the_phase():
    layer = kreiss.FullURNN(2, 4, **double)
    h = torch.randn(1, 3, 8, **double)
    turned = torch.view_as_real(layer.as_complex(h) * torch.exp(torch.tensor(0.7j))).flatten(-2)
    x = torch.zeros(5, 3, 2, **double)
    one, other = layer.as_complex(layer(x, h)[0]), layer.as_complex(layer(x, turned)[0])
    assert torch.allclose(one * torch.exp(torch.tensor(0.7j)), other, atol=1e-12)


# ---------------------------------------------------------------- unitary matrices

UNITARY: dict[str, Callable[..., Any]] = {
    "scurnn": kreiss.ScuRNN,
    "urnn": kreiss.URNN,
    "eurnn": lambda *sizes, **options: kreiss.EURNN(*sizes, capacity=sizes[1], **options),  # the full one
    "eurnn-fft": lambda *sizes, **options: kreiss.EURNN(*sizes, fft=True, **options),
    "fullurnn": kreiss.FullURNN,
    "fullurnn-expm": lambda *sizes, **options: kreiss.FullURNN(*sizes, unitary="expm", **options),
}
by_unitary_layer = pytest.mark.parametrize("name", UNITARY)


@many_steps
@by_unitary_layer
def test_the_error_is_rounding_alone_after_many_steps(name, steps):
    layer = UNITARY[name](2, 3)
    held, free = layer.sets["l0"], layer._free("l0")
    longer = 50 if name == "fullurnn-expm" else 1  # nothing adds up in an exponential: fewer and longer steps will do
    optimizer = torch.optim.RMSprop(free, lr=1e-3 * longer)
    target = initial.random_unitary(3, seeded(1)).to(torch.complex64)
    for _ in range(steps // longer):
        optimizer.zero_grad()
        torch.view_as_real(held.complex(*free) - target).square().sum().backward()
        optimizer.step()
    assert layer.constraint_error() <= 1e-5


def test_ten_thousand_multiplicative_steps_leave_rounding_alone():
    layer = kreiss.FullURNN(2, 8)
    matrix = nn.Parameter(torch.linalg.qr(torch.randn(8, 8, dtype=torch.complex64, generator=seeded(0)))[0])
    optimizers = [kreiss.optim.Stiefel(layer, lr=1e-2), kreiss.optim.Stiefel([matrix], lr=1e-2)]
    for step in range(10_000):
        if step % 100 == 0:  # a direction that changes keeps the matrix moving
            matrix.grad = torch.randn(8, 8, dtype=torch.complex64, generator=seeded(step))
            layer.unitary_l0.grad = torch.randn(64, generator=seeded(step))
        for optimizer in optimizers:
            optimizer.step()
    assert layer.constraint_error() <= 1e-5
    assert (matrix.mH @ matrix - torch.eye(8)).abs().max() <= 1e-5


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fullurnn_with_expm_is_the_exponential_of_a_combination_of_a_basis_of_the_lie_algebra(n):
    layer = kreiss.FullURNN(2, n, unitary="expm", **double)
    numbers = layer.unitary_l0.detach()
    basis = [skew_hermitian(row, n) for row in np.eye(n * n)]
    assert np.linalg.matrix_rank(np.reshape([np.stack([t.real, t.imag]) for t in basis], (n * n, -1))) == n * n
    a = sum(float(number) * t for number, t in zip(numbers, basis, strict=True))
    assert np.allclose(a, -a.conj().T)
    values, vectors = np.linalg.eigh(-1j * a)
    expected = (vectors * np.exp(1j * values)) @ vectors.conj().T
    assert np.allclose(linalg.complex_part(layer.weight_hh_l0.detach()), expected, atol=1e-13)


@pytest.mark.parametrize("values", [[1, 1, 1, 1], [-1, -1, 1j, 1j], [-1, -1, -1, -1], [1, 1j, -1j, -1]])
def test_the_logarithm_takes_eigenvalues_that_meet_and_minus_one(values):
    q = initial.random_unitary(4, seeded(5))
    p = (q * torch.tensor(values)) @ q.mH
    made = kreiss.Unitary(4, "expm")
    image = linalg.real_image(p)
    assert torch.allclose(made(*made.right_inverse(image)), image, atol=1e-12)


@by_unitary_layer
def test_the_norm_of_the_state_is_constant_over_a_thousand_linear_steps(name):
    layer = UNITARY[name](2, 12, nonlinearity="identity", bias=False, **double)
    h = torch.randn(1, 3, 24, generator=seeded(0), dtype=F64)
    with torch.no_grad():
        out, _ = layer(torch.zeros(1000, 3, 2, dtype=F64), h)
    assert torch.allclose(out.norm(dim=-1), h.norm(dim=-1).expand(1000, 3), rtol=1e-10)


def distance_after_descent(layer: nn.Module, target: Tensor, steps: int) -> float:
    """Of V to the complex matrix `target`, in Frobenius norm, after L-BFGS on the numbers that make V."""
    held, free, wanted = layer.sets["l0"], layer._free("l0"), linalg.complex_part(target)
    optimizer = torch.optim.LBFGS(
        free, max_iter=steps, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=1e-7, tolerance_change=0
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.view_as_real(held.complex(*free) - wanted).square().sum()
        loss.backward()
        return loss.detach()

    optimizer.step(closure)
    return float(closure()) ** 0.5


def special(kind: str, n: int, seed: int) -> Tensor:
    """A random unitary or orthogonal matrix of determinant 1, in real form."""
    if kind == "orthogonal":
        c = initial.random(n, generator=seeded(seed)).to(torch.complex128)
    else:
        c = initial.random_unitary(n, seeded(seed))
        c = c / torch.linalg.det(c) ** (1 / n)
    assert abs(torch.linalg.det(c) - 1) < 1e-9
    return linalg.real_image(c)


def nearest(make: Callable[[int], nn.Module], target: Tensor, *, starts: int, steps: int) -> float:
    """The smallest distance from a few starts; no more of them once one is within 1e-3."""
    best = float("inf")
    for seed in range(starts):
        best = min(best, distance_after_descent(make(seed), target, steps))
        if best <= 1e-3:
            break
    return best


@pytest.mark.parametrize("kind", ["orthogonal", "unitary"])
@pytest.mark.parametrize("name", ["scurnn", "eurnn", "fullurnn-expm"])
def test_full_capacity_reaches_a_random_special_matrix_by_gradient_descent(name, kind):
    def make(seed: int) -> nn.Module:
        return UNITARY[name](2, 8, init="random", generator=seeded(seed), **double)

    # a chart has an edge, and angles have turning points, where descent from one start may end, not from all
    assert nearest(make, special(kind, 8, 11), starts=4, steps=1000) <= 1e-3


@pytest.mark.parametrize("kind", ["orthogonal", "unitary"])
def test_multiplicative_steps_of_fullurnn_reach_a_random_special_matrix_from_any_start(kind):
    for seed in range(3):
        target = special(kind, 8, 20 + seed)
        layer = kreiss.FullURNN(2, 8, generator=seeded(seed), **double)
        optimizer = kreiss.optim.Stiefel(layer, lr=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            (layer.weight_hh_l0 - target).square().sum().backward()
            optimizer.step()
        assert (layer.weight_hh_l0 - target).detach().norm() <= 1e-3


def dimensions(layer: nn.Module) -> int:
    """Of the set of matrices near the present one: the rank of the map from free numbers to the matrix."""
    held, free = layer.sets["l0"], [tensor.detach() for tensor in layer._free("l0")]
    parts = torch.autograd.functional.jacobian(lambda *free: held(*free), tuple(free))
    rows = torch.cat([part.flatten(2).flatten(0, 1) for part in parts], 1)
    return int(torch.linalg.matrix_rank(rows, rtol=1e-9))


@pytest.mark.parametrize("n", [2, 5, 8])
def test_full_capacity_has_all_n_squared_dimensions(n):
    for name in ("scurnn", "eurnn", "fullurnn", "fullurnn-expm"):
        assert dimensions(moved(UNITARY[name](1, n, init="random", generator=seeded(1), **double))) == n**2


@pytest.mark.parametrize("n", [6, 8, 9, 12])
def test_urnn_has_seven_n_minus_seven_dimensions_too_few_for_every_unitary_matrix_from_six_units_on(n):
    for seed in range(2):
        layer = kreiss.URNN(1, n, generator=seeded(seed), **double)
        assert dimensions(layer) == 7 * n - 7 < n**2


@pytest.mark.parametrize("n", [2, 3, 5])
def test_urnn_has_all_dimensions_up_to_five_units(n):
    assert dimensions(kreiss.URNN(1, n, generator=seeded(0), **double)) == n**2


def test_two_reflections_of_urnn_can_turn_together_without_changing_the_matrix():
    layer, n = kreiss.URNN(1, 6, generator=seeded(0), **double), 6
    held, (phase, reflection) = layer.sets["l0"], layer._free("l0")
    permuted = torch.eye(n, dtype=torch.complex128)[held.map.constant("permutation", phase.device)]
    inverse_fourier = torch.fft.ifft(torch.eye(n, dtype=torch.complex128), norm="ortho")
    between = inverse_fourier @ torch.diag(linalg.phases(phase[1].detach())) @ permuted  # M of R₂MR₁
    first, second = torch.view_as_complex(reflection.detach()).unbind(0)
    first, second = first / first.norm(), between.mH @ (second / second.norm())
    second = second * torch.exp(1j * torch.vdot(second, first).angle())  # so that ⟨second, first⟩ is real
    aside = second - torch.vdot(first, second) * first
    aside = aside / aside.norm()

    def turned(v: Tensor, angle: float) -> Tensor:
        along, across = torch.vdot(first, v).real, torch.vdot(aside, v).real
        rotated = torch.polar(torch.hypot(along, across), torch.atan2(across, along) + angle)
        return rotated.real * first + rotated.imag * aside

    moved = torch.view_as_real(torch.stack([turned(first, 0.7), between @ turned(second, 0.7)]))
    assert torch.allclose(held(phase, moved), held(phase, reflection), atol=1e-12)
    assert not torch.allclose(held(phase, torch.stack([moved[0], reflection[1]])), held(phase, reflection), atol=0.1)


@pytest.mark.parametrize("kind", ["orthogonal", "unitary"])
def test_urnn_does_not_reach_a_random_special_matrix_of_eight_units(kind):
    def make(seed: int) -> nn.Module:
        return kreiss.URNN(2, 8, generator=seeded(seed), **double)

    assert nearest(make, special(kind, 8, 11), starts=3, steps=300) > 0.1


def test_urnn_does_reach_a_random_special_matrix_of_three_units():
    # by the same descent: what stops it at eight units is the set
    def make(seed: int) -> nn.Module:
        return kreiss.URNN(2, 3, generator=seeded(seed), **double)

    assert nearest(make, special("unitary", 3, 11), starts=3, steps=300) <= 1e-3


@given(n=st.integers(1, 7), seed=st.integers(0, 1000), radius=st.sampled_from(["free", 0.9, 1.0]))
def test_eigenvalues_of_complexnnrnn_are_its_radii_and_angles_whatever_the_rest(n, seed, radius):
    layer = kreiss.ComplexNNRNN(1, n, radius=radius, init="random", generator=seeded(seed), **double)
    with torch.no_grad():
        layer.coupling_l0.normal_(generator=seeded(seed + 1)).mul_(0.1)
        layer.unitary_l0.normal_(generator=seeded(seed + 2))
    gamma = layer.radius_l0 if radius == "free" else torch.full((n,), float(radius), dtype=F64)
    asked = (gamma * linalg.phases(layer.angle_l0)).detach()
    found = torch.linalg.eigvals(linalg.complex_part(layer.weight_hh_l0.detach()))
    for value in asked:
        assert (found - value).abs().min() < 1e-4  # those of a non-normal matrix are found to a root of the precision


# ---------------------------------------------------------------- products applied as such


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_product_applied_factor_by_factor_is_the_matrix(name, n):
    layer = moved(STRUCTURED[name](3, n, 2, bidirectional=True, **double))
    x, h = torch.randn(5, 2, 3, **double), torch.randn(4, 2, 2 * n, **double)
    assert layer.applies_product()
    found, expected = layer(x, h), layer.freeze()(x, h)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "from_units"),
    [
        (lambda n: kreiss.URNN(1, n, device="meta"), 512),
        (lambda n: kreiss.EURNN(1, n, fft=True, device="meta"), 768),
        (lambda n: kreiss.EURNN(1, n, device="meta"), 512),
        (lambda n: kreiss.EURNN(1, n, capacity=8, device="meta"), 768),
        (lambda n: kreiss.EURNN(1, n, capacity=32, device="meta"), 1536),
    ],
    ids=["urnn", "eurnn-fft", "eurnn", "eurnn-8", "eurnn-32"],
)
def test_large_layers_apply_the_product_and_small_ones_the_matrix_and_say_so(make, from_units):
    assert "applied='dense'" in repr(make(from_units - 1))
    assert "applied='structured'" in repr(make(from_units))


def test_a_frozen_layer_applies_the_matrix_and_says_so():
    layer = kreiss.URNN(3, 4, structured=True)
    assert "applied='structured'" in repr(layer)
    assert "applied='dense'" in repr(layer.freeze())


# ---------------------------------------------------------------- the optimiser


def stepped(w: Tensor, gradient: Tensor, lr: float) -> np.ndarray:
    """(I + λ/2·S)⁻¹(I − λ/2·S)W with S = GW* − WG*, as written."""
    w_, g = w.detach().numpy(), gradient.detach().numpy()
    s, eye = g @ w_.conj().T - w_ @ g.conj().T, np.eye(len(w_))
    return np.linalg.inv(eye + lr / 2 * s) @ (eye - lr / 2 * s) @ w_


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (6, 4), (9, 2), (7, 1)])
@pytest.mark.parametrize("dtype", [F64, torch.complex128])
def test_a_step_on_the_manifold_is_its_formula(shape, dtype):
    w = nn.Parameter(torch.linalg.qr(torch.randn(shape, dtype=dtype, generator=seeded(0)))[0])
    optimizer = kreiss.optim.Stiefel([w], lr=0.3)
    for seed in range(3):
        w.grad = torch.randn(shape, dtype=dtype, generator=seeded(seed))
        expected = stepped(w, w.grad, 0.3)
        optimizer.step()
        assert np.allclose(w.detach(), expected, atol=1e-12)
    assert (w.mH @ w - torch.eye(shape[1])).abs().max() < 1e-12


def test_a_step_of_fullurnn_is_the_step_of_its_matrix():
    layer, target = kreiss.FullURNN(2, 5, **double), initial.random_unitary(5, seeded(1))
    matrix = nn.Parameter(linalg.complex_part(layer.weight_hh_l0.detach()))
    ours, plain = kreiss.optim.Stiefel(layer, lr=0.05), kreiss.optim.Stiefel([matrix], lr=0.05)
    for _ in range(20):
        for optimizer in (ours, plain):
            optimizer.zero_grad()
        # the real image holds every number of the complex matrix twice
        ((layer.weight_hh_l0 - linalg.real_image(target)).square().sum() / 2).backward()
        (matrix - target).abs().square().sum().backward()
        ours.step()
        plain.step()
        assert torch.allclose(linalg.complex_part(layer.weight_hh_l0), matrix, atol=1e-10)


def test_smoothing_in_fullurnn_is_that_of_the_gradient_of_its_matrix():
    layer, target = kreiss.FullURNN(2, 5, **double), initial.random_unitary(5, seeded(1))
    optimizer = kreiss.optim.Stiefel(layer, lr=0.05, alpha=0.9)
    mean, eye = np.zeros((5, 5, 2)), np.eye(5)
    for step in range(10):
        before = linalg.complex_part(layer.weight_hh_l0.detach()).numpy()
        optimizer.zero_grad()
        for weight in (0.3, 0.7):  # two passes whose gradients add up
            (weight * (layer.weight_hh_l0 - linalg.real_image(target)).square().sum() / 2).backward()
        clipped = 1.0
        if step == 5:
            clipped = 0.1 / float(nn.utils.clip_grad_norm_(layer.parameters(), 0.1))
        optimizer.step()
        g = 2 * (before - target.numpy()) * clipped
        parts = np.stack([g.real, g.imag], -1)
        mean = 0.9 * mean + 0.1 * parts**2
        g = (parts / (np.sqrt(mean) + 1e-8)) @ [1, 1j]
        s = g @ before.conj().T - before @ g.conj().T
        expected = np.linalg.inv(eye + 0.025 * s) @ (eye - 0.025 * s) @ before
        assert np.allclose(linalg.complex_part(layer.weight_hh_l0.detach()), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["exprnn", "nnrnn", "complexnnrnn"])
def test_smoothing_by_gradient_works_for_every_matrix_around_a_base_point(name):
    layers = [LAYERS[name](2, 4, 2, init="random", generator=seeded(0), **double) for _ in range(2)]
    optimizers = [
        kreiss.optim.Stiefel(layer, lr=1e-3, alpha=0.9, smooth=smooth)
        for layer, smooth in zip(layers, ("gradient", "coordinates"), strict=True)
    ]
    x = torch.randn(6, 3, 2, generator=seeded(1), dtype=F64)
    for layer, optimizer in zip(layers, optimizers, strict=True):
        losses = []
        for _ in range(20):
            layer.zero_grad()
            loss = (layer(x)[0] + layer(2 * x)[0] - 1).square().mean()  # two matrices, one backward pass
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        assert layer.constraint_error() < 1e-12
    assert not torch.allclose(layers[0].weight_hh_l0, layers[1].weight_hh_l0, atol=1e-6)


def test_a_gradient_that_is_not_of_the_matrix_alone_is_refused_when_that_is_smoothed():
    layer = kreiss.FullURNN(2, 3, generator=seeded(0), **double)
    optimizer = kreiss.optim.Stiefel(layer, lr=0.01, alpha=0.9)
    layer(torch.randn(4, 2, 2, **double))[0].square().sum().backward()
    layer.unitary_l0.grad += torch.linspace(-3, 3, 9, dtype=F64)
    with pytest.raises(kreiss.InputError, match=r"must come from the matrix alone.*smooth=\"coordinates\""):
        optimizer.step()


def test_the_state_of_an_optimiser_saved_before_smoothing_could_be_chosen_is_taken_up_as_it_was():
    layer = kreiss.FullURNN(2, 3, **double)
    old = kreiss.optim.Stiefel(layer, lr=0.01, alpha=0.9, smooth="coordinates")
    layer(torch.randn(4, 2, 2, **double))[0].square().sum().backward()
    old.step()
    state = old.state_dict()
    del state["param_groups"][0]["smooth"]
    new = kreiss.optim.Stiefel(layer, lr=0.01, alpha=0.9)
    new.load_state_dict(state)
    assert new.param_groups[0]["smooth"] == "coordinates"
    new.step()


@pytest.mark.parametrize("alpha", [None, 0.9])
def test_ordinary_descent_that_moves_the_base_point_every_step_is_the_same(alpha):
    layers = [kreiss.FullURNN(2, 5, generator=seeded(3), **double) for _ in range(2)]
    free = layers[1].unitary_l0
    ordinary: Any = torch.optim.SGD([free], lr=0.05)
    if alpha is not None:
        ordinary = torch.optim.RMSprop([free], lr=0.05, alpha=alpha)
    kreiss.rebase_every(layers[1], ordinary, 1)
    optimizers = [kreiss.optim.Stiefel(layers[0], lr=0.05, alpha=alpha, smooth="coordinates"), ordinary]
    for step in range(10):
        x = torch.randn(4, 2, 2, generator=seeded(step), dtype=F64)
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            layer(x)[0].square().sum().backward()
            optimizer.step()
        assert torch.allclose(layers[0].weight_hh_l0, layers[1].weight_hh_l0, atol=1e-10)


@pytest.mark.parametrize("alpha", [None, 0.9])
def test_an_optimiser_taken_up_again_takes_the_same_steps(alpha):
    def begun() -> tuple[nn.Module, nn.Parameter, list[Any]]:
        layer = kreiss.FullURNN(2, 4, generator=seeded(0))
        w = nn.Parameter(torch.linalg.qr(torch.randn(6, 3, generator=seeded(1)))[0])
        make = kreiss.optim.Stiefel
        return layer, w, [make(layer, lr=0.02, alpha=alpha), make([w], lr=0.02, alpha=alpha, polish_every=3)]

    def go_on(layer: nn.Module, w: nn.Parameter, optimizers: list[Any], steps: range) -> None:
        for step in steps:
            for optimizer in optimizers:
                optimizer.zero_grad()
            layer(torch.randn(4, 2, 2, generator=seeded(step)))[0].square().sum().backward()
            (w * torch.randn(6, 3, generator=seeded(step))).sum().backward()
            for optimizer in optimizers:
                optimizer.step()

    layer, w, optimizers = begun()
    go_on(layer, w, optimizers, range(5))
    again, v, others = begun()
    again.load_state_dict(layer.state_dict())
    v.data.copy_(w.data)
    for optimizer, other in zip(optimizers, others, strict=True):
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    go_on(layer, w, optimizers, range(5, 12))
    go_on(again, v, others, range(5, 12))
    assert torch.equal(w, v)
    for key, tensor in layer.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key


def test_a_closure_is_called_and_matrices_without_gradient_stay():
    w, still = (nn.Parameter(torch.eye(3)) for _ in range(2))
    optimizer = kreiss.optim.Stiefel([w, still], lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (w @ torch.tensor([1.0, 2.0, 3.0])).square().sum() + w[0, 1]
        loss.backward()
        return loss.detach()

    assert float(optimizer.step(closure)) == pytest.approx(14.0)
    assert not torch.equal(w, torch.eye(3))
    assert torch.equal(still, torch.eye(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kreiss.optim.Stiefel([nn.Parameter(torch.eye(3))], lr=0.0), r"`lr` must be positive; got lr=0\.0\."),
        (
            lambda: kreiss.optim.Stiefel([nn.Parameter(torch.eye(3))], lr=0.1, alpha=1.0),
            r"`alpha` must be in \[0, 1\); got alpha=1\.0\.",
        ),
        (
            lambda: kreiss.optim.Stiefel([nn.Parameter(torch.ones(3, 2))], lr=0.1),
            r"must have orthonormal columns; got max\|W\*W − I\| = 3\. Orthogonalise",
        ),
        (
            lambda: kreiss.optim.Stiefel([nn.Parameter(torch.zeros(2, 3))], lr=0.1),
            r"must be n×p with p ≤ n; got shape \(2, 3\)\. Pass matrices alone",
        ),
        (
            lambda: kreiss.optim.Stiefel(kreiss.RNN(2, 3), lr=0.1),
            r"must have recurrent matrices around a base point; got one without\. Pass a FullURNN",
        ),
        (
            lambda: kreiss.optim.Stiefel(kreiss.FullURNN(2, 3, unitary="expm"), lr=0.1),
            r"must have recurrent matrices around a base point; got one without\.",
        ),
        (
            lambda: kreiss.FullURNN(2, 3, unitary="mesh"),
            r"parametrization of V .*'mesh'",
        ),
        (
            lambda: kreiss.EURNN(2, 4, capacity=2, fft=True),
            r"`capacity` belongs to the tunable form; got capacity=2 with fft=True\. Leave one",
        ),
        (
            lambda: kreiss.ScuRNN.from_torch(nn.RNN(2, 3)),
            r"two real entries per unit; got a torch\.nn\.RNN with hidden_size=3\. Pass one with an even",
        ),
        (
            lambda: kreiss.Unitary(2).right_inverse(torch.diag(torch.tensor([1.0, -1.0, 1.0, 1.0]))),
            r"must be a complex matrix in real form, blocks .* got blocks off by 1\. Make one",
        ),
        (
            lambda: kreiss.Unitary(2).right_inverse(2 * torch.eye(4)),
            r"must be unitary to .*; got max\|P\*P − I\| = 3\. Orthogonalise",
        ),
        (
            lambda: kreiss.Unitary(6, "fourier").right_inverse(torch.eye(12)),
            r"for a matrix of at most 5 units; got 6 units\. Load a state_dict",
        ),
        (
            lambda: kreiss.ComplexSchur(2, 0.5).right_inverse(torch.eye(4)),
            r"must have every \|λ\| = 0\.5; got one that is off by 0\.5\. Use radius",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(make, message):
    with pytest.raises(kreiss.InputError, match=message):
        make()


# ---------------------------------------------------------------- counts of parameters


def count(layer: nn.Module, output: int) -> int:
    """With a linear readout of the 2N reals."""
    return sum(parameter.numel() for parameter in RecurrentNetwork(layer, output).parameters())


META = {"device": "meta"}
# what, outputs, ours, published; the papers count a trained first state of N complex numbers too, which ours has not
PUBLISHED: dict[str, tuple[Callable[[], nn.Module], int, int, int]] = {
    # ENRNN paper, §5.1 and §5.2: "≈ 15k" with n = 120, "≈ 22k" with n = 128
    "adding fullurnn": (lambda: kreiss.FullURNN(2, 120, **META), 1, 15_241, 15_000),
    "copy fullurnn": (lambda: kreiss.FullURNN(10, 128, **META), 9, 21_385, 22_000),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_configurations_have_their_published_size(case):
    make, output, exact, published = PUBLISHED[case]
    assert count(make(), output) == exact
    assert abs(exact - published) <= 0.03 * published


# nnRNN paper, Tables 2, 3 and 5: EURNN with N units next to a budget, and no capacity printed
UNPRINTED = {
    "copy": (10, 256, 9, 0, 18_953, 34),
    "psmnist": (1, 1024, 10, 0, 268_298, 238),
    "ptb": (200, 2048, 50, 50 * 200, 1_315_650, 136),
}


@pytest.mark.parametrize("case", UNPRINTED)
def test_eurnn_reaches_the_budgets_of_the_nnrnn_paper_at_a_capacity_that_it_does_not_print(case):
    inputs, units, output, embedding, budget, capacity = UNPRINTED[case]

    def total(m: int) -> int:
        return count(kreiss.EURNN(inputs, units, capacity=m, **META), output) + embedding

    assert min(range(1, 2 * capacity), key=lambda m: abs(total(m) - budget)) == capacity
    assert abs(total(capacity) - budget) <= units
    assert total(2) < 0.8 * budget  # the two layers of the EURNN paper are far below it


def test_urnn_has_seven_numbers_per_unit_in_its_matrix():
    for n in (1, 8, 128):
        layer = kreiss.URNN(3, n, **META)
        assert sum(getattr(layer, name).numel() for name in layer.free_roles()) == 7 * n


@pytest.mark.parametrize("name", [name for name in LAYERS if name in COMPLEX])
def test_match_counts_a_readout_of_both_parts(name):
    n = kreiss.hidden_size_for(name, 20_000, input_size=10, output_size=9)
    sizes = {m: abs(count(COMPLEX[name](10, m, **META), 9) - 20_000) for m in (n - 1, n, n + 1)}
    assert min(sizes, key=sizes.__getitem__) == n


# ---------------------------------------------------------------- on the kernel


@by_complex_layer
def test_one_step_of_a_complex_layer_in_single_precision_is_right_to_rounding(name):
    layer = moved(COMPLEX[name](3, 9), 0.1)
    wide = COMPLEX[name](3, 9, **double)
    wide.load_state_dict({key: t.double() if t.is_floating_point() else t for key, t in layer.state_dict().items()})
    x, h = torch.randn(1, 4, 3), torch.randn(1, 4, 18)
    with reference_only():
        exact = wide(x.double(), h.double())[0]
    assert (layer(x, h)[0] - exact).abs().max() <= 3e-6 * (1 + exact.abs().max())
