"""Findings about a matrix: each has numbers, a sentence computed from them, and a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kreiss import analysis
from kreiss.analysis.arrays import Array, as_square, spectral_radius
from kreiss.report import plots
from kreiss.report.style import mosaic

MATRIX_PARTS = ("spectrum", "memory", "transients")
NETWORK_PARTS = ("gradients", "fixed-points")
MEMORY_PARTS = ("attention",)  # of networks that attend to their past
PARTS = (*MATRIX_PARTS, *MEMORY_PARTS, *NETWORK_PARTS)

LARGEST_FOR_KREISS = 256  # units up to which the Kreiss constant takes less than a minute
HORIZON = 200  # steps, if an infinite horizon is not possible
MOST_GROWTH = 1e6  # of powers within a horizon; beyond it the memory has no accurate digits
ROUNDED = 1e-6  # relative rounding error in single precision
HINT = "Point at anything to read it; drag to move; Ctrl and the wheel, or the buttons, to zoom."


@dataclass(frozen=True)
class View:
    """What the script of a page draws besides the plot: points of a plane, with zoom and a readout.

    Attributes:
        frames: name → points (x, y), or (x, y, kind, note) with the number of a colour; a slider goes through several.
        lines: name → points.
        axes: names of x and y.
        slider: what the frames are.
        circle: whether to draw the unit circle, and x and y to the same scale; points without a note are eigenvalues.
    """

    frames: Mapping[str, Sequence[Sequence[Any]]]
    lines: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    axes: tuple[str, str] = ("Re λ", "Im λ")
    slider: str = ""
    circle: bool = True

    def content(self, title: str) -> dict[str, Any]:
        """As JSON for the page."""
        return {
            "label": f"{title}, interactive", "x": self.axes[0], "y": self.axes[1], "circle": self.circle,
            "slider": self.slider, "hint": HINT,
            "frames": [{"name": name, "points": points} for name, points in self.frames.items()],
            "lines": [{"name": name, "points": points} for name, points in self.lines.items()],
        }  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A plot with its sentence and its numbers.

    Attributes:
        key: a short name, used for files.
        title: a heading.
        sentence: what the plot shows.
        numbers: the numbers behind the sentence, as plain values.
        draw: makes the plot.
        view: the same to explore in a browser, where that helps.
    """

    key: str
    title: str
    sentence: str
    numbers: dict[str, Any]
    draw: Callable[[], Any]
    view: View | None = None


def eigenvalue_points(values: Any) -> list[list[float]]:
    """Eigenvalues for a view, with the digits that a screen can show."""
    return [[round(value.real, 4), round(value.imag, 4)] for value in np.asarray(values).tolist()]


def percent(share: float) -> str:
    """A percentage that is not rounded up to 100 %."""
    if 0.995 <= share < 1 - 1e-12:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def steps(count: int) -> str:
    """A number of steps, such as "3 steps"."""
    return counted(count, "step")


