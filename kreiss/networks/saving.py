"""`kreiss.save` and `kreiss.load`: a model in one file, with what is needed to rebuild it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor, nn

from kreiss import own
from kreiss.contracts import Network
from kreiss.errors import InputError, check_name
from kreiss.layers import RecurrentLayer
from kreiss.networks.agent import Agent
from kreiss.networks.building import LAYER_BASES, NETWORKS, class_named, name_of, register_network
from kreiss.networks.own import CONTRACT, arguments_of, has_contract, remembered, source_of
from kreiss.networks.recurrent import RecurrentNetwork
from kreiss.options import options_of, sentence, typed_options
from kreiss.preprocessing import Preprocessing
from kreiss.recorded import Recorded
from kreiss.sets import SETS
from kreiss.storage import files
from kreiss.storage.identity import check_owner, known_identity
from kreiss.version import __version__

FORMAT = 1
MODEL = "model."  # prefix of a model's tensors in a checkpoint, which holds others too
BEST_MODEL = "best."  # prefix of the tensors of the best validation there
AROUND: dict[str, Any] = {"network": RecurrentNetwork, "agent": Agent}  # networks around a layer
BEST, LAST = "best.safetensors", "last.safetensors"


def save(model: nn.Module, path: str | Path) -> None:
    """Write a layer or a network to one safetensors file, atomically.

    Args:
        model: any layer, frozen or not, a `kreiss.networks.RecurrentNetwork` or `Agent` around one, any other network,
            or a module of your own that holds the arguments of its constructor as attributes. The file records where a
            class of your own came from.
        path: the file, or `hf://user/name` for a repository on the Hugging Face Hub (extra `hub`).

    Example:
        >>> import kreiss, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "layer.safetensors")
        >>> kreiss.save(kreiss.NNRNN(3, 8, blocks="paper"), path)
        >>> kreiss.load(path).config
        {'input_size': 3, 'hidden_size': 8, 'blocks': 'paper'}
    """
    content = content_of(model)
    if str(path).startswith("hf://"):
        from kreiss.networks import hub

        hub.push(model, str(path))
        return
    files.write_tensors(Path(path), model.state_dict(), content)


def load(path: str | Path, device: Any = None, *, trust: Sequence[str | type[nn.Module]] = ()) -> nn.Module:
    """The model that `save` wrote, or that a run trained.

    Of a class of your own the file holds the name; its module is imported only if you have named it.

    Args:
        path: a file of `save`, a checkpoint, a run folder (its best checkpoint, else its last), or `hf://user/name`.
        device: where to put it; the CPU by default.
        trust: modules, or classes, that the model may be of, besides those of kreiss and those registered.
    """
    for named in trust:
        if isinstance(named, str):
            own.trust(named)
        else:
            register_network(own.home_of(named), named)
    if str(path).startswith("hf://"):
        from kreiss.networks import hub

        return hub.pull(str(path)).to(device or "cpu")
    tensors, content = _of_run(Path(path)) if Path(path).is_dir() else files.read_tensors(Path(path))
    check_format(content, Path(path))
    if "updates" in content:  # a checkpoint: the model is one part of it
        tensors = part(tensors, MODEL)
    try:
        model = rebuilt(content["model"], tensors)
        if content.get("preprocessing") is not None and isinstance(model, Network):
            model.preprocessing = Preprocessing.read(content["preprocessing"])
    except own.Untrusted:
        raise
    except (InputError, TypeError) as error:  # TypeError: an unsuitable argument
        raise files.foreign(Path(path), f"a model that cannot be built ({str(error).rstrip('.')})") from error
    return model.to(device or "cpu")


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of one part of a checkpoint, by their own names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def best_of(tensors: dict[str, Tensor], content: dict[str, Any]) -> dict[str, Tensor] | None:
    """The tensors of the best validation that a checkpoint holds; None before the first one."""
    at = content.get("best_at")
    if at is None:
        return None
    return part(tensors, MODEL if at["update"] == content["updates"] else BEST_MODEL)


def _of_run(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The model of a run at its best validation, or, before the first one, at its last checkpoint."""
    path = next((folder / name for name in (BEST, LAST) if (folder / name).exists()), None)
    if path is None:
        raise InputError(f"`{folder}` must hold {BEST} or {LAST}; got neither. Name the model's own file instead.")
    tensors, content = files.read_tensors(path)
    check_owner(path, content, known_identity(folder))
    best = best_of(tensors, content)
    if best is None:
        return tensors, content
    return best, {name: value for name, value in content.items() if name != "updates"}


