"""What there is to say about a matrix: numbers, a sentence computed from them, and a picture, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kreiss import analysis
from kreiss.analysis.arrays import Array, as_square, spectral_radius
from kreiss.report import plots
from kreiss.report.style import mosaic

MATRIX_PARTS = ("spectrum", "memory", "transients")
NETWORK_PARTS = ("gradients", "fixed-points")
PARTS = (*MATRIX_PARTS, *NETWORK_PARTS)

LARGEST_FOR_KREISS = 256  # units up to which the Kreiss constant takes less than a minute
HORIZON = 200  # steps, where all of time is too long
MOST_GROWTH = 1e6  # of powers within a horizon; beyond it no digit of a memory is left
ROUNDED = 1e-6  # what single precision leaves of nothing


@dataclass(frozen=True)
class Finding:
    """One picture with its sentence and its numbers.

    Attributes:
        key: a short name, that of the files.
        title: a heading.
        sentence: what the picture shows, and what this network does.
        numbers: everything behind the sentence, as plain values.
        draw: makes the picture.
    """

    key: str
    title: str
    sentence: str
    numbers: dict[str, Any]
    draw: Callable[[], Any]


def percent(share: float) -> str:
    """A share in words that do not claim too much: 99.97 % is not 100 %."""
    if 0.995 <= share < 1 - 1e-12:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def steps(count: int) -> str:
    """A number of steps."""
    return counted(count, "step")


def counted(number: int, thing: str) -> str:
    """So many things."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def ranged(moduli: Array) -> str:
    """From the smallest to the largest, or the one value that all have."""
    low, high = float(np.min(moduli)), float(np.max(moduli))
    return f"all {high:.4g}" if high - low <= 10 * ROUNDED * high else f"from {low:.3g} to {high:.4g}"


def matrix_findings(matrix: Any, part: str, source: Any = None, structure: Any = None) -> Iterator[Finding]:
    """What `part` of the analysis says about a matrix.

    Args:
        matrix: V.
        part: "spectrum", "memory" or "transients".
        source: U, through which input enters; the first unit by default.
        structure: its learned structure, where a network has its own Schur form.
    """
    v = as_square(matrix, real=True)
    if part == "spectrum":
        yield _spectrum(v)
        yield _structure(structure or analysis.learned_structure(v)["matrix"])
    elif part == "memory":
        yield _memory(v, source)
    elif part == "transients":
        yield _growth(v)
        yield _starts(v)


def _spectrum(v: Array) -> Finding:
    normality = analysis.normality(v)
    radius = spectral_radius(v)
    grid = 80 if len(v) <= 64 else 60 if len(v) <= 256 else 40
    found = analysis.pseudospectrum(v, grid)
    constant, said = _kreiss(v, radius)
    sensitive = f"and the most sensitive moves up to {normality.condition:.3g} times as far as the matrix does"
    sentence = (
        f"{percent(normality.normal_energy)} of the energy of this matrix is normal; the moduli of its {len(v)} "
        f"eigenvalues are {ranged(np.abs(found.eigenvalues))}, "
        f"{sensitive if normality.condition > 1.005 else 'and none moves farther than the matrix does'}. {said}"
    )
    numbers = {
        "units": len(v),
        "spectral_radius": radius,
        "smallest_modulus": float(np.abs(found.eigenvalues).min()),
        "departure": normality.departure,
        "relative_departure": normality.index,
        "normal_energy": normality.normal_energy,
        "departure_error": normality.error,
        "largest_eigenvalue_condition": normality.condition,
        "spectral_norm": float(np.linalg.norm(v, 2)),
        "numerical_radius": analysis.numerical_radius(v) if len(v) <= LARGEST_FOR_KREISS else None,
        "kreiss_lower": None if constant is None else constant.lower,
        "kreiss_upper": None if constant is None else constant.upper,
        "eigenvalues": [[value.real, value.imag] for value in found.eigenvalues],
    }
    return Finding("spectrum", "Spectrum", sentence, numbers, lambda: plots.spectrum(v, found=found).figure)


