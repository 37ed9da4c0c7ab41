"""Comparisons as Markdown tables, printed or inserted between the markers of a page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kreiss.catalogue import short
from kreiss.errors import InputError
from kreiss.experiments import Experiment, Published
from kreiss.report.comparison import NOT_RUN, Comparison, Line, naive, verdict

T = TypeVar("T")
EMPTY = "–"  # a cell that holds nothing
FINEST = 6  # decimals; smaller errors are written with a power of ten
SPECIAL = re.compile(r"[\\`*|<>\[\]#~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore inside a word is no markup
MARK = re.compile(r"(<!-- kreiss report ([^>]*?) -->\n).*?(<!-- end of report -->)", re.DOTALL)


def number(value: float | None, error: float | None = None) -> str:
    """A number with four digits, or with its standard error and the digits that this warrants."""
    if value is None:
        return EMPTY
    if not error:
        text = f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        return text if error is None else f"{text} ± 0"
    place = math.floor(math.log10(float(f"{error:.0e}")))  # of the first digit of the error
    if place < -FINEST:
        return f"{value:.1e} ± {error:.0e}"
    digits = max(0, -place)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def printed(paper: Published | None) -> str:
    """A published number as it is printed."""
    if paper is None:
        return EMPTY
    return f"{paper.value:g}" + (f" ± {paper.error:g}" if paper.error is not None else "")


def without_empty(
    headings: Sequence[str], rows: Sequence[Sequence[T]], text: Callable[[T], str] = str
) -> tuple[list[str], list[list[T]]]:
    """Headings and rows without columns that hold nothing in any row."""
    kept = [place for place in range(len(headings)) if not rows or any(text(row[place]) != EMPTY for row in rows)]
    return [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]


def heading_row(*cells: str) -> list[str]:
    return [markdown_row(cells), "|" + "---|" * len(cells)]


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plain_row(cells: Sequence[str]) -> str:
    """A row whose cells are escaped, so that names of runs are shown literally."""
    return markdown_row([escaped(cell) for cell in cells])


def escaped(text: str) -> str:
    """`text` with Markdown escaped and on one line."""
    return SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def cells(line: Line, comparison: Comparison) -> list[str]:
    """The cells of a row: network, parameters, paper, ours, difference, eigenvalues, verdict."""
    result = number(line.mean, line.error)
    if comparison.made.metric == "loss" and line.ends("accuracy") is not None:
        result += f", accuracy {line.ends('accuracy'):.3f}"
    if line.solved is not None:
        result += f", solved after {line.solved:,.0f} updates"
    moduli = [line.ends(f"modulus_{end}") for end in ("min", "max")]
    return [
        label(line, comparison),
        ", ".join(line.row.columns) or EMPTY,
        parameters(line),
        printed(line.published),
        result + failures(line) if line.runs else EMPTY if line.row.quoted else NOT_RUN,
        str(len(line.runs)) if line.runs else EMPTY,
        EMPTY if line.difference is None else f"{line.difference:+.2g}",
        EMPTY if None in moduli else f"{moduli[0]:.3f} … {moduli[1]:.3f}",
        verdict(line, comparison),
    ]


def parameters(line: Line) -> str:
    """The number of trained parameters, if a run of the row records it."""
    return next((f"{run['parameters']:,}" for run in line.runs if "parameters" in run), EMPTY)


def failures(line: Line) -> str:
    """The number of failed runs, if any."""
    return f" ({line.failed} of {len(line.runs)} failed)" if line.failed else ""


def label(line: Line, comparison: Comparison) -> str:
    """The network, with its sequence length if the rows of the table have several."""
    chunk = line.row.settings.get("task.chunk")
    several = len({row.settings.get("task.chunk") for row in comparison.made.rows}) > 1
    return line.row.label + (f", {chunk} steps" if several else "") + (" (ours)" if line.row.ours else "")


HEADINGS = ("network", "comparison", "parameters", "paper", "ours", "seeds", "difference", "\\|λ\\|", "verdict")


def table(comparison: Comparison) -> str:
    """An experiment as a Markdown table with its context."""
    experiment, scale = comparison.made, comparison.made.scales[comparison.scale]
    headings, rows = main(comparison)
    lines = [
        f"{experiment.title} ({source(experiment)}): {experiment.metric}, {experiment.split}. "
        f"Scale {comparison.scale}: {scale.about}.",
        "",
        *heading_row(*headings),
        *map(plain_row, rows),
        "",
        *further_lines(comparison),
        closing(comparison),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table, without empty columns."""
    return without_empty(HEADINGS, [cells(line, comparison) for line in comparison.shown])