def check_format(content: dict[str, Any], path: Path) -> None:
    """Raise if a file was written by a newer kreiss, or holds no model."""
    if type(content.get("format", 0)) is not int:
        raise files.foreign(path, f"format {content['format']!r}")
    if content.get("format", 0) > FORMAT:
        raise InputError(
            f"`{path}` must be of format {FORMAT} or older; got format {content['format']}, written by kreiss "
            f"{content.get('version')}. Update kreiss."
        )
    if "model" not in content:
        raise InputError(f"`{path}` must hold a model; got a file without one. Pass a file written by kreiss.save.")


# ---------------------------------------------------------------- descriptions of models, in JSON


def content_of(model: nn.Module) -> dict[str, Any]:
    """The JSON of a model's file."""
    fixed = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    content = {"format": FORMAT, "version": __version__, "model": {**description(model), "fixed": fixed}}
    kept = model.preprocessing if isinstance(model, Network) else None
    return content if kept is None else {**content, "preprocessing": kept.plain()}


def description(model: nn.Module) -> dict[str, Any]:
    """What is needed to rebuild `model`, as plain values, without its parameters."""
    for kind, cls in AROUND.items():
        if isinstance(model, cls):
            return {"kind": kind, "layer": description(model.layer), "config": model.config}
    if not (isinstance(model, Recorded) or has_contract(type(model))):
        raise InputError(
            f"`model` must be a layer of kreiss, a network, or a module with {CONTRACT}; got {type(model).__name__}. "
            "Save its state_dict() with safetensors.torch.save_file instead."
        )
    if isinstance(model, Recorded) and model.unrecorded:
        raise InputError(
            f"`model` must have been made with plain values to be saved; got {type(model).__name__} with "
            f"`{model.unrecorded[0]}`. Save its state_dict() with safetensors.torch.save_file instead."
        )
    kind = "layer" if isinstance(model, LAYER_BASES) else "network"
    config = model.config if isinstance(model, Recorded) else arguments_of(model)
    dtype = next((str(parameter.dtype) for parameter in model.parameters()), "float32").removeprefix("torch.")
    fields: dict[str, Any] = {"kind": kind, "name": name_of(model), "config": config, "dtype": dtype}
    fields |= source_of(model)
    if isinstance(model, RecurrentLayer):
        fields["sets"] = {
            suffix: {"name": type(held).__name__, "config": held.config} for suffix, held in model.sets.items()
        }
    return fields


class SetDescription(BaseModel):
    """A set of matrices, in JSON."""

    name: str
    config: dict[str, Any]


class LayerDescription(BaseModel):
    """A layer, in JSON."""

    kind: Literal["layer"]
    name: str
    config: dict[str, Any]
    dtype: Literal["float16", "bfloat16", "float32", "float64"]
    source: str = ""
    sets: dict[str, SetDescription] = {}
    fixed: list[str] = []


class AroundDescription(BaseModel):
    """A network around a layer, in JSON."""

    kind: Literal["network", "agent"]
    layer: LayerDescription
    config: dict[str, Any]
    fixed: list[str]


class NetworkDescription(BaseModel):
    """Any other network, in JSON."""

    kind: Literal["network"]
    name: str
    config: dict[str, Any]
    dtype: Literal["float16", "bfloat16", "float32", "float64"]
    source: str = ""
    fixed: list[str]


Description = LayerDescription | AroundDescription | NetworkDescription