def _kreiss(v: Array, radius: float) -> tuple[Any, str]:
    if len(v) > LARGEST_FOR_KREISS:
        return (
            None,
            f"The Kreiss constant was not computed: with more than {LARGEST_FOR_KREISS} units it takes minutes.",
        )
    edge = radius * (1 + 1e-6) if 1 - 1e-6 < radius < 1 + 1e-4 else 1.0  # eigenvalues on the circle up to rounding
    found = analysis.kreiss_constant(v, radius=max(edge, 1.0), tol=0.02)
    if not np.isfinite(found.lower):
        return found, "An eigenvalue lies outside the unit circle, so powers grow without bound."
    if found.upper <= 1:
        return (
            found,
            "Its Kreiss constant is 1: no state is ever amplified.",
        )
    if found.lower < 1.005:
        return found, f"Its Kreiss constant is below {found.upper:.3g}: hardly any state grows before it decays."
    return found, (
        f"Its Kreiss constant lies between {found.lower:.3g} and {found.upper:.3g}: some state grows at least "
        f"{found.lower:.3g}-fold before it decays."
    )


def _structure(found: Any) -> Finding:
    ratio = found.delay_line / found.triangle if found.triangle > 0 else None
    if max(found.triangle, found.delay_line) <= ROUNDED * float(np.abs(found.theta).max()):
        chain = "Θ has nothing below its blocks but rounding: modes do not feed one another."
    elif ratio is None:
        chain = f"Only neighbouring modes feed one another, with a mean strength of {found.delay_line:.3g}."
    else:
        chain = (
            f"Neighbouring modes feed one another with a mean strength of {found.delay_line:.3g}, {ratio:.2g} times "
            f"that of the rest of the triangle ({found.triangle:.3g})."
        )
    pairs = len(found.angles)
    limit = 1.36 / np.sqrt(pairs) if pairs else 0.0  # Kolmogorov's test at 5 %
    angles = (
        "There are no complex pairs."
        if not pairs
        else f"The angles of its {pairs} complex pairs are "
        + ("no different from uniform" if found.angle_distance <= limit else "not uniform")
        + f" (distance {found.angle_distance:.2f}, chance allows {limit:.2f})."
    )
    numbers = {
        "own_schur_form": found.own,
        "delay_line": found.delay_line,
        "triangle": found.triangle,
        "normal_energy": found.normal_energy,
        "mean_modulus": float(found.moduli.mean()),
        "angle_distance_from_uniform": found.angle_distance,
        "angles": found.angles.tolist(),
        "profile": found.profile.tolist(),
    }

    def draw() -> Any:
        figure, axes = mosaic("tpa" if pairs else "tp", size=(12.4 if pairs else 9.0, 3.8), polar="a")
        plots.theta_map(found.theta, axes["t"])
        plots.subdiagonal_profile(found, axes["p"])
        if pairs:
            plots.angle_rose(found.angles, axes["a"])
        return figure

    return Finding("structure", "Schur structure", f"{chain} {angles}", numbers, draw)


def _memory(v: Array, source: Any) -> Finding:
    radius = spectral_radius(v)
    horizon = None if radius < 1 - 1e-6 else _countable(radius)
    u = np.eye(len(v))[0] if source is None else np.asarray(source, dtype=float)
    u = u / np.linalg.norm(u)
    found = analysis.fisher_memory(v, u, horizon=horizon)
    best_total, best = found.best_source()
    curves = {"this input": found, "best input": analysis.fisher_memory(v, best, horizon=horizon)}
    sentence = (
        f"In the linear network h ← Vh + signal + noise, {_forgetting(found, horizon)}. The state holds "
        f"{found.total:.3g} times the information of one noisy input, where a normal matrix holds 1 and the best input "
        f"to this matrix {best_total:.3g}.{_counted_within(radius, horizon)}"
    )
    if found.error > 1e-3:
        sentence += (
            f" The total is uncertain by about {percent(min(found.error, 1.0))}: the matrix is badly conditioned."
        )
    numbers = {
        "total": found.total,
        "total_error": found.error,
        "best_total": best_total,
        "most_possible": len(v),
        "first_below_10_percent": _reached(found.first_below(0.1), found, horizon),
        "stays_below_10_percent_from": _reached(found.below(0.1), found, horizon),
        "horizon": horizon,
        "curve": found.curve[: 4 * HORIZON].tolist(),
    }
    longest = max(20, 2 * found.below(0.1), min(len(found.curve), HORIZON))
    return Finding(
        "memory", "Fisher memory", sentence, numbers, lambda: plots.fisher_curves(curves, longest=longest).figure
    )


