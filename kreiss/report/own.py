"""Runs of one's own side by side: seeds merged, networks in one table for each task, the best in bold."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kreiss.errors import InputError
from kreiss.experiments import Experiment, Row, Scale
from kreiss.report.comparison import Comparison, Line, naive
from kreiss.report.tables import EMPTY, escaped, failures, heading_row, markdown_row, number, parameters, without_empty
from kreiss.settings import SHORT
from kreiss.studies import worker
from kreiss.studies.jobs import UNSAID
from kreiss.tasks.base import HIGHER
from kreiss.training.config import dotted
from kreiss.training.record import is_run, settings_of

SPECIAL = {"\\": r"\textbackslash{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}, "~": r"\textasciitilde{}"}
SPECIAL |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "λ": r"$\lambda$", "|": "$|$", "…": r"\dots"}
PLACE = "runs of your own"
SAID = ("task.name", "task.chunk")  # not to be said again in a legend
OWN = "own"  # the scale of a comparison without a paper


class Found(NamedTuple):
    """A run: its folder, settings by dotted name, and result."""

    folder: Path
    settings: dict[str, Any]
    record: dict[str, Any]


def runs_in(folder: Path) -> list[Path]:
    """A run, or all runs below a folder."""
    if is_run(folder):
        return [folder]
    below = sorted(path.parent for path in folder.rglob("config.yaml") if is_run(path.parent))
    if not below:
        raise InputError(f"`{folder}` must be a run or hold runs; got neither. `kreiss runs ls` lists runs.")
    return below


def compare_runs(folders: Sequence[Path]) -> list[Comparison]:
    """Runs in folders side by side, one comparison for each task; needs none of their classes."""
    paths = dict.fromkeys(path.resolve() for folder in folders for path in runs_in(folder))
    tasks: dict[str, list[Found]] = {}
    for path in paths:
        settings = {name: value for name, value in dotted(settings_of(path)).items() if value is not None}
        about = {name: value for name, value in settings.items() if name.startswith("task.")}
        record = {**worker.record_of(path), **_reading(path), "key": str(path)}
        tasks.setdefault(_key(about), []).append(Found(path, settings, record))
    names = [str(runs[0].settings["task.name"]) for runs in tasks.values()]
    numbers = [names[:place].count(name) + 1 for place, name in enumerate(names)]  # of tasks of one name
    return [
        _comparison(runs, f"{name} ({number})" if number > 1 else name)
        for runs, name, number in zip(tasks.values(), names, numbers, strict=True)
    ]


def _reading(path: Path) -> dict[str, Any]:
    """How the metric of a run is read."""
    facts = worker.facts_of(path)
    return {name: facts[name] for name in ("metric", "higher", "naive")}


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _comparison(runs: list[Found], name: str) -> Comparison:
    """The runs of one task: those that differ in their seed alone are one line."""
    groups: dict[str, list[Found]] = {}
    for run in runs:
        same = {name: value for name, value in run.settings.items() if name not in ("seed", *UNSAID)}
        groups.setdefault(_key(same), []).append(run)
    metric = runs[0].record["metric"]
    labels = _labels([group[0].settings for group in groups.values()])
    lines = [_line(label, group, metric) for label, group in zip(labels, groups.values(), strict=True)]
    options = [
        f"{key.removeprefix('task.')} {value}"
        for key, value in runs[0].settings.items()
        if key.startswith("task.") and key != "task.name"
    ]
    experiment = Experiment(
        name, "", PLACE, ", ".join(options) or PLACE, metric,
        tuple(line.row for line in lines), {OWN: Scale("as configured")},
    )  # fmt: skip
    baselines = {line.baseline(metric) for line in lines} - {None}
    return Comparison(experiment, OWN, lines, baselines.pop() if len(baselines) == 1 else None)


def _line(label: str, group: list[Found], metric: str) -> Line:
    group = sorted(group, key=lambda run: int(run.settings["seed"]))
    runs = [run.record for run in group]
    values = [run["test"][metric] for run in runs if metric in run.get("test", {})]
    its = group[0].settings
    settings = {"model": its["model.name"], "task": its["task.name"], "hidden": its.get("model.hidden")}
    settings |= {name: value for name, value in its.items() if name.startswith("task.") and name not in SAID}
    return Line(Row(label, label, settings), None, runs, values, False)


def _labels(groups: list[dict[str, Any]]) -> list[str]:
    """The model of each line, and, where several are of one model, the settings in which those differ."""
    models = [str(group["model.name"]) for group in groups]
    short = {model: model.rpartition(":")[2] for model in models}
    names = {model: short[model] if list(short.values()).count(short[model]) == 1 else model for model in models}
    called = {dotted: name for name, dotted in SHORT.items()}
    labels = []
    for group, model in zip(groups, models, strict=True):
        alike = [other for other, its in zip(groups, models, strict=True) if its == model]
        keys = sorted({key for other in alike for key in other if key != "seed" and key not in UNSAID})
        differ = [key for key in keys if len({str(other.get(key)) for other in alike}) > 1]
        labels.append(", ".join([names[model], *(f"{called.get(key, key)} {group.get(key)}" for key in differ)]))
    return labels


def drawn(comparison: Comparison) -> list[Line]:
    """The lines that have learning curves."""
    return [line for line in comparison.lines if any(run.get("curve") for run in line.runs)]


# ---------------------------------------------------------------- tables


class Cell(NamedTuple):
    """A cell of a table; the best of its column is bold."""

    text: str
    best: bool = False


def cells(comparison: Comparison) -> tuple[list[str], list[list[Cell]]]:
    """Headings and rows: network, units, parameters, updates if they differ, every test metric, seeds, |λ|.

    The baseline is the last row.
    """
    metrics = _metrics(comparison)
    columns = {metric: [line.of(metric, "test") for line in comparison.lines] for metric in metrics}
    best = {metric: _best(comparison, metric, lines) for metric, lines in columns.items()}
    differ = len({run["updates"] for line in comparison.lines for run in line.runs}) > 1
    rows = []
    for place, line in enumerate(comparison.lines):
        numbers = [
            Cell(
                number(its[place].mean, its[place].error) + (failures(line) if metric == metrics[0] else ""),
                best[metric] is not None and its[place].mean == best[metric],
            )
            for metric, its in columns.items()
        ]
        units = line.row.settings["hidden"]
        moduli = [line.ends(f"modulus_{end}") for end in ("min", "max")]
        spectrum = EMPTY if None in moduli else f"{moduli[0]:.3f} … {moduli[1]:.3f}"
        updates = {run["updates"] for run in line.runs}
        first = [
            Cell(line.row.label), Cell(EMPTY if units is None else f"{units:,}"), Cell(parameters(line)),
            Cell(" … ".join(f"{count:,}" for count in sorted({min(updates), max(updates)})) if differ else EMPTY),
        ]  # fmt: skip
        rows.append([*first, *numbers, Cell(f"{len(line.runs)}"), Cell(spectrum)])
    baseline = [Cell(number(_baseline(comparison, metric))) for metric in metrics]
    if any(cell.text != EMPTY for cell in baseline):
        nothing = Cell(EMPTY)
        rows.append([Cell(naive(comparison)), nothing, nothing, nothing, *baseline, nothing, nothing])
    return without_empty(
        ["network", "units", "parameters", "updates", *metrics, "seeds", "|λ|"], rows, lambda cell: cell.text
    )


def _metrics(comparison: Comparison) -> list[str]:
    """All test metrics, that of the task first."""
    found = [metric for line in comparison.lines for run in line.runs for metric in run.get("test", {})]
    return list(dict.fromkeys([comparison.made.metric, *found]))


def _best(comparison: Comparison, metric: str, lines: list[Line]) -> float | None:
    """The best mean, if there is anything to compare."""
    means = [line.mean for line in lines if line.mean is not None]
    if len(lines) < 2 or not means:
        return None
    return max(means) if _higher(comparison, metric) else min(means)


def _higher(comparison: Comparison, metric: str) -> bool:
    if metric == comparison.made.metric:
        return any(run["higher"] for line in comparison.lines for run in line.runs)
    return metric.split("@")[0] in HIGHER


def _baseline(comparison: Comparison, metric: str) -> float | None:
    found = {line.baseline(metric) for line in comparison.lines} - {None}
    return found.pop() if len(found) == 1 else None


def title(comparison: Comparison) -> str:
    """The task with its options."""
    experiment = comparison.made
    return experiment.name + (f", {experiment.title}" if experiment.title != PLACE else "")


def about(comparison: Comparison) -> str:
    """What a table shows."""
    best = ", the best in bold" if len(comparison.lines) > 1 else ""
    return f"{title(comparison)}, {PLACE}: test metrics, mean ± standard error over seeds{best}."


def markdown(comparison: Comparison) -> str:
    """The table in Markdown."""
    headings, rows = cells(comparison)
    shown = [[f"**{escaped(cell.text)}**" if cell.best else escaped(cell.text) for cell in row] for row in rows]
    return (
        "\n".join([escaped(about(comparison)), "", *heading_row(*map(escaped, headings)), *map(markdown_row, shown)])
        + "\n"
    )


def latex(comparison: Comparison) -> str:
    """The table in LaTeX, for the package booktabs."""
    headings, rows = cells(comparison)
    lines = [" & ".join(map(_tex, headings)) + r" \\"]
    lines += [
        " & ".join(rf"\textbf{{{_tex(cell.text)}}}" if cell.best else _tex(cell.text) for cell in row) + r" \\"
        for row in rows
    ]
    return "\n".join([
        f"% {about(comparison)}", rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}", r"\toprule", lines[0],
        r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", "",
    ])  # fmt: skip


def _tex(text: str) -> str:
    return "".join(SPECIAL.get(sign, sign) for sign in text).replace("$$", "")


def as_html(comparison: Comparison) -> str:
    """The table in HTML."""
    headings, rows = cells(comparison)
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in headings)
    body = "".join(
        f"<tr><th scope='row'>{html.escape(first.text)}</th>{''.join(map(_data, rest))}</tr>" for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _data(cell: Cell) -> str:
    text = html.escape(cell.text)
    return f"<td>{f'<b>{text}</b>' if cell.best else text}</td>"
