"""Matrix analysis: Schur form, departure from normality, nearest matrices, transients, generators."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kreiss
from kreiss import analysis
from kreiss.errors import InputError

sizes = st.integers(1, 12)
seeds = st.integers(0, 10_000)


@given(sizes, seeds)
def test_the_schur_form_gives_the_matrix_back_lower_triangular_and_in_order(n, seed):
    v = analysis.random_gaussian(n, seed=seed)
    found = analysis.real_schur(v)
    assert np.allclose(found.vectors @ found.form @ found.vectors.T, v, atol=1e-12)
    assert np.allclose(found.vectors.T @ found.vectors, np.eye(n), atol=1e-12)
    assert found.sizes.sum() == n
    assert np.allclose(found.normal_part + found.nonnormal_part, v, atol=1e-12)
    pairs = found.starts[found.sizes == 2]
    above = np.triu(found.form, 1)
    above[pairs, pairs + 1] = 0
    assert not above.any()
    assert (found.form[pairs + 1, pairs] > 0).all()
    if found.ordered:
        assert (np.diff(found.moduli) <= 1e-8).all()
    expected = np.sort(np.abs(np.linalg.eigvals(v)))
    assert np.allclose(np.sort(np.repeat(found.moduli, found.sizes)), expected, atol=1e-6)


@given(st.integers(2, 16), seeds)
def test_two_schur_forms_of_the_same_matrix_agree_although_one_carries_rounding(n, seed):
    rng = np.random.default_rng(seed)
    v = analysis.random_orthogonal(n, rng)
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(v))))
    if np.diff(np.unique(angles.round(9))).min(initial=1.0) < 1e-2:
        return  # nearly equal eigenvalues have no definite modes
    one = analysis.real_schur(v)
    two = analysis.real_schur(v + 1e-15 * rng.standard_normal((n, n)))
    assert np.allclose(one.vectors, two.vectors, atol=1e-9)
    assert np.allclose(one.form, two.form, atol=1e-9)


def test_equal_moduli_are_ordered_by_angle():
    found = analysis.real_schur(analysis.random_orthogonal(24, 5))
    assert (np.diff(found.angles) >= 0).all()
    assert found.ordered


def test_a_triangular_matrix_is_its_own_schur_form():
    theta = analysis.delay_line(30, 1.05, 0.01)
    found = analysis.real_schur(theta)
    assert np.array_equal(found.form, theta)
    assert np.array_equal(found.vectors, np.eye(30))


@given(st.integers(2, 20), seeds)
def test_henrici_is_the_norm_of_the_coupling_and_of_the_shear_inside_blocks(n, seed):
    rng = np.random.default_rng(seed)
    schur = kreiss.Schur(n)
    free = list(schur.initial("random", generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    part = dict(zip(schur.roles, free, strict=True))
    part["radius"].uniform_(0.5, 1.0)
    part["angle"].copy_(torch.from_numpy(rng.uniform(0.3, 2.8, len(part["angle"]))))
    part["shear"].copy_(torch.from_numpy(rng.uniform(0.2, 1.0, len(part["shear"]))))
    part["coupling"].copy_(torch.from_numpy(0.3 * rng.standard_normal(len(part["coupling"]))))
    pairs = n // 2
    shear = (part["radius"][:pairs] * part["angle"].sin() * 2 * part["shear"].sinh()).numpy()
    expected = np.sqrt((part["coupling"] ** 2).sum().item() + (shear**2).sum())
    assert analysis.henrici(schur(*free)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_henrici_of_a_normal_matrix_is_zero(n):
    rng = np.random.default_rng(n)
    assert analysis.henrici(analysis.random_orthogonal(n, rng)) == 0
    assert analysis.henrici(analysis.random_normal(n, 0.7, rng)) == 0
    symmetric = rng.standard_normal((n, n))
    assert analysis.henrici(symmetric + symmetric.T) == 0
    assert analysis.henrici(np.diag(rng.standard_normal(n) + 1j * rng.standard_normal(n))) == 0


def test_normality_adds_up_for_a_known_matrix():
    found = analysis.normality([[0.5, 2.0], [0.0, -0.5]])
    assert found.departure == pytest.approx(2)
    assert found.normal_energy == pytest.approx(0.5 / 4.5)
    assert found.index == pytest.approx(2 / np.sqrt(4.5))
    assert found.condition == pytest.approx(np.sqrt(5))  # eigenvectors (1, 0) and (−2, 1)
    assert found.error < 1e-14


def test_a_defective_eigenvalue_has_no_finite_condition_and_says_how_far_rounding_moves_it():
    found = analysis.eigenvalue_conditions(analysis.jordan(8))
    assert np.isinf(found.numbers).all()
    assert (found.errors > 1e-3).all()
    assert analysis.normality(analysis.grcar(60)).condition > 1e6


@given(st.integers(1, 8), seeds)
def test_condition_numbers_bound_the_movement_of_eigenvalues(n, seed):
    rng = np.random.default_rng(seed)
    v = analysis.random_gaussian(n, seed=rng)
    found = analysis.eigenvalue_conditions(v)
    e = rng.standard_normal((n, n))
    e *= 1e-9 / np.linalg.norm(e, 2)
    moved = np.linalg.eigvals(v + e)
    distance = np.abs(found.eigenvalues[:, None] - moved).min(1)
    gap = min((abs(a - b) for i, a in enumerate(moved) for b in moved[:i]), default=1.0)
    if gap > 1e-2:
        assert (distance <= 1.05e-9 * found.numbers + 1e-13).all()


# ---------------------------------------------------------------- nearest matrices


@given(st.integers(1, 6), seeds)
def test_the_nearest_normal_matrix_is_normal_and_not_further_than_henrici_allows(n, seed):
    v = analysis.random_gaussian(n, seed=seed)
    found = analysis.nearest_normal(v)
    m = found.matrix
    assert np.linalg.norm(m @ m.conj().T - m.conj().T @ m) <= 1e-10
    assert found.distance == pytest.approx(np.linalg.norm(v - m))
    departure = analysis.henrici(v)
    assert departure / np.sqrt(n) - 1e-9 <= found.distance <= departure + 1e-12


def test_no_normal_matrix_nearby_is_nearer():
    rng = np.random.default_rng(0)
    v = analysis.random_gaussian(5, seed=rng)
    found = analysis.nearest_normal(v)
    _, vectors = np.linalg.eig(found.matrix)
    q, _ = np.linalg.qr(vectors)
    for _ in range(200):
        a = 1e-3 * (rng.standard_normal((5, 5)) + 1j * rng.standard_normal((5, 5)))
        turned, _ = np.linalg.qr(q @ (np.eye(5) + a - a.conj().T))
        near = (turned * np.diag(turned.conj().T @ v @ turned)) @ turned.conj().T
        assert np.linalg.norm(v - near) >= found.distance - 1e-12


def test_the_nearest_normal_matrix_of_a_nilpotent_pair_is_known():
    assert analysis.nearest_normal([[0.0, 1.0], [0.0, 0.0]]).distance == pytest.approx(1 / np.sqrt(2))


@given(st.integers(1, 8), seeds)
def test_the_nearest_orthogonal_matrix_is_nearer_than_random_ones(n, seed):
    v = analysis.random_gaussian(n, seed=seed)
    found = analysis.nearest_orthogonal(v)
    assert np.allclose(found.matrix @ found.matrix.T, np.eye(n), atol=1e-12)
    other = analysis.random_orthogonal(n, seed)
    assert found.distance <= np.linalg.norm(v - other) + 1e-12


# ---------------------------------------------------------------- transients


@given(st.integers(1, 8), seeds)
def test_transient_growth_is_reached_from_the_input_along_the_readout(n, seed):
    v = analysis.random_schur(n, 0.9, 0.8, seed)
    found = analysis.transient_growth(v, 40)
    power = np.linalg.matrix_power(v, found.time)
    assert found.peak == pytest.approx(np.linalg.norm(power, 2))
    assert np.linalg.norm(power @ found.input) == pytest.approx(found.peak)
    assert abs(found.readout @ power @ found.input) == pytest.approx(found.peak)
    assert found.norms[0] == 1
    assert len(found.norms) == 41


def test_powers_of_a_delay_line_end_at_its_length():
    found = analysis.transient_growth(analysis.delay_line(10, 1.05), 20)
    assert found.norms[:10] == pytest.approx(1.05 ** np.arange(10))
    assert not found.norms[10:].any()
    starts = analysis.sphere_transients(analysis.delay_line(10, 1.05), 20, starts=50)
    assert starts.norm_mean[0] == pytest.approx(1)
    assert starts.norm_deviation[0] == pytest.approx(0, abs=1e-12)
    assert (starts.norm_mean[:10] > 0).all()
    assert not starts.norm_mean[10:].any()
    assert not starts.unit_mean[10:].any()


@pytest.mark.parametrize(("distance", "time"), [(1, 1), (1, 7), (3, 2), (4, 6), (5, 11)])
def test_entries_of_powers_are_the_polynomials_of_proposition_2(distance, time):
    coefficients = analysis.power_polynomial(distance, time)
    assert coefficients[0] == 0
    for x in (-0.5, 0.3, 2.0):
        power = np.linalg.matrix_power(analysis.triangular_ones(6, x), time)
        assert power[0, distance] == pytest.approx(sum(c * x**k for k, c in enumerate(coefficients)))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_powers_of_a_unit_triangular_matrix_grow_with_the_degree_of_its_jordan_block(size):
    found = analysis.power_growth(analysis.triangular_ones(size, 0.7), rate=1.0, doublings=16)
    assert found.degree == pytest.approx(size - 1, abs=0.01)
    assert analysis.power_growth(analysis.random_orthogonal(size, 0)).degree == pytest.approx(0, abs=1e-9)


# ---------------------------------------------------------------- generators and input


def test_the_delay_line_is_equation_2():
    theta = analysis.delay_line(4, 0.9, 0.1, 0.2)
    expected = [[0.2, 0, 0, 0], [0.9, 0.2, 0, 0], [0.1, 0.9, 0.2, 0], [0.1, 0.1, 0.9, 0.2]]
    assert np.allclose(theta, expected)


def test_generators_make_what_their_names_say():
    assert np.array_equal(analysis.grcar(4), [[1, 1, 1, 1], [-1, 1, 1, 1], [0, -1, 1, 1], [0, 0, -1, 1]])
    assert np.array_equal(analysis.jordan(2, 0.5, 3.0), [[0.5, 3], [0, 0.5]])
    q = analysis.random_orthogonal(9, 1)
    assert np.allclose(q.T @ q, np.eye(9))
    assert np.abs(np.linalg.eigvals(analysis.random_normal(9, 0.8, 1))).max() == pytest.approx(0.8)
    assert analysis.henrici(analysis.random_schur(9, 0.8, 0.5, 1)) > 0.5
    assert np.array_equal(analysis.random_gaussian(5, seed=3), analysis.random_gaussian(5, seed=3))


def test_tensors_are_taken_as_arrays_are():
    v = analysis.random_gaussian(6, seed=0)
    tensor = torch.from_numpy(v).requires_grad_()
    assert analysis.henrici(tensor) == analysis.henrici(v)
    assert analysis.henrici(torch.eye(3, dtype=torch.bfloat16)) == 0
    assert analysis.henrici(torch.tensor([[1j, 2.0], [0, 1]])) == pytest.approx(2)
    assert analysis.henrici([[0, 1], [0, 0]]) == 1


def test_importing_the_matrix_part_does_not_import_torch():
    program = (
        "import kreiss.analysis as a, sys; a.fisher_memory([[0.5]], [1.0]); a.kreiss_constant([[0.5, 4], [0, 0.5]])"
    )
    program += "; a.pseudospectrum([[0.5]], 4); sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_every_public_name_of_the_room_is_there_and_documented():
    for name in analysis.__all__:
        assert getattr(analysis, name).__doc__.strip()
    with pytest.raises(AttributeError, match="no attribute 'henricci'"):
        _ = analysis.henricci


SQUARE = [
    analysis.real_schur,
    analysis.henrici,
    analysis.normality,
    analysis.eigenvalue_conditions,
    analysis.nearest_normal,
    analysis.nearest_orthogonal,
    analysis.kreiss_constant,
    analysis.numerical_range,
    analysis.power_growth,
    lambda v: analysis.pseudospectrum(v, 4),
    lambda v: analysis.pseudospectral_radius(v, 0.1),
    lambda v: analysis.transient_growth(v, 5),
    lambda v: analysis.sphere_transients(v, 5),
    lambda v: analysis.fisher_memory(v, [1.0, 0.0]),
    lambda v: analysis.controllability(v, [1.0, 0.0]),
    lambda v: analysis.observability(v, [1.0, 0.0]),
]


@pytest.mark.parametrize("function", SQUARE)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((2, 3)), r"`matrix` must be a square matrix of at least one row; got shape \(2, 3\). Pass"),
        (np.ones((0, 0)), r"got shape \(0, 0\)"),
        (np.ones(3), r"got shape \(3,\)"),
        ([[1.0, np.nan], [0.0, np.inf]], "`matrix` must be finite; got 2 NaN or Inf entries. Remove them first."),
        ([["a", "b"], ["c", "d"]], "`matrix` must hold numbers; got list. Pass an array"),
    ],
)
def test_a_matrix_that_is_none_is_refused_by_every_function(function, bad, message):
    with pytest.raises(InputError, match=message):
        function(bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: analysis.real_schur([[1j]]),
            "`matrix` must be real; got complex entries with imaginary parts up to 1",
        ),
        (lambda: analysis.fisher_memory([[0.5j]], [1.0]), "`matrix` must be real"),
        (
            lambda: analysis.fisher_memory([[0.5]], [1.0, 2.0]),
            r"`source` must be a vector of length 1.*got shape \(2,\)",
        ),
        (lambda: analysis.fisher_memory([[0.5]], [0.0]), "`source` must not be zero"),
        (lambda: analysis.fisher_memory([[0.5]], [1.0], horizon=0), "`horizon` must be at least 1; got horizon=0"),
        (lambda: analysis.fisher_memory([[0.5]], [1.0], horizon=-3), "`horizon` must be at least 1; got horizon=-3"),
        (lambda: analysis.fisher_memory([[1.0]], [1.0]), "Fisher memory over all time needs a spectral radius below 1"),
        (lambda: analysis.fisher_memory([[0.5]], [1.0], noise=0.0), "`noise` must be positive; got 0"),
        (lambda: analysis.fisher_memory([[0.5]], [1.0], noise=1j), "`noise` must be real"),
        (
            lambda: analysis.fisher_memory(np.eye(2) / 2, [1, 0], noise=np.ones((2, 2))),
            "`noise` must be positive definite; got a smallest eigenvalue of .* singular",
        ),
        (lambda: analysis.fisher_memory(np.eye(2) / 2, [1, 0], noise=[[1, 1], [0, 1]]), "symmetric covariance"),
        (lambda: analysis.fisher_memory(np.eye(2) / 2, [1, 0], noise=np.ones(3)), "`noise` must be a number, a vector"),
        (
            lambda: analysis.fisher_memory(1e200 * np.eye(2), [1, 0], horizon=9),
            "got overflow. Pass a shorter `horizon`",
        ),
        (
            lambda: analysis.controllability(2 * np.eye(2), [1, 0]),
            "the sum over all time needs a spectral radius below 1",
        ),
        (lambda: analysis.controllability(np.eye(2) / 2, [1, 0, 0]), "`inputs` must have 2 rows"),
        (lambda: analysis.observability(np.eye(2) / 2, [1, 0, 0]), "`outputs` must have 2"),
        (lambda: analysis.transient_growth(np.eye(2), 0), "`horizon` must be at least 1"),
        (lambda: analysis.transient_growth(1e200 * np.eye(2), 5), "got overflow at step 2"),
        (lambda: analysis.nearest_orthogonal([[1.0, 0], [0, 0]]), "`matrix` must be regular"),
        (lambda: analysis.kreiss_constant([[0.5]], tol=-1), "`tol` must be positive and finite; got tol=-1"),
        (lambda: analysis.kreiss_constant([[0.5]], time="both"), "unknown time 'both'"),
        (lambda: analysis.pseudospectral_radius([[0.5]], 0), "`epsilon` must be positive"),
        (lambda: analysis.pseudospectrum([[0.5]], []), "`grid` must hold at least one point"),
        (lambda: analysis.pseudospectrum([[0.5]], ([1.0], [[1.0]])), "`grid` must be a pair of real vectors"),
        (lambda: analysis.power_growth(np.zeros((2, 2))), "powers must not vanish"),
        (lambda: analysis.memory_lower_bound(np.eye(3)), "`matrix` must be strictly lower triangular"),
        (lambda: analysis.random_schur(4, coupling=-1.0), "`coupling` must be at least 0"),
        (lambda: analysis.delay_line(0, 1.0), "`n` must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
