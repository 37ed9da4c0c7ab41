"""`kreiss.save` and `kreiss.load`: a model in one file, with what is needed to build it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kreiss import sets
from kreiss.errors import InputError, check_name
from kreiss.layers import REGISTRY, RecurrentLayer
from kreiss.training import storage
from kreiss.training.identity import check_owner, known_identity
from kreiss.training.model import Network
from kreiss.version import __version__

FORMAT = 1
MODEL = "model."  # prefix of a model's tensors in a checkpoint, which holds others too
BEST_MODEL = "best."  # prefix of the tensors of the best validation there
BEST, LAST = "best.safetensors", "last.safetensors"


def save(model: nn.Module, path: str | Path) -> None:
    """Write a layer or a `Network` to one safetensors file, whole or not at all.

    Args:
        model: any layer of the registry, frozen or not, or a `kreiss.training.Network` around one.
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
        from kreiss.training import hub

        hub.push(storage.packed(model.state_dict(), content), str(path))
        return
    storage.write_tensors(Path(path), model.state_dict(), content)


def load(path: str | Path, device: Any = None) -> nn.Module:
    """The model that `save` wrote, or that a run trained.

    Args:
        path: a file of `save`, a checkpoint, a run folder (its best checkpoint, else its last), or `hf://user/name`.
        device: where to put it; the CPU by default.
    """
    if str(path).startswith("hf://"):
        from kreiss.training import hub

        path = hub.pull(str(path))
    tensors, content = _of_run(Path(path)) if Path(path).is_dir() else storage.read_tensors(Path(path))
    check_format(content, Path(path))
    if "updates" in content:  # a checkpoint: the model is one part of it
        tensors = part(tensors, MODEL)
    return rebuilt(content["model"], tensors).to(device or "cpu")


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
        raise InputError(
            f"`{folder}` must hold best.safetensors or last.safetensors; got neither. Name the model's own file "
            "instead."
        )
    tensors, content = storage.read_tensors(path)
    check_owner(path, content, known_identity(folder))
    best = best_of(tensors, content)
    if best is None:
        return tensors, content
    return best, {name: value for name, value in content.items() if name != "updates"}


def check_format(content: dict[str, Any], path: Path) -> None:
    """Raise if a file was written by a newer kreiss, or holds no model."""
    if content.get("format", 0) > FORMAT:
        raise InputError(
            f"`{path}` must be of format {FORMAT} or older; got format {content['format']}, written by kreiss "
            f"{content.get('version')}. Update kreiss."
        )
    if "model" not in content:
        raise InputError(f"`{path}` must hold a model; got a file without one. Pass a file written by kreiss.save.")


# ---------------------------------------------------------------- what a model is, in JSON


def content_of(model: nn.Module) -> dict[str, Any]:
    """The JSON of a model's file."""
    fixed = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    return {"format": FORMAT, "version": __version__, "model": {**description(model), "fixed": fixed}}


def description(model: nn.Module) -> dict[str, Any]:
    """What builds `model` again, as plain values; parameters are not in it."""
    if isinstance(model, Network):
        return {"kind": "network", "layer": description(model.layer), "config": model.config}
    names = [name for name, made in REGISTRY.items() if made is type(model)]
    if not names or model.unrecorded:
        raise InputError(
            "`model` must be a layer of kreiss or a kreiss.training.Network around one; got "
            f"{type(model).__name__}. Save its state_dict() with safetensors.torch.save_file instead."
        )
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    found: dict[str, Any] = {"kind": "layer", "name": names[0], "config": model.config, "dtype": dtype}
    if isinstance(model, RecurrentLayer):
        found["sets"] = {
            suffix: {"name": type(held).__name__, "config": held.config} for suffix, held in model.sets.items()
        }
    return found


def rebuilt(found: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    """The model of a description, with these tensors."""
    model = _built(found)
    model.load_state_dict(tensors)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in found["fixed"])
    return model.train(any(parameter.requires_grad for parameter in model.parameters()))


def _built(found: dict[str, Any]) -> nn.Module:
    if found["kind"] == "network":
        return Network(_built(found["layer"]), **found["config"])
    check_name("model", found["name"], REGISTRY)
    layer = REGISTRY[found["name"]](**found["config"], dtype=_dtype(found["dtype"]))
    if isinstance(layer, RecurrentLayer):
        for suffix, held in found.get("sets", {}).items():
            _put_set(layer, suffix, held)
    return layer


def _put_set(layer: RecurrentLayer, suffix: str, held: dict[str, Any]) -> None:
    """A frozen layer and one made from torch's hold other sets than their constructor gives them."""
    if held == {"name": type(layer.sets[suffix]).__name__, "config": layer.sets[suffix].config}:
        return
    check_name("set of matrices", held["name"], sets.__all__)
    made = getattr(sets, held["name"])(**held["config"])
    layer._install(suffix, made, tuple(torch.zeros(shape) for shape in made.shapes))


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"`dtype` must name a torch dtype; got {name!r}. The file is damaged or foreign.")
    return found