def further_lines(comparison: Comparison) -> list[str]:
    """A second Markdown table, if the paper prints more than one number per network."""
    headings, rows = further(comparison)
    return [*heading_row(*headings), *map(plain_row, rows), ""] if rows else []


def further(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of further published numbers.

    A row for each network; where most of their cells would be empty, a row for each number.
    """
    experiment = comparison.made
    numbers = [(entry.metric, entry.split) for row in experiment.rows for entry in row.published]
    others = [key for key in dict.fromkeys(numbers) if key != (experiment.metric, experiment.split)]
    if not (others and comparison.run):
        return [], []
    names = [f"{metric}, {split}" for metric, split in others]
    rows = [(label(line, comparison), [_both(line, *other) for other in others]) for line in comparison.shown]
    found = [[who, at, *both] for who, pairs in rows for at, both in zip(names, pairs, strict=True) if _holds(*both)]
    if 2 * len(found) < len(rows) * len(names):
        return ["network", "metric", "paper", "ours"], found
    return ["paper / ours", *names], [[who, *(" / ".join(both) for both in pairs)] for who, pairs in rows]


def _both(line: Line, metric: str, split: str) -> tuple[str, str]:
    """The published number and ours."""
    paper = next((entry for entry in line.row.published if (entry.metric, entry.split) == (metric, split)), None)
    ours = line.of(metric, split)
    return printed(paper), number(ours.mean, ours.error) if line.runs else NOT_RUN


def _holds(paper: str, ours: str) -> bool:
    """Whether there is a number."""
    return paper != EMPTY or ours not in (EMPTY, NOT_RUN)


def source(made: Experiment) -> str:
    """The paper and the place in it."""
    return f"{short(made.paper)}, {made.place}" if made.paper else made.place


def closing(comparison: Comparison) -> str:
    """Baseline, order and claim in sentences."""
    sentences = []
    left_out = [line for line in comparison.lines if line not in comparison.shown]
    if missing := sum(not line.elsewhere for line in left_out):
        sentences.append(f"{missing} of {len(comparison.lines)} rows were not run.")
    if elsewhere := [line.elsewhere for line in left_out if line.elsewhere]:
        scales = ", ".join(sorted({scale for scales in elsewhere for scale in scales}))
        sentences.append(f"Run at other scales ({scales}): {len(elsewhere)} of {len(comparison.lines)} rows.")
    if comparison.baseline is not None and comparison.made.paper:  # in a table of one's own runs it is a row
        sentences.append(f"{naive(comparison).capitalize()}: {number(comparison.baseline)}.")
    right, total = comparison.order
    if total:
        sentences.append(f"{right} of {total} pairs of rows stand in the order of the paper.")
    if comparison.made.claim:
        sentences.append(f"The paper: {comparison.made.claim}")
    return " ".join(sentences)


def filled(text: str, made: Callable[[Sequence[str]], str]) -> str:
    """`text` with `made(words of the marker)` inserted between each marker and its end.

    A marker is a line `<!-- kreiss report 001/table1 laptop -->`, its end `<!-- end of report -->`.
    """
    return MARK.sub(lambda match: f"{match[1]}\n{made(match[2].split())}\n{match[3]}", text)


def fill(path: Path, made: Callable[[Sequence[str]], str]) -> None:
    """Rewrite the text between the markers of a page."""
    text = path.read_text(encoding="utf-8")
    if not MARK.search(text):
        raise InputError(
            f"`{path}` must have a place for a report; got a page without marks. Write `<!-- kreiss report 001/table1 "
            "laptop -->` and `<!-- end of report -->` on lines of their own."
        )
    path.write_text(filled(text, made), encoding="utf-8")
