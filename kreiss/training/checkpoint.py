"""Checkpoints: everything that decides how a run goes on, in one file that is whole or not there.

`last.safetensors` is the newest, `previous.safetensors` the one before it. A checkpoint holds the model with its base
points and latches, the moments of the optimiser, the schedule, every generator of random numbers, the state that
truncated backpropagation carries, and the counters of the loop. Data need no position beyond the number of the update.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kreiss.errors import RunError
from kreiss.training import storage
from kreiss.training.saving import MODEL

LAST, PREVIOUS, BEST = "last.safetensors", "previous.safetensors", "best.safetensors"

# ---------------------------------------------------------------- files


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    """Put a checkpoint in the place of the last one, which becomes the previous one."""
    last, previous = folder / LAST, folder / PREVIOUS
    if last.exists():
        _keep(last, previous)
    storage.write_tensors(last, tensors, content)


def _keep(last: Path, previous: Path) -> None:
    """A second name for the last checkpoint, so that at no moment there is none."""
    partial = storage.partial_name(previous)
    try:
        partial.unlink(missing_ok=True)
        os.link(last, partial)
        os.replace(partial, previous)
    except OSError:  # a file system without links
        storage.write_whole(previous, last.read_bytes())


def read_checkpoint(folder: Path, which: str = "last") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last or the previous checkpoint; if the last is damaged the error says whether the previous one is good."""
    path = folder / {"last": LAST, "previous": PREVIOUS}[which]
    try:
        return _read(path)
    except RunError as error:
        other = folder / PREVIOUS
        if which == "previous" or not other.exists():
            raise
        try:
            updates = _read(other)[1]["updates"]
        except RunError:
            raise error from None
        raise RunError(
            f"{error} The checkpoint before it is good (update {updates}): kreiss resume {folder} --checkpoint previous"
        ) from error


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, content = storage.read_tensors(path)
    if "updates" not in content:
        raise storage.damaged(path, "a model without the state of a run")
    return tensors, content


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


# ---------------------------------------------------------------- optimisers


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The moments as tensors, and numbers that are no tensors."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, moments in optimiser.state_dict()["state"].items():
        for name, value in moments.items():
            (tensors if isinstance(value, Tensor) else numbers)[f"optimiser.{index}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Put moments back; learning rates and the like stay as the settings say."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *numbers.items()]:
        if key.startswith("optimiser."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


# ---------------------------------------------------------------- generators


@contextmanager
def own_generators(seed: int, device: torch.device) -> Iterator[None]:
    """All global generators seeded for a run, and afterwards as they were before it."""
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
        found = gather(torch.cuda.get_rng_state())
        tensors |= {f"generator.cuda.{rank}": state.cpu() for rank, state in enumerate(found)}
    version, internal, gauss = random.getstate()
    numbers: dict[str, Any] = {"python": [version, list(internal), gauss]}
    name, keys, *rest = np.random.get_state(legacy=True)
    numbers["numpy"] = [name, np.asarray(keys).tolist(), *rest]
    return tensors, numbers


def restore_generators(tensors: dict[str, Tensor], numbers: dict[str, Any], rank: int) -> None:
    """Set all global generators; a process that was not there then keeps the one it was seeded with."""
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
    """The shape of a state in JSON; its tensors go into `tensors` under the names that stand there."""
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
    """The state that `flat_state` took apart."""
    if isinstance(found, str):
        return tensors[found]
    if isinstance(found, dict):
        ((kind, parts),) = found.items()
        if kind == "dict":
            return {key: full_state(part, tensors) for key, part in parts.items()}
        made = [full_state(part, tensors) for part in parts]
        return tuple(made) if kind == "tuple" else made
    return None


def model_tensors(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model's tensors under the names they have in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in state_dict.items()}
