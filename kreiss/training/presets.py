"""Published settings of a task and a network, by the name of their row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreiss import experiments


def preset_named(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a row of a table or figure, as published.

    Args:
        name: its full name, such as "001/table1/nnrnn-150".
        given: overriding settings; steps replace published epochs, and epochs replace steps.
    """
    experiment, row = experiments.row(name)
    return without_other_length(experiment.settings(row, "paper"), given or {})


def without_other_length(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` without steps where epochs are given, and without epochs where steps are."""
    other = {"steps": "epochs", "epochs": "steps"}
    left_out = {other[name] for name in given if name in other}
    return {name: value for name, value in settings.items() if name not in left_out}