def counted(number: int, thing: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def ranged(moduli: Array) -> str:
    """The range of the moduli, or their common value."""
    low, high = float(np.min(moduli)), float(np.max(moduli))
    return f"all {high:.4g}" if high - low <= 10 * ROUNDED * high else f"from {low:.3g} to {high:.4g}"


def matrix_findings(matrix: Any, part: str, source: Any = None, structure: Any = None) -> Iterator[Finding]:
    """Findings of `part` about a matrix.

    Args:
        matrix: V.
        part: "spectrum", "memory" or "transients".
        source: U, through which input enters; the first unit by default.
        structure: its learned structure, if a network has its own Schur form.
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
    pseudospectrum = analysis.pseudospectrum(v, grid)
    constant, kreiss_text = _kreiss(v, radius)
    sensitive = f"and the most sensitive moves up to {normality.condition:.3g} times as far as the matrix does"
    sentence = (
        f"{percent(normality.normal_energy)} of the energy of this matrix is normal; the moduli of its {len(v)} "
        f"eigenvalues are {ranged(np.abs(pseudospectrum.eigenvalues))}, "
        f"{sensitive if normality.condition > 1.005 else 'and none moves farther than the matrix does'}. {kreiss_text}"
    )
    numbers = {
        "units": len(v),
        "spectral_radius": radius,
        "smallest_modulus": float(np.abs(pseudospectrum.eigenvalues).min()),
        "departure": normality.departure,
        "relative_departure": normality.index,
        "normal_energy": normality.normal_energy,
        "departure_error": normality.error,
        "largest_eigenvalue_condition": normality.condition,
        "spectral_norm": float(np.linalg.norm(v, 2)),
        "numerical_radius": analysis.numerical_radius(v) if len(v) <= LARGEST_FOR_KREISS else None,
        "kreiss_lower": None if constant is None else constant.lower,
        "kreiss_upper": None if constant is None else constant.upper,
        "eigenvalues": [[value.real, value.imag] for value in pseudospectrum.eigenvalues],
    }
    view = View({"eigenvalues": eigenvalue_points(pseudospectrum.eigenvalues)})
    draw = lambda: plots.spectrum(v, found=pseudospectrum).figure  # noqa: E731
    return Finding("spectrum", "Spectrum", sentence, numbers, draw, view)


def _kreiss(v: Array, radius: float) -> tuple[Any, str]:
    if len(v) > LARGEST_FOR_KREISS:
        return (
            None,
            f"The Kreiss constant was not computed: with more than {LARGEST_FOR_KREISS} units it takes minutes.",
        )
    edge = radius * (1 + 1e-6) if 1 - 1e-6 < radius < 1 + 1e-4 else 1.0  # eigenvalues on the circle up to rounding
    constant = analysis.kreiss_constant(v, radius=max(edge, 1.0), tol=0.02)
    if not np.isfinite(constant.lower):
        return constant, "An eigenvalue lies outside the unit circle, so powers grow without bound."
    if constant.upper <= 1:
        return (
            constant,
            "Its Kreiss constant is 1: no state is ever amplified.",
        )
    if constant.lower < 1.005:
        return constant, f"Its Kreiss constant is below {constant.upper:.3g}: hardly any state grows before it decays."
    return constant, (
        f"Its Kreiss constant lies between {constant.lower:.3g} and {constant.upper:.3g}: some state grows at least "
        f"{constant.lower:.3g}-fold before it decays."
    )


def _structure(structure: Any) -> Finding:
    ratio = structure.delay_line / structure.triangle if structure.triangle > 0 else None
    if max(structure.triangle, structure.delay_line) <= ROUNDED * float(np.abs(structure.theta).max()):
        chain = "Below its blocks Θ is zero up to rounding error: modes do not feed one another."
    elif ratio is None:
        chain = f"Only neighbouring modes feed one another, with a mean strength of {structure.delay_line:.3g}."
    else:
        chain = (
            f"Neighbouring modes feed one another with a mean strength of {structure.delay_line:.3g}, {ratio:.2g} "
            f"times that of the rest of the triangle ({structure.triangle:.3g})."
        )
    pairs = len(structure.angles)
    limit = 1.36 / np.sqrt(pairs) if pairs else 0.0  # Kolmogorov's test at 5 %
    angles = (
        "There are no complex pairs."
        if not pairs
        else f"The angles of its {pairs} complex pairs are "
        + ("no different from uniform" if structure.angle_distance <= limit else "not uniform")
        + f" (Kolmogorov distance {structure.angle_distance:.2f}, critical value {limit:.2f})."
    )
    numbers = {
        "own_schur_form": structure.own,
        "delay_line": structure.delay_line,
        "triangle": structure.triangle,
        "normal_energy": structure.normal_energy,
        "mean_modulus": float(structure.moduli.mean()),
        "angle_distance_from_uniform": structure.angle_distance,
        "angles": structure.angles.tolist(),
        "profile": structure.profile.tolist(),
    }

    def draw() -> Any:
        figure, axes = mosaic("tpa" if pairs else "tp", size=(12.4 if pairs else 9.0, 3.8), polar="a")
        plots.theta_map(structure.theta, axes["t"])
        plots.subdiagonal_profile(structure, axes["p"])
        if pairs:
            plots.angle_rose(structure.angles, axes["a"])
        return figure

    return Finding("structure", "Schur structure", f"{chain} {angles}", numbers, draw)


def _memory(v: Array, source: Any) -> Finding:
    radius = spectral_radius(v)
    horizon = None if radius < 1 - 1e-6 else _countable(radius)
    u = np.eye(len(v))[0] if source is None else np.asarray(source, dtype=float)
    u = u / np.linalg.norm(u)
    memory = analysis.fisher_memory(v, u, horizon=horizon)
    best_total, best = memory.best_source()
    curves = {"this input": memory, "best input": analysis.fisher_memory(v, best, horizon=horizon)}
    sentence = (
        f"In the linear network h ← Vh + signal + noise, {_forgetting(memory, horizon)}. The state holds "
        f"{memory.total:.3g} times the information of one noisy input, where a normal matrix holds 1 and the best "
        f"input to this matrix {best_total:.3g}.{_counted_within(radius, horizon)}"
    )
    if memory.error > 1e-3:
        sentence += (
            f" The total is uncertain by about {percent(min(memory.error, 1.0))}: the matrix is badly conditioned."
        )
    numbers = {
        "total": memory.total,
        "total_error": memory.error,
        "best_total": best_total,
        "most_possible": len(v),
        "first_below_10_percent": _reached(memory.first_below(0.1), memory, horizon),
        "stays_below_10_percent_from": _reached(memory.below(0.1), memory, horizon),
        "horizon": horizon,
        "curve": memory.curve[: 4 * HORIZON].tolist(),
    }
    longest = max(20, 2 * memory.below(0.1), min(len(memory.curve), HORIZON))
    return Finding(
        "memory", "Fisher memory", sentence, numbers, lambda: plots.fisher_curves(curves, longest=longest).figure
    )


def _reached(k: int, memory: Any, horizon: int | None) -> int | None:
    """k, or None if the curve was truncated before it."""
    is_cut = horizon is not None or memory.rest > ROUNDED * memory.total
    return None if is_cut and k >= len(memory.curve) else k


def _forgetting(memory: Any, horizon: int | None) -> str:
    """When the curve falls below a tenth of J(0), and whether it stays there."""
    first, last = (_reached(k, memory, horizon) for k in (memory.first_below(0.1), memory.below(0.1)))
    if first is None:
        return f"the Fisher information about a pulse stays above 10 % of J(0) for all {steps(len(memory.curve))}"
    falls = f"the Fisher information about a pulse first falls below 10 % of J(0) after {steps(first)}"
    if first == last:
        return f"{falls} and stays there"
    if last is None:
        return f"{falls} but is above it again at the end of the {steps(len(memory.curve))} that are counted"
    return f"{falls}, rises above it again, and stays below from step {last} on"


def _counted_within(radius: float, horizon: int | None) -> str:
    """The effect of a finite horizon on the curve."""
    if horizon is None:
        return ""
    if radius <= 1 + ROUNDED:
        return f" Powers do not decay (ρ = {radius:.4g}), so {steps(horizon)} from rest are counted."
    return (
        f" The matrix is unstable (ρ = {radius:.4g}, above 1): powers grow without bound, so only {steps(horizon)} "
        "from rest are counted, and the end of the curve reflects that start: early pulses met little noise."
    )


def _countable(radius: float) -> int:
    """The horizon within which growing powers stay accurate."""
    return HORIZON if radius <= 1 + ROUNDED else int(np.clip(np.log(MOST_GROWTH) / np.log(radius), 2, HORIZON))


def _growth(v: Array) -> Finding:
    radius = spectral_radius(v)
    horizon = HORIZON if len(v) <= 256 else 60
    growth = analysis.transient_growth(v, horizon if radius <= 1.5 else 40)
    if growth.peak <= 1 + len(growth.norms) * ROUNDED:
        sentence = f"No state ever grows: the norms of the first {steps(len(growth.norms) - 1)} stay at or below 1."
    elif growth.time == len(growth.norms) - 1:
        sentence = f"Powers are still growing after {steps(growth.time)}, by then to {growth.peak:.3g}."
    else:
        sentence = (
            f"The state that grows most is {growth.peak:.3g} times as long after {steps(growth.time)}; after "
            f"{steps(len(growth.norms) - 1)} the norm is {growth.norms[-1]:.3g}."
        )
    numbers = {
        "peak": growth.peak,
        "time": growth.time,
        "norms": growth.norms.tolist(),
        "optimal_input": growth.input.tolist(),
        "optimal_readout": growth.readout.tolist(),
    }
    return Finding("growth", "Transient growth", sentence, numbers, lambda: plots.norms(growth, radius=radius).figure)


def _starts(v: Array) -> Finding:
    transients = analysis.sphere_transients(v, 100 if spectral_radius(v) <= 1.5 else 40)
    top = int(transients.norm_mean.argmax())
    last = transients.norm_mean[-1]
    end = f"{last:.3g} on average after {steps(len(transients.norm_mean) - 1)}"
    kinds = {0: f"shrinks from the start, to {end}", len(transients.norm_mean) - 1: f"grows all the way, to {end}"}
    sentence = "From random starts of length 1 the state "
    if np.ptp(transients.norm_mean) <= 1e-3:
        sentence += f"keeps its length: it is {end}."
    else:
        longest = f"is longest after {steps(top)}, {transients.norm_mean[top]:.3g} on average, and {end}"
        sentence += kinds.get(top, longest) + "."
    numbers = {
        "norm_mean": transients.norm_mean.tolist(),
        "norm_deviation": transients.norm_deviation.tolist(),
        "unit_mean": transients.unit_mean.tolist(),
        "unit_deviation": transients.unit_deviation.tolist(),
    }
    draw = lambda: plots.transients({"random starts": transients})[0].figure  # noqa: E731
    return Finding("starts", "Random starts", sentence, numbers, draw)
