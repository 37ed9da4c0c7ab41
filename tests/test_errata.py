"""What docs/errata.md says of the papers, each with the few lines that prove it.

000 is the supplement of the nnRNN paper, 001 the paper, 003 the ENRNN paper, 004 Kerg's thesis.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import expm, expm_frechet

from kreiss import analysis, experiments, linalg
from kreiss.experiments.nnrnn import BITS, SHARES
from kreiss.optim.stiefel import cayley_step
from kreiss.sets import initial

RNG = np.random.default_rng(0)
N = 100
K = np.arange(N)


def smallest(symmetric: np.ndarray) -> float:
    """The smallest eigenvalue: negative exactly where the matrix is not positive semidefinite."""
    return float(np.linalg.eigvalsh(symmetric).min())


# ---------------------------------------------------------------- Fisher memory: 000 §B, 004 §2.6 and §A.2


def delay_line_curve(alpha: float) -> np.ndarray:
    """J(k) of the pure delay line with √α on its sub-diagonal, by the definition."""
    return analysis.fisher_memory(analysis.delay_line(N, alpha**0.5), np.eye(N)[0]).curve


@pytest.mark.parametrize("alpha", [0.999, 1.05])
def test_eq_13_of_000_exceeds_the_memory_of_the_pure_delay_line(alpha):
    printed = alpha ** (2 * K) * (1 - alpha) / (1 - alpha ** (2.0 * (N - K)))  # σ_max = 1
    assert (printed / delay_line_curve(alpha)).max() > 40


@pytest.mark.parametrize("alpha", [0.9, 0.999, 1.05])
def test_the_bound_as_004_prints_it_is_reached_by_the_pure_delay_line(alpha):
    assert np.allclose(alpha**K * (alpha - 1) / (alpha ** (K + 1.0) - 1), delay_line_curve(alpha), rtol=1e-8)


def triangular(alpha: float = 0.9, beta: float = 0.5, n: int = 6) -> tuple[np.ndarray, ...]:
    """Θ with √α on its sub-diagonal and β below, D and A of Θ = DA, the covariances Σ Θᵏ(Θᵏ)ᵀ and Σ Dᵏ(Dᵏ)ᵀ."""
    d = alpha**0.5 * np.eye(n, k=-1)
    theta = d + np.tril(np.full((n, n), beta), -2)
    a = np.vstack([theta[1:] / alpha**0.5, np.eye(n)[-1:]])
    assert np.allclose(d @ a, theta)
    covariances = [sum(p @ p.T for p in (np.linalg.matrix_power(m, k) for k in range(n))) for m in (theta, d)]
    return theta, d, a, *covariances


def test_the_order_of_matrices_in_004_is_reversed():
    _, _, a, of_theta, of_delay = triangular()
    bound = np.linalg.norm(a, 2) ** 10 * of_delay  # σ^{2(N−1)}
    assert smallest(bound - of_theta) > 0  # C ⪯ bound in the usual order, in which 004 then takes inverses
    assert smallest(of_theta - bound) < 0  # not with "A ⪰ B if and only if B − A is positive semidefinite"


def test_a_2_6_of_004_is_wrong_with_its_second_exponent_and_right_with_its_first():
    _, _, a, of_theta, of_delay = triangular()
    sigma = np.linalg.norm(a, 2)
    assert smallest(sigma**2 * of_delay - of_theta) < -1
    assert smallest(sigma**10 * of_delay - of_theta) > 0


def test_eq_8_of_000_is_no_equality_though_the_bound_behind_it_holds():
    theta, d, a, of_theta, _ = triangular()
    powers = [np.linalg.matrix_power(d, k) @ a for k in range(6)]
    assert not np.allclose(sum(p @ p.T for p in powers), of_theta, rtol=0.1)  # (DA)ᵏ is not DᵏA
    for k in range(6):  # ‖(Θᵏ)ᵀu‖ ≤ σᵏ‖(Dᵏ)ᵀu‖: both see the entries of u from the k-th on alone
        assert not np.linalg.matrix_power(theta, k)[:k].any()
        assert np.linalg.norm(np.linalg.matrix_power(theta, k), 2) <= (np.linalg.norm(a, 2) * 0.9**0.5) ** k + 1e-12


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_the_memory_of_an_amplifying_delay_line_depends_on_alpha_as_1_minus_1_over_alpha(epsilon):
    alpha, n = 1.5, 400
    total = analysis.delay_line_memory(alpha**0.5, n).sum() / epsilon
    assert total == pytest.approx(n / epsilon * (1 - 1 / alpha), rel=0.02)
    assert abs(total - n / epsilon * (1 - 1 / epsilon)) > 0.3 * total  # 004 §2.6 as printed


# ---------------------------------------------------------------- 003


def test_the_start_of_003_is_uniform_in_modulus_and_not_on_the_disc():
    moduli = torch.linalg.eigvals(initial.disc(1000, generator=torch.Generator().manual_seed(0))).abs().numpy()[::2]
    assert stats.kstest(moduli, "uniform").pvalue > 0.01  # mean ½
    assert abs(moduli.mean() - 0.5) < 0.03  # a uniform distribution on the disc has 2/3
    assert stats.kstest(moduli**2, "uniform").pvalue < 1e-6  # the area within |λ|, uniform if points are


def test_the_character_network_of_003_is_above_its_own_cap_of_sixty_per_cent():
    share = {}
    for name in ("003/fig1", "003/fig2", "003/table1", "003/table2"):
        row = experiments.row(f"{name}/enrnn")[1]
        share[name] = row.settings["model.short"] / row.settings["hidden"]
    assert share.pop("003/table2") == pytest.approx(0.7, abs=0.01)
    assert max(share.values()) <= 0.6


# ---------------------------------------------------------------- 004 §D.3 and §D.4


def random_unitary(n: int = 5) -> np.ndarray:
    return np.linalg.qr(RNG.normal(size=(n, n)) + 1j * RNG.normal(size=(n, n)))[0]


def slope(gradient: np.ndarray, skew: np.ndarray, w: np.ndarray) -> float:
    """Of the loss along W ← Cay(λ/2·A)W at λ = 0, where the step is −A W."""
    return float(np.vdot(gradient, -skew @ w).real)


def test_the_step_printed_in_004_d_3_ascends_at_the_identity_and_goes_either_way_elsewhere():
    printed, corrected = [], []
    for _ in range(200):
        g, w = RNG.normal(size=(5, 5)) + 1j * RNG.normal(size=(5, 5)), random_unitary()
        assert slope(g, g.conj().T - g, np.eye(5)) > 0  # A_W = G*W − W*G at W = I
        printed.append(slope(g, g.conj().T @ w - w.conj().T @ g, w))
        corrected.append(slope(g, g @ w.conj().T - w @ g.conj().T, w))
    assert max(corrected) < 0
    assert min(printed) < 0 < max(printed)


def test_our_own_step_descends():
    for _ in range(20):
        w, g = torch.from_numpy(random_unitary()), torch.from_numpy(random_unitary() * 3)
        moved = cayley_step(w, g, 1e-4)
        assert torch.vdot(g.flatten(), (moved - w).flatten()).real < 0


def test_the_gradient_printed_in_004_d_4_has_the_wrong_sign():
    index = linalg.strictly_lower_index(5)
    a = linalg.skew(torch.from_numpy(RNG.normal(size=10)), torch.from_numpy(index), 5).requires_grad_()
    weights = torch.from_numpy(RNG.normal(size=(5, 5)))
    found = torch.autograd.grad((linalg.expm_skew(a) * weights).sum() + linalg.expm_skew(a).pow(3).sum(), a)[0].numpy()
    found = (found - found.T) / 2  # on skew matrices
    a = a.detach().numpy()
    b = expm(a)
    g = weights.numpy() + 3 * b**2  # ∇f(B)
    printed = b @ expm_frechet(-a, (g.T @ b - b.T @ g) / 2, compute_expm=False)
    assert np.allclose(printed, -found, atol=1e-10)


# ---------------------------------------------------------------- 000 Table 4


def test_the_errors_of_accuracies_in_table_4_are_in_two_units():
    # per cent of accuracy per bit, the ratio of two printed standard errors of the same runs
    ratio = {key: [100 * SHARES[key][length][1] / BITS[key][length][1] for length in (150, 300)] for key in SHARES}
    usual = [value for key, values in ratio.items() if key[0] in ("rnn", "orthrnn", "exprnn") for value in values]
    assert min(usual) > 10
    assert max(usual) < 50
    assert max(ratio["nnrnn", 1024]) < 0.5  # as printed; as a share of one, 100 times that, it is among the others
    assert min(usual) < 100 * min(ratio["nnrnn", 1024]) < max(usual)
    characters = 442_423  # of the test set: as printed, the standard error is that of three characters
    assert characters * SHARES["nnrnn", 1024][150][1] < 3
