"""`kreiss report`: experiments and papers compared in one HTML file, with learning curves and learned structure."""

from __future__ import annotations

import html
import io
import re
import statistics
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from kreiss.report import objects, own, page, tables
from kreiss.report.comparison import Comparison, Line, folder_of, naive
from kreiss.report.learning import look
from kreiss.report.plots.matrices import SHADE, angle_rose, subdiagonal_profile, theta_map
from kreiss.report.style import GREY, canvas, mosaic, style
from kreiss.studies.results import Record
from kreiss.tasks.base import HIGHER

PUBLISHED = (
    "Published numbers beside ours: mean ± standard error over seeds. Every row says at which scale it was run; a "
    "number of a scaled-down run is no measure of the published one."
)
STRUCTURED = ("nnrnn",)  # networks whose learned Schur form is plotted


def write(comparisons: Sequence[Comparison], path: Path, runs: Path) -> Path:
    """Write one self-contained HTML file.

    Args:
        comparisons: in the order shown.
        path: of the file.
        runs: folder of the runs; if it contains the networks, their learned structure is plotted.
    """
    sections = [_section(comparison, runs) for comparison in comparisons]
    links = [(_key(comparison), _link(comparison)) for comparison in comparisons]
    if all(comparison.scale == own.OWN for comparison in comparisons):
        title, about = "Runs", "Runs of your own: seeds put together, one table and one figure for each task."
    else:
        title, about = "Experiments", PUBLISHED
    foot = "All numbers are in the results that this page was made from."
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.whole(title, about, links, sections, foot), encoding="utf-8")
    return path


def _key(comparison: Comparison) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{comparison.made.name}-{comparison.scale}")


def _link(comparison: Comparison) -> str:
    return comparison.made.name + ("" if comparison.scale == own.OWN else f", {comparison.scale}")


def _section(comparison: Comparison, runs: Path) -> str:
    experiment, key = comparison.made, _key(comparison)
    scale = experiment.scales[comparison.scale]
    measured = f"{experiment.metric}, {experiment.split}"
    where = f"{tables.source(experiment)}: {measured}. Scale {comparison.scale}: {scale.about}."
    where = own.about(comparison) if comparison.scale == own.OWN else where
    name = html.escape(experiment.name)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in _notes(comparison))
    pictures = "".join(
        f"<p>{html.escape(sentence)}</p>" + page.framed(page.inline(svg(figure), f"{key}-{number}", sentence), sentence)
        for number, (figure, sentence) in enumerate(_pictures(comparison, runs))
    )
    return f"""<section aria-labelledby="{key}">
<h2 id="{key}">{name}: {html.escape(experiment.title)}</h2>
<p>{html.escape(where)}</p>
{pictures}
<div class="wide" tabindex="0" role="region" aria-label="Table of {name}">{_tables(comparison)}</div>
<p>{html.escape(tables.closing(comparison))}</p>
{f"<details><summary>What is ambiguous or differs</summary><ul>{notes}</ul></details>" if notes else ""}
</section>"""


def _tables(comparison: Comparison) -> str:
    """The comparison, and further published numbers if there are any."""
    if comparison.scale == own.OWN:
        return own.as_html(comparison)
    return _table(*tables.main(comparison), best(comparison)) + _table(*tables.further(comparison))


def best(comparison: Comparison) -> set[int]:
    """The shown rows with the best of our means among those they are compared with; runs that failed do not count."""
    sign = 1 if comparison.made.metric.split("@")[0] in HIGHER else -1
    groups: dict[tuple[str, Any], list[tuple[float, int]]] = {}
    for place, line in enumerate(comparison.shown):
        if line.mean is not None and not line.failed:
            for column in line.row.columns or ("",):
                groups.setdefault((column, line.row.settings.get("task.chunk")), []).append((sign * line.mean, -place))
    return {-max(found)[1] for found in groups.values() if len(found) > 1}


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], bold: Collection[int] = ()) -> str:
    """A table as HTML; rows whose place is in `bold` have our number in bold."""
    if not rows:
        return ""
    head = "".join(f"<th scope='col'>{html.escape(name.replace(chr(92), ''))}</th>" for name in headings)
    body = ""
    for place, (first, *rest) in enumerate(rows):
        ours = headings.index("ours") - 1 if place in bold else None
        cells = "".join(
            f"<td><strong>{html.escape(cell)}</strong></td>" if column == ours else f"<td>{html.escape(cell)}</td>"
            for column, cell in enumerate(rest)
        )
        body += f"<tr><th scope='row'>{html.escape(first)}</th>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _notes(comparison: Comparison) -> Iterator[str]:
    if comparison.made.note:
        yield comparison.made.note
    seen: set[str] = set()
    for line in comparison.lines:
        if line.row.note and line.row.note not in seen:
            seen.add(line.row.note)
            yield f"{line.row.label}: {line.row.note}"


