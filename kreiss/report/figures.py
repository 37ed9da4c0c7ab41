"""Figures of the papers by name: 001 is the nnRNN paper, 000 its supplement, 003 the ENRNN paper, thesis that of Kerg.

A figure of theory needs nothing. A figure of trained networks takes them by role; what they were trained on, and for
how long, is up to the caller, and a note says it in the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kreiss import analysis
from kreiss.errors import InputError, check_name
from kreiss.report import plots
from kreiss.report.style import COLOURS, canvas, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARAMETERS = [(alpha, beta) for beta in (0.0, 0.005) for alpha in (0.95, 1.0, 1.05)]  # of 001 Fig. 1
N = 100


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper.

    Attributes:
        draw: makes it from what each role is given.
        about: what it shows.
        roles: what it needs, by name, and what that is; empty for theory.
    """

    draw: Callable[..., Figure]
    about: str
    roles: Mapping[str, str]


def figure(name: str, *, note: str = "", **roles: Any) -> Figure:
    """A figure of a paper.

    Args:
        name: such as "001/fig1c"; the keys of `FIGURES`.
        note: a line under the figure, such as how short its networks were trained.
        roles: networks, runs or histories by role; see `FIGURES[name].roles`.

    Example:
        >>> from kreiss.report.figures import figure
        >>> [axes.get_title() for axes in figure("001/fig1c").axes]
        ['d = 0', 'd = 0.2']
    """
    check_name("figure", name, FIGURES)
    wanted = FIGURES[name]
    missing = [role for role in wanted.roles if role not in roles and role != "runs"]
    if missing or (wanted.roles.keys() == {"runs"} and not roles):
        needs = "; ".join(f"{role}: {what}" for role, what in wanted.roles.items())
        raise InputError(f"figure {name} needs trained networks; got none for {missing or ['runs']}. Pass {needs}.")
    made = wanted.draw(**roles)
    if note:
        with style():
            made.supxlabel(note, fontsize=8, color=COLOURS[1])
    return made


# ---------------------------------------------------------------- theory


def transients_of_theta() -> Figure:
    """001 Fig. 1(b): transients of Θ(α, β, 0) from a thousand starts on the sphere."""
    found = {
        f"α = {alpha}, β = {beta}": analysis.sphere_transients(analysis.delay_line(N, alpha, beta), N + 10)
        for alpha, beta in PARAMETERS
    }
    axes = plots.transients(found)
    with style():
        for panel in axes:
            panel.set_yscale("symlog", linthresh=1e-2)
            panel.set_ylim(bottom=0)
        axes[0].set_title("")
        axes[0].legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    made: Figure = axes[0].figure
    return made


def memory_of_theta() -> Figure:
    """001 Fig. 1(c): Fisher memory curves of Θ(α, β, d) for d = 0 and 0.2."""
    made, axes = canvas(1, 2, sharey=True, size=(9.4, 3.8))
    for panel, diagonal in zip(axes, (0.0, 0.2), strict=True):
        curves = {
            f"α = {alpha}, β = {beta}": analysis.fisher_memory(
                analysis.delay_line(N, alpha, beta, diagonal), np.eye(N)[0]
            )
            for alpha, beta in PARAMETERS
        }
        plots.fisher_curves(curves, panel, longest=int(1.6 * N))
        with style():
            for line, (_, beta) in zip(panel.lines, PARAMETERS, strict=True):
                line.set_linestyle("--" if beta else "-")  # β hardly moves a curve, so that one hides the other
            panel.set_title(f"d = {diagonal:g}")
            panel.set_ylim(1e-4, 2)
            panel.legend(fontsize=8, loc="lower left")
    figure_: Figure = made
    return figure_


# ---------------------------------------------------------------- trained networks


def _first(network: Any) -> Any:
    return next(iter(analysis.learned_structure(network).values()))


def _theta_with_angles(found: Any, axes: Any, title: str) -> None:
    plots.theta_map(found.theta, axes, blocks=False, log=True)
    axes.set_title(f"{title}: mean γ {found.moduli.mean():.3f}")
    if len(found.angles):
        inset = axes.inset_axes((0.56, 0.58, 0.42, 0.4), projection="polar")
        plots.angle_rose(found.angles, inset)
        inset.set_title("")
        inset.set_yticklabels([])
        inset.set_xticklabels([])


