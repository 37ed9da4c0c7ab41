"""Figures of the papers by name: 001 is the nnRNN paper, 000 its supplement, 003 the ENRNN paper, thesis that of Kerg.

Theoretical figures need no input. Figures of trained networks take them by role; what they were trained on, and for how
long, is up to the caller, and can be stated in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kreiss import analysis
from kreiss.errors import InputError, check_name
from kreiss.report import animation, learning, memory_figures, plots
from kreiss.report.style import COLOURS, INK, canvas, mosaic, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARAMETERS = [(alpha, beta) for beta in (0.0, 0.005) for alpha in (0.95, 1.0, 1.05)]  # of 001 Fig. 1
N = 100


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper.

    Attributes:
        draw: makes it, with the roles as arguments.
        about: what it shows.
        roles: its inputs, name → description; empty for theory.
    """

    draw: Callable[..., Figure]
    about: str
    roles: Mapping[str, str]


def figure(name: str, *, note: str = "", **roles: Any) -> Figure:
    """A figure of a paper.

    Args:
        name: such as "001/fig1c"; the keys of `FIGURES`.
        note: a line under the figure, such as how long its networks were trained.
        roles: networks, runs or histories by role; see `FIGURES[name].roles`.

    Example:
        >>> from kreiss.report.figures import figure
        >>> [axes.get_title() for axes in figure("001/fig1c").axes]
        ['d = 0', 'd = 0.2']
    """
    check_name("figure", name, FIGURES)
    entry = FIGURES[name]
    missing = [role for role in entry.roles if role not in roles and role != "runs"]
    if missing or (entry.roles.keys() == {"runs"} and not roles):
        needs = "; ".join(f"{role}: {what}" for role, what in entry.roles.items())
        raise InputError(f"figure {name} needs trained networks; got none for {missing or ['runs']}. Pass {needs}.")
    fig = entry.draw(**roles)
    if note:
        with style():
            fig.supxlabel(note, fontsize=8, color=COLOURS[1])
    return fig


# ---------------------------------------------------------------- theory


SMALL = 6  # modes in the diagram


def form_of_theta() -> Figure:
    """001 Fig. 1(a): the lower-triangular Schur form of eq. (2), and the coupling of its modes."""
    fig, axes = canvas(2, 1, size=(5.0, 6.2), height_ratios=(5, 2))
    kinds = np.tril(np.full((SMALL, SMALL), 3), -2) + 2 * np.eye(SMALL, k=-1, dtype=int) + np.eye(SMALL, dtype=int)
    _entries(kinds, axes[0])
    _modes(axes[1])
    figure_: Figure = fig
    return figure_


ENTRIES = {"d": COLOURS[2], "α": COLOURS[1], "β": COLOURS[0]}  # diagonal, delay line, rest of the triangle


def _entries(kinds: Any, axes: Any) -> None:
    """A matrix of kinds of entries: 0 for none, then those of `ENTRIES`."""
    from matplotlib.colors import ListedColormap

    with style():
        axes.imshow(kinds, cmap=ListedColormap(["#ffffff00", *ENTRIES.values()]), vmin=0, vmax=len(ENTRIES))
        for i, j in np.argwhere(kinds):
            axes.text(j, i, list(ENTRIES)[kinds[i, j] - 1], ha="center", va="center", color="white", fontweight="bold")
        axes.grid(False)
        axes.set(xticks=[], yticks=[], title="Θ, lower triangular", xlabel="from mode j", ylabel="to mode i")


def _modes(axes: Any) -> None:
    """Modes in a row: each to itself (d), to the next (α) and to all later ones (β)."""
    with style():
        for j in range(SMALL):
            for i in range(j, SMALL):
                _arrow(axes, j, i)
            axes.plot([j], [0], "o", color=INK, markersize=9)
            axes.text(j, -0.28, f"{j + 1}", ha="center", va="top", fontsize=8)
        axes.set(
            xlim=(-0.6, SMALL - 0.4),
            ylim=(-0.5, 1.25),
            title="each mode feeds itself (d), the next (α) and all later ones (β)",
        )
        axes.title.set_fontsize(9)
        axes.set_axis_off()


def _arrow(axes: Any, start: int, end: int) -> None:
    """An arrow from a mode to itself or to a later one; longer arrows bend more."""
    name = "dα"[end - start] if end - start < 2 else "β"
    bend = "arc3,rad=-1.8" if start == end else f"arc3,rad={0 if end - start == 1 else -0.45}"
    shift = 0.16 if start == end else 0.0
    axes.annotate(
        "", (end + shift, 0.05), (start - shift, 0.05),
        arrowprops={"arrowstyle": "-|>", "color": ENTRIES[name], "connectionstyle": bend, "shrinkA": 6, "shrinkB": 6},
    )  # fmt: skip


