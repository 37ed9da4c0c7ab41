"""`kreiss resume` and `kreiss eval`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from kreiss.commands.words import Changes, Flag, Positive, Trust, Words, display, exit_code, may_import, only_task
from kreiss.errors import InputError


def resume(
    run: Path,
    *words: Changes,
    checkpoint: Literal["last", "previous"] = "last",
    repair: Flag = False,
    trust: Trust = None,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Resume a run that was interrupted or killed, as if it had never stopped.

    A run that was killed before its first checkpoint starts again. Task, model, seed, batch and the optimiser's name
    cannot be changed.

    Parameters
    ----------
    run
        Folder of the run.
    words
        Settings to change from here on, such as --steps 3000 or --lr 1e-4.
    checkpoint
        Checkpoint to resume from.
    repair
        Drop damaged records and restore damaged settings from the checkpoint.
    trust
        Module of your own that the model or task of the run is from.
    quiet
        Print nothing.
    json
        Print JSON lines.
    """
    from kreiss.training import config as settings_of
    from kreiss.training import fitting

    named, changes = settings_of.words(words)
    if named:
        raise InputError(f"`kreiss resume` takes one run; got {named[0]!r} too. Write settings as --name value.")
    may_import(trust, changes)
    return exit_code(fitting.resume(run, changes, which=checkpoint, repair=repair, show=display(quiet, json)))


def evaluate(
    model: Path,
    *words: Words,
    split: Literal["valid", "test"] = "test",
    batch: Positive = 100,
    trust: Trust = None,
    json: Flag = False,
) -> int:
    """Evaluate a trained network on held-out data.

    kreiss eval RUN

    kreiss eval RUN --task.delay 400

    kreiss eval model.safetensors copy --task.delay 200

    Parameters
    ----------
    model
        Folder of a run, whose best checkpoint is used, or a file of `kreiss.save`.
    words
        Task and its options; by default those of the run.
    split
        Held-out set.
    batch
        Batch size; the result does not depend on it.
    trust
        Module of your own that the model or task is from.
    json
        Print JSON.
    """
    from json import dumps

    from kreiss.networks.saving import load
    from kreiss.training import config as settings_of
    from kreiss.training import evaluate as measured
    from kreiss.training import provenance
    from kreiss.training.planning import make_task
    from kreiss.training.record import is_run
    from kreiss.training.record import settings_of as settings_of_run

    named, options = settings_of.words(words)
    may_import(trust, only_task(named), options)
    network = load(model)
    sources = [settings_of_run(model)] if is_run(model) else []
    config = settings_of.resolved(*sources, only_task(named), options)
    if is_run(model):
        provenance.check_there(model, config)
    task = make_task(config)
    if is_run(model):
        _check_data(model, task, chosen={"task.name": named, **settings_of.dotted(options)})
    metrics, without = measured(network, task, split, batch=batch), task.baseline()
    if json:
        print(dumps({"split": split, **metrics}))
        return 0
    for name, value in metrics.items():
        print(f"{split} {name} {value:.6g}" + (f"  ({task.naive} {without[name]:.6g})" if name in without else ""))
    return 0


# ---------------------------------------------------------------- parts


def _check_data(run: Path, task: Any, chosen: dict[str, Any]) -> None:
    """Raise if the data are not those of the run; if others were named, only print that they differ."""
    from kreiss.storage.identity import ABOUT, read_document
    from kreiss.training import provenance

    about = read_document(run / ABOUT)
    if any(chosen.get(f"task.{name}") for name in ("name", *task.paths)):
        if differs := provenance.has_other_data(about, task):
            print(f"these are not the data that {run} was trained on: {differs}", file=sys.stderr)
    else:
        provenance.check_same(run, task, about)
