"""`kreiss.fit`: a run from its settings to its test metrics, in a folder from which it can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from kreiss import own
from kreiss.contracts import Network
from kreiss.errors import InputError
from kreiss.networks.building import settings_of, with_readout
from kreiss.settings import Config
from kreiss.tasks import Problem, Task, World
from kreiss.training.checkpoint import own_generators
from kreiss.training.config import resolved
from kreiss.training.distributed import Processes
from kreiss.training.guard import Interruption
from kreiss.training.learner import Learner
from kreiss.training.loop import Supervised
from kreiss.training.planning import (
    check_room,
    device_named,
    make_network,
    make_task,
    planned,
    task_section,
)
from kreiss.training.provenance import check_same, check_there, same_but_for_paths
from kreiss.training.reinforcement import Reinforced
from kreiss.training.resuming import Resumption, check_changes, resumption
from kreiss.training.session import Run, Session
from kreiss.training.trackers import check_trackers


def fit(
    model: nn.Module | str,
    task: Problem | str,
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    repair: bool = False,
    show: str = "auto",
    **more: Any,
) -> Run:
    """Train a model on a task and test its best checkpoint once.

    Args:
        model: a name, or `package.module:Class`; a layer, which gets a readout; a `RecurrentNetwork`; or any module
            called as `model(inputs, state, lengths)` that returns outputs and state.
        task: a name, `package.module:Class`, or a task.
        settings: settings by dotted or short name, as on the command line: {"optimiser.clip_norm": 1, "steps": 500}.
        out: folder of the run; without one nothing is written.
        resume: resume the run in `out`, with this model and task.
        repair: when resuming, as in `kreiss resume --repair`.
        show: "auto", "verbose" (with every setting), "live", "plain", "json" or "quiet".
        more: settings with short names: lr=1e-3, steps=500.

    Example:
        >>> import kreiss
        >>> from kreiss.tasks import Copy
        >>> run = kreiss.fit(kreiss.NNRNN(10, 16), Copy(delay=5), steps=20, lr=1e-2, show="quiet")
        >>> run.state, sorted(run.metrics)
        ('finished', ['accuracy', 'loss'])
    """
    folder = None if out is None else Path(out)
    if resume and folder is None:
        raise InputError("`out` must be the folder of the run to resume; got out=None. Pass it.")
    known: dict[str, Any] = {}
    resumed = resumption(folder, repair=repair) if resume and folder else None
    sources: list[Mapping[str, Any]] = [resumed.settings] if resumed else []
    if isinstance(task, Problem):
        known["task"] = task_section(task)
    if isinstance(model, nn.Module):
        known["model"] = settings_of(model)
    names = {key: value for key, value in (("task", task), ("model", model)) if isinstance(value, str)}
    own.trust(*(value for value in names.values() if own.is_own(value)))  # the caller has named them
    defaults = task.settings if isinstance(task, Problem) else None
    config = resolved(*sources, names, settings or {}, more, given=known, defaults=defaults)
    built_task = task.for_run(config.seed) if isinstance(task, Problem) else make_task(config)
    network = (
        with_readout(model, built_task, config.seed)
        if isinstance(model, nn.Module)
        else make_network(config, built_task)
    )
    return _run(config, folder, network, built_task, show, resumed)


def resume(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    which: str = "last",
    repair: bool = False,
    show: str = "auto",
) -> Run:
    """Resume a run, bit for bit on a CPU as if it had never stopped; from update 0 if it has no checkpoint yet.

    Args:
        folder: of the run.
        settings: settings to change, such as more steps; task, model, seed, batch and the optimiser's name cannot be
            changed.
        which: the "last" checkpoint or the "previous" one.
        repair: drop damaged records and restore damaged settings from the checkpoint.
        show: as in `fit`.
    """
    resumed = resumption(folder, which, repair)
    before = resolved(resumed.settings)
    config = resolved(resumed.settings, settings or {})
    same = {"task": same_but_for_paths(config.task, before.task), "model": config.model == before.model}
    for section in (section for section in same if not same[section]):
        raise InputError(f"the {section} of a run must stay as it is; got other settings for it. Start a new run.")
    check_there(folder, config)
    task = make_task(config)
    return _run(config, folder, make_network(config, task), task, show, resumed)


def run(
    config: Config,
    out: Path | None,
    model: nn.Module,
    task: Problem,
    *,
    show: str = "auto",
    resume: bool = False,
    which: str = "last",
) -> Run:
    """Train `model` with these settings, in the folder `out`."""
    return _run(config, out, model, task, show, resumption(out, which) if resume and out is not None else None)


def _run(
    config: Config, out: Path | None, model: nn.Module, task: Problem, show: str, resumed: Resumption | None
) -> Run:
    config = planned(config, task)
    if resumed is not None:
        check_changes(resumed.settings, config)
    device = device_named(config.device)
    check_trackers(config)
    task.check_packages()
    if resumed is not None:
        check_same(resumed.folder, task, resumed.about)
    check_room(config, model, task)
    if isinstance(model, Network):
        model.preprocessing = task.preprocessing()  # its files then hold what `predict` needs
    processes = Processes(device)
    with own_generators(config.seed + processes.rank, device), Interruption() as interruption:
        try:
            learner = learner_for(model.to(device), task, config, processes)
            return Session(config, out, learner, processes, show, resumed).go(interruption)
        finally:
            processes.close()


def learner_for(model: nn.Module, task: Problem, config: Config, processes: Processes) -> Learner:
    """What trains a model on a task: on batches, or in a world."""
    if isinstance(task, World):
        return Reinforced(model, task, config, processes)
    assert isinstance(task, Task)
    return Supervised(model, task, config, processes)
