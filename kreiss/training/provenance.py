"""A run's own data: where its files are, and whether they are still those that it was trained on.

Settings name files by absolute paths, and `run.json` holds the checksum of all of them together. Data that are
generated or known by name need neither.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from kreiss.errors import InputError
from kreiss.settings import Config, TaskSection
from kreiss.tasks import Problem, task_named
from kreiss.tasks.sources.data import is_there
from kreiss.training.config import own_options

ANYWHERE = "a file or folder"  # instead of a path, where settings are compared

# ---------------------------------------------------------------- where


def paths_of(section: TaskSection, task: type[Problem] | None = None) -> dict[str, Path]:
    """Option → the user's file or folder that it names; an unregistered task must be passed as a class."""
    kind, options = task or task_named(section.name), own_options(section)
    values = {name: options.get(name) for name in kind.paths}
    return {name: Path(str(value)) for name, value in values.items() if value and kind.is_path(name, value)}


def with_absolute_paths(config: Config, task: Problem) -> Config:
    """The settings with absolute paths."""
    absolute = {name: os.path.abspath(path) for name, path in paths_of(config.task, type(task)).items()}
    return config.model_copy(update={"task": config.task.model_copy(update=absolute)}) if absolute else config


def same_but_for_paths(one: TaskSection, two: TaskSection) -> bool:
    """Whether two sections are the same task, wherever its files are."""
    return _without_paths(one) == _without_paths(two)


def _without_paths(section: TaskSection) -> dict[str, Any]:
    return {**section.model_dump(), **dict.fromkeys(paths_of(section), ANYWHERE)}


def check_there(folder: Path, config: Config) -> None:
    """Raise if the data of a run are not where its settings say."""
    for name, path in paths_of(config.task).items():
        if not is_there(path):
            raise InputError(
                f"the data of {folder} must be where they were; got nothing at {path}. "
                f"Restore them, or pass their path to `kreiss eval` or `kreiss resume` as --task.{name}."
            )


# ---------------------------------------------------------------- what


def checksum(task: Problem) -> str | None:
    """SHA-256 of the user's files of a task, its own for a single one; None if there are none."""
    sums = []
    for path in task.data_files():
        with open(path, "rb") as file:
            sums.append(hashlib.file_digest(file, "sha256").hexdigest())
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest() if sums else None


def has_other_data(about: dict[str, Any], task: Problem) -> str:
    """How the data of a task differ from those of a run, in words; empty if they do not, or if nothing is known."""
    then, now = about.get("data"), checksum(task)
    if "data" not in about or then == now:
        return ""
    return f"SHA-256 {str(now)[:12]}… where {str(then)[:12]}… was recorded"


def check_same(folder: Path, task: Problem, about: dict[str, Any]) -> None:
    """Raise if the data of a task are not those that the run was trained on, according to `run.json`."""
    if differs := has_other_data(about, task):
        files = task.data_files()
        raise InputError(
            f"the data must be those that {folder} was trained on; got {differs} for "
            f"{files[0] if len(files) == 1 else f'{len(files)} files'}. Restore them; `kreiss eval` measures on other "
            "data that are named on the command line."
        )