def transients_of_theta() -> Figure:
    """001 Fig. 1(b): transients of Θ(α, β, 0) from 1,000 starts on the sphere, the upper panel in both readings."""
    transients = {
        f"α = {alpha}, β = {beta}": analysis.sphere_transients(analysis.delay_line(N, alpha, beta), N + 10)
        for alpha, beta in PARAMETERS
    }
    fig, axes = mosaic("us;nn", size=(9.4, 6.6))
    panels = {
        "u": ("unit", "deviation across units", "as captioned: mean ± deviation over starts"),
        "s": ("start", "deviation across starts", "as the authors computed it: mean ± deviation over units"),
        "n": ("norm", "length of the state", ""),
    }
    for letter, (kind, label, title) in panels.items():
        curves = {
            name: (getattr(sample, f"{kind}_mean"), getattr(sample, f"{kind}_deviation"))
            for name, sample in transients.items()
        }
        plots.bands(curves, axes[letter])
        with style():
            axes[letter].set_yscale("symlog", linthresh=1e-2)
            axes[letter].set_ylim(bottom=0)
            axes[letter].set(xlabel="steps", ylabel=label)
            axes[letter].set_title(title, fontsize=9)
    with style():
        axes["s"].set_ylim(axes["u"].get_ylim())
        fig.legend(*axes["n"].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
    figure_: Figure = fig
    return figure_


def memory_of_theta() -> Figure:
    """001 Fig. 1(c): Fisher memory curves of Θ(α, β, d) for d = 0 and 0.2."""
    fig, axes = canvas(1, 2, sharey=True, size=(9.4, 3.8))
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
                line.set_linestyle("--" if beta else "-")  # β hardly changes a curve, so that one hides the other
            panel.set_title(f"d = {diagonal:g}")
            panel.set_ylim(1e-4, 2)
            panel.legend(fontsize=8, loc="lower left")
    figure_: Figure = fig
    return figure_


# ---------------------------------------------------------------- trained networks


def _first(network: Any) -> Any:
    return next(iter(analysis.learned_structure(network).values()))


def _theta_with_angles(structure: Any, axes: Any, title: str) -> None:
    plots.theta_map(structure.theta, axes, blocks=False, log=True)
    axes.set_title(f"{title}: mean γ {structure.moduli.mean():.3f}")
    if len(structure.angles):
        inset = axes.inset_axes((0.56, 0.58, 0.42, 0.4), projection="polar")
        plots.angle_rose(structure.angles, inset)
        inset.set_title("")
        inset.set_yticklabels([])
        inset.set_xticklabels([])


def learned_theta(copy: Any, characters: Any) -> Figure:
    """001 Fig. 3: learned Θ on copying and on characters, angles, and the sub-diagonals of the latter."""
    structures = {"copy": _first(copy), "characters": _first(characters)}
    fig, axes = canvas(1, 3, size=(14, 4.0))
    for panel, (name, structure) in zip(axes, structures.items(), strict=False):
        _theta_with_angles(structure, panel, name)
    with style():
        for name, structure in structures.items():
            axes[2].plot(np.arange(1, len(structure.profile)), structure.profile[1:], label=name)
        axes[2].set(xlabel="k", ylabel="mean |Θ| on sub-diagonal k", title="sub-diagonals", yscale="log")
        axes[2].legend(fontsize=8, loc="lower left")
        theta = structures["characters"].theta
        inset = axes[2].inset_axes((0.5, 0.6, 0.46, 0.32))
        inset.hist(np.abs(np.diag(theta, -1)), bins=30, color=COLOURS[1])
        inset.set_title("entries of k = 1, characters", fontsize=7)
        inset.tick_params(labelsize=6)
    figure_: Figure = fig
    return figure_


def learned_theta_on_pixels(psmnist: Any) -> Figure:
    """000 Fig. 5: learned Θ on permuted sequential MNIST, with angles."""
    fig, axes = canvas(size=(5.4, 4.6))
    _theta_with_angles(_first(psmnist), axes, "psMNIST")
    figure_: Figure = fig
    return figure_


def _part_of_state(network: Any, inputs: Any, units: slice, title: str) -> Figure:
    sensitivity = analysis.input_sensitivity(analysis.dynamics(network).time_first(), inputs, units=units)
    fig: Figure = plots.heat_map(sensitivity, title=title).figure
    return fig


def short_term_dependence(enrnn: Any, inputs: Any, long: int) -> Figure:
    """003 Fig. 4: ‖∂h⁽ˢ⁾_τ/∂x_t‖ of the short-term units, those after the first `long`."""
    return _part_of_state(enrnn, inputs, slice(long, None), f"short-term units, {plots.INFLUENCE}")


def long_term_dependence(enrnn: Any, inputs: Any, long: int) -> Figure:
    """003 Fig. 5: ‖∂h⁽ᴸ⁾_τ/∂x_t‖ of the first `long` units."""
    return _part_of_state(enrnn, inputs, slice(0, long), f"long-term units, {plots.INFLUENCE}")


def sizes_of_state(**curves: Any) -> Figure:
    """003 Fig. 6: error on the adding problem against updates, for several splits of the state.

    Args:
        curves: name → (updates, errors).
    """
    fig, axes = canvas(size=(5.6, 4.0))
    with style():
        for name, (updates, errors) in curves.items():
            axes.plot(updates, errors, label=name)
        axes.axhline(1 / 6, color="#888888", linestyle="--", label="without memory")
        axes.set(
            xlabel="update", ylabel="mean squared error", title="adding: long-term / short-term units", yscale="log"
        )
        axes.legend(fontsize=8)
    figure_: Figure = fig
    return figure_


def gradient_propagation(**histories: Any) -> Figure:
    """002, figure, and thesis App. A Fig. 3: gradients through time after training, and through training.

    The papers do not specify the gradient of the second panel. Here it is ‖∂L/∂h_t‖, averaged over time, if it was
    measured at several updates, and that of all parameters if the training recorded it.

    Args:
        histories: name → `GradientHistory`, such as of γ free and γ clamped.
    """
    recorded = {name: history.recorded for name, history in histories.items() if history.recorded}
    moments = not recorded or any(len(history.updates) > 1 for history in histories.values())
    panels = 1 + moments + bool(recorded)
    fig, axes = canvas(1, panels, size=(4.7 * panels, 3.8))
    plots.gradient_flow({name: history.flows[-1] for name, history in histories.items()}, axes[0])
    if moments:
        plots.gradient_history(histories, axes[1])
    if recorded:
        plots.recorded_gradients(recorded, axes[-1])
    figure_: Figure = fig
    return figure_


ADDING = "an ENRNN trained on adding, T = 50, with 24 long-term and 16 short-term units"
INPUTS = {"enrnn": ADDING, "inputs": "a batch of the task, (T, B, 2)", "long": "the number of long-term units"}

GRADIENTS = PaperFigure(
    gradient_propagation, "gradients through time and training", {"runs": "name → GradientHistory, one per network"}
)
LEARNED = {"runs": "name → (updates, values), one per run; by default the recorded results of its experiment"}


def _map(role: str, needs: str) -> PaperFigure:
    """An attention map of one network."""
    return PaperFigure(memory_figures.attention_maps, f"attention on {role}", {role: f"{needs}, as a Reading"})


FIGURES: dict[str, PaperFigure] = {
    "training/spectrum": PaperFigure(
        animation.last_frame,
        "eigenvalues through training, also as an animation",
        {"runs": "name → eigenvalues by update, one per run"},
    ),
    "001/fig1a": PaperFigure(form_of_theta, "the Schur form Θ(α, β, d) and its modes", {}),
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
    "002/fig1": GRADIENTS,
    "thesis/appA-fig3": GRADIENTS,
    "thesis/fig4.1": PaperFigure(
        memory_figures.attention_maps,
        "attention of MemRNN on copy and denoise",
        {"copy": "a MemRNN trained on copy, as a Reading", "denoise": "a MemRNN trained on denoise, as a Reading"},
    ),
    "thesis/fig4.2": PaperFigure(
        memory_figures.gradients_and_memory,
        "gradients, memory and their trade-off",
        {"runs": f"name → Measured, for {', '.join(memory_figures.COMPARED)}"},
    ),
    "thesis/figB.1": PaperFigure(
        memory_figures.gradients_by_size,
        "gradients of RelLSTM for several ρ and ν",
        {"runs": "rho3 … rho25 and nu3 … nu25 → GradientFlow"},
    ),
    "thesis/figB.5": _map("characters", "a MemRNN trained on characters"),
    "thesis/figB.7": _map("pixels", "a MemRNN trained on digits, several pixels per step"),
    "thesis/figB.8": _map("copy", "a RelRNN without a relevant set, trained on copy"),
    "thesis/figB.9": _map("denoise", "a RelRNN without a relevant set, trained on denoise"),
    "thesis/figB.2": PaperFigure(learning.losses, "copy and denoise: losses of all networks at six delays", LEARNED),
    "thesis/figB.3": PaperFigure(learning.losses, "denoise: losses of LSTM at six delays", LEARNED),
    "thesis/figB.4": PaperFigure(learning.losses, "denoise: losses of GORU at six delays", LEARNED),
    "thesis/figB.6": PaperFigure(learning.accuracies, "permuted MNIST: validation accuracies", LEARNED),
}
