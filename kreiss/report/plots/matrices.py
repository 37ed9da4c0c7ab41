"""Plots of matrices: spectrum, Schur form, memory, transients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kreiss.analysis import (
    FisherMemory,
    LearnedStructure,
    Pseudospectrum,
    SphereTransients,
    TransientGrowth,
    numerical_range,
    pseudospectrum,
)
from kreiss.analysis.arrays import Array, as_square
from kreiss.report.style import COLOURS, DIVERGING, GREY, canvas, style

SHADE = 0.25  # opacity of bands


def _axes(axes: Any, **options: Any) -> Any:
    return canvas(**options)[1] if axes is None else axes


def spans_a_decade(values: Array) -> bool:
    """Whether values are positive and span more than a decade."""
    return bool(len(values) and values.min() > 0 and values.max() > 10 * values.min())


def log_where_wide(axes: Any, values: Array) -> None:
    """Use a logarithmic axis if values span more than a decade."""
    if spans_a_decade(values):
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(values.min(), 1e-8 * values.max()) / 2)
    else:
        axes.set_ylim(bottom=0)


def spectrum(matrix: Any, axes: Any = None, *, found: Pseudospectrum | None = None, hull: bool = False) -> Any:
    """Eigenvalues and the unit circle, with contours of ε-pseudospectra, ε = 10⁻¹, 10⁻², ….

    Args:
        matrix: V.
        axes: where to draw; a new figure by default.
        found: the pseudospectrum on a rectangular grid, if already computed.
        hull: whether to draw the numerical range.
    """
    v = as_square(matrix)
    found = found or pseudospectrum(v, 80)
    axes = _axes(axes, size=(4.8, 4.4))
    with style():
        x, y = found.points.real[0], found.points.imag[:, 0]
        logs = np.log10(np.maximum(found.smallest, 1e-16))
        levels = _levels(logs)
        if len(levels):
            lines = axes.contour(x, y, logs, levels=levels, cmap="viridis", linewidths=0.9, negative_linestyles="solid")
            axes.clabel(lines, fmt=lambda value: f"$10^{{{value:g}}}$", fontsize=7)
        circle = np.exp(1j * np.linspace(0, 2 * np.pi, 361))
        axes.plot(circle.real, circle.imag, color=GREY, linewidth=1, linestyle="--")
        if hull:
            edge = numerical_range(v).boundary
            axes.plot(*np.append(edge, edge[0]).view(float).reshape(-1, 2).T, color=COLOURS[2], linewidth=1)
        axes.plot(found.eigenvalues.real, found.eigenvalues.imag, ".", color=COLOURS[1], markersize=5)
        axes.set(xlabel="Re", ylabel="Im", aspect="equal", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        axes.set_title("eigenvalues and ε-pseudospectra")
    return axes


def _levels(logs: Array) -> Array:
    """Exponents of ε to draw: half or whole decades within the range, about ten at most."""
    low, high = max(float(logs.min()), -12.0), float(logs.max())
    step = next(step for step in (0.5, 1.0, 2.0) if (high - low) / step <= 10 or step == 2.0)
    exponents = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
    return exponents[(exponents > low) & (exponents < high)]


def theta_map(theta: Array, axes: Any = None, *, blocks: bool = True, log: bool = False) -> Any:
    """The entries of Θ = Λ + T, with the 2×2 blocks of Λ framed.

    Args:
        theta: Θ.
        axes: where to draw.
        blocks: whether to frame the blocks of a small Θ.
        log: whether to use a logarithmic colour scale, from 1/300 of the largest entry, so that a small T is visible.
    """
    axes = _axes(axes, size=(4.8, 4.2))
    n = len(theta)
    limit = float(np.abs(theta).max()) or 1.0
    with style():
        from matplotlib.colors import Normalize, SymLogNorm
        from matplotlib.patches import Rectangle

        scale = SymLogNorm(limit / 300, vmin=-limit, vmax=limit) if log else Normalize(-limit, limit)
        image = axes.imshow(theta, cmap=DIVERGING, norm=scale, interpolation="nearest")
        axes.figure.colorbar(image, ax=axes, shrink=0.8, ticks=_decades(limit) if log else None)
        if blocks and n <= 64:
            for start in np.flatnonzero(np.diag(theta, 1)):
                axes.add_patch(Rectangle((start - 0.5, start - 0.5), 2, 2, fill=False, edgecolor=GREY, linewidth=0.6))
        axes.grid(False)
        axes.set(xlabel="from mode", ylabel="to mode", title="Θ = Λ + T")
    return axes


def _decades(limit: float) -> list[float]:
    """Powers of ten on either side of 0, without those whose labels would overlap that of 0."""
    top = int(np.floor(np.log10(limit)))
    powers = [10.0**k for k in range(top - 1, top + 1)]
    return [*(-power for power in reversed(powers)), 0.0, *powers]


def angle_rose(angles: Array, axes: Any = None, *, bins: int = 24) -> Any:
    """Polar histogram of the eigenvalue angles, with both eigenvalues of each pair."""
    if axes is None:
        _, axes = canvas(subplot_kw={"projection": "polar"}, size=(3.6, 3.6))
    both = np.concatenate([angles, -angles])
    counts, edges = np.histogram(both, bins=bins, range=(-np.pi, np.pi))
    with style():
        axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=COLOURS[0], alpha=0.8, linewidth=0)
        axes.set_title("angles of eigenvalues")
        axes.tick_params(labelsize=7)
    return axes


def subdiagonal_profile(structure: LearnedStructure, axes: Any = None) -> Any:
    """The mean magnitude of Θ along its k-th sub-diagonal: a delay line stands out at k = 1 and 2."""
    axes = _axes(axes)
    with style():
        k = np.arange(1, len(structure.profile))
        axes.plot(k, structure.profile[1:], color=COLOURS[0], marker="." if len(k) < 60 else None)
        axes.set(xlabel="k", ylabel="mean |Θ| on sub-diagonal k", title="sub-diagonals of Θ")
        log_where_wide(axes, structure.profile[1:])
    return axes


def fisher_curves(curves: Mapping[str, FisherMemory], axes: Any = None, *, longest: int | None = None) -> Any:
    """J(k) against k, one line per memory."""
    axes = _axes(axes)
    with style():
        for name, memory in curves.items():
            line = memory.curve[:longest]
            axes.plot(np.arange(len(line)), line, label=f"{name} (total {memory.total:.3g})")
        axes.set(xlabel="steps ago, k", ylabel="Fisher information J(k)", yscale="log", title="Fisher memory")
        top = max(float(memory.curve.max()) for memory in curves.values())
        axes.set_ylim(max(1e-6 * top, axes.get_ylim()[0]), 2 * top)
        axes.legend(fontsize=8)
    return axes


def transients(found: Mapping[str, SphereTransients], axes: Sequence[Any] | None = None) -> Sequence[Any]:
    """Spread across units and norm of the state from random starts, mean with a band of one standard deviation."""
    if axes is None:
        _, axes = canvas(2, 1, sharex=True, size=(4.6, 5.2))
    assert axes is not None
    bands({name: (sample.unit_mean, sample.unit_deviation) for name, sample in found.items()}, axes[0])
    bands({name: (sample.norm_mean, sample.norm_deviation) for name, sample in found.items()}, axes[1])
    with style():
        axes[0].set(ylabel="deviation across units", title="transients from random starts")
        axes[1].set(xlabel="steps", ylabel="length of the state")
        axes[0].legend(fontsize=8)
        for panel, means in zip(axes, ("unit_mean", "norm_mean"), strict=True):
            log_where_wide(panel, np.concatenate([getattr(sample, means) for sample in found.values()]))
    return axes


def bands(curves: Mapping[str, tuple[Array, Array]], axes: Any) -> None:
    """Means against steps, each with a band of one standard deviation."""
    with style():
        for (name, (mean, deviation)), colour in zip(curves.items(), COLOURS * 3, strict=False):
            steps = np.arange(len(mean))
            axes.plot(steps, mean, color=colour, label=name)
            axes.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=SHADE, linewidth=0)


def norms(found: TransientGrowth, axes: Any = None, *, radius: float | None = None) -> Any:
    """‖Vᵏ‖ against k with its peak, and the powers of the spectral radius for comparison."""
    axes = _axes(axes)
    with style():
        k = np.arange(len(found.norms))
        axes.plot(k, found.norms, color=COLOURS[0], label="‖Vᵏ‖")
        if radius is not None and radius > 0:
            axes.plot(k, radius**k, color=GREY, linestyle="--", label="ρᵏ")
        axes.plot([found.time], [found.peak], "o", color=COLOURS[1], label=f"peak {found.peak:.3g} at {found.time}")
        axes.set(xlabel="k", ylabel="norm", title="growth of powers", yscale="log")
        low = found.norms[found.norms > 0].min(initial=1.0)
        axes.set_ylim(max(low, 1e-8) / 2, 2 * found.peak)
        axes.legend(fontsize=8)
    return axes


def spectrum_frames(moments: Mapping[int, Any], columns: int = 4) -> Any:
    """The spectrum at several points of training, one panel each.

    Args:
        moments: update → V, or its eigenvalues.
        columns: maximal number of panels in a row.
    """
    rows = -(-len(moments) // columns)
    width = -(-len(moments) // rows)
    figure, axes = canvas(rows, width, size=(2.4 * width, 2.6 * rows), squeeze=False, sharex=True, sharey=True)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 181))
    with style():
        for panel, (update, moment) in zip(axes.flat, moments.items(), strict=False):
            values = np.asarray(moment) if np.ndim(moment) == 1 else np.linalg.eigvals(as_square(moment))
            panel.plot(circle.real, circle.imag, color=GREY, linewidth=0.8, linestyle="--")
            panel.plot(values.real, values.imag, ".", color=COLOURS[1], markersize=3)
            panel.set(title=f"update {update}", aspect="equal")
        for panel in axes.flat[len(moments) :]:
            panel.set_visible(False)
    return figure
