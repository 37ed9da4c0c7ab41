"""Pictures of experiments about objects: examples, accuracy against held-out glyphs, relations of a trained network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from kreiss.report.comparison import Comparison, Line, folder_of, naive
from kreiss.report.learning import look
from kreiss.report.plots.matrices import SHADE
from kreiss.report.plots.objects import sequences
from kreiss.report.style import GREY, canvas, style
from kreiss.tasks import TASKS, Task
from kreiss.tasks.relational.base import Relational
from kreiss.training.config import resolved
from kreiss.training.planning import make_task
from kreiss.training.record import read_config

EXAMPLES = 4
HELD_OUT = "task.held_out"


def pictures(comparison: Comparison, runs: Path) -> Iterator[tuple[Any, str]]:
    """Figures of an experiment about objects, each with a sentence; none for others."""
    task = _task(comparison)
    if task is None:
        return
    batch = task.train(0, EXAMPLES, 0)
    inputs: Any = batch.inputs
    images = inputs.expanded().transpose(0, 1).numpy()
    titles = [f"answer {answer}" for answer in batch.targets.tolist()]
    yield sequences(images, titles), "Examples of the task, as they are shown in training."
    if len(_amounts(comparison.lines)) > 1:
        yield (
            against_held_out(comparison),
            (
                "Accuracy on unseen glyphs against the number of glyphs held out of training, mean over seeds with a "
                "band of one standard error."
            ),
        )
    yield from _relations(comparison, runs)


def _task(comparison: Comparison) -> Relational | None:
    """The task of the rows, at their hardest."""
    rows = [line.row for line in comparison.lines if not line.row.quoted]
    if not rows:
        return None
    settings = comparison.made.settings(rows[-1], comparison.scale)
    if not issubclass(TASKS.get(settings["task"], Task), Relational):  # others may need data
        return None
    chosen = {name: value for name, value in settings.items() if name == "task" or name.startswith("task.")}
    return cast(Relational, make_task(resolved(chosen)))


def _amounts(lines: Sequence[Line]) -> list[int]:
    """Numbers of held-out glyphs of rows that were run."""
    return sorted({line.row.settings[HELD_OUT] for line in lines if line.values and HELD_OUT in line.row.settings})


def against_held_out(comparison: Comparison) -> Any:
    """The metric of each network against m."""
    groups: dict[str, list[Line]] = {}
    for line in comparison.lines:
        if line.values and HELD_OUT in line.row.settings:
            groups.setdefault(line.row.label, []).append(line)
    figure, axes = canvas(size=(8.0, 4.2))
    amounts = _amounts(comparison.lines)
    with style():
        for number, (label, lines) in enumerate(groups.items()):
            lines.sort(key=lambda line: int(line.row.settings[HELD_OUT]))
            places = [amounts.index(line.row.settings[HELD_OUT]) for line in lines]
            means = [line.mean or 0.0 for line in lines]
            errors = [line.error or 0.0 for line in lines]
            axes.plot(places, means, marker="o", markersize=4, label=label, **look(number))
            low, high = ([m + s * e for m, e in zip(means, errors, strict=True)] for s in (-1, 1))
            axes.fill_between(places, low, high, color=look(number)["color"], alpha=SHADE, linewidth=0)
        if comparison.baseline is not None:
            axes.axhline(comparison.baseline, color=GREY, linestyle="--", linewidth=1, label=naive(comparison))
        axes.set_xticks(range(len(amounts)), [str(amount) for amount in amounts])
        axes.set(xlabel="glyphs held out of training, m (of 100)", ylabel=comparison.made.metric.replace("@", ", "))
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _relations(comparison: Comparison, runs: Path) -> Iterator[tuple[Any, str]]:
    """Matrices of relations at the most held-out glyphs, of the first network that has them and is still there."""
    from kreiss.networks import load
    from kreiss.report.relational_findings import relational_findings

    for line in sorted(comparison.lines, key=lambda line: -int(line.row.settings.get(HELD_OUT, 0))):
        folder = folder_of(line, runs)
        network: Any = load(folder) if folder is not None else None
        if folder is not None and hasattr(network, "relations"):
            (finding,) = relational_findings(network, make_task(read_config(folder)), "relations")
            yield finding.draw(), f"{line.row.label}, {', '.join(line.row.columns)}. {finding.sentence}"
            return
