"""Plots of networks: gradients, dependence on inputs, exponents, fixed points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kreiss.analysis import (
    Dimensionality,
    FixedPoints,
    GradientFlow,
    GradientHistory,
    LyapunovSpectrum,
    Sensitivity,
    TransientGrowth,
)
from kreiss.analysis.arrays import as_array
from kreiss.report.plots.matrices import SHADE, _axes, log_where_wide, spans_a_decade
from kreiss.report.style import COLOURS, GREY, canvas, style

INFLUENCE = r"$\Vert\partial h_\tau/\partial x_t\Vert$"
GRADIENT = r"$\Vert\partial L/\partial h_t\Vert$"


def heat_map(found: Sensitivity, axes: Any = None, *, title: str = INFLUENCE) -> Any:
    """‖∂h_τ/∂x_t‖, t from left to right and τ from top to bottom, as in the ENRNN paper."""
    axes = _axes(axes, size=(4.8, 4.0))
    norms = as_array("norms", found.norms)
    with style():
        from matplotlib.colors import LogNorm

        shown = np.where(np.tri(len(norms), dtype=bool), norms, np.nan)
        scale = LogNorm(max(norms.max() / 1e6, norms[norms > 0].min())) if spans_a_decade(norms[norms > 0]) else None
        image = axes.imshow(shown, interpolation="nearest", aspect="equal", norm=scale)
        axes.figure.colorbar(image, ax=axes, shrink=0.8)
        axes.grid(False)
        axes.set(xlabel="input step t", ylabel="state step τ", title=title)
    return axes


def sensitivity_by_lag(found: Sensitivity, axes: Any = None, *, share: float = 0.1) -> Any:
    """The mean derivative with respect to an input against the lag, and the lag from which it stays below a share."""
    axes = _axes(axes)
    by_lag = as_array("by_lag", found.by_lag)
    with style():
        axes.plot(np.arange(len(by_lag)), by_lag, color=COLOURS[0])
        axes.axhline(share * by_lag.max(), color=GREY, linestyle="--", linewidth=1)
        horizon = found.horizon(share)
        if horizon is not None:
            axes.axvline(horizon, color=COLOURS[1], linewidth=1, label=f"stays below {share:.0%} from {horizon}")
            axes.legend(fontsize=8)
        axes.set(xlabel="lag τ − t", ylabel=f"mean {INFLUENCE}", title="local: derivative by lag")
        log_where_wide(axes, by_lag)
    return axes


def gradient_flow(flows: Mapping[str, GradientFlow], axes: Any = None) -> Any:
    """‖∂L/∂h_t‖ against t, mean over sequences with a band from minimum to maximum."""
    axes = _axes(axes)
    with style():
        for (name, flow), colour in zip(flows.items(), COLOURS * 3, strict=False):
            norms = as_array("norms", flow.norms)
            t = np.arange(len(norms))
            axes.plot(t, norms.mean(1), color=colour, label=name)
            axes.fill_between(t, norms.min(1), norms.max(1), color=colour, alpha=SHADE, linewidth=0)
        axes.set(xlabel="t", ylabel=GRADIENT, yscale="log", title="gradients through time")
        axes.legend(fontsize=8)
    return axes


def gradient_history(histories: Mapping[str, GradientHistory], axes: Any = None) -> Any:
    """‖∂L/∂h_t‖, mean over time, against training updates."""
    axes = _axes(axes)
    with style():
        for name, history in histories.items():
            axes.plot(history.updates, as_array("norms", history.norms).mean(1), "o-", markersize=4, label=name)
        axes.set(xlabel="update", ylabel=f"mean {GRADIENT}", yscale="log", title="gradients through training")
        axes.legend(fontsize=8)
    return axes


def recorded_gradients(recorded: Mapping[str, Mapping[int, float]], axes: Any = None) -> Any:
    """The norm of the gradient of all parameters against training updates, as recorded by runs."""
    axes = _axes(axes)
    with style():
        for name, norms in recorded.items():
            axes.plot(list(norms), list(norms.values()), linewidth=1, label=name)
        axes.set(xlabel="update", ylabel="norm of the gradient of all parameters", yscale="log", title="as recorded")
        axes.legend(fontsize=8)
    return axes


def lyapunov(found: LyapunovSpectrum, axes: Any = None) -> Any:
    """Lyapunov exponents in order, with standard errors; the number of those at −∞ is given in a corner."""
    axes = _axes(axes)
    finite = np.isfinite(np.asarray(found.exponents))
    values, errors = np.asarray(found.exponents)[finite], np.nan_to_num(np.asarray(found.error)[finite])
    lost = int((~finite).sum())
    with style():
        axes.errorbar(
            np.arange(1, len(values) + 1), values, errors, fmt=".", color=COLOURS[0], ecolor=GREY, elinewidth=0.8
        )
        axes.axhline(0, color=GREY, linestyle="--", linewidth=1)
        axes.set(xlabel="index", ylabel="exponent per step", title="Lyapunov spectrum")
        if lost:
            axes.text(0.98, 0.96, f"{lost} more at −∞", transform=axes.transAxes, ha="right", va="top", fontsize=8)
    return axes


def jacobian_growth(along: Any, at_points: Sequence[TransientGrowth], stable: Sequence[bool]) -> Any:
    """Norms of products of Jacobians along trajectories, and of powers of the Jacobian at fixed points, against steps.

    Args:
        along: ‖∂h_{t+k}/∂h_t‖, (K + 1, stretches).
        at_points: growth of the powers at each fixed point.
        stable: which of them are stable.
    """
    figure, (left, right) = canvas(1, 2, size=(9.4, 3.8))
    norms = as_array("norms", along)
    k = np.arange(len(norms))
    with style():
        left.plot(k, np.median(norms, 1), color=COLOURS[0], label="median")
        left.fill_between(k, norms.min(1), norms.max(1), color=COLOURS[0], alpha=SHADE, linewidth=0)
        left.axhline(1, color=GREY, linestyle="--", linewidth=1)
        left.set(xlabel="steps, k", ylabel=r"$\Vert\partial h_{t+k}/\partial h_t\Vert$", title="along trajectories")
        log_where_wide(left, norms)
        for growth, holds in zip(at_points, stable, strict=True):
            right.plot(growth.norms, color=COLOURS[2] if holds else COLOURS[1], label="stable" if holds else "unstable")
        right.axhline(1, color=GREY, linestyle="--", linewidth=1)
        right.set(xlabel="steps, k", ylabel=r"$\Vert J^k\Vert$", title="at fixed points")
        if at_points:
            every = np.concatenate([growth.norms for growth in at_points])
            log_where_wide(right, every[every > 0])
            named = dict(zip(*reversed(right.get_legend_handles_labels()), strict=True))
            right.legend(named.values(), named, fontsize=8)
        else:
            right.text(0.5, 0.5, "none was found", transform=right.transAxes, ha="center")
    return figure


def fixed_points(found: FixedPoints, basis: Dimensionality, states: Any = None, axes: Any = None) -> Any:
    """Fixed points and states along the first two principal directions; filled if stable.

    Args:
        found: the points.
        basis: principal directions, of the states or of the points.
        states: trajectories (T, B, S) to draw behind them.
        axes: where to draw.
    """
    axes = _axes(axes, size=(4.8, 4.2))
    with style():
        if states is not None:
            paths = as_array("states", basis.project(states))
            for b in range(min(paths.shape[1], 20)):
                axes.plot(paths[:, b, 0], paths[:, b, 1], color=GREY, alpha=0.4, linewidth=0.7)
        at = as_array("points", basis.project(found.points))
        stable, fixed = np.asarray(found.stable), np.asarray(found.fixed)
        for name, mask, colour, fill in (
            ("stable", stable & fixed, COLOURS[2], True),
            ("unstable", ~stable & fixed, COLOURS[1], False),
            ("slow", ~fixed, COLOURS[4], False),
        ):
            if mask.any():
                axes.plot(at[mask, 0], at[mask, 1], "o", color=colour, fillstyle="full" if fill else "none", label=name)
        if len(at):
            axes.legend(fontsize=8)
        axes.set(xlabel="first principal direction", ylabel="second", title="fixed points")
    return axes