def learned_theta(copy: Any, characters: Any) -> Figure:
    """001 Fig. 3: learned Θ on copying and on characters, angles, and the sub-diagonals of the latter."""
    structures = {"copy": _first(copy), "characters": _first(characters)}
    made, axes = canvas(1, 3, size=(14, 4.0))
    for panel, (name, found) in zip(axes, structures.items(), strict=False):
        _theta_with_angles(found, panel, name)
    with style():
        for name, found in structures.items():
            axes[2].plot(np.arange(1, len(found.profile)), found.profile[1:], label=name)
        axes[2].set(xlabel="k", ylabel="mean |Θ| on sub-diagonal k", title="sub-diagonals", yscale="log")
        axes[2].legend(fontsize=8, loc="lower left")
        theta = structures["characters"].theta
        inset = axes[2].inset_axes((0.5, 0.6, 0.46, 0.32))
        inset.hist(np.abs(np.diag(theta, -1)), bins=30, color=COLOURS[1])
        inset.set_title("entries of k = 1, characters", fontsize=7)
        inset.tick_params(labelsize=6)
    figure_: Figure = made
    return figure_


def learned_theta_on_pixels(psmnist: Any) -> Figure:
    """000 Fig. 5: learned Θ on permuted sequential MNIST, with angles."""
    made, axes = canvas(size=(5.4, 4.6))
    _theta_with_angles(_first(psmnist), axes, "psMNIST")
    figure_: Figure = made
    return figure_


def _part_of_state(network: Any, inputs: Any, units: slice, title: str) -> Figure:
    found = analysis.input_sensitivity(analysis.dynamics(network).time_first(), inputs, units=units)
    made: Figure = plots.heat_map(found, title=title).figure
    return made


def short_term_dependence(enrnn: Any, inputs: Any, long: int) -> Figure:
    """003 Fig. 4: ‖∂h⁽ˢ⁾_τ/∂x_t‖ of the short-term units, those behind the first `long`."""
    return _part_of_state(enrnn, inputs, slice(long, None), f"short-term units, {plots.INFLUENCE}")


def long_term_dependence(enrnn: Any, inputs: Any, long: int) -> Figure:
    """003 Fig. 5: ‖∂h⁽ᴸ⁾_τ/∂x_t‖ of the first `long` units."""
    return _part_of_state(enrnn, inputs, slice(0, long), f"long-term units, {plots.INFLUENCE}")


def sizes_of_state(**curves: Any) -> Figure:
    """003 Fig. 6: error on the adding problem against updates, for several splits of the state.

    Args:
        curves: name → (updates, errors).
    """
    made, axes = canvas(size=(5.6, 4.0))
    with style():
        for name, (updates, errors) in curves.items():
            axes.plot(updates, errors, label=name)
        axes.axhline(1 / 6, color="#888888", linestyle="--", label="without memory")
        axes.set(
            xlabel="update", ylabel="mean squared error", title="adding: long-term / short-term units", yscale="log"
        )
        axes.legend(fontsize=8)
    figure_: Figure = made
    return figure_


def gradient_propagation(**histories: Any) -> Figure:
    """Thesis App. A Fig. 3: gradients through time after training, and through training.

    Args:
        histories: name → `GradientHistory`, such as of γ free and γ clamped.
    """
    made, axes = canvas(1, 2, size=(9.4, 3.8))
    plots.gradient_flow({name: history.flows[-1] for name, history in histories.items()}, axes[0])
    plots.gradient_history(histories, axes[1])
    figure_: Figure = made
    return figure_


ADDING = "an ENRNN trained on adding, T = 50, with 24 long-term and 16 short-term units"
INPUTS = {"enrnn": ADDING, "inputs": "a batch of the task, (T, B, 2)", "long": "the number of long-term units"}

FIGURES: dict[str, PaperFigure] = {
    "001/fig1b": PaperFigure(transients_of_theta, "transients of Θ(α, β, 0)", {}),
    "001/fig1c": PaperFigure(memory_of_theta, "Fisher memory curves of Θ(α, β, d)", {}),
    "001/fig3": PaperFigure(
        learned_theta,
        "learned Θ, angles and sub-diagonals",
        {"copy": "an NNRNN trained on copying", "characters": "an NNRNN trained on characters"},
    ),
    "000/fig5": PaperFigure(
        learned_theta_on_pixels, "learned Θ on psMNIST", {"psmnist": "an NNRNN trained on permuted sequential MNIST"}
    ),
    "003/fig4": PaperFigure(short_term_dependence, "gradient map of short-term units", INPUTS),
    "003/fig5": PaperFigure(long_term_dependence, "gradient map of long-term units", INPUTS),
    "003/fig6": PaperFigure(
        sizes_of_state,
        "errors for several sizes of the two states",
        {"runs": "name → (updates, errors), one per split"},
    ),
    "thesis/appA-fig3": PaperFigure(
        gradient_propagation, "gradients through time and training", {"runs": "name → GradientHistory, one per network"}
    ),
}
