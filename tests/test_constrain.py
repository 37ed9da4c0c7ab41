"""`kreiss.constrain` keeps any square matrix of any module in a set."""

from __future__ import annotations

import copy

import geotorch
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import kreiss
from catalogue import SETS
from kreiss import Free, Orthogonal, Schur, Stacked, constrain

N = 4
HELD = {name: make for name, make in SETS.items() if name != "free"}
GATED = {"lstm": (nn.LSTM, 4), "gru": (nn.GRU, 3)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(dtype: torch.dtype = torch.float64) -> nn.Linear:
    return nn.Linear(N, N, bias=False, dtype=dtype)


def member(name: str) -> Tensor:
    """A matrix of the set, away from its start, in float64."""
    constraint = SETS[name](N)
    free = list(constraint.initial(generator=seeded(1), dtype=torch.float64))
    for i, role in enumerate(constraint.roles):
        if (name, role) != ("schur-rotation", "coupling"):  # with T = 0 every order of its eigenvalues fits
            free[i] += 0.1 * torch.randn(free[i].shape, dtype=torch.float64)
    return constraint(*free).detach()


def holds(module: nn.Module, name: str = "weight", tol: float = 1e-9) -> bool:
    """Whether the matrix that the module uses lies in the set put on it."""
    constraint, matrix = module.parametrizations[name][0], getattr(module, name).detach()
    if not isinstance(constraint, Schur) or constraint.blocks != "rotation":
        return constraint.contains(matrix, tol)
    # For "rotation" another order of the eigenvalues has other blocks, so look at it in the set's own basis P.
    p = constraint.orthogonal(module.parametrizations[name].original0).detach()
    core = p.mT @ matrix @ p
    zeros = [core[:2, 2:].flatten()]
    for block in (core[:2, :2], core[2:, 2:]):  # N = 4: two scaled rotations
        zeros.append(torch.stack([block[0, 0] - block[1, 1], block[0, 1] + block[1, 0]]))
    return float(torch.cat(zeros).abs().max()) < tol


def holding(matrix: Tensor) -> nn.Linear:
    """A Linear whose weight is `matrix`."""
    module = nn.Linear(*matrix.T.shape, bias=False, dtype=matrix.dtype)
    with torch.no_grad():
        module.weight.copy_(matrix)
    return module


def fit(module: nn.Module, steps: int = 20, lr: float = 0.02) -> list[float]:
    """Take optimiser steps towards a random linear map; the losses."""
    dtype = next(module.parameters()).dtype
    x, y = torch.randn(2, 16, N, generator=seeded(2), dtype=dtype)
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (module(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


# ---------------------------------------------------------------- every set on a Linear


@pytest.mark.parametrize("name", SETS)
def test_the_weight_is_in_the_set_after_training_and_training_helps(name):
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    losses = fit(module)
    assert losses[-1] < losses[0]
    assert holds(module)


@pytest.mark.parametrize("name", SETS)
def test_the_weight_is_in_the_set_after_training_in_float32(name):
    module = constrain(linear(torch.float32), "weight", SETS[name](N), generator=seeded())
    fit(module)
    assert module.weight.dtype == torch.float32
    assert holds(module, tol=1e-4)


@pytest.mark.parametrize("name", SETS)
def test_gradients_reach_every_free_tensor(name):
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    (module.weight * torch.randn(N, N, dtype=torch.float64)).sum().backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.any() or not parameter.numel(), key  # no pairs, no angles


@pytest.mark.parametrize("name", SETS)
def test_a_matrix_in_the_set_is_kept(name):
    matrix = member(name)
    module = constrain(holding(matrix), "weight", SETS[name](N))
    torch.testing.assert_close(module.weight, matrix, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in HELD if name != "schur-paper"])  # it holds any matrix of even size
def test_a_matrix_outside_the_set_is_replaced_as_the_generator_says(name):
    outside = torch.diag(torch.tensor([1.0, 2, 3, 4]))
    first, again, other = (
        constrain(holding(outside), "weight", HELD[name](N), generator=seeded(seed)) for seed in (3, 3, 4)
    )
    expected = HELD[name](N)
    assert torch.equal(first.weight, expected(*expected.initial(generator=seeded(3))))
    assert torch.equal(first.weight, again.weight)
    states = zip(first.state_dict().values(), other.state_dict().values(), strict=True)
    assert not all(torch.equal(one, two) for one, two in states)


@pytest.mark.parametrize("name", SETS)
def test_a_named_initialiser_is_honoured_although_the_matrix_fits(name):
    for init in SETS[name](N).initialisers:
        module = constrain(holding(member(name)), "weight", SETS[name](N), init=init, generator=seeded())
        expected = SETS[name](N)
        free = expected.initial(init, generator=seeded(), dtype=torch.float64)
        assert torch.equal(module.weight, expected(*free)), init


@pytest.mark.parametrize("name", SETS)
def test_a_state_dict_goes_round(name):
    source, target = (constrain(linear(), "weight", SETS[name](N), generator=seeded(seed)) for seed in (5, 6))
    fit(source, steps=3)
    target.load_state_dict(source.state_dict())
    assert torch.equal(target.weight, source.weight)


@pytest.mark.parametrize("name", SETS)
def test_a_deepcopy_is_equal_and_independent(name):
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    twin = copy.deepcopy(module)
    before = module.weight.detach().clone()
    assert torch.equal(twin.weight, before)
    fit(twin)
    kreiss.rebase(twin)
    assert torch.equal(module.weight, before)
    assert not torch.equal(twin.weight, before)


@pytest.mark.parametrize("name", SETS)
def test_one_set_object_on_two_matrices_shares_nothing(name):
    constraint = SETS[name](N)
    own = {key: value.clone() for key, value in constraint.state_dict().items()}
    one, two = (constrain(linear(), "weight", constraint, init="random" if name != "free" else None) for _ in range(2))
    pointers = [{tensor.data_ptr() for tensor in m.state_dict().values() if tensor.numel()} for m in (one, two)]
    assert not pointers[0] & pointers[1]
    before = two.weight.detach().clone()
    fit(one, steps=2)
    kreiss.rebase(one)
    assert torch.equal(two.weight, before)
    assert all(torch.equal(constraint.state_dict()[key], value) for key, value in own.items())


@pytest.mark.parametrize("name", SETS)
def test_a_matrix_on_meta_is_constrained_on_meta(name):
    module = constrain(nn.Linear(N, N, device="meta"), "weight", SETS[name](N))
    assert module.weight.shape == (N, N)
    assert module.weight.is_meta
    assert all(tensor.is_meta for tensor in module.state_dict().values())


@pytest.mark.parametrize("way", ["to_empty", "assign"])
@pytest.mark.parametrize("name", SETS)
def test_a_matrix_constrained_on_meta_takes_a_state_dict(name, way):
    source = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    fit(source, steps=3)
    module = constrain(nn.Linear(N, N, bias=False, device="meta", dtype=torch.float64), "weight", SETS[name](N))
    if way == "to_empty":
        module.to_empty(device="cpu").load_state_dict(source.state_dict())
    else:
        module.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(module.weight, source.weight)


@pytest.mark.parametrize("name", SETS)
def test_assigning_a_matrix_of_the_set_sets_it(name):
    # the same seed as the member: a few reflections hold the matrices of their own signs only
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded(1))
    matrix = member(name)
    assert not torch.allclose(module.weight, matrix)
    module.weight = matrix
    torch.testing.assert_close(module.weight, matrix, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SETS)
def test_within_cached_the_matrix_is_computed_once(name):
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    calls = []
    module.parametrizations.weight[0].register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(3, N, dtype=torch.float64)
    outside = module(x)
    with parametrize.cached():
        assert torch.equal(module(x), outside)
        assert module.weight is module.weight
        (module(x) + module(x)).sum().backward()
    assert len(calls) == 2  # one outside, one inside
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("name", SETS)
def test_removing_the_parametrization_leaves_the_dense_matrix(name):
    module = constrain(linear(), "weight", SETS[name](N), generator=seeded())
    matrix = module.weight.detach().clone()
    parametrize.remove_parametrizations(module, "weight")
    assert type(module) is nn.Linear
    assert isinstance(module.weight, nn.Parameter)
    assert [key for key, _ in module.named_parameters()] == ["weight"]
    assert torch.equal(module.weight, matrix)


def test_constrain_returns_the_module_itself_and_leaves_its_other_parameters_alone():
    module = nn.Linear(N, N)
    bias = module.bias
    assert constrain(module, "weight", Orthogonal(N)) is module
    assert module.bias is bias


@pytest.mark.parametrize("name", SETS)
def test_free_parameters_are_public_and_follow_the_roles_of_the_set(name):
    module = constrain(linear(), "weight", SETS[name](N))
    expected = {f"parametrizations.weight.original{i}": role for i, role in enumerate(SETS[name](N).roles)}
    assert kreiss.roles(module) == expected
    assert dict(zip(expected, SETS[name](N).shapes, strict=True)) == {
        key: tuple(parameter.shape) for key, parameter in module.named_parameters()
    }


# ---------------------------------------------------------------- other modules


class Attention(nn.Module):
    """A user's module with square matrices of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(size, size, dtype=torch.float64))
        self.key = nn.Parameter(torch.randn(size, size, dtype=torch.float64))
        self.value = nn.Linear(size, size, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ self.query.T) @ (x @ self.key.T).mT
        return scores.softmax(-1) @ self.value(x)


def test_two_matrices_of_a_users_module_are_held_in_different_sets():
    module = Attention(N)
    constrain(module, "query", Orthogonal(N))
    constrain(module, "key", Schur(N, radius=0.5))
    constrain(module.value, "weight", Orthogonal(N, "householder"))
    losses = fit(module)
    assert losses[-1] < losses[0]
    assert Orthogonal(N).contains(module.query)
    assert Schur(N, radius=0.5).contains(module.key)
    assert Orthogonal(N).contains(module.value.weight)


def test_a_matrix_inside_torchs_attention_is_constrained():
    module = constrain(nn.MultiheadAttention(N, 2).out_proj, "weight", Orthogonal(N))
    assert Orthogonal(N).contains(module.weight)


def sine(steps: int = 12, batch: int = 8) -> tuple[Tensor, Tensor]:
    """A wave and its continuation by one step, (T, B, 1)."""
    phase = torch.linspace(0, 6, batch)[None, :, None]
    wave = torch.sin(0.7 * torch.arange(steps + 1.0)[:, None, None] + phase)
    return wave[:-1], wave[1:]


def fit_wave(rnn: nn.Module, steps: int = 30) -> list[float]:
    readout = nn.Linear(N, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=0.01)
    x, y = sine()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (readout(rnn(x)[0]) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("name", HELD)
def test_torchs_rnn_trains_with_a_constrained_matrix(name):
    rnn = constrain(nn.RNN(1, N), "weight_hh_l0", HELD[name](N), generator=seeded())
    losses = fit_wave(rnn)
    assert losses[-1] < 0.9 * losses[0]
    assert holds(rnn, "weight_hh_l0", tol=1e-4)


def test_torchs_rnn_stays_orthogonal_and_uses_the_matrix_that_it_shows():
    rnn = constrain(nn.RNN(1, N), "weight_hh_l0", Orthogonal(N), generator=seeded())
    fit_wave(rnn)
    assert Orthogonal(N).contains(rnn.weight_hh_l0, tol=1e-5)
    x = sine()[0]
    before = rnn(x)[0].detach()
    parametrize.remove_parametrizations(rnn, "weight_hh_l0")
    assert type(rnn) is nn.RNN
    torch.testing.assert_close(rnn(x)[0], before)


def test_a_constrained_rnn_computes_what_our_layer_computes():
    layer = kreiss.ExpRNN(1, N, nonlinearity="tanh", generator=seeded())
    rnn = constrain(layer.to_torch(), "weight_hh_l0", Orthogonal(N))
    with parametrize.cached():
        torch.testing.assert_close(rnn(sine()[0])[0], layer(sine()[0])[0])


@pytest.mark.parametrize("name", GATED)
def test_every_gate_of_a_gated_layer_is_held(name):
    make, gates = GATED[name]
    module = constrain(make(1, N), "weight_hh_l0", Orthogonal(N), generator=seeded())
    losses = fit_wave(module)
    assert losses[-1] < losses[0]
    blocks = module.weight_hh_l0.split(N)
    assert len(blocks) == gates
    assert all(Orthogonal(N).contains(block, tol=1e-5) for block in blocks)
    assert not torch.equal(blocks[0], blocks[1])  # each gate has numbers of its own


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("gate", [0, 2])
def test_one_gate_of_a_gated_layer_is_held_and_the_others_are_free(name, gate):
    make, gates = GATED[name]
    module = make(1, N)
    nn.init.orthogonal_(module.weight_hh_l0[gate * N : (gate + 1) * N].data)
    before = module.weight_hh_l0.detach().clone()
    stacked = Stacked(*(Orthogonal(N) if k == gate else Free(N) for k in range(gates)))
    constrain(module, "weight_hh_l0", stacked)
    torch.testing.assert_close(module.weight_hh_l0, before, rtol=0, atol=1e-6)
    fit_wave(module)
    held = [Orthogonal(N).contains(block, tol=1e-5) for block in module.weight_hh_l0.split(N)]
    assert held == [k == gate for k in range(gates)]


def test_gates_of_different_sets_keep_their_own_start():
    stacked = Stacked(Free(N), Schur(N, radius=0.9), Orthogonal(N, "givens"))
    gru = constrain(nn.GRU(1, N), "weight_hh_l0", stacked, generator=seeded())
    _, second, third = gru.weight_hh_l0.split(N)
    assert Schur(N, radius=0.9).contains(second)
    assert Orthogonal(N).contains(third)
    expected = stacked(*stacked.initial(generator=seeded()))
    assert torch.equal(gru.weight_hh_l0, expected)


@pytest.mark.parametrize("name", ["weight_hh_l0", "weight_hh_l1", "weight_hh_l0_reverse"])
def test_any_recurrent_matrix_of_a_deep_bidirectional_rnn_can_be_held(name):
    rnn = nn.RNN(3, N, 2, bidirectional=True)
    others = {key: value for key, value in rnn.named_parameters() if key != name}
    constrain(rnn, name, Orthogonal(N))
    rnn(torch.randn(5, 2, 3))[0].sum().backward()
    assert Orthogonal(N).contains(getattr(rnn, name))
    assert all(getattr(rnn, key) is value and value.grad is not None for key, value in others.items())


# ---------------------------------------------------------------- geotorch as an oracle


def geotorch_matrix(a: Tensor, base: Tensor, retraction: str) -> Tensor:
    """base·r(A) by geotorch, A skew with the strictly lower triangle `a`, row by row."""
    oracle = geotorch.SO(base.shape, triv=retraction).double()
    oracle.right_inverse(base)
    lower = torch.zeros_like(base)
    lower[tuple(torch.tril_indices(*base.shape, -1))] = a
    return oracle(lower)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_expm_is_the_exponential_of_geotorch(n):
    a = torch.randn(n * (n - 1) // 2, dtype=torch.float64)
    expected = geotorch_matrix(a, torch.eye(n, dtype=torch.float64), "expm")
    torch.testing.assert_close(Orthogonal(n, "expm")(a), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("retraction", "theirs"), [("exp", "expm"), ("cayley", "cayley")])
def test_a_trivialization_is_that_of_geotorch_around_the_same_base(retraction, theirs):
    ours = Orthogonal(5, "trivialization", retraction=retraction)
    base = ours(*ours.initial("random", dtype=torch.float64))
    a = torch.randn(10, dtype=torch.float64)
    torch.testing.assert_close(ours(a), geotorch_matrix(a, base, theirs), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("retraction", "theirs"), [("exp", "expm"), ("cayley", "cayley")])
def test_training_takes_the_same_path_as_with_geotorch(retraction, theirs):
    # same base, same free numbers, plain gradient descent: the gradients must agree too
    ours = constrain(linear(), "weight", Orthogonal(N, retraction=retraction), init="random", generator=seeded())
    oracle = linear()
    geotorch.orthogonal(oracle, "weight", triv=theirs)
    oracle.weight = ours.weight.detach().clone()
    x, y = torch.randn(2, 16, N, dtype=torch.float64)
    for module in (ours, oracle):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            (module(x) - y).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, oracle.weight, rtol=0, atol=1e-8)
