"""Fisher memory and Gramians against exact values, closed forms and sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreiss import analysis
from kreiss.errors import InputError

# J_tot of Θ(α, β, d), N = 100, ε = 1, U = e₁, from 70-digit arithmetic
EXACT = {
    (0.95, 0.0, 0.0): 3.032702075,
    (1.00, 0.0, 0.0): 5.187377518,
    (1.05, 0.0, 0.0): 12.08727212,
    (0.95, 0.005, 0.0): 3.175767595,
    (1.00, 0.005, 0.0): 5.301425803,
    (1.05, 0.005, 0.0): 12.08653630,
    (0.95, 0.0, 0.2): 11.93938893,
    (1.00, 0.0, 0.2): 16.29822518,
    (1.05, 0.0, 0.2): 20.83705739,
    (0.95, 0.005, 0.2): 12.08952510,
    (1.00, 0.005, 0.2): 16.39095478,
    (1.05, 0.005, 0.2): 20.88465737,
}


@pytest.mark.parametrize(("alpha", "beta", "diagonal"), EXACT)
def test_the_total_is_the_exact_one(alpha, beta, diagonal):
    found = analysis.fisher_memory(analysis.delay_line(100, alpha, beta, diagonal), np.eye(100)[0])
    exact = EXACT[alpha, beta, diagonal]
    assert found.total == pytest.approx(exact, rel=1e-7)
    assert abs(found.total / exact - 1) <= found.error + 5e-10, "the estimate covers all but the last printed digit"
    assert found.curve.sum() + found.rest == pytest.approx(found.total, rel=1e-12)


@given(st.integers(1, 30), st.floats(0.05, 0.999), st.floats(0.01, 10), st.integers(0, 1000))
def test_the_total_of_every_normal_matrix_is_one_over_the_noise(n, radius, noise, seed):
    rng = np.random.default_rng(seed)
    source = rng.standard_normal(n)
    source /= np.linalg.norm(source)
    found = analysis.fisher_memory(analysis.random_normal(n, radius, rng), source, noise=noise)
    assert found.total == pytest.approx(1 / noise, rel=1e-9)
    assert found.spatial == pytest.approx(np.eye(n) / noise, rel=1e-8, abs=1e-8 / noise)
    assert found.curve.sum() + found.rest == pytest.approx(found.total, rel=1e-9)


@pytest.mark.parametrize("radius", [0.9, 0.99, 0.999])
def test_a_spectral_radius_near_one_costs_no_digits(radius):
    found = analysis.fisher_memory(analysis.random_normal(64, radius, 1), np.eye(64)[3])
    assert found.total == pytest.approx(1, rel=1e-9)
    assert found.error < 1e-9


@given(st.integers(2, 12), st.integers(0, 1000))
def test_the_curve_is_the_naive_formula_where_that_works(n, seed):
    rng = np.random.default_rng(seed)
    v, u = analysis.random_schur(n, 0.8, 0.3, rng), rng.standard_normal(n)
    root = rng.standard_normal((n, n)) + 2 * np.eye(n)
    noise = root @ root.T + 0.1 * np.eye(n)
    powers = [np.linalg.matrix_power(v, k) for k in range(400)]
    c = sum(p @ noise @ p.T for p in powers)
    naive = [float((p @ u) @ np.linalg.solve(c, p @ u)) for p in powers[:20]]
    found = analysis.fisher_memory(v, u, noise=noise)
    assert found.curve[:20] == pytest.approx(naive, rel=1e-7, abs=1e-10)
    assert found.covariance == pytest.approx(c, rel=1e-8, abs=1e-10)
    assert found.matrix(6)[2, 5] == pytest.approx(
        (powers[2] @ u) @ np.linalg.solve(c, powers[5] @ u), rel=1e-6, abs=1e-9
    )
    assert np.diag(found.matrix(6)) == pytest.approx(found.curve[:6])


@given(st.integers(2, 8), st.integers(1, 25), st.floats(0.5, 1.3), st.integers(0, 1000))
def test_a_finite_horizon_sums_over_its_steps_also_where_powers_grow(n, horizon, radius, seed):
    rng = np.random.default_rng(seed)
    v, u = analysis.random_schur(n, radius, 0.2, rng), rng.standard_normal(n)
    powers = [np.linalg.matrix_power(v, k) for k in range(horizon)]
    c = sum(p @ p.T for p in powers)
    naive = [float((p @ u) @ np.linalg.solve(c, p @ u)) for p in powers]
    found = analysis.fisher_memory(v, u, horizon=horizon)
    assert found.curve == pytest.approx(naive, rel=1e-6, abs=1e-9)
    assert found.total == pytest.approx(sum(naive), rel=1e-7)
    assert found.rest == 0


@pytest.mark.parametrize("alpha", [0.9, 1.0, 1.1])
def test_a_delay_line_has_its_closed_form_and_reaches_the_bound_of_its_amplification(alpha):
    theta, source = analysis.delay_line(30, alpha), np.eye(30)[0]
    found = analysis.fisher_memory(theta, source)
    assert found.curve == pytest.approx(analysis.delay_line_memory(alpha, 30), rel=1e-12)
    assert found.curve == pytest.approx(analysis.amplification_bound(theta, source, 30), rel=1e-10)
    assert found.matrix()[1, 4] == pytest.approx(0, abs=1e-14)  # signals do not interfere
    assert analysis.memory_lower_bound(theta) == pytest.approx(found.curve)


@given(st.integers(2, 12), st.floats(0.5, 1.5), st.floats(0, 0.05), st.integers(0, 1000))
def test_proposition_1_bounds_the_curve_from_below(n, alpha, scale, seed):
    theta = analysis.delay_line(n, alpha) + np.tril(scale * np.random.default_rng(seed).standard_normal((n, n)), -2)
    found = analysis.fisher_memory(theta, np.eye(n)[0], horizon=n)
    assert (found.curve >= analysis.memory_lower_bound(theta) * (1 - 1e-9)).all()
    assert (found.curve <= analysis.amplification_bound(theta, np.eye(n)[0], n) * (1 + 1e-9)).all()


@given(st.integers(1, 15), st.integers(0, 1000))
def test_totals_over_all_directions_add_up_to_the_number_of_units(n, seed):
    found = analysis.fisher_memory(analysis.random_schur(n, 0.9, 0.5, seed), np.eye(n)[0], noise=0.5)
    assert np.trace(found.spatial) == pytest.approx(n / 0.5, rel=1e-8)
    assert found.total <= n / 0.5 * (1 + 1e-9)
    largest, source = found.best_source()
    again = analysis.fisher_memory(analysis.random_schur(n, 0.9, 0.5, seed), source, noise=0.5)
    assert again.total == pytest.approx(largest, rel=1e-7)


def test_a_turned_network_says_that_digits_were_lost():
    p = analysis.random_orthogonal(60, 0)
    theta = analysis.delay_line(60, 1.05, 0.005, 0.2)
    exact = analysis.fisher_memory(theta, np.eye(60)[0]).total
    turned = analysis.fisher_memory(p @ theta @ p.T, p[:, 0])
    assert turned.error > 1e-9
    assert abs(turned.total / exact - 1) <= turned.error


def test_the_first_crossing_of_a_curve_that_rises_again_is_not_its_last():
    unstable = analysis.fisher_memory(analysis.random_gaussian(20, 1.32, seed=0), np.eye(20)[0], horizon=50)
    assert unstable.first_below(0.1) == 3
    assert unstable.below(0.1) == 50  # at the end it is above again
    leak = analysis.fisher_memory([[0.5]], [1.0])
    assert leak.first_below(0.1) == leak.below(0.1) == 2


def test_the_curve_says_when_it_falls_below_a_share():
    found = analysis.fisher_memory([[0.5]], [1.0])
    assert found.curve == pytest.approx(0.75 * 0.25 ** np.arange(len(found.curve)))
    assert found.below(0.1) == 2
    assert found.below(2.0) == 0


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 1000))
def test_gramians_are_their_sums(n, horizon, seed):
    rng = np.random.default_rng(seed)
    v, b = analysis.random_schur(n, 0.8, 0.3, rng), rng.standard_normal((n, 2))
    finite = sum(np.linalg.matrix_power(v, k) @ b @ b.T @ np.linalg.matrix_power(v, k).T for k in range(horizon))
    assert analysis.controllability(v, b, horizon).matrix == pytest.approx(finite, rel=1e-9, abs=1e-11)
    w = analysis.controllability(v, b).matrix
    assert w == pytest.approx(v @ w @ v.T + b @ b.T, rel=1e-9, abs=1e-10)
    m = analysis.observability(v, b.T).matrix
    assert m == pytest.approx(v.T @ m @ v + b @ b.T, rel=1e-9, abs=1e-10)


def test_a_gramian_of_few_inputs_says_what_its_small_directions_are_worth():
    found = analysis.controllability(analysis.random_normal(30, 0.9, 0), np.eye(30)[0])
    assert found.condition > 1e6
    assert found.error > 1e-13
    assert analysis.controllability(np.diag([0.5, 0.5]), [1.0, 0.0]).condition == np.inf


# ---------------------------------------------------------------- delay lines with feedback


def test_a_delay_line_with_feedback_is_the_matrix_of_the_thesis():
    assert analysis.delay_line(3, 0.8, feedback=0.25).tolist() == [[0, 0.25, 0], [0.8, 0, 0.25], [0, 0.8, 0]]
    moduli = np.sort(np.linalg.eigvals(analysis.delay_line(9, 0.8, feedback=0.25)).real)
    assert np.allclose(moduli, np.sort(2 * np.sqrt(0.8 * 0.25) * np.cos(np.arange(1, 10) * np.pi / 10)), atol=1e-9)


@pytest.mark.parametrize(
    ("feedback", "stable", "amplifies"),
    [(0.15, True, False), (0.22, True, True), (0.30, True, True), (0.35, False, True)],  # α = 0.8: 0.2 < f < 0.3125
)
def test_a_delay_line_with_feedback_is_stable_and_amplifies_within_the_window_of_the_thesis(
    feedback, stable, amplifies
):
    n = 60
    v = analysis.delay_line(n, 0.8, feedback=feedback)
    assert (abs(np.linalg.eigvals(v)).max() < 1) == stable
    assert (np.linalg.norm(v, 2) > 1) == amplifies


def test_feedback_makes_a_delay_line_remember_for_longer_than_its_length():
    n = 30
    source = np.eye(n)[0]
    line, loop = (analysis.delay_line(n, 0.8, feedback=f) for f in (0.0, 0.3))
    assert not np.linalg.matrix_power(line, n).any()
    lengths = [np.linalg.norm(np.linalg.matrix_power(loop, k) @ source) for k in range(4 * n)]
    assert max(lengths) > 10
    assert lengths.index(max(lengths)) > n  # still growing when a line without feedback is empty
    without, with_feedback = (analysis.fisher_memory(v, source) for v in (line, loop))
    assert len(without.curve) == n
    assert with_feedback.curve[2 * n] > 0
    assert with_feedback.total > 1.5 * without.total > 1.5  # where every normal matrix has 1


@pytest.mark.parametrize("alpha", [1.3, 2.0])
def test_the_total_of_a_long_delay_line_grows_by_one_minus_one_over_its_gain_per_unit(alpha):
    totals = [analysis.fisher_memory(analysis.delay_line(n, np.sqrt(alpha)), np.eye(n)[0]).total for n in (30, 60)]
    assert (totals[1] - totals[0]) / 30 == pytest.approx(1 - 1 / alpha, rel=1e-3)


# ---------------------------------------------------------------- Hankel singular values


def linear_network(n: int, radius: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return analysis.random_schur(n, radius, 0.2, seed), rng.standard_normal((n, 2)), rng.standard_normal((3, n))


@pytest.mark.parametrize("radius", [0.8, 1.2])
def test_hankel_singular_values_are_those_of_the_block_hankel_matrix(radius):
    v, u, w = linear_network(5, radius)
    horizon = 7
    response = [w @ np.linalg.matrix_power(v, k) @ u for k in range(2 * horizon)]
    hankel = np.block([[response[i + j] for j in range(horizon)] for i in range(horizon)])
    found = analysis.hankel_singular_values(v, u, w, horizon).values
    assert np.allclose(found, np.linalg.svd(hankel)[1][:5], rtol=1e-10)


def test_hankel_singular_values_are_roots_of_eigenvalues_of_the_product_of_gramians():
    v, u, w = linear_network(5, 0.9, 1)
    product = analysis.controllability(v, u).matrix @ analysis.observability(v, w).matrix
    expected = np.sqrt(np.sort(np.linalg.eigvals(product).real)[::-1])
    found = analysis.hankel_singular_values(v, u, w)
    assert np.allclose(found.values, expected, rtol=1e-6)
    balanced = found.balanced
    for gramian in (
        analysis.controllability(balanced[0], balanced[1]),
        analysis.observability(balanced[0], balanced[2]),
    ):
        assert np.allclose(gramian.matrix, np.diag(found.values), atol=1e-8 * found.values[0])
    turn = analysis.random_orthogonal(5, 2)
    assert np.allclose(analysis.hankel_singular_values(turn @ v @ turn.T, turn @ u, w @ turn.T).values, found.values)


@pytest.mark.parametrize("order", [1, 4, 8])
def test_balanced_truncation_is_stable_and_within_its_bound_at_every_frequency(order):
    v, u, w = linear_network(8, 0.95, 3)
    found = analysis.hankel_singular_values(v, u, w)
    small = found.truncated(order)
    assert abs(np.linalg.eigvals(small[0])).max() < 1

    def transfer(v, u, w, z):
        return w @ np.linalg.solve(z * np.eye(len(v)) - v, u)

    circle = np.exp(1j * np.linspace(0, np.pi, 60))
    errors = [np.linalg.norm(transfer(v, u, w, z) - transfer(*small, z), 2) for z in circle]
    assert max(errors) <= found.bound(order) + 1e-9
    assert max(errors) >= found.values[order] if order < 8 else max(errors) < 1e-9  # no smaller network does better


def test_units_that_no_output_sees_have_no_hankel_singular_value():
    v = np.diag([0.9, 0.5])
    found = analysis.hankel_singular_values(v, [1.0, 1.0], [1.0, 0.0])
    assert found.values[0] == pytest.approx(1 / (1 - 0.81))
    assert found.values[1] < 1e-15
    with pytest.raises(InputError, match=r"`order` must be at most 1, .*; got order=2"):
        found.truncated(2)


def test_hankel_singular_values_of_an_unstable_matrix_need_a_horizon():
    with pytest.raises(InputError, match=r"the Hankel matrix over all time needs a spectral radius below 1; got 1\.1"):
        analysis.hankel_singular_values([[1.1]], [1.0], [1.0])
    assert analysis.hankel_singular_values([[1.1]], [1.0], [1.0], horizon=2).values[0] == pytest.approx(1 + 1.1**2)
