"""The state of an exported model: its tensors by name, and what they hold before the first step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from kreiss.errors import InputError
from kreiss.relational.parts import ContextNorm

GROWING = ("memory", "times")  # parts of a state that keeps every past state, along their third dimension
PAIR = ("h", "c")  # torch's LSTM gives no names to the two tensors of its state


@dataclass(frozen=True)
class Part:
    """One tensor of a state.

    Attributes:
        name: of the input that takes it; the output that returns it is called `next_…`.
        shape: numbers, "batch", and "memory" for a number of stored states that grows.
        dtype: as NumPy calls it.
        initial: what all entries are before the first step, or, where they differ, the entries of one sequence.
        memory: stored states before the first step; None where their number does not change.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    initial: float | list[Any]
    memory: int | None = None

    def __str__(self) -> str:
        start = "as the metadata say" if isinstance(self.initial, list) else f"{self.initial:g}"
        start = "empty" if self.memory == 0 else start
        return f"{self.name} [{', '.join(map(str, self.shape))}] starts {start}"

    def described(self) -> dict[str, Any]:
        """As JSON, which has no infinity: that is written as a string."""
        initial = self.initial
        if isinstance(initial, float) and math.isinf(initial):
            initial = str(initial)  # type: ignore[assignment]
        fields = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "initial": initial}
        return fields if self.memory is None else {**fields, "memory": self.memory}


@dataclass(frozen=True)
class StateForm:
    """The tensors of a model's state in order, and how the model wants them."""

    parts: tuple[Part, ...]
    structure: Any

    def packed(self, tensors: Any) -> Any:
        """The state as the model takes it."""
        return pytree.tree_unflatten(list(tensors), self.structure)


def whole_only(model: nn.Module) -> str:
    """Why a model cannot run step by step, as the end of a sentence; empty if it can."""
    if not callable(getattr(model, "init_state", None)):
        return "which has no init_state, as layers and networks of kreiss do"
    if any(getattr(module, "bidirectional", False) for module in model.modules()):
        return "whose backward direction needs the whole sequence"
    if any(isinstance(module, ContextNorm) for module in model.modules()):
        return "which normalises images over the whole sequence"
    return ""


def state_form(model: nn.Module, wanted: bool | None, step: bool) -> StateForm | None:
    """The form of the model's state; None for a file without one.

    Args:
        wanted: whether the file has a state; None for one where the model has.
        step: whether the file computes one step, which needs a state.
    """
    if (wanted is False and not step) or (wanted is None and not step and whole_only(model)):
        return None
    if wanted is False:
        raise InputError("a step must take and return a state; got step=True with state=False. Leave `state` out.")
    if reason := whole_only(model):
        raise InputError(
            f"`model` must run step by step to be exported with its state; got {type(model).__name__}, {reason}. "
            "Leave `state` and `step` out."
        )
    first: Any = model.init_state(2)  # type: ignore[operator]
    grow = GROWING if hasattr(first, "memory") else ()
    named = zip(_names(first), pytree.tree_leaves(first), strict=True)
    parts = tuple(_part(name, tensor, name.removeprefix("state_") in grow) for name, tensor in named)
    return StateForm(parts, pytree.tree_structure(first))


def initial(model: nn.Module, batch: int) -> list[Tensor]:
    """The tensors of the state before the first step."""
    return pytree.tree_leaves(model.init_state(batch))  # type: ignore[operator]


def _names(state: Any) -> list[str]:
    """`state` for one tensor, `state_h`, `state_c` for a pair, else by the names or numbers of fields."""
    paths = [path for path, _ in pytree.tree_flatten_with_path(state)[0]]
    if type(state) is tuple and len(state) == len(paths) == len(PAIR):
        return [f"state_{name}" for name in PAIR]
    return ["_".join(["state", *(_key(key) for key in path)]) for path in paths]


def _key(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key))))


def _part(name: str, tensor: Tensor, grows: bool) -> Part:
    cells, _, *rest = tensor.shape
    shape = (cells, "batch", *(("memory", *rest[1:]) if grows else rest))
    values, dtype = tensor[:, 0], str(tensor.dtype).removeprefix("torch.")
    one = float(values.flatten()[0]) if values.numel() else 0.0
    constant = bool((values == one).all())
    return Part(name, shape, dtype, one if constant else values.tolist(), rest[0] if grows else None)
