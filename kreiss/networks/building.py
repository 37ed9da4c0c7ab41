"""Networks from their settings, and settings from networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kreiss import own
from kreiss.contracts import Network, Sizes
from kreiss.errors import InputError, check_name
from kreiss.layers import RecurrentLayer
from kreiss.layers.contract.torch_layer import TorchLayer
from kreiss.networks.agent import Agent
from kreiss.networks.own import HIDDEN, OF_TASK, OwnModule, arguments_of, own_module
from kreiss.networks.recurrent import SET_BY_NETWORK, RecurrentNetwork
from kreiss.networks.registry import LAYERS
from kreiss.relational import RELATIONAL
from kreiss.settings import NetworkSettings

# every network by name; the name of a layer stands for the recurrent network around it
NETWORKS: dict[str, type[Network] | type[OwnModule]] = {
    **dict.fromkeys(LAYERS, RecurrentNetwork),
    **RELATIONAL,
}


LAYER_BASES = (RecurrentLayer, TorchLayer)  # of everything that runs inside a recurrent network


def network_named(name: str) -> type[Network] | type[OwnModule]:
    """The network of that name; `package.module:Class` of a trusted module is registered on first use."""
    if name not in NETWORKS and own.is_own(name):
        register_network(name, own.trusted("model", name))
    check_name("model", name, NETWORKS)
    return NETWORKS[name]


def register_network(name: str, cls: type[nn.Module]) -> None:
    """Make a layer, a network, or a module with the contract of a network known under a name."""
    if issubclass(cls, LAYER_BASES):
        LAYERS[name], NETWORKS[name] = cls, RecurrentNetwork
    elif issubclass(cls, Network):
        NETWORKS[name] = cls
    elif issubclass(cls, nn.Module):
        NETWORKS[name] = own_module(name, cls)
    else:
        raise InputError(
            f"`{name}` must be a kreiss.RecurrentLayer, a kreiss.Network or a torch.nn.Module; got another class. "
            "Derive it from one of these."
        )


def class_named(name: str) -> type[nn.Module]:
    """The class behind a name: of a layer, a network or a module."""
    network = network_named(name)
    return network.module if issubclass(network, OwnModule) else LAYERS.get(name, network)


def make_network(settings: NetworkSettings, task: Sizes, seed: int) -> nn.Module:
    """The network of the settings, for a task; its initial values follow from the seed."""
    return network_named(settings.name).build(settings, task, torch.Generator().manual_seed(seed))


def with_readout(model: nn.Module, task: Sizes, seed: int) -> nn.Module:
    """A bare layer with a readout, or as an agent if the task is a world; any other module as it is."""
    if not isinstance(model, LAYER_BASES):
        return model
    symbols, generator = task.input_size if task.symbols else 0, torch.Generator().manual_seed(seed)
    if (layout := getattr(task, "layout", None)) is not None:
        return Agent(model, task.output_size - 1, image=layout.image, others=layout.others, generator=generator)
    return RecurrentNetwork(model, task.output_size, answers=task.answers, symbols=symbols, generator=generator)


def settings_of(model: nn.Module) -> dict[str, Any]:
    """The settings of a model passed as an object: all of a kreiss network, only the name of other modules."""
    if isinstance(model, Network) and not isinstance(model, (RecurrentNetwork, Agent)):
        return {"name": name_of(model), **model.config}
    layer: Any = model.layer if isinstance(model, (RecurrentNetwork, Agent)) else model
    if not isinstance(layer, LAYER_BASES):
        return {"name": name_of(layer), **_own_options(layer)}
    return {
        "name": name_of(layer),
        "hidden": layer.hidden_size, "layers": layer.num_layers, "bidirectional": layer.bidirectional,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."), **_around(model, layer),
        **{key: value for key, value in layer.config.items() if key not in SET_BY_NETWORK},
    }  # fmt: skip


def name_of(model: nn.Module) -> str:
    """The name of a layer's, network's or module's class: that of the registry, or `package.module:Class`."""
    registry: dict[str, Any] = {**NETWORKS, **LAYERS}
    names = (name for name, cls in registry.items() if type(model) in (cls, getattr(cls, "module", None)))
    return next(names, own.home_of(type(model)))


def _own_options(module: nn.Module) -> dict[str, Any]:
    """Options of a module of the user's own, as far as it holds them."""
    try:
        arguments = arguments_of(module)
    except InputError:
        return {}
    given = {("hidden" if name in HIDDEN else name): value for name, value in arguments.items()}
    return {name: value for name, value in given.items() if name not in OF_TASK}


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