def rebuilt(found: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    """The model of a description, with these tensors; an error for an invalid description."""
    try:
        parsed = _parsed(found)
    except ValidationError as error:
        raise sentence(error) from error
    model = _network(parsed, tensors) if isinstance(parsed, NetworkDescription) else _around_layer(parsed, tensors)
    model.load_state_dict(tensors)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in parsed.fixed)
    return model.train(any(parameter.requires_grad for parameter in model.parameters()))


def _parsed(content: Any) -> Description:
    fields = content if isinstance(content, dict) else {}
    if fields.get("kind") not in AROUND:
        return LayerDescription.model_validate(content)
    return (NetworkDescription if "name" in fields else AroundDescription).model_validate(content)


def _around_layer(parsed: LayerDescription | AroundDescription, tensors: dict[str, Tensor]) -> nn.Module:
    """A layer, or a network around one."""
    layer, prefix = (parsed, "") if isinstance(parsed, LayerDescription) else (parsed.layer, "layer.")
    first = tensors.get(f"{prefix}weight_ih_l0")
    _check_sizes(layer.config, () if first is None else tuple(first.shape))
    model = _built(layer)
    if isinstance(parsed, LayerDescription):
        return model
    around = AROUND[parsed.kind]
    return around(model, **_options(around, parsed.config, ("layer",)))


def _network(parsed: NetworkDescription, tensors: dict[str, Tensor]) -> nn.Module:
    """Any other network; its shapes are compared before it is built."""
    cls = _class(parsed)
    make = partial(cls, **_options(cls, parsed.config))
    with torch.device("meta" if own.is_ours(cls) else "cpu"):  # code of the user's own may compute with its tensors
        shapes = {name: tensor.shape for name, tensor in make().state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
        raise InputError(f"sizes must be those of the tensors; got other shapes for {parsed.name}.")
    return remembered(make(), parsed.config).to(getattr(torch, parsed.dtype))


def _check_sizes(config: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Raise if the recorded sizes are not those of the tensors, before a layer of those sizes is built."""
    inputs, hidden = (config.get(name) for name in ("input_size", "hidden_size"))
    rows = [times * hidden for times in (1, 2, 3, 4)] if type(hidden) is int else []  # complex units, gates
    if len(shape) != 2 or shape[0] not in rows or shape[1] != inputs:
        raise InputError(
            f"sizes must be those of the tensors; got input_size={inputs!r} and hidden_size={hidden!r} for a first "
            f"weight of shape {shape}."
        )


def _options(cls: type, config: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments in a file, after checking that they are those of a class and of their types."""
    known = options_of(cls, without)
    for name in config:
        check_name(f"option of {cls.__name__}", name, known)
    typed_options(cls.__name__, config, known)
    try:
        inspect.signature(cls.__init__).bind(None, *without, **config)  # type: ignore[misc]
    except TypeError as error:
        raise InputError(f"options of {cls.__name__} must be complete; got {error}.") from error
    return config


def _class(parsed: LayerDescription | NetworkDescription) -> Any:
    """The class of a model, by its name or, where that is not registered, by where it came from."""
    by_source = parsed.source and parsed.name not in NETWORKS and not own.is_own(parsed.name)
    return class_named(parsed.source if by_source else parsed.name)


def _built(parsed: LayerDescription) -> nn.Module:
    cls = _class(parsed)
    layer = cls(**_options(cls, parsed.config), dtype=getattr(torch, parsed.dtype))
    if isinstance(layer, RecurrentLayer):
        for suffix, held in parsed.sets.items():
            check_name("layer and direction", suffix, layer.sets)
            _put_set(layer, suffix, held)
    return layer


def _put_set(layer: RecurrentLayer, suffix: str, held: SetDescription) -> None:
    """Install the recorded set; frozen layers and those converted from torch differ from their constructor's."""
    if (held.name, held.config) == (type(layer._set(suffix)).__name__, layer._set(suffix).config):
        return
    check_name("set of matrices", held.name, SETS)
    matrices = SETS[held.name](**_options(SETS[held.name], held.config))
    if matrices.n != layer.state_size:
        raise InputError(f"a set must be of size {layer.state_size}, as the state is; got n={matrices.n}.")
    layer._install(suffix, matrices, tuple(torch.zeros(shape) for shape in matrices.shapes))
