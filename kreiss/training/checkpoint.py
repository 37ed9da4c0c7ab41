"""Checkpoints: everything needed to resume a run, in one file that is written atomically.

`last.safetensors` is the newest, `previous.safetensors` the one before it. A checkpoint holds the model with its base
points and latches, the best model so far, the moments of the optimiser, the schedule, every generator of random
numbers, the state that truncated backpropagation carries, and the counters of the loop. Data need no position beyond
the number of the update. It also holds the identity of its run, its settings, and a checksum of the records up to it.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kreiss.errors import InputError, RunError
from kreiss.networks.saving import BEST as BEST
from kreiss.networks.saving import LAST as LAST
from kreiss.networks.saving import MODEL, part
from kreiss.storage import files
from kreiss.storage.identity import ANY, check_owner
from kreiss.training.kept import check_kept, check_moments

PREVIOUS = "previous.safetensors"
OPTIMISER = "optimiser."  # prefix of its moments

# ---------------------------------------------------------------- files


class Checkpoints:
    """The two checkpoints of a run, and whether the last one is known to be good.

    A checkpoint is good once an update from it had a finite loss and finite gradients. Only a good one replaces the
    previous one, so that there is one to return to if the last has diverged.

    Args:
        folder: of the run.
        update: of the last checkpoint; None if there is none.
    """

    def __init__(self, folder: Path, update: int | None = None) -> None:
        self.folder, self.update = folder, update
        self.good = False

    def write(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Replace the last checkpoint, which becomes the previous one if it is good."""
        last = self.folder / LAST
        if self.good and last.exists():
            _name_again(last, self.folder / PREVIOUS)
        files.write_tensors(last, tensors, content)
        self.update, self.good = content["updates"], False

    def proven(self) -> None:
        """Note that an update from the last checkpoint was finite."""
        self.good = self.update is not None

    def words(self) -> str:
        """Where the last good checkpoint is."""
        if self.good:
            return f"The last good checkpoint is {self.folder / LAST} (update {self.update})"
        try:
            update = _read(self.folder / PREVIOUS, ANY)[1]["updates"]
        except (RunError, InputError):
            return "No good checkpoint was written"
        return (
            f"The last good checkpoint is {self.folder / PREVIOUS} (update {update}; resume from it with "
            f"`kreiss resume {self.folder} --checkpoint previous`)"
        )


def return_to_previous(folder: Path) -> None:
    """Make the previous checkpoint the last one too; later updates are abandoned."""
    _name_again(folder / PREVIOUS, folder / LAST)


def _name_again(path: Path, other: Path) -> None:
    """Give a checkpoint a second name, so that there is one at any time."""
    partial = files.partial_name(other)
    try:
        partial.unlink(missing_ok=True)
        os.link(path, partial)
        os.replace(partial, other)
    except OSError:  # a file system without links
        files.write_whole(other, path.read_bytes())
    finally:
        partial.unlink(missing_ok=True)  # renaming one name of a file to another name of it leaves both


