"""Network analysis on every layer of the package, on torch's own layers and on step functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import kreiss
from kreiss import analysis
from kreiss.errors import InputError
from kreiss.layers import LAYERS

# without layers with memory, whose state counts steps and so is no vector
NETWORKS = {
    **{name: lambda make=make, **options: make(3, 6, **options) for name, make in LAYERS.items()},
    "torch-rnn": lambda **options: nn.RNN(3, 6, **options),
    "torch-gru": lambda **options: nn.GRU(3, 6, **options),
    "torch-lstm": lambda **options: nn.LSTM(3, 6, **options),
    "torch-lstm-deep": lambda **options: nn.LSTM(3, 4, num_layers=2, batch_first=True, **options),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def network(name: str) -> nn.Module:
    return NETWORKS[name](dtype=torch.float64)


def away_from_kinks(system: analysis.Dynamics, batch: int) -> torch.Tensor:
    """A start with every unit well away from zero, where relu and modReLU bend."""
    g = torch.Generator().manual_seed(1)
    return torch.randn(batch, system.state_size, generator=g, dtype=torch.float64)


def driven(steps: int = 7, batch: int = 2) -> torch.Tensor:
    return torch.randn(steps, batch, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


# ---------------------------------------------------------------- the map


@every_network
def test_the_flat_map_computes_what_the_layer_computes(name):
    layer = network(name)
    system = analysis.dynamics(layer)
    x = driven()
    states = system.states(x)
    assert states.shape == (8, 2, system.state_size)
    with torch.no_grad():
        given = x.transpose(0, 1) if getattr(layer, "batch_first", False) else x
        output, last = layer(given)
    flat = torch.cat([part.movedim(1, 0).flatten(1) for part in (last if isinstance(last, tuple) else (last,))], 1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten(1)
    assert torch.allclose(states[-1], flat, atol=1e-12)
    h = system.initial(2)
    for now in x:
        y, h = system.run(now, h)
    top = output.transpose(0, 1) if getattr(layer, "batch_first", False) else output
    assert torch.allclose(y, top[-1], atol=1e-12)


def test_symbols_and_single_sequences_are_taken():
    system = analysis.dynamics(kreiss.NNRNN(5, 4))
    assert system.inputs(torch.tensor([[0, 1], [4, 2]])).shape == (2, 2, 5)
    assert system.inputs(torch.randn(7, 5)).shape == (7, 1, 5)


def test_a_model_with_one_layer_inside_is_taken_apart():
    model = nn.Sequential(nn.Linear(2, 3), nn.GRU(3, 4))
    assert analysis.dynamics(model).state_size == 4
    with pytest.raises(InputError, match="must hold exactly one recurrent layer; got 2 in Sequential"):
        analysis.dynamics(nn.Sequential(nn.GRU(3, 4), nn.GRU(4, 3)))


def of_both_layouts(name: str) -> tuple[nn.Module, nn.Module]:
    """Two layers with the same weights, one time first and one batch first."""
    options = {"dtype": torch.float64}
    first = NETWORKS[name](**options)
    other = NETWORKS[name](**options, **({} if first.batch_first else {"batch_first": True}))
    other.load_state_dict(first.state_dict())
    first.batch_first, other.batch_first = False, True
    return first, other


@every_network
def test_a_batch_first_network_is_analysed_as_the_same_network_time_first(name):
    time_first, batch_first = of_both_layouts(name)
    x = driven(6, 3)
    expected = analysis.input_sensitivity(time_first, x).norms
    found = analysis.input_sensitivity(batch_first, x.transpose(0, 1)).norms
    assert found.shape == (6, 6)
    assert torch.allclose(found, expected, atol=1e-12)


EVERY_ANALYSIS = {
    "step_jacobians": lambda net, x: analysis.step_jacobians(net, x).state,
    "input_sensitivity": lambda net, x: analysis.input_sensitivity(net, x).by_lag,
    "memory_horizon": lambda net, x: torch.tensor(float(analysis.memory_horizon(net, x) or -1)),
    "input_output_jacobian": lambda net, x: analysis.input_output_jacobian(net, x),
    "singular_spectra": lambda net, x: analysis.singular_spectra(net, x).product,
    "lyapunov_spectrum": lambda net, x: analysis.lyapunov_spectrum(net, x, warmup=2).exponents,
    "hidden_transients": lambda net, x: analysis.hidden_transients(net, x).norm_mean,
    "perturbation_growth": lambda net, x: analysis.perturbation_growth(net, x).growth,
    "gradient_flow": lambda net, x: (
        analysis.gradient_flow(net, x, lambda y: (y[:, -1] if net.batch_first else y[-1]).square().sum()).norms
    ),
}


@pytest.mark.parametrize("analyse", EVERY_ANALYSIS.values(), ids=EVERY_ANALYSIS)
@pytest.mark.parametrize("name", ["nnrnn", "torch-lstm"])
def test_every_analysis_reads_the_layout_of_the_layer(name, analyse):
    time_first, batch_first = of_both_layouts(name)
    x = driven(7, 3)
    assert torch.allclose(analyse(time_first, x), analyse(batch_first, x.transpose(0, 1)), atol=1e-12)


def test_symbols_and_single_sequences_of_a_batch_first_network_are_taken():
    system = analysis.dynamics(nn.GRU(3, 4, batch_first=True))
    symbols = torch.tensor([[0, 1, 2, 2]])
    assert system.inputs(symbols).shape == (4, 1, 3)
    assert system.inputs(symbols[0]).shape == (4, 1, 3)
    assert system.inputs(torch.ones(4, 3)).shape == (4, 1, 3)
    assert system.time_first().inputs(symbols).shape == (1, 4, 3)


def test_analysis_leaves_the_network_as_it_was():
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    analysis.step_jacobians(layer, torch.randn(3, 2, 3))
    assert layer.training
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert all(parameter.grad is None for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: analysis.dynamics(3), TypeError, "`network` must be a recurrent layer or a function"),
        (lambda: analysis.dynamics(lambda x, h: h), InputError, "a step function needs its sizes"),
        (
            lambda: analysis.dynamics(nn.GRU(1, 2, bidirectional=True)),
            InputError,
            "`network` must run in one direction",
        ),
        (lambda: analysis.step_jacobians(nn.GRU(1, 2), torch.ones(3, 2)), InputError, "`inputs` must be of shape"),
        (
            lambda: analysis.gradient_flow(nn.GRU(1, 2), torch.ones(3, 1), lambda y: y),
            InputError,
            "`loss` must return one",
        ),
        (lambda: analysis.memory_horizon(nn.GRU(1, 2), torch.ones(3, 1), 2.0), InputError, "`share` must lie between"),
        (
            lambda: analysis.lyapunov_spectrum(nn.GRU(1, 2), torch.ones(3, 1), warmup=3),
            InputError,
            "`inputs` must be longer than the warm-up of 3; got 3 steps",
        ),
        (
            lambda: analysis.fixed_points(nn.GRU(1, 2), input=torch.ones(2)),
            InputError,
            r"`input` must be of shape \(1,\)",
        ),
        (lambda: analysis.fixed_points(nn.GRU(1, 2), starts=torch.ones(2, 3)), InputError, "`starts` must be of shape"),
        (lambda: analysis.dimensionality(torch.ones(1, 3)), InputError, "`states` must hold at least two states"),
        (lambda: analysis.perturbation_growth(nn.GRU(1, 2), torch.ones(3, 1), size=0.0), InputError, "`size` must be"),
        (
            lambda: analysis.learned_structure(nn.Linear(2, 2)),
            InputError,
            "must hold exactly one recurrent layer; got 0",
        ),
    ],
)
def test_bad_input_is_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---------------------------------------------------------------- derivatives


@every_network
def test_step_jacobians_agree_with_central_differences(name):
    system = analysis.dynamics(network(name)).time_first()
    x, start = driven(1), away_from_kinks(system, 2)
    found = analysis.step_jacobians(system, x, start)
    delta = 1e-6
    for column in range(system.state_size):
        shift = delta * torch.eye(system.state_size, dtype=torch.float64)[column]
        difference = (system.step(x[0], start + shift) - system.step(x[0], start - shift)) / (2 * delta)
        assert torch.allclose(found.state[0, :, :, column], difference.detach(), atol=1e-6)
    for column in range(3):
        shift = delta * torch.eye(3, dtype=torch.float64)[column]
        difference = (system.step(x[0] + shift, start) - system.step(x[0] - shift, start)) / (2 * delta)
        assert torch.allclose(found.input[0, :, :, column], difference.detach(), atol=1e-6)


@every_network
def test_the_heat_map_is_what_autograd_finds_through_the_whole_sequence(name):
    system = analysis.dynamics(network(name)).time_first()
    x = driven(5, 1)
    found = analysis.input_sensitivity(system, x)

    def states(inputs: torch.Tensor) -> torch.Tensor:
        h, all_states = system.initial(1), []
        for now in inputs:
            h = system.step(now, h)
            all_states.append(h[0])
        return torch.stack(all_states)

    full = torch.autograd.functional.jacobian(states, x)[:, :, :, 0]  # (τ, S, t, I)
    for tau in range(5):
        for t in range(5):
            exact = torch.linalg.matrix_norm(full[tau, :, t], 2) if t <= tau else 0.0
            assert float(found.norms[tau, t]) == pytest.approx(float(exact), abs=1e-10)
    lag_two = torch.stack([found.norms[t + 2, t] for t in range(3)]).mean()
    assert float(found.by_lag[2]) == pytest.approx(float(lag_two))


@every_network
def test_gradients_through_time_agree_with_autograd_and_with_differences(name):
    system = analysis.dynamics(network(name)).time_first()
    x, start = driven(6), away_from_kinks(system, 2)
    weight = torch.randn(1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        real = torch.view_as_real(outputs) if outputs.is_complex() else outputs
        return (weight * real).square().sum()

    found = analysis.gradient_flow(system, x, loss, state=start)
    assert found.norms.shape == (7, 2)

    def tail(h: torch.Tensor, first: int) -> torch.Tensor:
        outputs = [system.read(h)] if first else []
        for now in x[first:]:
            y, h = system.run(now, h)
            outputs.append(y)
        return loss(torch.stack(outputs))

    states = system.states(x, start)
    for t in (0, 3):
        h = states[t].clone().requires_grad_()
        (exact,) = torch.autograd.grad(tail(h, t), h)
        numeric = torch.zeros_like(h)
        with torch.no_grad():
            for i in range(h.shape[1]):
                for b in range(2):
                    shift = torch.zeros_like(h)
                    shift[b, i] = 1e-6
                    numeric[b, i] = (tail(states[t] + shift, t) - tail(states[t] - shift, t)) / 2e-6
        assert torch.allclose(exact, numeric, atol=1e-6, rtol=1e-6)
        assert torch.allclose(found.norms[t], exact.norm(dim=1), atol=1e-10)


def test_gradient_norms_of_a_linear_network_shrink_by_its_scale():
    v = 0.9 * torch.from_numpy(analysis.random_orthogonal(5, 0))
    found = analysis.gradient_flow(
        lambda x, h: h @ v.T + x,
        torch.zeros(20, 5),
        lambda y: y[-1].square().sum() + y[-1].sum(),
        input_size=5,
        state_size=5,
    )
    expected = found.norms[-1] * 0.9 ** torch.arange(20, -1, -1, dtype=torch.float64)[:, None]
    assert torch.allclose(found.norms, expected)
    assert found.growth == pytest.approx(0.9)


def test_gradient_history_follows_a_training():
    torch.manual_seed(0)
    layer = kreiss.NNRNN(2, 6)
    x = torch.randn(10, 4, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    history = analysis.GradientHistory()
    for update in range(3):
        history.add(update, layer, x, lambda y: y.square().mean())
        optimizer.zero_grad()
        layer(x)[0].square().mean().backward()
        optimizer.step()
    assert history.updates == [0, 1, 2]
    assert history.norms.shape == (3, 11)
    assert float((history.norms[0] - history.norms[2]).abs().max()) > 0


@pytest.mark.parametrize("name", ["nnrnn", "torch-lstm", "torch-gru"])
def test_the_jacobian_of_the_output_is_that_of_the_whole_network(name):
    layer = network(name)
    x = driven(4, 2)
    readout = nn.Linear(6, 2, dtype=torch.float64)
    found = analysis.input_output_jacobian(layer, x, readout)
    assert found.shape == (4, 2, 2, 3)
    full = torch.autograd.functional.jacobian(lambda inputs: readout(layer(inputs)[0][-1]), x)  # (B, O, T, B, I)
    for b in range(2):
        assert torch.allclose(found[:, b], full[b, :, :, b].movedim(1, 0), atol=1e-10)


def test_the_memory_horizon_of_a_leak_is_its_logarithm():
    leak = lambda x, h: 0.9 * h + x  # noqa: E731
    assert analysis.memory_horizon(leak, torch.zeros(40, 1), input_size=1, state_size=1) == math.ceil(
        math.log(0.1, 0.9)
    )
    assert analysis.memory_horizon(lambda x, h: h + x, torch.zeros(40, 1), input_size=1, state_size=1) is None


def test_a_part_of_the_state_can_be_looked_at_alone():
    step = lambda x, h: torch.cat([h[:, :1] + x, 0.1 * h[:, 1:] + x], 1)  # noqa: E731
    sizes = {"input_size": 1, "state_size": 2}
    long = analysis.input_sensitivity(step, torch.zeros(6, 1), units=slice(0, 1), **sizes)
    short = analysis.input_sensitivity(step, torch.zeros(6, 1), units=slice(1, 2), **sizes)
    assert long.by_lag.tolist() == pytest.approx([1.0] * 6)
    assert short.by_lag.tolist() == pytest.approx([0.1**k for k in range(6)])


def test_singular_spectra_are_those_of_the_products():
    found = analysis.singular_spectra(nn.GRU(3, 4, dtype=torch.float64), driven(5, 2))
    jacobians = analysis.step_jacobians(nn.GRU(3, 4, dtype=torch.float64), driven(5, 2))
    assert found.step.shape == found.product.shape == jacobians.state.shape[:3]
    linear = analysis.singular_spectra(lambda x, h: 0.5 * h, torch.zeros(4, 1), input_size=1, state_size=2)
    assert linear.product[:, 0, 0].tolist() == pytest.approx([0.5, 0.25, 0.125, 0.0625])


def test_products_of_jacobians_are_the_derivative_of_the_last_state_by_the_first():
    layer, x = nn.GRU(3, 4, dtype=torch.float64), driven(5, 1)
    first = torch.randn(1, 4, dtype=torch.float64)
    found = analysis.singular_spectra(layer, x, first)
    for steps in (2, 5):
        last = torch.autograd.functional.jacobian(lambda h, t=steps: layer(x[:t], h[None])[1][0], first)
        expected = torch.linalg.svdvals(last[0, :, 0])
        assert torch.allclose(found.product[steps - 1, 0], expected, rtol=1e-10)


# ---------------------------------------------------------------- Lyapunov exponents


@pytest.mark.parametrize("scale", [0.5, 0.97, 1.0, 1.2])
def test_a_scaled_orthogonal_network_has_the_logarithm_of_its_scale(scale):
    v = scale * torch.from_numpy(analysis.random_orthogonal(6, 1))
    found = analysis.lyapunov_spectrum(lambda x, h: h @ v.T, input_size=1, state_size=6, steps=100)
    assert found.exponents.tolist() == pytest.approx([math.log(scale)] * 6, abs=1e-12)
    assert float(found.error.max()) < 1e-12


def test_exponents_of_a_linear_network_are_the_logarithms_of_its_moduli():
    v = analysis.random_schur(6, 0.9, 0.3, 4)
    found = analysis.lyapunov_spectrum(
        lambda x, h: h @ torch.from_numpy(v).T, input_size=1, state_size=6, steps=4000, warmup=500
    )
    exact = np.sort(np.log(np.abs(np.linalg.eigvals(v))))[::-1]
    assert found.exponents.numpy() == pytest.approx(exact, abs=2e-3)


def chaotic(gain: float, n: int = 60) -> torch.Tensor:
    return torch.from_numpy(analysis.random_gaussian(n, gain, seed=0))


def test_a_network_of_high_gain_is_chaotic_and_one_of_low_gain_is_not():
    sizes = {"input_size": 1, "state_size": 60}
    wild, tame = chaotic(3.0), chaotic(0.5)
    found = analysis.lyapunov_spectrum(lambda x, h: torch.tanh(h @ wild.T), steps=400, warmup=200, count=10, **sizes)
    assert float(found.exponents[0]) > 0.05
    assert found.dimension > 1
    quiet = analysis.lyapunov_spectrum(lambda x, h: torch.tanh(h @ tame.T), steps=200, warmup=100, count=2, **sizes)
    assert float(quiet.exponents[0]) < -0.3
    assert quiet.dimension == 0


def test_the_largest_exponent_is_the_rate_at_which_trajectories_part():
    wild = chaotic(3.0)
    step = lambda x, h: torch.tanh(h @ wild.T)  # noqa: E731
    sizes = {"input_size": 1, "state_size": 60}
    system = analysis.dynamics(step, **sizes)
    start = system.states(torch.zeros(400, 1, 1, dtype=torch.float64), away_from_kinks(system, 1))[-1]
    found = analysis.lyapunov_spectrum(step, steps=600, warmup=50, count=1, state=start, **sizes)
    parted = []  # distance after every step, brought back to 1e-8 each time
    h, near = start, start + 1e-8 * torch.nn.functional.normalize(torch.ones_like(start))
    for t in range(650):
        h, near = system.step(torch.zeros(1, 1), h), system.step(torch.zeros(1, 1), near)
        distance = (near - h).norm()
        if t >= 50:
            parted.append(float(torch.log(distance / 1e-8)))
        near = h + 1e-8 * (near - h) / distance
    assert float(found.exponents[0]) == pytest.approx(float(np.mean(parted)), abs=0.02)  # two runs of chaos
    growth = analysis.perturbation_growth(step, torch.zeros(60, 1), state=start, size=1e-9, **sizes)
    assert growth.rate == pytest.approx(float(found.exponents[0]), abs=0.15)


@pytest.mark.parametrize("name", ["torch-gru", "torch-lstm", "nnrnn"])
def test_driven_networks_have_exponents_too(name):
    found = analysis.lyapunov_spectrum(network(name), driven(60, 3), warmup=20)
    assert (found.exponents.diff() <= 0).all()
    assert torch.isfinite(found.exponents[0])


# ---------------------------------------------------------------- fixed points


def test_fixed_points_of_a_bistable_network_have_their_stability():
    a = torch.tensor([[2.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
    found = analysis.fixed_points(lambda x, h: torch.tanh(h @ a.T + x), input_size=2, state_size=2)
    root = 0.957504024077268  # of h = tanh(2h)
    points = sorted(
        (round(float(p[0]), 9), round(float(p[1]), 9), bool(s)) for p, s in zip(found.points, found.stable, strict=True)
    )
    assert points == [(-round(root, 9), 0.0, True), (0.0, 0.0, False), (round(root, 9), 0.0, True)]
    assert found.fixed.all()
    saddle = int((~found.stable).nonzero()[0])
    assert found.moduli[saddle].tolist() == pytest.approx([2.0, 0.5])
    assert found.schur(saddle).moduli.tolist() == pytest.approx([2.0, 0.5])
    assert int(found.found_by.sum()) <= 256


def test_fixed_points_of_a_bistable_gru_have_their_stability():
    gru = nn.GRU(1, 2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.zero_()
        gru.bias_ih_l0[:2] = 20.0  # reset gate open
        gru.weight_hh_l0[4, 0] = 3.0  # new = tanh(3 h₀): two stable states in the first unit
        gru.weight_hh_l0[5, 1] = 0.5
    found = analysis.fixed_points(gru)
    root = next(h for h in [0.99] for _ in range(200) for h in [math.tanh(3 * h)])
    for _ in range(200):
        root = math.tanh(3 * root)
    points = sorted((round(float(p[0]), 6), bool(s)) for p, s in zip(found.points, found.stable, strict=True))
    assert points == [(-round(root, 6), True), (0.0, False), (round(root, 6), True)]
    for point in found.points:
        _, new = gru(torch.zeros(1, 1, 1, dtype=torch.float64), point.view(1, 1, 2))
        assert torch.allclose(new.view(2), point, atol=1e-9)


def test_a_slow_point_is_told_from_a_fixed_one():
    # h + 0.01(h² + 0.05): no fixed point, slowest at h = 0
    found = analysis.fixed_points(
        lambda x, h: h + 0.01 * (h**2 + 0.05),
        input_size=1,
        state_size=1,
        starts=torch.tensor([[0.3], [-0.2]]),
        newton=5,
    )
    assert len(found) >= 1
    assert not found.fixed.any()
    assert float(found.points[0]) == pytest.approx(0, abs=0.05)
    assert float(found.speeds[0]) == pytest.approx(0.0005, rel=0.1)


@every_network
def test_every_network_can_be_searched_for_fixed_points(name):
    found = analysis.fixed_points(network(name), count=16, descent=30, newton=10)
    system = analysis.dynamics(network(name)).time_first()
    assert found.moduli.shape == (len(found), system.state_size)


# ---------------------------------------------------------------- states and structure


def test_dimensionality_counts_directions():
    g = torch.Generator().manual_seed(0)
    plane = torch.randn(4000, 2, generator=g) @ torch.randn(2, 10, generator=g)
    found = analysis.dimensionality(plane)
    assert 1 <= found.participation <= 2
    assert found.variances[2:].abs().max() < 1e-9 * found.variances[0]
    assert analysis.dimensionality(torch.randn(4000, 5, generator=g)).participation == pytest.approx(5, abs=0.05)
    assert found.project(plane).shape == (4000, 2)


@every_network
def test_hidden_transients_describe_the_states(name):
    found = analysis.hidden_transients(analysis.dynamics(network(name)).time_first(), driven(9, 4))
    assert found.norm_mean.shape == (10,)
    assert float(found.norm_mean[3]) == pytest.approx(float(found.states[3].norm(dim=1).mean()))
    assert float(found.unit_deviation[3]) == pytest.approx(
        float(found.states[3].std(dim=1, correction=0).std(correction=0))
    )


@every_network
def test_perturbations_of_every_network_start_at_one(name):
    system = analysis.dynamics(network(name)).time_first()
    found = analysis.perturbation_growth(system, driven(5), state=away_from_kinks(system, 2), directions=3)
    assert found.growth.shape == (6, 3)
    assert found.growth[0].tolist() == pytest.approx([1.0] * 3)
    assert math.isfinite(found.rate)


@every_network
def test_every_network_has_a_schur_structure(name):
    layer = network(name)
    for part in analysis.learned_structure(layer).values():
        n = len(part.matrix)
        assert part.theta.shape == (n, n)
        assert len(part.profile) == n
        assert 0 <= part.normal_energy <= 1 + 1e-12
        assert np.sort(part.moduli) == pytest.approx(np.sort(np.abs(np.linalg.eigvals(part.matrix))), abs=1e-6)


def test_the_structure_of_an_nnrnn_is_its_own():
    layer = kreiss.NNRNN(3, 8, dtype=torch.float64)
    with torch.no_grad():
        layer.coupling_l0.copy_(0.1 * torch.arange(len(layer.coupling_l0)))
    found = analysis.learned_structure(layer)["l0"]
    assert found.own
    theta = layer.sets["l0"].core(*layer._wide_free("l0")).detach().numpy()
    assert np.array_equal(found.theta, theta)
    between = [abs(theta[2 * k, 2 * k - 1]) for k in range(1, 4)]
    assert found.delay_line == pytest.approx(np.mean(between))
    assert found.profile[2] == pytest.approx(np.abs(np.diag(theta, -2)).mean())
    assert found.normal_energy == pytest.approx(8 / np.sum(found.matrix**2))


def test_a_delay_line_is_seen_as_one_and_uniform_angles_as_uniform():
    found = analysis.learned_structure(analysis.delay_line(20, 0.9, 0.01))["matrix"]
    assert found.delay_line == pytest.approx(0.9)
    assert found.triangle == pytest.approx(0.01)
    assert found.normal_energy == pytest.approx(0)
    angles = np.pi * (np.arange(50) + 0.5) / 50
    blocks = [[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in angles]
    rotation = np.zeros((100, 100))
    for k, block in enumerate(blocks):
        rotation[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = block
    assert analysis.learned_structure(rotation)["matrix"].angle_distance == pytest.approx(0.01)
