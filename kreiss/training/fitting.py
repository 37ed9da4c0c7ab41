"""`kreiss.fit`: a run from its settings to its tested result, with a folder that survives anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from kreiss.errors import InputError
from kreiss.tasks import Task
from kreiss.training.building import (
    device_named,
    make_network,
    make_task,
    model_section,
    networked,
    planned,
    task_section,
)
from kreiss.training.checkpoint import own_generators
from kreiss.training.config import Config, read_settings, resolved
from kreiss.training.distributed import Processes
from kreiss.training.guard import Interruption
from kreiss.training.provenance import check_same, check_there, same_but_for_paths
from kreiss.training.record import read_config
from kreiss.training.session import Run, Session
from kreiss.training.trackers import check_trackers


def fit(
    model: nn.Module | str,
    task: Task | str,
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    show: str = "auto",
    **more: Any,
) -> Run:
    """Train a model on a task and test it once, at its best validation.

    Args:
        model: a name of the registry; a layer, which gets a readout; a `Network`; or any module called as
            `model(inputs, state, lengths)` that returns outputs and state.
        task: a name, or a task.
        settings: settings by dotted or short name, as on the command line: {"optimiser.clip_norm": 1, "steps": 500}.
        out: folder of the run; without one nothing is written.
        resume: go on with the run that `out` holds, with this model and task.
        show: "auto", "live", "plain", "json" or "quiet".
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
        raise InputError("`out` must be the folder of the run to go on with; got out=None. Pass it.")
    given: dict[str, Any] = {}
    sources: list[Mapping[str, Any]] = [read_settings(_config_of(folder))] if resume and folder else []
    if isinstance(task, Task):
        given["task"] = task_section(task)
    if isinstance(model, nn.Module):
        given["model"] = model_section(model)
    names = {key: value for key, value in (("task", task), ("model", model)) if isinstance(value, str)}
    config = resolved(*sources, names, settings or {}, more, given=given)
    made = task if isinstance(task, Task) else make_task(config)
    network = networked(model, made, config.seed) if isinstance(model, nn.Module) else make_network(config, made)
    return run(config, folder, network, made, show=show, resume=resume)


def resume(folder: Path, settings: Mapping[str, Any] | None = None, *, which: str = "last", show: str = "auto") -> Run:
    """Go on with a run, bit for bit on a CPU as if it had never stopped.

    Args:
        folder: of the run.
        settings: what is to be different from now on, such as more steps.
        which: the "last" checkpoint or the "previous" one.
        show: as in `fit`.
    """
    before = read_config(folder)
    config = resolved(read_settings(folder / "config.yaml"), settings or {})
    same = {"task": same_but_for_paths(config.task, before.task), "model": config.model == before.model}
    for section in (section for section in same if not same[section]):
        raise InputError(f"the {section} of a run must stay as it is; got other settings for it. Start a new run.")
    check_there(folder, config)
    task = make_task(config)
    return run(config, folder, make_network(config, task), task, show=show, resume=True, which=which)


def _config_of(folder: Path) -> Path:
    read = folder / "config.yaml"
    if not read.exists():
        raise InputError(f"`{folder}` must be the folder of a run; got one without config.yaml. Leave out resume.")
    return read


def run(
    config: Config,
    out: Path | None,
    model: nn.Module,
    task: Task,
    *,
    show: str = "auto",
    resume: bool = False,
    which: str = "last",
) -> Run:
    """Train `model` by the settings, in the folder `out`."""
    config = planned(config, task)
    device = device_named(config.device)
    check_trackers(config)
    task.check_packages()
    if resume and out is not None:
        check_same(out, task)
    processes = Processes(device)
    with own_generators(config.seed + processes.rank, device), Interruption() as interruption:
        try:
            session = Session(config, out, model.to(device), task, processes, show, which if resume else None)
            return session.go(interruption)
        finally:
            processes.close()
