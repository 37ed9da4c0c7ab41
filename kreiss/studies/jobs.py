"""The runs of an experiment, each with the key of its settings."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreiss.errors import InputError, check_name
from kreiss.experiments import Experiment, Row
from kreiss.settings import Config
from kreiss.training.config import as_first_named, dotted, resolved
from kreiss.training.presets import without_other_length

# settings that do not change the result of a run
UNSAID = ("checkpoint_every", "device", "eval_batch", "log_every", "track")
DIGITS = 16  # of a key


@dataclass(frozen=True)
class Job:
    """One run: a row of an experiment with a seed.

    Args:
        row: its full name.
        config: all settings.
        key: of the settings; equal settings have equal keys, whatever the row is called.
    """

    row: str
    config: Config
    key: str

    @property
    def seed(self) -> int:
        return self.config.seed


def key_of(config: Config) -> str:
    """The key of the settings: equal for equal settings, different for others."""
    settings = as_first_named(config.model_dump(mode="json", exclude=set(UNSAID)))
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:DIGITS]


def job_of(made: Experiment, row: Row, scale: str, seed: int, changes: Mapping[str, Any] | None = None) -> Job:
    """The run of a row at a scale with a seed, with settings changed."""
    settings = without_other_length(made.settings(row, scale), changes or {})
    config = resolved(settings, changes or {}, {"seed": seed})
    return Job(f"{made.name}/{row.name}", config, key_of(config))


def jobs_of(
    made: Experiment, scale: str, seeds: int, only: tuple[str, ...] = (), changes: Mapping[str, Any] | None = None
) -> list[Job]:
    """All runs of an experiment, seed by seed, so that every row has results early.

    Args:
        made: the experiment.
        scale: one of its scales.
        seeds: how many of them, from 0.
        only: names or patterns of rows ("nnrnn*"); all by default.
        changes: settings that differ from those of the scale.
    """
    check_name("scale", scale, made.scales)
    rows = chosen(made, only)
    return [job_of(made, row, scale, seed, changes) for seed in range(seeds) for row in rows]


def keys_of(made: Experiment, row: Row, scale: str, seeds: int) -> list[str]:
    """The keys of the runs of a row with seeds from 0; none for one that is only quoted."""
    if row.quoted:
        return []
    config = job_of(made, row, scale, 0).config
    return [key_of(config.model_copy(update={"seed": seed})) for seed in range(seeds)]


def chosen(made: Experiment, only: tuple[str, ...]) -> list[Row]:
    """The rows that can be run and match one of the patterns."""
    able = [row for row in made.rows if not row.quoted]
    rows = [row for row in able if not only or any(fnmatch.fnmatch(row.name, pattern) for pattern in only)]
    if not rows:
        raise InputError(
            f"`only` must match rows of {made.name}; got {', '.join(only)}. "
            f"Its rows are: {', '.join(row.name for row in able)}."
        )
    return rows


def differences(made: Experiment, row: Row, scale: str) -> dict[str, tuple[Any, Any]]:
    """Settings that differ at a scale: name → (published, here); None where one of them is not set."""
    check_name("scale", scale, made.scales)
    if row.quoted:
        return {}
    paper, here = dotted(made.settings(row, "paper")), dotted(made.settings(row, scale))
    names = [*paper, *(name for name in here if name not in paper)]
    return {name: (paper.get(name), here.get(name)) for name in names if paper.get(name) != here.get(name)}