def read_checkpoint(
    folder: Path, which: str = "last", run: str | None = ANY
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last or the previous checkpoint; if the last is not good the error says whether the previous one is.

    Args:
        folder: of the run.
        which: "last" or "previous".
        run: identity of the run.
    """
    path = folder / {"last": LAST, "previous": PREVIOUS}[which]
    try:
        return _read(path, run)
    except (RunError, InputError) as error:
        if which == "previous":
            raise
        try:
            updates = _read(folder / PREVIOUS, run)[1]["updates"]
        except (RunError, InputError):
            raise error from None
        raise RunError(
            f"{error} The checkpoint before it is good (update {updates}): kreiss resume {folder} --checkpoint previous"
        ) from error


def _read(path: Path, run: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, content = files.read_tensors(path)
    if "updates" not in content:
        raise files.damaged(path, "a model without the state of a run")
    check_kept(path, tensors, content)
    check_owner(path, content, run)
    for name, tensor in tensors.items():
        if name.startswith((MODEL, OPTIMISER)) and tensor.isnan().any():
            raise RunError(f"`{path}` must hold finite numbers; got NaN in {name}. Use another checkpoint.")
    return tensors, content


def check_model(
    model: nn.Module, described: dict[str, Any], tensors: dict[str, Tensor], content: dict[str, Any]
) -> None:
    """Raise if a checkpoint is not of this model."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    stored = {name: tensor.shape for name, tensor in part(tensors, MODEL).items()}
    if shapes != stored or _asked(described.get("model")) != _asked(content.get("model")):
        raise InputError(
            "the model of a run must stay as it is; got another one. Pass the same model, or start a new run."
        )


def _asked(description: Any) -> Any:
    """The requested part of a model's description, without what follows from it."""
    if not isinstance(description, dict):
        return list(description) if isinstance(description, tuple) else description
    return {name: _asked(part) for name, part in description.items() if name not in ("sets", "fixed")}


def earlier_best(folder: Path, content: dict[str, Any], metric: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The best validation of a run whose checkpoint is of a version that did not store it."""
    path = folder / BEST
    tensors, best = files.read_tensors(path)
    if best["update"] > content["updates"] or best["metrics"].get(metric) != content["best"]:
        raise RunError(
            f"`{path}` must hold the best validation up to update {content['updates']}, of {metric} "
            f"{content['best']:.6g}; got that of update {best['update']}. Restore the run's own file."
        )
    return tensors, {"update": best["update"], "metrics": best["metrics"]}


def sweep(folder: Path) -> None:
    """Remove partial files of a killed process."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


# ---------------------------------------------------------------- optimisers


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The moments as tensors, and the values that are not tensors."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, moments in optimiser.state_dict()["state"].items():
        for name, value in moments.items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{OPTIMISER}{index}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Restore the moments; learning rates and other options stay those of the settings."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *numbers.items()]:
        if re.match(r"optimiser\.\d+\.", key):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    check_moments(optimiser, state)
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


# ---------------------------------------------------------------- generators


@contextmanager
def own_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Seed all global generators for a run, and restore them afterwards."""
    python, array = random.getstate(), np.random.get_state(legacy=True)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


def generators(gather: Callable[[Tensor], list[Tensor]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All global generators of random numbers: torch's of every process, Python's, NumPy's."""
    tensors = {f"generator.torch.{rank}": state.cpu() for rank, state in enumerate(gather(torch.get_rng_state()))}
    if torch.cuda.is_initialized():
        states = gather(torch.cuda.get_rng_state())
        tensors |= {f"generator.cuda.{rank}": state.cpu() for rank, state in enumerate(states)}
    version, internal, gauss = random.getstate()
    numbers: dict[str, Any] = {"python": [version, list(internal), gauss]}
    name, keys, *rest = np.random.get_state(legacy=True)
    numbers["numpy"] = [name, np.asarray(keys).tolist(), *rest]
    return tensors, numbers


def restore_generators(tensors: dict[str, Tensor], numbers: dict[str, Any], rank: int) -> None:
    """Restore all global generators; a process without a saved state keeps its seeded one."""
    if f"generator.torch.{rank}" in tensors:
        torch.set_rng_state(tensors[f"generator.torch.{rank}"])
    if f"generator.cuda.{rank}" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors[f"generator.cuda.{rank}"])
    version, internal, gauss = numbers["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = numbers["numpy"]
    np.random.set_state((name, np.asarray(keys, dtype=np.uint32), *rest))


# ---------------------------------------------------------------- carried states


def flat_state(state: Any, tensors: dict[str, Tensor]) -> Any:
    """The structure of a state in JSON; its tensors go into `tensors` under the names in it."""
    if isinstance(state, Tensor):
        name = f"state.{len(tensors)}"
        tensors[name] = state
        return name
    if isinstance(state, (tuple, list)):
        kind = "tuple" if isinstance(state, tuple) else "list"
        return {kind: [flat_state(part, tensors) for part in state]}
    if isinstance(state, dict):
        return {"dict": {key: flat_state(part, tensors) for key, part in state.items()}}
    if state is None:
        return None
    raise RunError(
        f"a state must be made of tensors, tuples, lists and dicts to be kept in a checkpoint; got "
        f"{type(state).__name__}. Return such a state from the model."
    )


def full_state(found: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `flat_state`."""
    if isinstance(found, str):
        return tensors[found]
    if isinstance(found, dict):
        ((kind, parts),) = found.items()
        if kind == "dict":
            return {key: full_state(part, tensors) for key, part in parts.items()}
        members = [full_state(part, tensors) for part in parts]
        return tuple(members) if kind == "tuple" else members
    return None


def model_tensors(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model's tensors under the names they have in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in state_dict.items()}
