"""What there is to say about a network beyond its matrices: gradients, exponents, fixed points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kreiss import analysis
from kreiss.analysis.network.dynamics import recurrent_layer
from kreiss.report import plots
from kreiss.report.findings import Finding, percent, steps
from kreiss.report.style import canvas

STEPS, BATCH = 100, 4  # of the random input that drives the network
LARGEST_STATE = 256  # numbers up to which whole Jacobians are followed


def random_inputs(system: Any, length: int = STEPS, batch: int = BATCH) -> Tensor:
    """Independent Gaussian inputs of variance 1, the same at every call."""
    g = torch.Generator().manual_seed(0)
    return torch.randn(length, batch, system.input_size, generator=g).to(system.like)


def input_source(network: Any) -> Any:
    """The first left singular vector of U: the direction in which most of the input enters the state."""
    weight = getattr(recurrent_layer(network), "weight_ih_l0", None)
    if weight is None or weight.shape[0] != recurrent_layer(network).hidden_size:
        return None
    return torch.linalg.svd(weight.detach().double())[0][:, 0].cpu().numpy()


def network_findings(network: Any, part: str) -> Iterator[Finding]:
    """What `part`, "gradients" or "fixed-points", says about a network."""
    system = analysis.dynamics(network)
    if part == "gradients":
        yield _flow(system)
        if system.state_size <= LARGEST_STATE:
            yield _dependence(system)
            yield _exponents(system)
    elif part == "fixed-points":
        yield _points(system)


def _flow(system: Any) -> Finding:
    x = random_inputs(system)
    weights = torch.randn(1, generator=torch.Generator().manual_seed(1)).to(system.like)

    def loss(outputs: Tensor) -> Tensor:
        last = torch.view_as_real(outputs[-1]) if outputs.is_complex() else outputs[-1]
        return (weights * last).sum()

    found = analysis.gradient_flow(system, x, loss)
    last = float(found.mean[found.mean.nonzero()[-1, 0]]) if found.mean.any() else float("nan")
    change = float(found.mean[0]) / last
    kind = "shrink" if found.growth < 1 else "grow"
    sentence = (
        f"Going back in time, gradients of the last output {kind} by a factor of {found.growth:.4g} per step; "
        f"{steps(len(x))} of random input earlier they are {change:.3g} times as long."
    )
    numbers = {"growth_per_step": found.growth, "total_change": change, "norms": found.mean.tolist()}
    draw = lambda: plots.gradient_flow({"gradient of the last output": found}).figure  # noqa: E731
    return Finding("gradients", "Gradients through time", sentence, numbers, draw)


def _dependence(system: Any) -> Finding:
    found = analysis.input_sensitivity(system, random_inputs(system, 60, 2))
    horizon = found.horizon(0.1)
    sentence = (
        f"The influence of an input on the state falls below 10 % of its largest after {steps(horizon)}."
        if horizon is not None
        else f"The influence of an input on the state stays above 10 % of its largest for {steps(len(found.by_lag))}."
    )
    numbers = {"horizon_10_percent": horizon, "by_lag": found.by_lag.tolist()}

    def draw() -> Any:
        figure, axes = canvas(1, 2, size=(9.4, 4.0))
        plots.heat_map(found, axes[0])
        plots.sensitivity_by_lag(found, axes[1])
        return figure

    return Finding("dependence", "Dependence on inputs", sentence, numbers, draw)


def _exponents(system: Any) -> Finding:
    found = analysis.lyapunov_spectrum(system, random_inputs(system, 220, 1), warmup=20)
    top = float(found.exponents[0])
    error = float(found.error[0])
    kind = "keep their distance"
    if abs(top) > 2 * error:
        kind = "part: it is chaotic" if top > 0 else "meet: it forgets its start"
    sentence = (
        f"Driven by random input, its largest Lyapunov exponent is {top:.3g} ± {error:.1g} per step, so nearby states "
        f"{kind}."
    )
    numbers = {"exponents": found.exponents.tolist(), "errors": found.error.tolist(), "dimension": found.dimension}
    return Finding("lyapunov", "Lyapunov spectrum", sentence, numbers, lambda: plots.lyapunov(found).figure)


def _points(system: Any) -> Finding:
    states = system.states(random_inputs(system))
    starts = states[10:].flatten(0, 1)
    chosen = starts[torch.randperm(len(starts), generator=torch.Generator().manual_seed(0))[:63]]
    chosen = torch.cat([system.initial(1), chosen])
    descent = 300 if system.state_size <= LARGEST_STATE else 100
    newton = 20 if system.state_size <= 128 else 0
    found = analysis.fixed_points(system, starts=chosen, descent=descent, newton=newton)
    fixed, stable = int(found.fixed.sum()), int((found.fixed & found.stable).sum())
    basis = analysis.dimensionality(states[1:])
    slow = len(found) - fixed
    points = f"{_counted(fixed, 'fixed point')}, {stable} of them stable," if fixed else "no fixed point"
    points = f"1 {'stable' if stable else 'unstable'} fixed point" if fixed == 1 else points
    sentence = (
        f"Without input, {points} and {_counted(slow, 'slow point')} were found near the states it visits, which fill "
        f"{basis.participation:.3g} of {system.state_size} dimensions."
    )
    numbers = {
        "fixed": fixed,
        "stable": stable,
        "slow": slow,
        "speeds": found.speeds.tolist(),
        "largest_moduli": found.moduli[:, 0].tolist() if len(found) else [],
        "participation_ratio": basis.participation,
        "variance_of_first_direction": percent(float(basis.variances[0] / basis.variances.sum())),
    }
    draw = lambda: plots.fixed_points(found, basis, states).figure  # noqa: E731
    return Finding("fixed-points", "Fixed points", sentence, numbers, draw)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
