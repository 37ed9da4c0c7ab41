"""Tasks and networks from their settings, and settings from tasks and networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kreiss.errors import InputError, check_memory
from kreiss.layers import REGISTRY, RecurrentLayer
from kreiss.recorded import NOT_PLAIN, plain
from kreiss.tasks import TASKS, Task
from kreiss.training.config import LAYER_OWN, Config, own_options
from kreiss.training.model import Network
from kreiss.training.options import options_of
from kreiss.training.provenance import with_absolute_paths


def make_task(config: Config) -> Task:
    """The task of the settings."""
    return TASKS[config.task.name](**own_options(config.task))


def make_network(config: Config, task: Task) -> Network:
    """The network of the settings, for a task; its initial values follow from the seed."""
    chosen = config.model
    symbols = task.input_size if task.symbols else 0
    if chosen.embedding and not symbols:
        raise InputError(
            f"an embedding needs symbols; got embedding={chosen.embedding} for task {config.task.name}, whose inputs "
            "are vectors. Leave it out."
        )
    generator = torch.Generator().manual_seed(config.seed)
    options: dict[str, Any] = {"bidirectional": chosen.bidirectional, "dtype": getattr(torch, chosen.dtype)}
    if chosen.layers > 1:
        options["dropout"] = chosen.dropout
    layer = REGISTRY[chosen.name](
        chosen.embedding or task.input_size, chosen.hidden, chosen.layers,
        generator=generator, **options, **own_options(chosen),
    )  # fmt: skip
    return Network(
        layer, task.output_size, answers=task.answers, symbols=symbols, embedding=chosen.embedding,
        dropout=chosen.dropout, start=chosen.start, generator=generator,
    )  # fmt: skip


def networked(model: nn.Module, task: Task, seed: int) -> nn.Module:
    """A bare layer with a readout; any other module as it is."""
    if not isinstance(model, (RecurrentLayer, *REGISTRY.values())):  # a layer of the user's own has its readout too
        return model
    symbols, generator = task.input_size if task.symbols else 0, torch.Generator().manual_seed(seed)
    return Network(model, task.output_size, answers=task.answers, symbols=symbols, generator=generator)


def model_section(model: nn.Module) -> dict[str, Any]:
    """What is known of a given model, for the record: all of a layer of ours, of other modules the name alone."""
    layer: Any = model.layer if isinstance(model, Network) else model
    names = [name for name, made in REGISTRY.items() if made is type(layer)]
    if not names and not isinstance(layer, RecurrentLayer):
        return {"name": type(layer).__name__}
    return {
        "name": names[0] if names else type(layer).__name__,
        "hidden": layer.hidden_size, "layers": layer.num_layers, "bidirectional": layer.bidirectional,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."), **_around(model, layer),
        **{key: value for key, value in layer.config.items() if key not in LAYER_OWN},
    }  # fmt: skip


def _around(model: nn.Module, layer: Any) -> dict[str, Any]:
    """Embedding, start and dropout, for a bare layer the defaults; dropout only where it is the same throughout."""
    config: dict[str, Any] = model.config if isinstance(model, Network) else {}
    before_readout = config.get("dropout", 0.0)
    between = layer.config.get("dropout", 0.0) if layer.num_layers > 1 else before_readout
    known = {"embedding": config.get("embedding", 0), "start": config.get("start", "glorot")}
    return {**known, "dropout": before_readout} if between == before_readout else known


def task_section(task: Task) -> dict[str, Any]:
    """Settings that tell a given task: its options, where it keeps them under their own names."""
    names = [name for name, made in TASKS.items() if made is type(task)]
    values = {name: plain(getattr(task, name, NOT_PLAIN)) for name in options_of(type(task))}
    return {
        "name": names[0] if names else type(task).__name__,
        **{name: value for name, value in values.items() if value is not NOT_PLAIN},
    }


def planned(config: Config, task: Task) -> Config:
    """The settings with everything filled in that follows from the task and the machine."""
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
    return config.model_copy(update={"steps": steps, "epochs": None, "eval_every": every, "device": device})


def check_room(config: Config, model: nn.Module, task: Task) -> None:
    """Raise before anything is written for a run whose batches, with the states they lead to, no memory holds."""
    update = task.entries("train", config.batch) // config.accumulate
    entries = max(update, *(task.entries(split, config.eval_batch) for split in ("valid", "test")))
    widest = max(model.layer.input_size, model.layer.hidden_size) if isinstance(model, Network) else 2
    check_memory(f"a batch of task {config.task.name} with its states", 4 * entries * widest)


def device_named(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise InputError(f"`device` must be there; got device={name!r}. Use cpu.") from error
    if device.type == "meta":
        raise InputError("`device` must hold numbers; got device='meta', which holds shapes alone. Use cpu.")
    return device
