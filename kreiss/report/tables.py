"""Comparisons as Markdown tables, printed or put between the marks of a page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from kreiss.catalogue import short
from kreiss.errors import InputError
from kreiss.experiments import Experiment, Published
from kreiss.report.comparison import NOT_RUN, Comparison, Line, verdict

FINEST = 6  # decimals; smaller errors are written with a power of ten
SPECIAL = re.compile(r"[\\`*|<>\[\]#~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore inside a word marks nothing
MARK = re.compile(r"(<!-- kreiss report ([^>]*?) -->\n).*?(<!-- end of report -->)", re.DOTALL)


def number(value: float | None, error: float | None = None) -> str:
    """A number with four digits, or with its standard error and as many digits as that leaves."""
    if value is None:
        return "–"
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
        return "–"
    return f"{paper.value:g}" + (f" ± {paper.error:g}" if paper.error is not None else "")


def heading_row(*cells: str) -> list[str]:
    return [markdown_row(cells), "|" + "---|" * len(cells)]


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plain_row(cells: Sequence[str]) -> str:
    """A row whose cells are shown as they are, whatever a run is called."""
    return markdown_row([escaped(cell) for cell in cells])


def escaped(text: str) -> str:
    """Text in which nothing is markup, the end of a cell or the end of a line."""
    return SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def cells(line: Line, comparison: Comparison) -> list[str]:
    """The cells of a row: network, parameters, paper, ours, difference, eigenvalues, verdict."""
    made = number(line.mean, line.error)
    if comparison.made.metric == "loss" and line.ends("accuracy") is not None:
        made += f", accuracy {line.ends('accuracy'):.3f}"
    moduli = [line.ends(f"modulus_{end}") for end in ("min", "max")]
    return [
        label(line, comparison),
        ", ".join(line.row.columns) or "–",
        parameters(line),
        printed(line.published),
        made + failures(line) if line.runs else NOT_RUN,
        str(len(line.runs)) if line.runs else "–",
        "–" if line.difference is None else f"{line.difference:+.2g}",
        "–" if None in moduli else f"{moduli[0]:.3f} … {moduli[1]:.3f}",
        verdict(line, comparison),
    ]


def parameters(line: Line) -> str:
    """Trained parameters, where a run of the row says them."""
    return next((f"{run['parameters']:,}" for run in line.runs if "parameters" in run), "–")


def failures(line: Line) -> str:
    """How many runs failed, if any."""
    return f" ({line.failed} of {len(line.runs)} failed)" if line.failed else ""


def label(line: Line, comparison: Comparison) -> str:
    """The network, and its length where rows of several lengths stand in one table."""
    chunk = line.row.settings.get("task.chunk")
    several = len({row.settings.get("task.chunk") for row in comparison.made.rows}) > 1
    return line.row.label + (f", {chunk} steps" if several else "") + (" (ours)" if line.row.ours else "")


HEADINGS = ("network", "comparison", "parameters", "paper", "ours", "seeds", "difference", "\\|λ\\|", "verdict")


def table(comparison: Comparison) -> str:
    """An experiment as a Markdown table with what has to be known to read it."""
    made, scale = comparison.made, comparison.made.scales[comparison.scale]
    lines = [
        f"{made.title} ({source(made)}): {made.metric}, {made.split}. Scale {comparison.scale}: {scale.about}.",
        "",
        *heading_row(*HEADINGS),
        *(plain_row(cells(line, comparison)) for line in comparison.lines),
        "",
        *further_lines(comparison),
        closing(comparison),
    ]
    return "\n".join(lines).rstrip() + "\n"


def further_lines(comparison: Comparison) -> list[str]:
    """A second table in Markdown, where the paper prints more than one number for a network."""
    headings, rows = further(comparison)
    return [*heading_row(*headings), *map(plain_row, rows), ""] if rows else []


def further(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the numbers that the paper prints beside the one compared; each as paper / ours."""
    made = comparison.made
    numbers = [(one.metric, one.split) for row in made.rows for one in row.published]
    others = [one for one in dict.fromkeys(numbers) if one != (made.metric, made.split)]
    if not (others and comparison.run):
        return [], []
    headings = ["paper / ours", *(f"{metric}, {split}" for metric, split in others)]
    return headings, [
        [label(line, comparison), *(_both(line, *other) for other in others)] for line in comparison.lines
    ]


def _both(line: Line, metric: str, split: str) -> str:
    """The published number and ours."""
    paper = next((one for one in line.row.published if (one.metric, one.split) == (metric, split)), None)
    ours = line.of(metric, split)
    return f"{printed(paper)} / {number(ours.mean, ours.error) if line.runs else NOT_RUN}"


def source(made: Experiment) -> str:
    """Paper and place."""
    return f"{short(made.paper)}, {made.place}" if made.paper else made.place


def closing(comparison: Comparison) -> str:
    """Baseline, order and claim in sentences."""
    said = []
    if comparison.baseline is not None:
        said.append(f"Without memory: {number(comparison.baseline)}.")
    right, total = comparison.order
    if total:
        said.append(f"{right} of {total} pairs of rows stand in the order of the paper.")
    if comparison.made.claim:
        said.append(f"The paper: {comparison.made.claim}")
    return " ".join(said)


def filled(text: str, made: Callable[[Sequence[str]], str]) -> str:
    """`text` with what `made` gives for the words of each mark between it and its end.

    A mark is a line `<!-- kreiss report 001/table1 laptop -->`, its end `<!-- end of report -->`.
    """
    return MARK.sub(lambda found: f"{found[1]}\n{made(found[2].split())}\n{found[3]}", text)


def fill(path: Path, made: Callable[[Sequence[str]], str]) -> None:
    """Rewrite what stands between the marks of a page."""
    text = path.read_text(encoding="utf-8")
    if not MARK.search(text):
        raise InputError(
            f"`{path}` must have a place for a report; got a page without marks. Write `<!-- kreiss report 001/table1 "
            "laptop -->` and `<!-- end of report -->` on lines of their own."
        )
    path.write_text(filled(text, made), encoding="utf-8")
