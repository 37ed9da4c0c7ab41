"""The eigenvalue normalized network: its gradient, its spectrum, what remembers and what forgets."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from kreiss.sets import blas, initial, radius
from kreiss.sets import disc as disc_module
from kreiss.sets.radius import dominant

F64 = torch.float64
EPSILONS = (0.0, 1e-3, 0.1, 1.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_eigenvalues(kind: str, n: int = 6) -> Tensor:
    """A dense matrix whose dominant eigenvalue is well apart: real 1.5, or the pair 1.5 e^{±i}."""
    rest = initial.disc(n - 2, generator=seeded(1))
    pair = 1.5 * torch.tensor([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]], dtype=F64)
    top = torch.diag(torch.tensor([1.5, 0.3], dtype=F64)) if kind == "real" else pair
    basis = torch.randn(n, n, generator=seeded(2), dtype=F64)
    return basis @ torch.block_diag(top, rest) @ torch.linalg.inv(basis)


def spectral_radius(matrix: Tensor) -> float:
    return float(np.abs(np.linalg.eigvals(matrix.detach().double().numpy())).max())


def central_differences(f, t: Tensor, h: float = 1e-6) -> Tensor:
    found = torch.zeros_like(t)
    for i in range(t.numel()):
        step = torch.zeros_like(t).view(-1)
        step[i] = h
        step = step.view_as(t)
        found.view(-1)[i] = (f(t + step) - f(t - step)) / (2 * h)
    return found


# ---------------------------------------------------------------- the gradient


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_the_gradient_equals_central_differences_for_every_epsilon(kind, epsilon):
    made, t = kreiss.UnitDisc(6, epsilon), with_eigenvalues(kind)
    weights = torch.randn(6, 6, generator=seeded(3), dtype=F64)
    loss = lambda t: (made(t) * weights).sum() + made(t).square().sum()  # noqa: E731
    leaf = t.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    expected = central_differences(lambda t: float(loss(t)), t)
    assert (found - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_the_gradient_is_the_corrected_formula_and_the_printed_one_is_right_for_epsilon_0_only(kind):
    t, g = with_eigenvalues(kind), torch.randn(6, 6, generator=seeded(3), dtype=F64)
    values, right = np.linalg.eig(t.numpy())
    best = int(np.argmax(np.abs(values)))
    u, rho = right[:, best], abs(values[best])
    v = np.linalg.inv(right)[best].conj()
    s = np.outer(v.conj(), u) / (v.conj() @ u)
    c = torch.from_numpy(values[best].real * s.real + values[best].imag * s.imag)
    for epsilon in EPSILONS:
        w, total = t / (rho + epsilon), rho + epsilon
        corrected = (g - (g * w).sum() * c / rho) / total
        printed = (g - (g * w).sum() * c / total) / total
        leaf = t.clone().requires_grad_()
        (found,) = torch.autograd.grad((kreiss.UnitDisc(6, epsilon)(leaf) * g).sum(), leaf)
        assert torch.allclose(found, corrected, rtol=0, atol=1e-10)
        assert torch.allclose(found, printed, rtol=0, atol=1e-10) == (epsilon == 0)


@given(n=st.integers(1, 12), seed=st.integers(0, 1000), epsilon=st.sampled_from(EPSILONS))
def test_the_radius_of_a_normalised_matrix_is_what_the_formula_says(n, seed, epsilon):
    t = 3 * torch.randn(n, n, generator=seeded(seed), dtype=F64)
    rho = spectral_radius(t)
    w = kreiss.UnitDisc(n, epsilon)(t)
    expected = rho / (rho + epsilon) if rho > 1 else rho
    assert spectral_radius(w) == pytest.approx(expected, rel=1e-9)


# ---------------------------------------------------------------- multiple dominant eigenvalues

MULTIPLE = {
    "identity": torch.eye(4, dtype=F64),
    "twice the identity": 2 * torch.eye(4, dtype=F64),
    "a real pair": torch.diag(torch.tensor([1.2, -1.2, 0.5, 0.1], dtype=F64)),
    "a defective block": 1.2 * torch.eye(4, dtype=F64) + torch.diag(torch.ones(3, dtype=F64), 1),
    "a nilpotent block": torch.diag(torch.ones(3, dtype=F64), 1),
    "zero": torch.zeros(4, 4, dtype=F64),
    "two complex pairs": 1.1 * torch.block_diag(*[initial.henaff(2, generator=seeded(i)) for i in range(2)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("kind", MULTIPLE)
def test_multiple_dominant_eigenvalues_train_without_nan(kind, epsilon, dtype):
    made = kreiss.UnitDisc(4, epsilon)
    t = MULTIPLE[kind].to(dtype).clone().requires_grad_()
    made.latched.fill_(True)
    target = torch.randn(4, 4, generator=seeded(0), dtype=dtype)
    optimizer = torch.optim.SGD([t], lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        w = made(t)
        (w - target).square().sum().backward()
        assert w.isfinite().all()
        assert t.grad.isfinite().all()
        optimizer.step()
    assert made.error(t) <= (1e-5 if dtype == torch.float32 else 1e-9)


def test_where_the_eigenvectors_are_orthogonal_the_radius_counts_as_a_constant():
    t = MULTIPLE["a defective block"].clone().requires_grad_()
    g = torch.randn(4, 4, generator=seeded(0), dtype=F64)
    (found,) = torch.autograd.grad((kreiss.UnitDisc(4, 0.1)(t) * g).sum(), t)
    assert torch.allclose(found, g / (spectral_radius(t) + 0.1), rtol=1e-6)


# ---------------------------------------------------------------- the latch


def test_until_the_radius_exceeds_one_the_matrix_is_t_itself_and_from_then_on_it_is_normalised():
    made, small = kreiss.UnitDisc(4), initial.disc(4, generator=seeded(0))
    small = 0.5 * small / spectral_radius(small)
    leaf = lambda t: t.clone().requires_grad_()  # noqa: E731
    assert torch.equal(made(leaf(small)), small)
    assert not made.latched
    made(leaf(4 * small))
    assert made.latched
    assert torch.allclose(made(leaf(small)), small / (0.5 + 1e-3), atol=1e-12)
    assert spectral_radius(made(small)) == pytest.approx(0.5 / 0.501)


def test_evaluation_does_not_close_the_latch_but_is_inside_the_disc():
    made, t = kreiss.UnitDisc(4), with_eigenvalues("real", 4)
    with torch.no_grad():
        assert spectral_radius(made(t)) < 1
    assert not made.latched


def test_the_latch_is_part_of_the_saved_state():
    layer = kreiss.ENRNN(2, 6, dtype=F64)
    with torch.no_grad():
        layer.disc_l0.mul_(3 / spectral_radius(layer.disc_l0))
    layer(torch.zeros(3, 1, 2, dtype=F64))
    with torch.no_grad():
        layer.disc_l0.mul_(0.1)
    other = kreiss.ENRNN(2, 6, dtype=F64)
    other.load_state_dict(layer.state_dict())
    assert layer.sets["l0"].forgets.latched
    assert torch.equal(other.weight_hh_l0, layer.weight_hh_l0)
    assert spectral_radius(layer.weight_hh_l0[4:, 4:]) == pytest.approx(0.3 / 0.301)


def test_a_compiled_layer_closes_the_latch_too():
    torch.compiler.reset()
    layer = kreiss.ENRNN(2, 6)
    with torch.no_grad():
        layer.disc_l0.mul_(3 / spectral_radius(layer.disc_l0))
    torch.compile(layer, fullgraph=True, backend="aot_eager")(torch.zeros(3, 1, 2))
    assert layer.sets["l0"].forgets.latched


# ---------------------------------------------------------------- the spectrum stays inside


@pytest.mark.parametrize(
    ("epsilon", "steps"), [(1e-3, 1_000), (0.0, 1_000), pytest.param(1e-3, 10_000, marks=pytest.mark.slow)]
)
def test_the_spectral_radius_is_at_most_one_after_many_steps(epsilon, steps):
    made = kreiss.LongShort(16, 8, epsilon=epsilon)
    free = [tensor.requires_grad_() for tensor in made.initial(generator=seeded(0))]
    target = 1.5 * torch.randn(16, 16, generator=seeded(1))
    optimizer = torch.optim.RMSprop(free, lr=3e-3)
    worst = 0.0
    for step in range(steps):
        optimizer.zero_grad()
        w = made(*free)
        (w - target).square().sum().backward()
        optimizer.step()
        if step % 100 == 99:
            worst = max(worst, spectral_radius(made(*free)[8:, 8:]))
    assert made.forgets.latched
    assert worst <= (1 - 1e-5 if epsilon else 1 + 1e-5)
    assert made.remembers.error(free[0]) <= 1e-5
    assert spectral_radius(made(*free)) <= 1 + 1e-5


# ---------------------------------------------------------------- following the dominant eigenpair


def moving(n: int, steps: int, kind: str = "disc") -> list[np.ndarray]:
    """Matrices as in training: each is the last one with a small dense change."""
    g = seeded(0)
    t = initial.disc(n, generator=g) if kind == "disc" else initial.glorot(n, generator=g)
    found = []
    for _ in range(steps):
        t = t + 0.01 * torch.randn(n, n, generator=g, dtype=F64) / math.sqrt(n)
        found.append(t.numpy())
    return found


@pytest.mark.parametrize("kind", ["disc", "glorot"])
def test_a_followed_eigenpair_is_that_of_a_full_decomposition(kind, monkeypatch):
    matrices = moving(128, 40, kind)
    expected = [dominant(t) for t in matrices]
    full = []
    decomposed = radius._decomposed
    monkeypatch.setattr(radius, "_decomposed", lambda t: (full.append(1), decomposed(t))[1])
    start = None
    for t, exact in zip(matrices, expected, strict=True):
        found = dominant(t, start)
        start = found.start
        assert found.radius == pytest.approx(exact.radius, rel=1e-9)
        assert np.allclose(found.slope, exact.slope, rtol=0, atol=1e-6 * np.abs(exact.slope).max())
    assert len(full) <= 4  # the first, and hardly another


def test_another_eigenvalue_that_becomes_dominant_is_noticed():
    n = 128
    q = initial.random(n, generator=seeded(0)).numpy()
    falling, rising = np.linspace(1.2, 0.8, 41), np.linspace(0.8, 1.2, 41)
    start = None
    for a, b in zip(falling, rising, strict=True):
        t = q @ np.diag(np.concatenate([[a, -b], np.linspace(-0.7, 0.7, n - 2)])) @ q.T
        found = dominant(t, start)
        start = found.start
        assert found.radius == pytest.approx(max(a, b), rel=1e-9)


@pytest.mark.parametrize(
    "start", [np.zeros(128), np.full(128, np.nan), np.eye(128)[3]], ids=["zero", "NaN", "invariant"]
)
def test_a_useless_start_is_survived(start):
    t = initial.disc(128, generator=seeded(5)).numpy()  # block diagonal: a unit vector sees one block
    assert dominant(t, start).radius == pytest.approx(np.abs(np.linalg.eigvals(t)).max(), rel=1e-9)


def test_a_small_eigenpair_takes_one_thread_of_the_matrix_library_and_gives_the_others_back(monkeypatch):
    number = lambda: [get() for get, _ in blas.controls()]  # noqa: E731
    before, during, inner = number(), [], radius._dominant
    monkeypatch.setattr(radius, "_dominant", lambda *given: (during.append(number()), inner(*given))[1])
    dominant(np.eye(3))
    with pytest.raises(ValueError, match="square"):
        dominant(np.zeros((3, 2)))
    assert during == [[1] * len(before)] * 2
    assert number() == before
    monkeypatch.setattr(radius, "ONE_THREAD_BELOW", 3)
    dominant(np.eye(3))
    assert during[2] == before


def test_a_pair_with_a_large_residual_is_not_believed():
    t = moving(128, 1)[0]
    assert radius._polished(t, 5.0 + 0j, np.ones(128), np.ones(128)) is None


def test_a_large_set_follows_its_eigenpair_decomposes_now_and_then_and_resumes_exactly(monkeypatch):
    monkeypatch.setattr(disc_module, "CHECK_EVERY", 5)
    made = kreiss.UnitDisc(100)
    (t,) = made.initial("glorot", generator=seeded(0), dtype=F64)
    t = t.requires_grad_()
    starts, follow = [], disc_module.spectral_radius
    monkeypatch.setattr(disc_module, "spectral_radius", lambda t, start: (starts.append(start), follow(t, start))[1])
    for step in range(13):
        if step == 4:
            kept, kept_t = copy.deepcopy(made), t.detach().clone()
        made(t)
        with torch.no_grad():
            t -= 0.01 * torch.randn(100, 100, generator=seeded(step), dtype=F64)
    assert [i for i, start in enumerate(starts) if start is None] == [5, 11]
    again, t_again = kreiss.UnitDisc(100).double(), kept_t
    again.load_state_dict(kept.state_dict())
    for step in range(4, 13):
        again(t_again.requires_grad_())
        t_again = t_again.detach() - 0.01 * torch.randn(100, 100, generator=seeded(step), dtype=F64)
    assert torch.equal(t_again, t.detach())
    assert torch.equal(again.start, made.start)
    assert torch.equal(again(t_again), made(t_again))


# ---------------------------------------------------------------- the layer


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_the_matrix_is_the_block_matrix_of_the_paper(coupled, scale):
    layer = kreiss.ENRNN(2, 7, short=3, negative=1, coupled=coupled, epsilon=0.1, dtype=F64)
    with torch.no_grad():
        layer.orthogonal_l0.normal_(generator=seeded(0))
        layer.disc_l0.mul_(scale / spectral_radius(layer.disc_l0))
    a = np.zeros((4, 4))
    a[np.tril_indices(4, -1)] = layer.orthogonal_l0.detach().numpy()
    a -= a.T
    w = np.zeros((7, 7))
    w[:4, :4] = np.linalg.solve(np.eye(4) + a, np.eye(4) - a) @ np.diag([-1.0, 1, 1, 1])
    w[4:, 4:] = layer.disc_l0.detach().numpy() / (1 if scale < 1 else scale + 0.1)
    if coupled:
        w[:4, 4:] = layer.coupling_l0.detach().numpy()
    assert np.allclose(layer.weight_hh_l0.detach().numpy(), w, atol=1e-12)


def test_the_short_state_forgets_and_the_long_state_remembers():
    # Figs 4 and 5: ‖∂h_τ/∂x_t‖ falls with τ − t for h_S and stays for h_L
    layer = kreiss.ENRNN(2, 40, short=16, dtype=F64, generator=seeded(0))
    x = torch.rand(50, 2, generator=seeded(1), dtype=F64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0], x)  # (τ, N, t, I)
    norms = lambda part: torch.linalg.matrix_norm(jacobian[:, part].permute(0, 2, 1, 3), 2)  # noqa: E731
    long, short = norms(slice(0, 24)), norms(slice(24, 40))
    at = lambda norms, lag: float(norms.diagonal(-lag).mean())  # noqa: E731
    lags = (1, 10, 20, 30, 40)
    assert [at(short, lag) for lag in lags] == sorted((at(short, lag) for lag in lags), reverse=True)
    assert at(short, 40) < 0.4 * at(short, 1)
    assert at(long, 40) > 0.7 * at(long, 1)
    assert at(long, 40) > 2 * at(short, 40)


def test_the_bound_of_theorem_3_1_holds():
    layer = kreiss.ENRNN(2, 12, short=6, nonlinearity="relu", dtype=F64, generator=seeded(0))
    with torch.no_grad():
        layer.disc_l0.mul_(0.9 / torch.linalg.matrix_norm(layer.disc_l0, 2))
    x = torch.randn(20, 2, generator=seeded(1), dtype=F64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0][:, 6:], x)
    u = torch.linalg.matrix_norm(layer.weight_ih_l0[6:].detach(), 2)
    for t in range(20):
        for tau in range(20 - t):
            norm = torch.linalg.matrix_norm(jacobian[t + tau, :, t], 2)
            assert norm <= 0.9**tau * u * (1 + 1e-9)


def test_without_coupling_the_two_states_do_not_meet():
    layer = kreiss.ENRNN(2, 10, short=4, coupled=False)
    w = layer.weight_hh_l0
    assert not w[:6, 6:].any()
    assert not w[6:, :6].any()
    assert "coupling_l0" not in dict(layer.named_parameters())


@pytest.mark.parametrize(("long", "short"), [(5, 3), (3, 5), (4, 4)])
def test_the_coupling_can_start_as_a_corner_of_an_orthogonal_matrix(long, short):
    layer = kreiss.ENRNN(2, long + short, short=short, coupling="orthogonal", dtype=F64)
    w = layer.coupling_l0.detach()
    gram = w @ w.T if long <= short else w.T @ w
    if long == short:
        assert torch.allclose(gram, torch.eye(long, dtype=F64), atol=1e-12)
    assert torch.linalg.matrix_norm(w, 2) <= 1 + 1e-12
    assert (layer.coupling_l0.shape) == (long, short)


def test_a_glorot_coupling_is_uniform_within_its_bound():
    made = kreiss.LongShort(100, 40)
    w = dict(zip(made.roles, made.initial(generator=seeded(0), dtype=F64), strict=True))["coupling"]
    bound = math.sqrt(6 / 100)
    assert 0.99 * bound < w.abs().max() < bound
    assert abs(float(w.var()) - bound**2 / 3) < 0.01 * bound**2


def test_t_starts_with_blocks_in_the_disc():
    t = initial.disc(1001, generator=seeded(0))
    even = torch.arange(0, 1000, 2)
    blocks = torch.stack([t[even, even], -t[even, even + 1], t[even + 1, even], t[even + 1, even + 1]])
    assert torch.equal(blocks[0], blocks[3])
    assert torch.equal(blocks[1], blocks[2])
    moduli = blocks[0].hypot(blocks[1])
    assert moduli.max() < 1
    assert abs(float(moduli.mean()) - 0.5) < 0.05
    ratio = torch.atan2(blocks[1].abs(), blocks[0].abs())
    assert abs(float(ratio.mean()) - math.pi / 4) < 0.05
    assert torch.count_nonzero(t) == 4 * 500 + 1


def test_an_identity_input_is_not_trained_and_drives_the_state_as_it_is():
    layer = kreiss.ENRNN(6, 6, identity_input=True, dtype=F64)
    plain = kreiss.ENRNN(6, 6, dtype=F64)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.weight_ih_l0, torch.eye(6, dtype=F64))
    x = torch.randn(7, 3, 6, dtype=F64, requires_grad=True)
    results = []
    for used in (layer, plain):
        out, last = used(x)
        own = [used.disc_l0, used.bias_l0, x]
        results.append([out, last, *torch.autograd.grad(out.square().sum() + last.sum(), own)])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, atol=1e-12)
    assert not layer.weight_ih_l0.requires_grad
    assert torch.equal(layer(torch.tensor([[1, 2]]))[0], layer(torch.eye(6, dtype=F64)[[1, 2]][None])[0])
    layer.reset_parameters()
    assert torch.equal(layer.weight_ih_l0, torch.eye(6, dtype=F64))


def test_any_orthogonal_method_holds_the_long_part():
    for method in ("trivialization", "expm", "cayley", "householder", "givens"):
        layer = kreiss.ENRNN(2, 10, orthogonal=method)
        assert layer.constraint_error() < 1e-5
    assert int((kreiss.ENRNN(2, 10, negative=1).sets["l0"].remembers.map.signs(torch.device("cpu")) < 0).sum()) == 1


# ---------------------------------------------------------------- bad input


def test_bad_sizes_and_epsilons_are_refused_with_one_sentence():
    with pytest.raises(kreiss.InputError, match=r"`epsilon` must be at least 0 and finite; got epsilon=-1\. Pass"):
        kreiss.UnitDisc(3, -1)
    with pytest.raises(TypeError, match=r"`epsilon` must be a number; got '1' of type str\. Pass"):
        kreiss.UnitDisc(3, "1")
    with pytest.raises(kreiss.InputError, match=r"`short` must be at most n=4; got short=5\. Pass"):
        kreiss.LongShort(4, 5)
    with pytest.raises(kreiss.InputError, match=r"unknown start of the coupling 'glorott'\. Did you mean 'glorot'\?"):
        kreiss.LongShort(4, coupling="glorott")
    with pytest.raises(kreiss.InputError, match=r"`input_size` must be hidden_size=4; got 3\. Put an embedding"):
        kreiss.ENRNN(3, 4, identity_input=True)


def test_a_matrix_outside_is_refused_with_what_does_not_fit():
    with pytest.raises(kreiss.InputError, match=r"in the unit disc; got one of modulus 2\. Divide"):
        kreiss.UnitDisc(3).right_inverse(2 * torch.eye(3))
    with pytest.raises(
        kreiss.InputError, match=r"zero outside its blocks, \[0, W_S\]; got an entry of 1\. Use another"
    ):
        kreiss.LongShort(4, 2).right_inverse(torch.ones(4, 4))
    matrix = torch.eye(4, dtype=F64)
    matrix[0, 3] = 0.5
    with pytest.raises(kreiss.InputError, match=r"zero outside its blocks, \[W_L, 0\]; got an entry of 0\.5\. Use"):
        kreiss.LongShort(4, 2, coupled=False).right_inverse(matrix)
