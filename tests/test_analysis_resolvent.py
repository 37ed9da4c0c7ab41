"""Pseudospectra, Kreiss constants and numerical ranges against direct evaluation and high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreiss import analysis


def direct(v: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.array([np.linalg.svd(z * np.eye(len(v)) - v, compute_uv=False)[-1] for z in points.ravel()]).reshape(
        points.shape
    )


@pytest.mark.parametrize("n", [4, 13, 50])
@pytest.mark.parametrize("name", ["grcar", "jordan", "gaussian", "orthogonal", "schur", "complex"])
def test_pseudospectra_are_the_smallest_singular_values(name, n):
    make = {
        "grcar": analysis.grcar,
        "jordan": analysis.jordan,
        "gaussian": lambda n: analysis.random_gaussian(n, seed=1),
        "orthogonal": lambda n: analysis.random_orthogonal(n, 1),
        "schur": lambda n: analysis.random_schur(n, 1.0, 1e-3, 1),
        "complex": lambda n: analysis.random_gaussian(n, seed=1) + 1j * analysis.random_gaussian(n, seed=2),
    }
    v = make[name](n)
    found = analysis.pseudospectrum(v, (np.linspace(-2, 4, 31), np.linspace(-3, 3, 30)))
    assert found.points.shape == (30, 31)
    assert found.smallest == pytest.approx(direct(v, found.points), abs=1e-8)
    assert found.smallest == pytest.approx(direct(v, found.points), rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("make", [analysis.grcar, analysis.jordan])
def test_a_fine_grid_of_a_hard_matrix_is_right_to_eight_digits(make):
    v = make(32)
    found = analysis.pseudospectrum(v, (np.linspace(-1.5, 3.5, 90), np.linspace(-3.5, 3.5, 90)))
    assert np.abs(found.smallest - direct(v, found.points)).max() <= 1e-8


def test_an_eigenvalue_on_the_grid_has_distance_zero():
    assert analysis.pseudospectrum(analysis.jordan(40), [0.0, 0.5, 0.5j, -0.5, 2.0]).smallest[0] == 0
    found = analysis.pseudospectrum(np.diag(np.arange(20.0)) + np.eye(20, k=1), np.arange(20.0))
    assert found.smallest == pytest.approx(0, abs=1e-8)
    assert analysis.resolvent_norm(np.eye(3), 1.0) == np.inf
    assert analysis.resolvent_norm(np.eye(3), 3.0) == pytest.approx(0.5)


def test_a_number_makes_a_square_that_holds_spectrum_and_unit_circle():
    found = analysis.pseudospectrum(2 * analysis.random_orthogonal(5, 0), 40)
    assert found.points.shape == (40, 40)
    assert found.points.real.max() == pytest.approx(2.5)
    assert found.points.imag == pytest.approx(-found.points.imag[::-1])
    assert found.inside(0.3).any()
    assert found.resolvent_norm == pytest.approx(1 / found.smallest)


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 0.5])
def test_the_pseudospectral_radius_of_normal_and_of_sheared_matrices(epsilon):
    normal = analysis.random_normal(8, 0.7, 2)
    assert analysis.pseudospectral_radius(normal, epsilon).value == pytest.approx(0.7 + epsilon, rel=1e-8)
    c = 3.0  # [[0, c], [0, 0]]: |z|² = ε² + εc
    found = analysis.pseudospectral_radius([[0.0, c], [0.0, 0.0]], epsilon)
    assert found.value == pytest.approx(np.sqrt(epsilon**2 + epsilon * c), rel=1e-8)
    assert abs(found.point) == pytest.approx(found.value)
    abscissa = analysis.pseudospectral_abscissa([[0.0, c], [0.0, 0.0]], epsilon)
    assert abscissa.value == pytest.approx(np.sqrt(epsilon**2 + epsilon * c), rel=1e-8)


def test_no_perturbation_within_epsilon_goes_beyond_the_pseudospectral_radius():
    rng = np.random.default_rng(0)
    v = analysis.random_schur(6, 0.9, 0.7, 3)
    found = analysis.pseudospectral_radius(v, 0.05)
    largest = 0.0
    for _ in range(300):
        x, y = (rng.standard_normal(6) + 1j * rng.standard_normal(6) for _ in range(2))
        e = 0.05 * np.outer(x, y) / np.linalg.norm(x) / np.linalg.norm(y)
        largest = max(largest, np.abs(np.linalg.eigvals(v + e)).max())
    assert largest <= found.value
    left, _, right = np.linalg.svd(found.point * np.eye(6) - v)
    worst = v + 0.05 * np.outer(left[:, -1], right[-1])
    assert np.abs(np.linalg.eigvals(worst)).max() == pytest.approx(found.value, rel=1e-6)


# ---------------------------------------------------------------- the Kreiss constant


def exact_on_the_axis(v: list[list[float]], low: float, high: float) -> float:
    """max (x − 1)/σ_min(xI − V) over a bracket of the real axis, in 30-digit arithmetic."""
    with mpmath.workdps(30):
        m = mpmath.matrix(v)

        def value(x: mpmath.mpf) -> mpmath.mpf:
            return (x - 1) / mpmath.svd_r(x * mpmath.eye(m.rows) - m, compute_uv=False)[m.rows - 1]

        a, b = mpmath.mpf(low), mpmath.mpf(high)
        golden = (mpmath.sqrt(5) - 1) / 2
        for _ in range(40):
            left, right = b - golden * (b - a), a + golden * (b - a)
            a, b = (a, right) if value(left) > value(right) else (left, b)
        return float(value((a + b) / 2))


@pytest.mark.parametrize(("eigenvalue", "coupling"), [(0.5, 4.0), (0.9, 1.0), (0.25, 2.0), (0.99, 0.3)])
def test_the_kreiss_constant_of_a_sheared_pair(eigenvalue, coupling):
    v = [[eigenvalue, coupling], [0.0, eigenvalue]]
    exact = exact_on_the_axis(v, 1.0001, 6.0)
    gap = 1 - eigenvalue
    assert exact == pytest.approx(coupling / (4 * gap) + gap / coupling, rel=1e-12)  # closed form, for c > 2(1 − λ)
    found = analysis.kreiss_constant(v)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.lower == pytest.approx(exact, rel=1e-6)
    assert found.upper == pytest.approx(exact, rel=1.1e-3)
    turned = analysis.kreiss_constant(-np.array(v))
    assert turned.lower == pytest.approx(exact, rel=1e-6)
    assert turned.point.real == pytest.approx(-found.point.real, rel=1e-2)


@pytest.mark.parametrize(("n", "alpha", "low", "high"), [(3, 2.0, 1.5, 4.0), (5, 2.0, 1.1, 2.0), (6, 1.5, 1.1, 3.0)])
def test_the_kreiss_constant_of_a_delay_line(n, alpha, low, high):
    v = analysis.delay_line(n, alpha)
    exact = exact_on_the_axis(v.tolist(), low, high)  # turning z turns a delay line, so one ray says all
    found = analysis.kreiss_constant(v, tol=1e-4)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.lower == pytest.approx(exact, rel=1e-6)
    assert found.upper == pytest.approx(exact, rel=1.1e-4)


def test_the_kreiss_matrix_theorem_holds_on_two_hundred_matrices():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 5))
        v = analysis.random_schur(n, rng.uniform(0.2, 0.97), rng.uniform(0.1, 2.0), rng)
        found = analysis.kreiss_constant(v, tol=0.3)
        peak = analysis.transient_growth(v, 150).peak
        assert found.lower <= found.upper <= 1.301 * found.lower
        assert found.lower <= peak * (1 + 1e-9)
        assert peak <= np.e * n * found.upper


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(0, 1000))
def test_no_value_on_a_grid_is_above_the_upper_bound(n, seed):
    v = analysis.random_schur(n, 0.9, 1.0, seed)
    found = analysis.kreiss_constant(v, tol=0.01)
    z = np.geomspace(1.001, 30, 60)[:, None] * np.exp(1j * np.linspace(0, np.pi, 60))
    values = (np.abs(z) - 1) / direct(v, z)
    assert values.max() <= found.upper
    assert values.max() >= 0.9 * found.lower


def test_contractions_have_constant_one_and_unstable_matrices_none():
    assert analysis.kreiss_constant(analysis.random_orthogonal(7, 0)) == analysis.KreissConstant(1, 1, complex(np.inf))
    assert analysis.kreiss_constant([[0.5, 0.1], [0, 0.5]]).upper == 1
    assert analysis.kreiss_constant([[1.1]]).lower == np.inf
    assert analysis.kreiss_constant([[1.1]], radius=1.2).upper == 1
    assert analysis.kreiss_constant([[1.0, 1.0], [0.0, 1.0]]).upper > 1e6


def test_eigenvalues_on_the_circle_keep_both_bounds():
    v = analysis.random_schur(4, 1.0, 0.5, 1)
    found = analysis.kreiss_constant(v)
    peak = analysis.transient_growth(v, 300).peak
    assert 1 < found.lower <= peak
    assert found.lower <= found.upper <= 1.01 * found.lower


@pytest.mark.parametrize("coupling", [5.0, 20.0])
def test_the_constant_in_continuous_time(coupling):
    v = np.array([[-1.0, coupling], [0.0, -1.0]])
    exact = coupling / 4 + 1 / coupling  # as for powers, with the distance 1 from the axis
    found = analysis.kreiss_constant(v, time="continuous")
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.upper == pytest.approx(exact, rel=2e-3)
    assert analysis.kreiss_constant(-np.eye(3), time="continuous").upper == 1
    assert analysis.kreiss_constant(np.eye(3), time="continuous").lower == np.inf


# ---------------------------------------------------------------- numerical range


@given(st.integers(1, 8), st.integers(0, 1000))
def test_the_numerical_range_holds_every_quotient_and_every_eigenvalue(n, seed):
    rng = np.random.default_rng(seed)
    v = analysis.random_gaussian(n, seed=rng)
    found = analysis.numerical_range(v)
    x = rng.standard_normal((n, 500)) + 1j * rng.standard_normal((n, 500))
    quotients = np.einsum("ij,ij->j", x.conj(), v @ x) / np.einsum("ij,ij->j", x.conj(), x)
    for points in (quotients, np.linalg.eigvals(v)):
        assert np.abs(points).max() <= found.radius_bound * (1 + 1e-12)
        assert points.real.max() <= found.abscissa + 1e-12
    assert np.abs(found.boundary).max() <= found.radius * (1 + 1e-12)
    assert found.radius <= np.linalg.norm(v, 2) * (1 + 1e-12)
    assert found.radius >= np.linalg.norm(v, 2) / 2 * (1 - 1e-12)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_numerical_radius_of_a_jordan_block_is_known(n):
    found = analysis.numerical_range(analysis.jordan(n))
    assert found.radius == pytest.approx(np.cos(np.pi / (n + 1)), rel=1e-12)
    assert found.radius_bound == pytest.approx(found.radius, rel=1e-8)
    assert found.abscissa == pytest.approx(np.cos(np.pi / (n + 1)))
    assert analysis.numerical_radius(analysis.random_orthogonal(n, 0)) == pytest.approx(1)
