"""The parts of an experiment: rows with settings and published values, and scales at which they can be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kreiss.errors import InputError

Settings = Mapping[str, Any]

UNITS, PARAMETERS = "equal units", "equal parameters"


@dataclass(frozen=True)
class Published:
    """A published number.

    Args:
        metric: as the task names it.
        value: the number.
        error: standard error of the mean, where one is printed.
        split: "test" or "valid".
        failed: runs that did not converge, where the paper counts them.
    """

    metric: str
    value: float
    error: float | None = None
    split: str = "test"
    failed: int | None = None


@dataclass(frozen=True)
class Row:
    """One row of a table or one curve of a figure.

    Args:
        name: within its experiment.
        label: as the paper calls the model.
        settings: of the published set-up, as `kreiss train` takes them; empty for a network that is not here or could
            not be run, whose numbers are quoted.
        columns: the comparisons it belongs to, such as "equal units".
        published: its numbers; none for a curve.
        parameters: trained parameters as published, with the paper's rounding.
        counted: our exact count, if the published one does not follow from the published sizes.
        ours: whether it is not in the paper, but added for comparison.
        note: what is ambiguous in the paper or differs from it.
        scaled: scale → settings that change for this row alone.
    """

    name: str
    label: str
    settings: Settings
    columns: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    parameters: float | None = None
    counted: int | None = None
    ours: bool = False
    note: str = ""
    scaled: Mapping[str, Settings] = field(default_factory=dict)

    @property
    def quoted(self) -> bool:
        """Whether it only quotes the paper and cannot be run."""
        return not self.settings


@dataclass(frozen=True)
class Scale:
    """A named difference from the published set-up, the same for all rows of an experiment.

    Args:
        about: the difference in a sentence.
        changes: settings that differ.
        sizes: published hidden size → hidden size at this scale; equal sizes stay equal, matched ones matched.
        drops: settings of the rows that do not apply at this scale.
    """

    about: str
    changes: Settings = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    drops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        name: paper/place, such as "001/table1".
        paper: key of the reference in `kreiss.catalogue`.
        place: where it is in the paper.
        title: what it shows, in a sentence.
        metric: what is compared.
        rows: in the order of the paper.
        scales: by name; "paper" is the published set-up itself.
        seeds: runs of every row in the paper, or our number where it does not say.
        split: on which the metric is taken.
        claim: what the paper concludes from it.
        note: what is ambiguous for all rows.
        panels: whether the curves of each column have a panel of their own.
    """

    name: str
    paper: str
    place: str
    title: str
    metric: str
    rows: tuple[Row, ...]
    scales: Mapping[str, Scale]
    seeds: int = 5
    split: str = "test"
    claim: str = ""
    note: str = ""
    panels: bool = False

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def settings(self, row: Row, scale: str) -> dict[str, Any]:
        """The settings of a row at a scale."""
        if row.quoted:
            raise InputError(
                f"a row must have settings to be run; got {self.name}/{row.name}, which is quoted from the paper. "
                "Choose another row."
            )
        chosen = self.scales[scale]
        settings = {name: value for name, value in row.settings.items() if name not in chosen.drops}
        if "hidden" in settings:
            settings["hidden"] = chosen.sizes.get(settings["hidden"], settings["hidden"])
        return {**settings, **chosen.changes, **row.scaled.get(scale, {})}


PAPER = Scale("the published set-up")
