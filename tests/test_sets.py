"""Laws: what must hold for every set of matrices, and the theorems behind each."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import kreiss
from catalogue import SETS
from kreiss import linalg
from kreiss.sets import initial
from kreiss.sets.orthogonal import METHODS

F64 = torch.float64
SIZES = (1, 2, 3, 4, 7, 8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_free(made: kreiss.Set, seed: int = 0) -> tuple[Tensor, ...]:
    """A generic point: the free numbers may be anything."""
    made.initial(generator=seeded(seed), dtype=F64)  # sets base points and signs
    return tuple(torch.randn(shape, generator=seeded(seed + i), dtype=F64) for i, shape in enumerate(made.shapes))


def sheared(made: kreiss.Schur, seed: int = 0, coupling: float = 1.0, highest: float = 1.2) -> dict[str, Tensor]:
    """Generic free numbers of a Schur set, γ in (0, highest], T of Frobenius norm `coupling`."""
    g, part = seeded(seed), {}
    for role, shape in zip(made.roles, made.shapes, strict=True):
        part[role] = torch.randn(shape, generator=g, dtype=F64)
    part["radius"] = highest * (1 - torch.rand(part["radius"].shape, generator=g, dtype=F64))
    part["angle"] = 2 * math.pi * torch.rand(part["angle"].shape, generator=g, dtype=F64)
    if part["coupling"].numel():
        part["coupling"] *= coupling / part["coupling"].norm()
    return part


def sorted_eigenvalues(values: Tensor) -> np.ndarray:
    array = values.detach().numpy()
    return array[np.lexsort((array.imag, np.round(array.real, 7)))]


# ---------------------------------------------------------------- laws of every set


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", SETS)
def test_every_initialiser_gives_a_member_and_right_inverse_gives_it_back(name, n):
    for init in SETS[name](n).initialisers:
        made = SETS[name](n)
        free = made.initial(init, generator=seeded(1), dtype=F64)
        assert tuple(tensor.shape for tensor in free) == made.shapes
        assert len(made.roles) == len(made.shapes)
        matrix = made(*free)
        assert made.contains(matrix), init
        assert torch.allclose(made(*made.right_inverse(matrix)), matrix, rtol=0, atol=1e-10), init


@pytest.mark.parametrize("name", SETS)
def test_a_generic_point_lies_in_the_set_and_comes_back(name):
    for seed in range(5):
        made = SETS[name](6)
        free = random_free(made, seed)
        part = dict(zip(made.roles, free, strict=True))
        if "radius" in part:
            part["radius"].abs_()  # moduli are positive numbers
        if name == "schur-rotation":
            part["coupling"].zero_()  # otherwise only the order of eigenvalues it was made with has normal blocks
        matrix = made(*free)
        assert made.contains(matrix, tol=1e-6)
        again = copy.deepcopy(made)
        assert torch.allclose(again(*again.right_inverse(matrix)), matrix, rtol=0, atol=1e-8 * (1 + matrix.norm()))


@pytest.mark.parametrize("name", SETS)
def test_gradients_equal_finite_differences(name):
    made = SETS[name](5)
    free = tuple(tensor.requires_grad_() for tensor in random_free(made))
    assert torch.autograd.gradcheck(made, free)
    assert torch.autograd.gradgradcheck(made, free, atol=1e-4)


@pytest.mark.parametrize("name", SETS)
def test_the_same_seed_gives_the_same_matrix_whatever_the_dtype(name):
    one, two, single = SETS[name](6), SETS[name](6), SETS[name](6)
    a = one(*one.initial(generator=seeded(3), dtype=F64))
    b = two(*two.initial(generator=seeded(3), dtype=F64))
    c = single(*single.initial(generator=seeded(3), dtype=torch.float32))
    assert torch.equal(a, b)
    assert torch.allclose(a.float(), c, atol=1e-5)
    other = SETS[name](6)
    if name != "schur-real":
        assert not torch.allclose(a, other(*other.initial(generator=seeded(4), dtype=F64)))


@pytest.mark.parametrize("name", SETS)
def test_a_set_survives_deepcopy_pickle_and_vmap(name):
    made = SETS[name](4)
    free = random_free(made)
    matrix = made(*free)
    assert torch.equal(copy.deepcopy(made)(*free), matrix)
    assert torch.equal(pickle.loads(pickle.dumps(made))(*free), matrix)
    stacked = torch.func.vmap(made)(*(torch.stack([tensor, 2 * tensor]) for tensor in free))
    assert torch.allclose(stacked[0], matrix)
    assert torch.allclose(stacked[1], made(*(2 * tensor for tensor in free)))


@pytest.mark.parametrize("name", SETS)
def test_a_set_made_on_meta_becomes_real_by_to_empty_and_initial(name):
    with torch.device("meta"):
        made = SETS[name](4)
    assert all(tensor.is_meta for tensor in made.initial(device="meta"))
    made.to_empty(device="cpu")
    for init in made.initialisers:
        for buffer in made.buffers():
            if buffer.is_floating_point():
                buffer.fill_(math.nan)  # what uninitialised memory may hold
        free = made.initial(init, generator=seeded(0), dtype=F64, device="cpu")
        fresh = SETS[name](4)
        assert torch.equal(made(*free), fresh(*fresh.initial(init, generator=seeded(0), dtype=F64)))


@pytest.mark.parametrize("name", SETS)
def test_optimiser_steps_stay_inside_the_set(name):
    made = SETS[name](6)
    free = [tensor.requires_grad_() for tensor in made.initial(generator=seeded(0))]
    target = torch.randn(6, 6, generator=seeded(9))
    optimizer = torch.optim.RMSprop(free, lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        ((made(*free) - target) ** 2).sum().backward()
        optimizer.step()
    assert made.error(*free) <= 1e-5
    assert SETS[name](6).error(*made.initial(generator=seeded(0))) <= 1e-5


@pytest.mark.parametrize("name", SETS)
def test_casting_to_half_precision_does_not_touch_the_fixed_parts_of_a_set(name):
    made = SETS[name](6)
    free = made.initial("random" if "random" in made.initialisers else None, generator=seeded(0))
    matrix = made(*free)
    assert torch.equal(made.to(torch.bfloat16)(*free), matrix)


# ---------------------------------------------------------------- orthogonal matrices


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_a_skew_matrix_has_n_n_minus_1_over_2_free_numbers(method, n):
    assert kreiss.Orthogonal(n, method).shapes == ((n * (n - 1) // 2,),)


@pytest.mark.parametrize("method", METHODS)
def test_the_orthogonal_parametrization_has_full_rank(method):
    n = 5
    made = kreiss.Orthogonal(n, method)
    (free,) = random_free(made)
    jacobian = torch.autograd.functional.jacobian(made, free).reshape(n * n, -1)
    assert torch.linalg.matrix_rank(jacobian) == n * (n - 1) // 2


@pytest.mark.parametrize("method", ["trivialization", "householder", "givens"])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 12), flip=st.booleans())
def test_any_orthogonal_matrix_of_either_determinant_comes_back(method, seed, n, flip):
    p = initial.random(n, generator=seeded(seed))
    if flip:
        p[:, 0] = -p[:, 0]
    made = kreiss.Orthogonal(n, method)
    assert torch.allclose(made(*made.right_inverse(p)), p, atol=1e-12)


@pytest.mark.parametrize("n", [4, 7, 10])
def test_the_logarithm_takes_rotations_by_pi(n):
    q = initial.random(n, generator=seeded(0))
    signs = torch.ones(n, dtype=F64)
    signs[:4] = -1  # two planes turned by π: no principal logarithm
    p = q @ signs.diag() @ q.T
    made = kreiss.Orthogonal(n, "expm")
    assert torch.allclose(made(*made.right_inverse(p)), p, atol=1e-12)


@pytest.mark.parametrize("angle", [1e-9, 1e-3, 0.048, 0.3, 3.0, 12.0, 40.0])
@pytest.mark.parametrize(("dtype", "tol"), [(F64, 3e-14), (torch.float32, 1e-5)])
def test_the_exponential_of_a_block_is_the_rotation(angle, dtype, tol):
    # 0.048 is where torch 2.13's own matrix_exp is off by 2e-10
    made = kreiss.Orthogonal(4, "expm")
    angles = torch.tensor([angle, -angle], dtype=F64)
    free = made.map.rotations(angles).to(dtype)
    assert torch.allclose(made(free).double(), linalg.rotation_blocks(free[[0, 5]].double(), 4), rtol=0, atol=tol)


def test_exp_agrees_with_torch_and_with_its_own_trivialization():
    made, around = kreiss.Orthogonal(6, "expm"), kreiss.Orthogonal(6, "trivialization", retraction="exp")
    (a,) = random_free(made)
    around.initial("identity", dtype=F64)
    rows, columns = np.tril_indices(6, -1)
    skew = torch.zeros(6, 6, dtype=F64)
    skew[rows, columns] = a
    skew = skew - skew.T
    assert torch.allclose(made(a), torch.linalg.matrix_exp(skew), atol=1e-13)
    assert torch.allclose(around(a), made(a), atol=1e-14)


def test_scaled_cayley_is_the_printed_formula():
    made = kreiss.Orthogonal(6, "scaled_cayley", negative=2)
    (a,) = random_free(made)
    skew = linalg.skew(a, torch.from_numpy(linalg.strictly_lower_index(6)), 6)
    eye = torch.eye(6, dtype=F64)
    d = torch.diag(torch.tensor([-1.0, -1.0, 1, 1, 1, 1], dtype=F64))
    assert torch.allclose(made(a), torch.linalg.solve(eye + skew, eye - skew) @ d, atol=1e-13)


def test_householder_is_the_product_of_its_reflections():
    n, m = 6, 4
    made = kreiss.Orthogonal(n, "householder", reflections=m)
    (free,) = random_free(made)
    p, start = torch.eye(n, dtype=F64), 0
    for k in range(m):
        v = torch.zeros(n, dtype=F64)
        v[k], v[k + 1 :] = 1.0, free[start : start + n - 1 - k]
        start += n - 1 - k
        p = p @ (torch.eye(n, dtype=F64) - 2 * torch.outer(v, v) / v.dot(v))
    assert torch.allclose(made(free), p * made.map.signs, atol=1e-13)


def test_givens_is_the_product_of_its_rotations():
    n, layers = 5, 3
    made = kreiss.Orthogonal(n, "givens", layers=layers)
    (free,) = random_free(made)
    p, angles = torch.eye(n, dtype=F64), iter(free)
    for k in range(layers):
        for row in range(k % 2, n - 1, 2):
            c, s = (angle := next(angles)).cos(), angle.sin()
            g = torch.eye(n, dtype=F64)
            g[row, row], g[row, row + 1], g[row + 1, row], g[row + 1, row + 1] = c, -s, s, c
            p = g @ p
    assert torch.allclose(made(free), p, atol=1e-14)


def test_the_cayley_retraction_agrees_with_exp_to_second_order():
    cayley, exp = (kreiss.Orthogonal(5, "trivialization", retraction=name) for name in ("cayley", "exp"))
    (a,) = random_free(cayley)
    exp.map.base = cayley.map.base
    gaps = [float((cayley(a * h) - exp(a * h)).norm()) for h in (1e-2, 1e-3)]
    assert 500 < gaps[0] / gaps[1] < 2000  # third order: a factor 10³ per factor 10


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-6), (F64, 1e-14)])
def test_rebasing_changes_the_frame_and_not_the_matrix(dtype, tol):
    made = kreiss.Orthogonal(8, "trivialization")
    (a,) = made.initial("random", generator=seeded(0), dtype=dtype)
    a = a + 0.3 * torch.randn(a.shape, generator=seeded(1), dtype=dtype)
    before, base = made(a), made.map.base.clone()
    made.rebase(a)
    assert not a.any()
    assert not torch.allclose(made.map.base, base)
    assert torch.allclose(made(a), before, rtol=0, atol=tol)


# ---------------------------------------------------------------- Schur: spectrum, dimension, round trip


@pytest.mark.parametrize("moved", [False, True], ids=["at the base point", "away from it"])
def test_the_closed_form_gradient_equals_that_of_plain_autograd(moved):
    made = kreiss.Schur(9)
    made.initial("random", generator=seeded(0), dtype=F64)
    part = sheared(made, 3)
    part["orthogonal"] *= 0.5 if moved else 0.0
    free = tuple(part[role].requires_grad_() for role in made.roles)
    weights = torch.randn(9, 9, generator=seeded(1), dtype=F64)
    p = made.orthogonal(free[0])
    plain = p @ made.core(*free) @ p.mT
    assert torch.allclose(made(*free), plain, atol=1e-13)
    found = torch.autograd.grad((made(*free) * weights).sum(), free)
    expected = torch.autograd.grad((plain * weights).sum(), free)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(found, expected, strict=True))


@given(
    n=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    coupling=st.floats(0, 10),
    method=st.sampled_from(["trivialization", "expm", "householder"]),
)
def test_the_spectrum_is_exact_in_the_schur_form(n, seed, coupling, method):
    made = kreiss.Schur(n, orthogonal=method)
    made.initial("random", generator=seeded(seed), dtype=F64)
    part = sheared(made, seed, coupling)
    free = tuple(part[role] for role in made.roles)
    p = made.orthogonal(free[0])
    core = p.T @ made(*free) @ p
    scale = float(core.abs().max()) + 1
    upper = core.clone()
    for i in range(made.pairs):
        block = core[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]
        gamma, theta = part["radius"][i], part["angle"][i]
        # a 2×2 block has eigenvalues γe^{±iθ} exactly when its trace and determinant say so
        assert abs(block.trace() - 2 * gamma * theta.cos()) <= 1e-12 * scale
        assert abs(block.det() - gamma**2) <= 1e-12 * scale**2
        upper[2 * i, 2 * i + 1] = 0
    assert (core.diagonal()[2 * made.pairs :] - part["radius"][made.pairs :]).abs().sum() <= 1e-12 * scale
    assert upper.triu(1).abs().max() <= 1e-12 * scale


@pytest.mark.parametrize("n", [4, 7, 12])
@pytest.mark.parametrize("seed", range(4))
def test_eigvals_finds_the_eigenvalues_that_were_asked_for(n, seed):
    made = kreiss.Schur(n)
    made.initial("random", generator=seeded(seed), dtype=F64)
    part = sheared(made, seed, coupling=0.5)
    part["shear"] = 0.3 * part["shear"]
    free = tuple(part[role] for role in made.roles)
    asked = made.eigenvalues(*free)
    gamma = part["radius"]
    moduli = torch.cat([gamma[: made.pairs], gamma[: made.pairs], gamma[made.pairs :]])
    assert torch.allclose(asked.abs(), moduli, atol=1e-12)
    found = torch.linalg.eigvals(made(*free))
    assert np.allclose(sorted_eigenvalues(found), sorted_eigenvalues(asked), rtol=0, atol=1e-8)


def test_the_printed_form_does_not_keep_its_moduli_and_the_exact_one_does():
    moduli = {}
    for blocks in ("exact", "paper"):
        made = kreiss.Schur(64, blocks, radius=1.0)
        free = made.initial("random", generator=seeded(0), dtype=F64)
        coupling = 0.3 * torch.randn(free[-1].shape, generator=seeded(1), dtype=F64) / 8
        in_block = made.index[4 * made.pairs :] % 65 == 64  # sub-diagonal positions of a 64×64 matrix
        coupling[in_block] *= 8
        moduli[blocks] = torch.linalg.eigvals(made(*free[:-1], coupling)).abs()
    assert (moduli["exact"] - 1).abs().max() < 1e-6
    assert (moduli["paper"] - 1).abs().max() > 0.1


def test_an_in_block_entry_moves_a_pair_of_the_printed_form_as_the_formula_says():
    gamma, theta, t = 0.9, 1.1, 0.25
    made = kreiss.Schur(2, "paper")
    made.initial("identity", dtype=F64)
    one = lambda x: torch.tensor([x], dtype=F64)  # noqa: E731
    v = made(one(0.0), one(gamma), one(theta), one(t))
    # |λ|² = det = γ² + γ t sin θ with T below the diagonal; the sign turns with that of θ
    assert abs(float(torch.linalg.eigvals(v).abs()[0] ** 2) - (gamma**2 + gamma * t * math.sin(theta))) < 1e-12


@pytest.mark.parametrize("n", [4, 5, 6, 8])
@pytest.mark.parametrize(("blocks", "dimension"), [("exact", lambda n: n * n), ("paper", lambda n: n * n),
                                               ("rotation", lambda n: n * n - 2 * (n // 2))])  # fmt: skip
def test_the_jacobian_has_the_rank_of_the_whole_matrix_space(n, blocks, dimension):
    made = kreiss.Schur(n, blocks, orthogonal="expm")
    free = random_free(made)
    jacobian = torch.cat(torch.autograd.functional.jacobian(made, free), dim=-1).reshape(n * n, -1)
    assert torch.linalg.matrix_rank(jacobian) == dimension(n)
    if blocks == "exact":
        assert jacobian.shape[1] == n * n  # as many numbers as dimensions: no redundancy


def grcar(n: int) -> Tensor:
    ones = torch.ones(n, n, dtype=F64)
    return ones.triu() - ones.triu(4) - (ones.tril(-1) - ones.tril(-2))


def jordan(n: int, eigenvalue: float) -> Tensor:
    return eigenvalue * torch.eye(n, dtype=F64) + torch.diag(torch.ones(n - 1, dtype=F64), 1)


def turned(matrix: Tensor) -> Tensor:
    q = initial.random(len(matrix), generator=seeded(5))
    return q @ matrix @ q.T


DENSE = {
    "gaussian": lambda n: torch.randn(n, n, generator=seeded(n), dtype=F64),
    "orthogonal": lambda n: initial.random(n, generator=seeded(n)),
    "reflection": lambda n: initial.random(n, generator=seeded(n)) * torch.tensor([-1.0] + [1.0] * (n - 1), dtype=F64),
    "jordan": lambda n: jordan(n, 0.9),
    "turned jordan": lambda n: turned(jordan(n, 0.9)),
    "turned nilpotent": lambda n: turned(jordan(n, 0.0)),
    "grcar": grcar,
    "symmetric": lambda n: (lambda w: w + w.T)(torch.randn(n, n, generator=seeded(n), dtype=F64)),
    "skew": lambda n: (lambda w: w - w.T)(torch.randn(n, n, generator=seeded(n), dtype=F64)),
    "zero": lambda n: torch.zeros(n, n, dtype=F64),
    "minus identity": lambda n: -torch.eye(n, dtype=F64),
}


@pytest.mark.parametrize("kind", DENSE)
def test_the_printed_form_holds_every_matrix_of_even_size(kind):
    made, w = kreiss.Schur(8, "paper"), DENSE[kind](8)
    assert made.contains(w)
    assert torch.allclose(made(*made.right_inverse(w)), w, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 32, 33])
@pytest.mark.parametrize("kind", DENSE)
def test_from_dense_holds_any_matrix(kind, n):
    w = DENSE[kind](n)
    for blocks in ("exact", "paper"):
        made, free = kreiss.Schur.from_dense(w, blocks=blocks)
        assert (made(*free) - w).abs().max() <= 1e-10 * max(1.0, float(w.abs().max()))
        assert sum(tensor.numel() for tensor in free) == n * n
        assert made.contains(w)
        assert (made(*made.right_inverse(w)) - w).abs().max() <= 1e-10 * max(1.0, float(w.abs().max()))


@pytest.mark.parametrize("method", ["expm", "householder", "givens"])
@pytest.mark.parametrize("kind", DENSE)
def test_from_dense_works_with_every_method_that_holds_all_rotations(kind, method):
    w = DENSE[kind](7)
    made, free = kreiss.Schur.from_dense(w, orthogonal=method)
    assert (made(*free) - w).abs().max() <= 1e-10


@given(seed=st.integers(0, 10_000), n=st.integers(1, 10), digits=st.integers(0, 2))
def test_from_dense_orders_the_blocks_pairs_first_then_real(seed, n, digits):
    # rounding makes equal, zero and defective eigenvalues likely
    w = torch.randn(n, n, generator=seeded(seed), dtype=F64).round(decimals=digits)
    made, free = kreiss.Schur.from_dense(w)
    assert (made(*free) - w).abs().max() <= 1e-10
    core = made.core(*free)
    p = 2 * made.pairs
    assert (core.diagonal(-1)[:p:2] * core.diagonal(1)[:p:2] < 0).all()  # complex pairs
    assert not core[:, p:].triu(1).any()
    assert not core.triu(2).any()


@pytest.mark.parametrize("below", [-1e-16, -1e-12, 2.0])
def test_from_dense_is_exact_where_a_negative_eigenvalue_is_almost_double(below):
    # the angle is π − 1e-8 then, and its sine has eight digits
    w = torch.tensor([[-1.3, 3.1], [below, -1.3]], dtype=F64)
    for matrix in (w, w.mT.contiguous()):
        made, free = kreiss.Schur.from_dense(matrix)
        assert (made(*free) - matrix).abs().max() <= 1e-14


def test_from_dense_keeps_single_precision():
    w = torch.randn(9, 9, generator=seeded(0))
    made, free = kreiss.Schur.from_dense(w)
    assert all(tensor.dtype == torch.float32 for tensor in free)
    assert torch.allclose(made(*free), w, atol=1e-5)


def test_henrici_departure_is_the_norm_of_the_couplings_when_blocks_are_normal():
    made = kreiss.Schur(8, "rotation")
    free = random_free(made)
    v = made(*free)
    departure = (v.norm() ** 2 - torch.linalg.eigvals(v).abs().square().sum()).sqrt()
    assert torch.allclose(departure, free[-1].norm(), rtol=1e-8)


# ---------------------------------------------------------------- initialisers take effect


def block_angles(matrix: Tensor) -> np.ndarray:
    even = np.arange(0, len(matrix) - 1, 2)
    m = matrix.numpy()
    return np.arctan2(m[even + 1, even], m[even, even])


@pytest.mark.parametrize("method", METHODS)
def test_henaff_turns_by_uniform_angles(method):
    n = 400 if method in ("expm", "cayley", "scaled_cayley", "trivialization") else 120
    made = kreiss.Orthogonal(n, method)
    p = made(*made.initial("henaff", generator=seeded(2), dtype=F64))
    if method == "scaled_cayley":
        p = p * made.map.signs(p.device)
    assert stats.kstest(block_angles(p) / (2 * math.pi) + 0.5, "uniform").pvalue > 0.01


@pytest.mark.parametrize("method", METHODS)
def test_cayley_turns_by_the_published_angles(method):
    n = 400 if method in ("expm", "cayley", "scaled_cayley", "trivialization") else 120
    made = kreiss.Orthogonal(n, method)
    p = made(*made.initial("cayley", generator=seeded(3), dtype=F64))
    angles = block_angles(p * made.map.signs(p.device) if method == "scaled_cayley" else p)
    # u ~ U(0, π/2) under the Cayley map; the exponential turns by s = tan(u/2)
    u = angles if "cayley" in method else 2 * np.arctan(angles)
    assert stats.kstest(u / (math.pi / 2), "uniform").pvalue > 0.01


@pytest.mark.parametrize("method", METHODS)
def test_random_is_haar_distributed(method):
    made = kreiss.Orthogonal(6, method)
    g = seeded(4)
    traces, corners = [], []
    for _ in range(400):
        p = made(*made.initial("random", generator=g, dtype=F64))
        p = p * made.map.signs(p.device) if method == "scaled_cayley" else p
        traces.append(float(p.trace()))
        corners.append(float(p[2, 3]))
    # An entry of a Haar rotation is a coordinate of a uniform point on the sphere S⁵: x² ~ Beta(1/2, 5/2).
    assert stats.kstest(np.square(corners), stats.beta(0.5, 2.5).cdf).pvalue > 0.01
    assert abs(np.mean(traces)) < 0.2
    assert abs(np.var(traces) - 1) < 0.25  # E tr² = 1
    assert torch.linalg.det(p) > 0


def test_schur_starts_with_uniform_angles_on_the_unit_circle_in_the_chosen_basis():
    for init in ("henaff", "cayley", "random"):
        made = kreiss.Schur(300)
        free = dict(zip(made.roles, made.initial(init, generator=seeded(6), dtype=F64), strict=True))
        assert stats.kstest(free["angle"].numpy() / (2 * math.pi), "uniform").pvalue > 0.01
        assert torch.equal(free["radius"], torch.ones(150, dtype=F64))
        assert not free["shear"].any()
        assert not free["coupling"].any()
        basis = made.orthogonal(free["orthogonal"])
        if init == "henaff":
            assert stats.kstest(block_angles(basis) / (2 * math.pi) + 0.5, "uniform").pvalue > 0.01
        if init == "cayley":
            assert stats.kstest(2 * np.arctan(block_angles(basis)) / (math.pi / 2), "uniform").pvalue > 0.01
        if init == "random":
            assert basis.abs().max() < 0.5  # no block structure


def test_free_matrices_start_as_named():
    made = kreiss.Free(200)
    entries = made.initial("glorot", generator=seeded(7), dtype=F64)[0].flatten().numpy()
    assert stats.kstest(entries * math.sqrt(200), "norm").pvalue > 0.01
    assert torch.equal(made.initial("identity")[0], torch.eye(200))
    assert torch.equal(made.initial("chain")[0], torch.diag(torch.ones(199), -1))
    henaff = made.initial("henaff", generator=seeded(8), dtype=F64)[0]
    assert stats.kstest(block_angles(henaff) / (2 * math.pi) + 0.5, "uniform").pvalue > 0.01


def test_chain_has_its_gain_and_feedback():
    w = initial.chain(5, alpha=1.05, feedback=0.01)
    assert torch.equal(w.diagonal(-1), torch.full((4,), 1.05, dtype=F64))
    assert torch.equal(w.diagonal(1), torch.full((4,), 0.01, dtype=F64))


def test_the_chain_of_a_schur_set_is_a_delay_line_between_blocks():
    made = kreiss.Schur(6)
    v = made(*made.initial("chain", dtype=F64))
    assert torch.equal(v, torch.diag(torch.ones(4, dtype=F64), -2))
    assert not torch.linalg.matrix_power(v, 3).any()


def test_aligned_rotations_commute_with_the_blocks_so_that_henaff_and_cayley_start_at_the_same_matrix():
    matrices = {}
    for init in ("henaff", "cayley", "random"):
        made = kreiss.Schur(9)
        free = dict(zip(made.roles, made.initial(init, generator=seeded(1), dtype=F64), strict=True))
        free["angle"] = torch.linspace(0.3, 2.7, 4, dtype=F64)
        p = made.orthogonal(free["orthogonal"])
        assert not torch.allclose(p, torch.eye(9, dtype=F64), atol=0.1)  # another P, and yet:
        matrices[init] = made(*free.values())
    expected = linalg.rotation_blocks(free["angle"], 9)
    assert torch.allclose(matrices["henaff"], expected, atol=1e-14)
    assert torch.allclose(matrices["cayley"], expected, atol=1e-14)
    assert not torch.allclose(matrices["random"], expected, atol=0.1)


def departure(v: Tensor) -> float:
    """‖VVᵀ − VᵀV‖, zero exactly for normal matrices."""
    return float((v @ v.mT - v.mT @ v).norm())


def test_the_starts_named_non_normal_are_and_the_others_are_not_and_all_keep_their_radius():
    for make in (lambda: kreiss.Schur(9, radius=0.9), lambda: kreiss.ComplexSchur(5, radius=0.9)):
        for init in make().initialisers:
            made = make()
            v = made(*made.initial(init, generator=seeded(2), dtype=F64))
            assert (departure(v) > 0.1) == (init in ("chain", "delay_line", "random_coupling")), init
            assert torch.allclose(torch.linalg.eigvals(v).abs(), torch.tensor(0.9, dtype=F64), atol=1e-3), init


def test_delay_line_links_each_block_to_the_next_by_its_strength():
    made = kreiss.Schur(7, radius=1.0, real=(2, 1), strength=0.3)
    t = made(*made.initial("delay_line", generator=seeded(0), dtype=F64)).tril(-1)
    t[[1, 3], [0, 2]] = 0.0  # inside the 2×2 blocks
    links = {(2, 0), (3, 1), (4, 3), (5, 4), (6, 5)}
    assert {(int(i), int(j)) for i, j in t.nonzero()} == links
    assert all(t[link] == 0.3 for link in links)


def test_a_delay_line_of_real_blocks_is_the_theta_of_the_paper():
    layer = kreiss.NNRNN(1, 100, real=(100, 0), radius=0.2, init="delay_line", strength=0.95, dtype=F64)
    theta = kreiss.analysis.delay_line(100, 0.95, 0.0, 0.2)
    assert np.allclose(layer.weight_hh_l0.detach().numpy(), theta, rtol=0, atol=1e-15)


@pytest.mark.parametrize("blocks", ["exact", "rotation", "paper"])
def test_random_coupling_has_its_variance_and_leaves_the_blocks_alone(blocks):
    made = kreiss.Schur(200, blocks, strength=0.7)
    core = made(*made.initial("random_coupling", generator=seeded(3), dtype=F64))
    below = core.flatten()[linalg.strictly_lower_index(200, 100)].numpy()
    assert stats.kstest(below * math.sqrt(200) / 0.7, "norm").pvalue > 0.01
    assert torch.allclose(core[1::2, ::2].diagonal(), -core[::2, 1::2].diagonal())  # rotations, no entry of T inside


def test_an_even_nnrnn_has_no_simple_real_eigenvalue_unless_blocks_are_named():
    layer = kreiss.NNRNN(1, 6, init="random", generator=seeded(0), dtype=F64)
    reflection = torch.diag(torch.tensor([-1.0, 1, 1, 1, 1, 1], dtype=F64))
    assert torch.linalg.det(layer.weight_hh_l0) > 0
    with pytest.raises(kreiss.InputError, match="must have 0 real eigenvalues"):
        layer.weight_hh_l0 = reflection
    named = kreiss.NNRNN(1, 6, real=(1, 1), dtype=F64)
    assert torch.linalg.det(named.weight_hh_l0) < 0
    named.weight_hh_l0 = reflection
    assert torch.allclose(named.weight_hh_l0, reflection, atol=1e-12)
    assert kreiss.NNRNN(**named.config).sets["l0"].describe() == named.sets["l0"].describe()