def _reached(k: int, found: Any, horizon: int | None) -> int | None:
    """k, or None where the curve was cut before it."""
    is_cut = horizon is not None or found.rest > ROUNDED * found.total
    return None if is_cut and k >= len(found.curve) else k


def _forgetting(found: Any, horizon: int | None) -> str:
    """When the curve falls below a tenth of J(0), and whether it stays there."""
    first, last = (_reached(k, found, horizon) for k in (found.first_below(0.1), found.below(0.1)))
    if first is None:
        return f"the Fisher information about a pulse stays above 10 % of J(0) for all {steps(len(found.curve))}"
    falls = f"the Fisher information about a pulse first falls below 10 % of J(0) after {steps(first)}"
    if first == last:
        return f"{falls} and stays there"
    if last is None:
        return f"{falls} but is above it again at the end of the {steps(len(found.curve))} that are counted"
    return f"{falls}, rises above it again, and stays below from step {last} on"


def _counted_within(radius: float, horizon: int | None) -> str:
    """What a finite horizon means for the curve."""
    if horizon is None:
        return ""
    if radius <= 1 + ROUNDED:
        return f" Powers do not decay (ρ = {radius:.4g}), so {steps(horizon)} from rest are counted."
    return (
        f" The matrix is unstable (ρ = {radius:.4g}, above 1): powers grow without bound, so only {steps(horizon)} "
        "from rest are counted, and the end of the curve reflects that start: early pulses met little noise."
    )


def _countable(radius: float) -> int:
    """Steps within which powers that grow stay within what rounding leaves."""
    return HORIZON if radius <= 1 + ROUNDED else int(np.clip(np.log(MOST_GROWTH) / np.log(radius), 2, HORIZON))


def _growth(v: Array) -> Finding:
    radius = spectral_radius(v)
    horizon = HORIZON if len(v) <= 256 else 60
    found = analysis.transient_growth(v, horizon if radius <= 1.5 else 40)
    if found.peak <= 1 + len(found.norms) * ROUNDED:
        sentence = f"No state ever grows: the norms of the first {steps(len(found.norms) - 1)} stay at or below 1."
    elif found.time == len(found.norms) - 1:
        sentence = f"Powers are still growing after {steps(found.time)}, by then to {found.peak:.3g}."
    else:
        sentence = (
            f"The state that grows most is {found.peak:.3g} times as long after {steps(found.time)}; after "
            f"{steps(len(found.norms) - 1)} the norm is {found.norms[-1]:.3g}."
        )
    numbers = {
        "peak": found.peak,
        "time": found.time,
        "norms": found.norms.tolist(),
        "optimal_input": found.input.tolist(),
        "optimal_readout": found.readout.tolist(),
    }
    return Finding("growth", "Transient growth", sentence, numbers, lambda: plots.norms(found, radius=radius).figure)


def _starts(v: Array) -> Finding:
    found = analysis.sphere_transients(v, 100 if spectral_radius(v) <= 1.5 else 40)
    top = int(found.norm_mean.argmax())
    last = found.norm_mean[-1]
    end = f"{last:.3g} on average after {steps(len(found.norm_mean) - 1)}"
    kinds = {0: f"shrinks from the start, to {end}", len(found.norm_mean) - 1: f"grows all the way, to {end}"}
    sentence = "From random starts of length 1 the state "
    if np.ptp(found.norm_mean) <= 1e-3:
        sentence += f"keeps its length: it is {end}."
    else:
        longest = f"is longest after {steps(top)}, {found.norm_mean[top]:.3g} on average, and {end}"
        sentence += kinds.get(top, longest) + "."
    numbers = {
        "norm_mean": found.norm_mean.tolist(),
        "norm_deviation": found.norm_deviation.tolist(),
        "unit_mean": found.unit_mean.tolist(),
        "unit_deviation": found.unit_deviation.tolist(),
    }
    draw = lambda: plots.transients({"random starts": found})[0].figure  # noqa: E731
    return Finding("starts", "Random starts", sentence, numbers, draw)
