"""From settings to a run: the task and the network, and settings that follow from them and from the machine."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kreiss import own
from kreiss.contracts import Network
from kreiss.errors import InputError, check_memory
from kreiss.networks import building
from kreiss.networks.agent import Agent
from kreiss.networks.own import check_contract
from kreiss.options import options_of
from kreiss.recorded import NOT_PLAIN, Recorded, plain
from kreiss.settings import Config, PPOSection
from kreiss.tasks import TASKS, Problem, Task, World, task_named
from kreiss.training.config import own_options
from kreiss.training.provenance import with_absolute_paths


def make_task(config: Config) -> Problem:
    """The task of the settings."""
    return task_named(config.task.name)(**own_options(config.task)).for_run(config.seed)


def make_network(config: Config, task: Problem) -> nn.Module:
    """The network of the settings, for a task; its initial values follow from the seed."""
    if isinstance(task, World):
        return Agent.build(config.model, task, torch.Generator().manual_seed(config.seed))
    network = building.make_network(config.model, task, config.seed)
    if not own.is_ours(type(network)):
        assert isinstance(task, Task)
        batch = task.train(0, 2, config.seed)
        expected = (*batch.inputs.shape[0 if task.answers == "every" else 1 : 2], task.output_size)
        check_contract(config.model.name, network, batch.inputs, batch.lengths, expected)
    return network


def task_section(task: Problem) -> dict[str, Any]:
    """Settings of a task passed as an object: its options, if it stores them under their own names."""
    names = [*(name for name, cls in TASKS.items() if cls is type(task)), own.home_of(type(task))]
    recorded = task.config if isinstance(task, Recorded) else {}
    values = {name: recorded.get(name, plain(getattr(task, name, NOT_PLAIN))) for name in options_of(type(task))}
    return {
        "name": names[0],
        **{name: value for name, value in values.items() if value is not NOT_PLAIN},
    }


def planned(config: Config, task: Problem) -> Config:
    """The settings, with those filled in that follow from the task and the machine."""
    epoch = task.updates_per_epoch(config.batch)
    if config.epochs and epoch is None:
        raise InputError(
            f"`epochs` must be left out where data are generated without end; got epochs={config.epochs}. Give `steps`."
        )
    steps = config.steps or ((config.epochs or 10) * epoch if epoch else 1500)
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    every = config.eval_every or epoch or max(steps // 10, 1)
    config = with_absolute_paths(config, task)
    if isinstance(task, World):
        config = config.model_copy(update={"ppo": _planned_ppo(config.ppo, task)})
    return config.model_copy(update={"steps": steps, "epochs": None, "eval_every": every, "device": device})


def _planned_ppo(ppo: PPOSection, world: World) -> PPOSection:
    """Frames and recurrence: those of the thesis' code, or whole episodes where the world is about their beginning."""
    frames = ppo.frames or max(128, world.horizon or 0)
    recurrence = ppo.recurrence or (frames if world.horizon else min(16, frames))
    if recurrence > frames:
        raise InputError(
            f"`ppo.recurrence` must be at most the {frames} frames of an update; got {recurrence}. Lower it, or raise "
            "ppo.frames."
        )
    return ppo.model_copy(update={"frames": frames, "recurrence": recurrence})


def check_room(config: Config, model: nn.Module, task: Problem) -> None:
    """Raise, before anything is written, if batches with their states do not fit in memory."""
    update = task.entries("train", config.batch) // config.accumulate
    entries = max(update, *(task.entries(split, config.eval_batch) for split in ("valid", "test")))
    widest = model.width if isinstance(model, Network) else 2
    check_memory(f"a batch of task {config.task.name} with its states", 4 * entries * widest)


def device_named(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise InputError(f"`device` must be available; got device={name!r}. Use cpu.") from error
    if device.type == "meta":
        raise InputError("`device` must hold numbers; got device='meta', which holds shapes alone. Use cpu.")
    return device