# ---------------------------------------------------------------- plots


def svg(figure: Any) -> str:
    """A figure as SVG."""
    with style():
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        return drawn.getvalue()


def _pictures(comparison: Comparison, runs: Path) -> Iterator[tuple[Any, str]]:
    """Figures, each with a sentence, learning curves first."""
    shown = [line for line in comparison.lines if any(run.get("curve") for run in line.runs)]
    if shown:
        metric = _curve_metric(comparison)
        sentence = f"Validation {metric} against updates, mean over seeds with a band of one standard error."
        yield curves(comparison, shown), sentence
    yield from objects.pictures(comparison, runs)
    for line in shown:
        folder = folder_of(line, runs)
        if folder is not None and line.row.settings["model"] in STRUCTURED:
            yield structure(folder), f"What {line.row.label} learned: Schur form, sub-diagonals and angles, first seed."


def _curve_metric(comparison: Comparison) -> str:
    """The metric of the table if validations have it, else the loss."""
    points = [run["curve"][0] for line in comparison.lines for run in line.runs if run.get("curve")]
    return comparison.made.metric if points and comparison.made.metric in points[0] else "loss"


def curves(comparison: Comparison, lines: Sequence[Line]) -> Any:
    """Learning curves with bands, and the baseline; in a panel for each column if the experiment says so."""
    metric = _curve_metric(comparison)
    columns = list(dict.fromkeys(line.row.columns for line in lines)) if comparison.made.panels else []
    groups = {column: [line for line in lines if line.row.columns == column] for column in columns} or {(): [*lines]}
    figure, axes = canvas(len(groups), size=(8.0, 4.2 if len(groups) == 1 else 3.0 * len(groups)), squeeze=False)
    with style():
        for panel, (column, some) in zip(axes[:, 0], groups.items(), strict=True):
            _panel(panel, some, metric, comparison)
            panel.set_title(own.title(comparison) if comparison.scale == own.OWN else ", ".join(column))
    return figure


def _panel(axes: Any, lines: Sequence[Line], metric: str, comparison: Comparison) -> None:
    for number, line in enumerate(lines):
        updates, means, errors = band(line.runs, metric)
        axes.plot(updates, means, label=line.row.label + _which(line), **look(number))
        low, high = ([m + s * e for m, e in zip(means, errors, strict=True)] for s in (-1, 1))
        axes.fill_between(updates, low, high, color=look(number)["color"], alpha=SHADE, linewidth=0)
    baselines = {line.baseline(metric) for line in lines} - {None}
    if len(baselines) == 1 and metric == comparison.made.metric:
        axes.axhline(baselines.pop(), color=GREY, linestyle="--", linewidth=1, label=naive(comparison))
    axes.set(xlabel="updates", ylabel=f"validation {metric}")
    if metric == "loss":
        axes.set_yscale("log")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _which(line: Line) -> str:
    """What distinguishes a row from others of the same network."""
    chunk = line.row.settings.get("task.chunk")
    column = line.row.columns[0] if len(line.row.columns) == 1 else ""
    return (f", {chunk}" if chunk else "") + (f" ({column})" if column and column not in line.row.label else "")


def band(runs: Sequence[Record], metric: str) -> tuple[list[int], list[float], list[float]]:
    """Updates, means and standard errors of a metric at the validations that all runs have.

    A run that was stopped because it was solved keeps its last value as long as the others go on.
    """
    drawn = [run for run in runs if run.get("curve")]
    curves = [{point["update"]: point[metric] for point in run["curve"]} for run in drawn]
    every = set.union(*map(set, curves))
    for run, curve in zip(drawn, curves, strict=True):
        last = max(curve)
        curve |= {update: curve[last] for update in every if update > last and "solved" in run}
    updates = sorted(set.intersection(*map(set, curves)))
    values = [[curve[update] for curve in curves] for update in updates]
    errors = [statistics.stdev(sample) / len(sample) ** 0.5 if len(sample) > 1 else 0.0 for sample in values]
    return updates, [statistics.fmean(sample) for sample in values], errors


def structure(folder: Path) -> Any:
    """The learned Schur form of a run: Θ, its sub-diagonals and its angles."""
    from kreiss.analysis.network.structure import learned_structure
    from kreiss.networks import load

    learned = next(iter(learned_structure(load(folder)).values()))
    figure, axes = mosaic("abc", size=(10.5, 3.4), polar="c")
    theta_map(learned.theta, axes["a"])
    subdiagonal_profile(learned, axes["b"])
    angle_rose(learned.angles, axes["c"])
    return figure
