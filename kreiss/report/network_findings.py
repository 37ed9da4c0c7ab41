"""Findings about a network beyond its matrices: gradients, exponents, fixed points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kreiss import analysis
from kreiss.analysis.network.dynamics import recurrent_layer
from kreiss.report import plots
from kreiss.report.findings import Finding, View, counted, percent, steps
from kreiss.report.style import canvas

STEPS, BATCH = 100, 4  # of the random input that drives the network
COUNTED = 220  # steps along which exponents are measured
DESCENT = 300  # steps towards fixed points
HORIZON, STRETCHES, MOST_POINTS = 60, 4, 6  # steps, stretches of each sequence and fixed points of transients
LARGEST_STATE = 256  # state size up to which full Jacobians are computed
LOCAL = (
    "This is local, a derivative along these trajectories: it says what becomes of a small change, not how long a "
    "value is held. A network that stores a bit in one of two stable states has small derivatives but keeps it."
)
LEFT_OUT = (
    "Dependence on inputs, Lyapunov exponents and transients of the Jacobian were left out: with more than "
    f"{LARGEST_STATE} numbers in the state they take minutes."
)


@dataclass(frozen=True)
class Drive:
    """The input that drives a network during its analysis.

    Attributes:
        inputs: (T, B, I), time first even if the layer is batch-first, or symbols (T, B).
        said: a phrase that describes them.
        loss: of the layer's outputs (T, B, H), summed over sequences, if there is a task.
        symbols: the symbol that each step was given (T, B), if inputs are symbols.
        alphabet: a name for each symbol.
    """

    inputs: Tensor
    said: str
    loss: Callable[[Tensor], Tensor] | None = None
    symbols: Tensor | None = None
    alphabet: Sequence[str] | None = None


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


def network_findings(network: Any, part: str, drive: Drive | None = None) -> Iterator[Finding]:
    """Findings of `part`, "transients", "gradients" or "fixed-points", about a network.

    Args:
        network: see `kreiss.analysis.dynamics`.
        part: one of the three.
        drive: its input; random by default.
    """
    system = analysis.dynamics(network).time_first()
    drive = drive or Drive(random_inputs(system, COUNTED), "random input")
    drive = Drive(system.inputs(drive.inputs), drive.said, drive.loss)
    if part == "gradients":
        flow = _flow(system, drive)
        if system.state_size > LARGEST_STATE:
            yield replace(flow, sentence=f"{flow.sentence} {LEFT_OUT}")
            return
        yield flow
        yield _dependence(system, drive)
        yield _exponents(system, drive)
    elif part == "fixed-points":
        yield _points(system, drive)
    elif part == "transients" and system.state_size <= LARGEST_STATE:
        yield _jacobian_growth(system, drive)


# ---------------------------------------------------------------- gradients


def _flow(system: Any, drive: Drive) -> Finding:
    x = drive.inputs if drive.loss else drive.inputs[:STEPS]
    last = analysis.gradient_flow(system, x, _last_output)
    flows = {"of the last output": last}
    numbers = {"growth_per_step": last.growth, "norms": last.mean.tolist()}
    sentence = _reach_back(last, drive.said)
    if drive.loss is not None:
        flows["of the loss"] = whole = analysis.gradient_flow(system, x, drive.loss)
        numbers["norms_of_loss"] = whole.mean.tolist()
        numbers["loss_first_to_largest"] = share = float(whole.mean[0] / whole.mean.max())
        sentence += f" The gradient of the loss itself is, at the first step, {percent(share)} of its largest."
    draw = lambda: plots.gradient_flow(flows).figure  # noqa: E731
    return Finding("gradients", "Gradients through time", sentence, numbers, draw)


def _last_output(outputs: Tensor) -> Tensor:
    """A random direction of the last output, the same at every call."""
    last = torch.view_as_real(outputs[-1]) if outputs.is_complex() else outputs[-1]
    weights = torch.randn(last.shape, generator=torch.Generator().manual_seed(1)).to(last)
    return (weights * last).sum()


def _reach_back(flow: Any, driver: str) -> str:
    mean, length = flow.mean, len(flow.mean) - 1
    if not mean[0] > 0:
        reach = length - int(mean.nonzero()[0, 0]) if mean.any() else 0
        return f"Under {driver}, gradients of the last output reach back no further than {steps(reach)}."
    kind = "shrink" if flow.growth < 1 else "grow"
    return (
        f"Under {driver}, gradients of the last output {kind} by a factor of {flow.growth:.4g} per step back in time; "
        f"{steps(length)} earlier they are {float(mean[0] / mean[-1]):.3g} times as long."
    )


def _dependence(system: Any, drive: Drive) -> Finding:
    sensitivity = analysis.input_sensitivity(system, drive.inputs[:60, :2])
    first, horizon = sensitivity.first_below(0.1), sensitivity.horizon(0.1)
    decay = _decay(sensitivity, first, horizon)
    sentence = f"Under {drive.said}, the derivative of the state with respect to an input {decay}. {LOCAL}"
    numbers = {"first_below_10_percent": first, "horizon_10_percent": horizon, "by_lag": sensitivity.by_lag.tolist()}

    def draw() -> Any:
        figure, axes = canvas(1, 2, size=(9.4, 4.0))
        plots.heat_map(sensitivity, axes[0])
        plots.sensitivity_by_lag(sensitivity, axes[1])
        return figure

    return Finding("dependence", "Dependence on inputs", sentence, numbers, draw)


def _decay(sensitivity: Any, first: int | None, horizon: int | None) -> str:
    """When the derivative falls below a tenth of its maximum, and whether it stays there."""
    if not sensitivity.by_lag.any():
        return f"is 0 at all of {steps(len(sensitivity.by_lag))}"
    if first is None:
        share = float(sensitivity.by_lag[-1] / sensitivity.by_lag.max())
        within = steps(len(sensitivity.by_lag))
        return f"does not fall below 10 % of its largest within {within}: it ends at {percent(share)}"
    falls = f"first falls below 10 % of its largest {steps(first)} after the input"
    if horizon is None:
        return f"{falls} but is above it again at the end of the {steps(len(sensitivity.by_lag))}"
    return f"{falls} and stays there" if first == horizon else f"{falls} and stays there from {steps(horizon)} on"


# ---------------------------------------------------------------- transients


def _jacobian_growth(system: Any, drive: Drive) -> Finding:
    """Growth of disturbances of the nonlinear network, along trajectories and at fixed points."""
    x = drive.inputs[:220, :2]
    states = system.states(x)
    horizon = max(1, min(HORIZON, len(x) // 2))
    first = torch.linspace(0, len(x) - horizon, STRETCHES).long().unique()
    windows = torch.cat([x[t : t + horizon] for t in first], 1)
    products = analysis.singular_spectra(system, windows, torch.cat([states[t] for t in first])).product
    along = torch.cat(
        [products.new_ones(1, products.shape[1]), products[..., 0]]
    )  # ‖∂h_{t+k}/∂h_t‖, (K + 1, stretches)
    found = _found_points(system, states[:, :BATCH])
    chosen = [i for i in range(len(found)) if found.fixed[i]][:MOST_POINTS]
    at_points = [analysis.transient_growth(found.jacobians[i].double().cpu().numpy(), horizon) for i in chosen]
    middle = along.median(1).values
    numbers = {
        "along_trajectories": middle.tolist(),
        "along_trajectories_peak": float(middle.max()),
        "along_trajectories_time": int(middle.argmax()),
        "fixed_points": len(chosen),
        "fixed_point_peaks": [growth.peak for growth in at_points],
        "fixed_point_times": [growth.time for growth in at_points],
        "fixed_point_radii": found.moduli[chosen, 0].tolist() if chosen else [],
    }
    sentence = f"{_along(middle, along.shape[1], drive.said)} {_at_points(at_points, found.moduli[chosen, 0])}"
    stable = [bool(found.stable[i]) for i in chosen]
    draw = lambda: plots.jacobian_growth(along, at_points, stable)  # noqa: E731
    return Finding("jacobian-growth", "Transients of the network", sentence.rstrip(), numbers, draw)


def _along(middle: Tensor, stretches: int, driver: str) -> str:
    """The growth of a disturbance along trajectories."""
    last, peak, at = len(middle) - 1, float(middle.max()), int(middle.argmax())
    opening = f"Along {driver}, the worst small disturbance of the state"
    end = f"after {steps(last)} it is {float(middle[-1]):.3g} times as long"
    over = f"(median over {counted(stretches, 'stretch') if stretches == 1 else f'{stretches} stretches'})"
    if at == 0:
        return f"{opening} never grows; {end} {over}."
    if at == last:
        return f"{opening} grows all the way: {end} {over}."
    return f"{opening} is longest after {steps(at)}, {peak:.3g} times as long; {end} {over}."


def _at_points(growths: Sequence[Any], radii: Tensor) -> str:
    """The growth of powers of the Jacobian at fixed points."""
    if not growths:
        return "No fixed point was found whose Jacobian could be followed."
    most = max(range(len(growths)), key=lambda i: growths[i].peak)
    growth, radius = growths[most], float(radii[most])
    where = "At its fixed point" if len(growths) == 1 else f"At one of its {len(growths)} fixed points"
    if growth.time == 0:
        return f"{where}, whose Jacobian has spectral radius {radius:.4g}, no disturbance grows."
    return (
        f"{where} the powers of the Jacobian reach a norm of {growth.peak:.3g} after {steps(growth.time)}; its "
        f"spectral radius is {radius:.4g}."
    )


# ---------------------------------------------------------------- exponents


def _exponents(system: Any, drive: Drive) -> Finding:
    x = drive.inputs[:COUNTED]
    x = x[:, : max(1, COUNTED // len(x))]  # of short sequences several
    spectrum = analysis.lyapunov_spectrum(system, x, warmup=min(20, len(x) // 10))
    lost = int((~spectrum.exponents.isfinite()).sum())
    opening = f"Under {drive.said}, "
    if lost == len(spectrum.exponents):
        sentence = f"{opening}every disturbance of the state is gone after a few of the {steps(len(x))}."
    else:
        top, error = float(spectrum.exponents[0]), float(spectrum.error[0])
        sentence = (
            f"{opening}its largest Lyapunov exponent is {top:.3g} ± {error:.1g} per step, so nearby states "
            f"{_fate(top, error, system.states(x))}."
        )
        if lost:
            sentence += f" In {lost} of its {len(spectrum.exponents)} directions disturbances vanish altogether."
    numbers = {
        "exponents": spectrum.exponents.tolist(), "errors": spectrum.error.tolist(), "lost_directions": lost,
        "dimension": spectrum.dimension,
    }  # fmt: skip
    return Finding("lyapunov", "Lyapunov spectrum", sentence, numbers, lambda: plots.lyapunov(spectrum).figure)


def _fate(top: float, error: float, states: Tensor) -> str:
    """What nearby states do; only bounded states are called chaotic."""
    if abs(top) <= 2 * error:
        return "keep their distance"
    if top < 0:
        return (
            "meet: a small disturbance dies out along this trajectory. This is local: states that are far apart may "
            "stay apart, as around two stable states"
        )
    lengths = states.norm(dim=-1).mean(1)
    grows = float(lengths[-1]) > 2 * float(lengths[len(lengths) // 2])
    if grows:
        return "part as the states themselves grow: it is unstable"
    return "part: it is chaotic" if len(states) > 200 else "part"


# ---------------------------------------------------------------- fixed points


def _points(system: Any, drive: Drive) -> Finding:
    states = system.states(drive.inputs[:STEPS, :BATCH])
    fixed_points = _found_points(system, states)
    fixed, stable = int(fixed_points.fixed.sum()), int((fixed_points.fixed & fixed_points.stable).sum())
    basis = analysis.dimensionality(states[1:])
    slow = len(fixed_points) - fixed
    points = f"{counted(fixed, 'fixed point')}, {stable} of them stable," if fixed else "no fixed point"
    points = f"1 {'stable' if stable else 'unstable'} fixed point" if fixed == 1 else points
    sentence = (
        f"Without input, {points} and {counted(slow, 'slow point')} were found near the states it visits under "
        f"{drive.said}, which fill {basis.participation:.3g} of {system.state_size} dimensions."
    )
    if stable > 1:
        sentence += " With more than one stable state it can hold the choice between them for any number of steps."
    numbers = {
        "fixed": fixed,
        "stable": stable,
        "slow": slow,
        "speeds": fixed_points.speeds.tolist(),
        "largest_moduli": fixed_points.moduli[:, 0].tolist() if len(fixed_points) else [],
        "participation_ratio": basis.participation,
        "variance_of_first_direction": percent(float(basis.variances[0] / basis.variances.sum())),
    }
    draw = lambda: plots.fixed_points(fixed_points, basis, states).figure  # noqa: E731
    return Finding("fixed-points", "Fixed points", sentence, numbers, draw, _plane(fixed_points, basis, states))


def _plane(found: Any, basis: Any, states: Tensor) -> View:
    """Points and trajectories in the plane of the two first principal directions."""
    kinds = [0 if not fixed else 1 if stable else 2 for fixed, stable in zip(found.fixed, found.stable, strict=True)]
    names = ("slow point", "stable fixed point", "unstable fixed point")
    rows = zip(_on_plane(basis, found.points), kinds, found.speeds.tolist(), found.moduli[:, 0].tolist(), strict=True)
    points = [
        [*at, (2, 1, 0)[kind], f"{names[kind]}: speed {speed:.2g}, largest |λ| {top:.4g}"]
        for at, kind, speed, top in (rows if len(found) else ())
    ]
    paths = {f"sequence {b + 1}": _on_plane(basis, states[:, b]) for b in range(states.shape[1])}
    return View({"points": points}, paths, ("first principal direction", "second"), circle=False)


def _on_plane(basis: Any, states: Tensor) -> list[list[float]]:
    return [[round(x, 4) for x in point] for point in basis.project(states)[..., :2].tolist()]


def _found_points(system: Any, states: Tensor) -> Any:
    """Fixed points near some of the visited states, and near zero."""
    visited = states[len(states) // 10 :].flatten(0, 1)
    chosen = visited[torch.randperm(len(visited), generator=torch.Generator().manual_seed(0))[:63]]
    descent = DESCENT if system.state_size <= LARGEST_STATE else DESCENT // 3
    newton = 20 if system.state_size <= 128 else 0
    starts = torch.cat([system.initial(1), chosen])
    return analysis.fixed_points(system, starts=starts, descent=descent, newton=newton)
