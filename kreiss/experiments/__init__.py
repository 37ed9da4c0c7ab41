"""Every table and figure of the papers, as data: rows with settings and published values, and scales to run them at."""

from __future__ import annotations

from kreiss.errors import check_name
from kreiss.experiments import agents, enrnn, memory_figures, nnrnn, relational, selection, thesis, thesis_dense
from kreiss.experiments.parts import Experiment, Published, Row, Scale

PAPERS = (nnrnn, enrnn, thesis, thesis_dense, relational, selection, agents)
EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for paper in PAPERS for entry in paper.EXPERIMENTS}
COMPUTED = {**nnrnn.COMPUTED, **enrnn.COMPUTED, **memory_figures.COMPUTED}
"""What is computed and not trained: name → place in the paper, title, command."""

SCALES = ("paper", "laptop", "smoke")
"""Scales that every experiment has."""


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Example:
        >>> from kreiss.experiments import experiment
        >>> experiment("001/table1").place
        'Table 1'
    """
    check_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def row(name: str) -> tuple[Experiment, Row]:
    """A row by its full name, experiment/row.

    Example:
        >>> from kreiss.experiments import row
        >>> row("001/table1/nnrnn-150")[1].published[0].value
        1.47
    """
    check_name("preset", name, names())
    experiment = EXPERIMENTS[name.rpartition("/")[0]]
    return experiment, experiment.row(name.rpartition("/")[2])


def names() -> list[str]:
    """Full names of all rows."""
    return [f"{experiment.name}/{row.name}" for experiment in EXPERIMENTS.values() for row in experiment.rows]


__all__ = ["COMPUTED", "EXPERIMENTS", "SCALES", "Experiment", "Published", "Row", "Scale", "experiment", "names", "row"]
