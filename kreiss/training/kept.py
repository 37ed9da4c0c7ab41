"""The form of a checkpoint's content beside the model: a file with a valid checksum may still hold anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from kreiss.errors import LARGEST_SIZE, InputError
from kreiss.options import sentence
from kreiss.storage.files import foreign

Count = Annotated[int, Field(ge=0, le=LARGEST_SIZE, strict=True)]
Word = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class Part(BaseModel):
    """JSON that may hold further fields."""

    model_config = ConfigDict(extra="allow")


class Factor(Part):
    """State of the schedule."""

    reduced: Number
    stale: Count


class Generators(Part):
    """Python's generator of random numbers and NumPy's: 624 words each, and the position in them."""

    python: tuple[Literal[3], Annotated[list[Word], Field(min_length=625, max_length=625)], Number | None]
    numpy: tuple[
        Literal["MT19937"],
        Annotated[list[Word], Field(min_length=624, max_length=624)],
        Annotated[int, Field(ge=0, le=624, strict=True)],
        Count,
        Number,
    ]


class Kept(Part):
    """The saved state of every learner."""

    updates: Count
    seconds: Number


class KeptByScored(Kept):
    """What learners with an optimiser and validations have in common."""

    best: float | None
    stale: Count
    window: tuple[float, Count]
    schedule: Factor
    optimiser: dict[Annotated[str, Field(pattern=r"^optimiser\.\d+\.\w+$")], Any]
    random: Generators
    in_a_row: Count
    skipped: Count


class KeptBySupervised(KeptByScored):
    """The saved state of supervised training."""

    scaler: dict[str, Any] | None


class KeptByPPO(KeptByScored):
    """The saved state of reinforcement learning."""

    ended: list[tuple[Number, Count]]
    sums: tuple[Number, Number, Number]


# kind of learner → form of its saved state; others check theirs when they are restored
FORMS: dict[str, type[Kept]] = {"supervised": KeptBySupervised, "ppo": KeptByPPO}


def check_kept(path: Path, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    """Raise unless a checkpoint has the form that a run writes."""
    kind = content.get("learner", "supervised")  # the only kind that earlier versions had
    if not isinstance(kind, str):
        raise foreign(path, "a learner without a name")
    try:
        FORMS.get(kind, Kept).model_validate(content)
    except ValidationError as error:
        raise foreign(path, f"a checkpoint of another form ({sentence(error).args[0].partition('. ')[0]})") from error
    if kind in FORMS and not ("state" in content and _is_state(content["state"], tensors)):
        raise foreign(path, "a carried state that is not made of the file's tensors")
    if any(tensor.dtype != torch.uint8 for name, tensor in tensors.items() if name.startswith("generator.")):
        raise foreign(path, "a generator of random numbers that is not made of bytes")


def _is_state(state: Any, tensors: dict[str, Tensor]) -> bool:
    """Whether JSON names tensors, nested in tuples, lists and dicts."""
    if state is None or isinstance(state, str):
        return state is None or state in tensors
    if not isinstance(state, dict) or len(state) != 1:
        return False
    ((kind, parts),) = state.items()
    if kind == "dict" and isinstance(parts, dict):
        parts = list(parts.values())
    return kind in ("tuple", "list", "dict") and isinstance(parts, list) and all(_is_state(p, tensors) for p in parts)


def check_moments(optimiser: torch.optim.Optimizer, state: dict[int, dict[str, Any]]) -> None:
    """Raise unless all parameters with moments have the same ones, each of its parameter's shape."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    names = {frozenset(moments) for moments in state.values()}
    fits = len(names) <= 1 and all(0 <= index < len(parameters) for index in state)
    if not fits or not all(_fits(parameters[index], moments) for index, moments in state.items()):
        raise InputError(
            "the moments of the optimiser must be those of the model's parameters; got others. Use another checkpoint."
        )


def _fits(parameter: Tensor, moments: dict[str, Any]) -> bool:
    shapes = [value.shape for value in moments.values() if isinstance(value, Tensor)]
    return all(shape in (parameter.shape, ()) for shape in shapes)
