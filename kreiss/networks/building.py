"""Networks from their settings, and settings from networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kreiss.contracts import Network, Sizes
from kreiss.layers import RecurrentLayer
from kreiss.networks.agent import Agent
from kreiss.networks.recurrent import SET_BY_NETWORK, RecurrentNetwork
from kreiss.networks.registry import LAYERS
from kreiss.relational import RELATIONAL
from kreiss.settings import NetworkSettings

# every network by name; the name of a layer stands for the recurrent network around it
NETWORKS: dict[str, type[Network]] = {
    **dict.fromkeys(LAYERS, RecurrentNetwork),
    **RELATIONAL,
}


def make_network(settings: NetworkSettings, task: Sizes, seed: int) -> Network:
    """The network of the settings, for a task; its initial values follow from the seed."""
    return NETWORKS[settings.name].build(settings, task, torch.Generator().manual_seed(seed))


def with_readout(model: nn.Module, task: Sizes, seed: int) -> nn.Module:
    """A bare layer with a readout, or as an agent if the task is a world; any other module as it is."""
    if not isinstance(model, (RecurrentLayer, *LAYERS.values())):  # user-defined layers included
        return model
    symbols, generator = task.input_size if task.symbols else 0, torch.Generator().manual_seed(seed)
    if (layout := getattr(task, "layout", None)) is not None:
        return Agent(model, task.output_size - 1, image=layout.image, others=layout.others, generator=generator)
    return RecurrentNetwork(model, task.output_size, answers=task.answers, symbols=symbols, generator=generator)


def settings_of(model: nn.Module) -> dict[str, Any]:
    """The settings of a model passed as an object: all of a kreiss network, only the name of other modules."""
    if isinstance(model, Network) and not isinstance(model, (RecurrentNetwork, Agent)):
        return {"name": registered_name(model) or type(model).__name__, **model.config}
    layer: Any = model.layer if isinstance(model, (RecurrentNetwork, Agent)) else model
    name = registered_name(layer)
    if name is None and not isinstance(layer, RecurrentLayer):
        return {"name": type(layer).__name__}
    return {
        "name": name or type(layer).__name__,
        "hidden": layer.hidden_size, "layers": layer.num_layers, "bidirectional": layer.bidirectional,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."), **_around(model, layer),
        **{key: value for key, value in layer.config.items() if key not in SET_BY_NETWORK},
    }  # fmt: skip


def registered_name(model: nn.Module) -> str | None:
    """The name of a layer's or network's class; None if it is not registered."""
    registry: dict[str, type[Any]] = {**NETWORKS, **LAYERS}
    return next((name for name, cls in registry.items() if cls is type(model)), None)


def _around(model: nn.Module, layer: Any) -> dict[str, Any]:
    """Embedding, start and dropout (defaults for a bare layer); dropout only if it is the same throughout."""
    config: dict[str, Any] = model.config if isinstance(model, RecurrentNetwork) else {}
    before_readout = config.get("dropout", 0.0)
    between = layer.config.get("dropout", 0.0) if layer.num_layers > 1 else before_readout
    known = {
        "embedding": config.get("embedding", 0), "start": config.get("start", "glorot"),
        "encoder": config.get("encoder", "learned"), "normalisation": config.get("normalisation", "context"),
    }  # fmt: skip
    return {**known, "dropout": before_readout} if between == before_readout else known
