"""`kreiss figure`: load or train the networks that a figure needs, draw it, write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kreiss.errors import InputError, check_name

Settings = dict[str, Any]

# The same for all compared networks: P learns more slowly than the rest, and T decays far faster than printed (1e-6 to
# 1e-4), so that it vanishes where a task does not need it.
ALIKE: Settings = {
    "hidden": 128,
    "orthogonal_lr": 1e-4,
    "optimiser.coupling_decay": 0.1,
    "optimiser.radius_penalty": 1e-4,
}

# role → (model, task, settings). Small and short: they show the kind of structure, not the published values.
SHORT: dict[str, tuple[str, str, Settings]] = {
    "copy": ("nnrnn", "copy", {**ALIKE, "task.delay": 50, "steps": 2000, "lr": 5e-4}),
    "characters": ("nnrnn", "characters", {**ALIKE, "steps": 800, "batch": 32, "lr": 2e-3, "optimiser.clip_norm": 1.0}),
    "gradients": (  # rates, δ and decay as printed in Table 5 of 000, for T = 150
        "nnrnn",
        "characters",
        {
            "hidden": 128,
            "steps": 500,
            "batch": 32,
            "lr": 8e-4,
            "orthogonal_lr": 8e-5,
            "optimiser.alpha": 0.9,
            "optimiser.radius_penalty": 1.0,
            "optimiser.coupling_decay": 1e-4,
            "task.chunk": 150,
            "log_every": 10,
        },
    ),
    "psmnist": ("nnrnn", "pixels", {**ALIKE, "task.permutation": 0, "steps": 600, "batch": 50, "lr": 1e-3}),
    "enrnn": (
        "enrnn",
        "adding",
        {"task.length": 50, "hidden": 40, "model.short": 16, "steps": 1500, "batch": 50, "lr": 1e-3},
    ),
}
TITLES = {"characters": "characters of Shakespeare", "psmnist": "permuted 8 × 8 digits"}  # data of the short runs
SPLITS = (0, 8, 16, 24, 32)  # short-term units of forty, for 003 Fig. 6
CLAMPED: dict[str, str | float] = {
    "γ free": "free",
    "γ = 1": 1.0,
    "γ = 0.958": 0.958,
}  # for the figure of 002, App. A Fig. 3 of the thesis
# curves of recorded results: figure → metric, experiments, scale
RECORDED = {
    "thesis/figB.2": ("loss", ("004/figB.2-copy", "004/figB.2-denoise"), "laptop"),
    "thesis/figB.3": ("loss", ("004/figB.3",), "laptop"),
    "thesis/figB.4": ("loss", ("004/figB.4",), "laptop"),
    "thesis/figB.6": ("accuracy", ("004/figB.6",), "laptop"),
}


def show_list() -> int:
    """Print every figure with the networks it needs."""
    from kreiss.report.figures import FIGURES

    for name, figure in FIGURES.items():
        needs = f"  needs {', '.join(figure.roles)}" if figure.roles else ""
        print(f"{name:<18} {figure.about}{needs}")
    return 0


def make(name: str, networks: Sequence[str], out: Path, *, train: bool = False, steps: int = 0, delay: int = 0) -> int:
    """Draw a figure and write it as SVG and PNG."""
    from kreiss.commands import memory_figures
    from kreiss.report.figures import FIGURES, figure
    from kreiss.report.style import save

    check_name("figure", name, FIGURES)
    paths = dict(_pair(entry) for entry in networks)
    if name in memory_figures.NAMES:
        roles, note = memory_figures.filled(name, paths, train, steps, delay)
    elif steps or delay:
        raise InputError(
            f"--steps and --delay are for figures of networks with memory; got {name}. Leave them out, or pass a run."
        )
    else:
        roles, note = _filled(name, paths, train)
    out.mkdir(parents=True, exist_ok=True)
    place = out / name.replace("/", "-")
    for path in [*save(figure(name, note=note, **roles), place), *_animated(name, roles, place)]:
        print(path)
    return 0


def _animated(name: str, spectra: Settings, place: Path) -> list[Path]:
    """The figure as an animation too, if it shows something through time."""
    from kreiss.report.animation import write

    return [write(spectra, place.with_suffix(".gif"))] if name == "training/spectrum" else []


def _pair(entry: str) -> tuple[str, str]:
    role, equals, path = entry.partition("=")
    if not (role and equals and path):
        raise InputError(f"a network must be given as ROLE=PATH; got {entry!r}. Write, for example, copy=runs/one.")
    return role, path


def _filled(name: str, paths: dict[str, str], train: bool) -> tuple[Settings, str]:
    """The network of every role of a figure, and a note if networks were trained for it."""
    from kreiss.networks import load
    from kreiss.report.figures import FIGURES
    from kreiss.tasks import Adding

    needed = FIGURES[name].roles
    if "runs" in needed:
        return _compared(name, paths, train)
    roles: Settings = {role: load(path) for role, path in paths.items()}
    short = [role for role in needed if train and role in SHORT and role not in roles]
    roles.update({role: trained(role).model for role in short})
    if "enrnn" in roles:
        roles["inputs"] = Adding(50).train(0, 8, 0).inputs
        roles["long"] = long_units(roles["enrnn"])
    return roles, "; ".join(map(said, short))


def trained(role: str, **other: Any) -> Any:
    """The short run of a role, with some settings changed."""
    from kreiss.training import fit

    model, task, settings = SHORT[role]
    return fit(model, task, {**settings, **other}, show="quiet")


def said(role: str, name: str = "") -> str:
    """Size and length of the short run of a role, and the decay of T in it."""
    settings = SHORT[role][2]
    decay = settings.get("optimiser.coupling_decay")
    decay_note = f"; T decay {decay:g}" if decay else ""
    title = name or TITLES.get(role, role)
    return f"{title}: {settings['hidden']} units, {settings['steps']} updates, scaled down{decay_note}"


def long_units(network: Any) -> int:
    """The number of long-term units of an ENRNN; they come first."""
    from kreiss.analysis.network.dynamics import recurrent_layer

    layer: Any = recurrent_layer(network)
    return int(layer.sets["l0"].long)


def _compared(name: str, paths: dict[str, str], train: bool) -> tuple[Settings, str]:
    """Data of the figures that compare runs: error curves, or gradient histories."""
    from kreiss.training import read_records
    from kreiss.training.spectrum import read_spectra

    if name == "training/spectrum":
        return {label: read_spectra(_run(path)) for label, path in paths.items()}, ""
    if name in RECORDED:
        metric = RECORDED[name][0]
        given = {label: _curve(read_records(_run(path)), metric) for label, path in paths.items()}
        return (given, "") if given else _learned(*RECORDED[name])
    if name == "003/fig6":
        records = {label: read_records(_run(path)) for label, path in paths.items()}
        if train and not paths:
            curves = {"eval_every": 50}  # or there is one point at the end
            records = {f"{40 - s} / {s}": trained("enrnn", **{"model.short": s}, **curves).records for s in SPLITS}
        return {label: _curve(rows) for label, rows in records.items()}, said("enrnn") if train and not paths else ""
    if train and not paths:
        return {label: gradient_history(radius) for label, radius in CLAMPED.items()}, said(
            "gradients", "characters of Shakespeare"
        )
    return {label: _gradients_of(path) for label, path in paths.items()}, ""


def _run(path: str) -> Path:
    """The folder of a run, which must be one: without records a curve would be empty."""
    from kreiss.training.record import is_run

    if not is_run(Path(path)):
        raise InputError(
            f"curves must be of runs; got {path}, which is no folder of a run. `kreiss runs ls` lists runs."
        )
    return Path(path)


def _curve(records: list[Settings], metric: str = "loss") -> tuple[list[int], list[float]]:
    rows = [row for row in records if row.get("split") == "valid"]
    return [row["update"] for row in rows], [row[metric] for row in rows]


def _learned(metric: str, names: Sequence[str], scale: str) -> tuple[Settings, str]:
    """Mean curves of recorded results, and the scale at which they were run; a panel for each column if there are."""
    from kreiss.experiments import experiment
    from kreiss.report.comparison import compare
    from kreiss.report.experiments import band
    from kreiss.studies import results

    known, curves = results.read_all(results.FOLDER), {}
    for made in map(experiment, names):
        for line in compare(made, scale, known).lines:
            if any(run.get("curve") for run in line.runs):
                column = ", ".join((line.row.settings["task"], *line.row.columns)) if made.panels else ""
                label = line.row.label.removesuffix(", " + ", ".join(line.row.columns)) if column else line.row.label
                curves[f"{column}: {label}" if column else label] = band(line.runs, metric)[:2]
    return curves, f"results at scale {scale}, means over seeds" if curves else ""


def gradient_history(radius: str | float, moments: int = 5) -> Any:
    """Gradients on characters at several points of one short training run, with γ free or clamped."""
    from tempfile import TemporaryDirectory

    from kreiss.analysis import GradientHistory
    from kreiss.networks.saving import LAST
    from kreiss.training import fit, resume

    model, task, settings = SHORT["gradients"]
    settings = {**settings, "model.radius": radius}
    if radius != "free":
        del settings["optimiser.radius_penalty"]  # nothing to pull towards 1
    history = GradientHistory()
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        for moment in range(1, moments + 1):
            now = {"steps": moment * settings["steps"] // moments}
            if moment == 1:
                fit(model, task, {**settings, **now}, out=folder, show="quiet")
            else:
                resume(folder, now, show="quiet")
            _measure(history, now["steps"], folder / LAST)
        history.recorded = _recorded(folder)
    return history


def _gradients_of(path: str) -> Any:
    """Gradients of a network, and those recorded in training if it is a run."""
    from kreiss.analysis import GradientHistory
    from kreiss.training.record import is_run

    history, folder = GradientHistory(), Path(path)
    _measure(history, 0, folder)
    if is_run(folder):
        history.recorded = _recorded(folder)
    return history


def _measure(history: Any, update: int, path: Path) -> None:
    """Add the gradients of a network: of the task's loss if it is from a run, else of its last output."""
    from kreiss.analysis import dynamics
    from kreiss.commands.sources import GAUSSIAN, drive_of
    from kreiss.networks import load
    from kreiss.report.network_findings import Drive, random_inputs

    network = load(path)
    system = dynamics(network).time_first()
    drive, why_not = drive_of(network, path)
    if drive is None:
        print(f"{path}: {GAUSSIAN}: {why_not}")
        drive = Drive(random_inputs(system), "random input")
    history.add(update, system, drive.inputs, drive.loss or (lambda outputs: outputs[-1].sum()))


def _recorded(folder: Path) -> dict[int, float]:
    """The norm of the gradient of all parameters, by update."""
    from kreiss.training import read_records

    records = read_records(folder)
    return {row["update"]: row["gradient_norm"] for row in records if "gradient_norm" in row}
