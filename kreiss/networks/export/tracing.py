"""The model to trace: recurrent matrices computed, torch's own layers as scans, plain tensors in and out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from kreiss.errors import InputError, check_tensor
from kreiss.networks.agent import Agent
from kreiss.networks.export.states import StateForm
from kreiss.networks.scanned import Scanned
from kreiss.relational import RelationalNetwork

Draw = Callable[[int, int], Tensor]


def copied(model: nn.Module) -> nn.Module:
    """A deep copy, without gradients: torch's RNNs keep the last value of a constrained matrix, with its graph."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase) and parametrize.is_parametrized(module):
            module._init_flat_weights()
    return copy.deepcopy(model)


def plain(model: nn.Module) -> nn.Module:
    """A copy for inference: parametrizations evaluated, layers frozen, torch's own layers as scans."""
    simple = copy.deepcopy(model)
    for module in list(simple.modules()):
        if parametrize.is_parametrized(module):
            _evaluate_parametrizations(module)
    return _rebuilt(_frozen(simple)).requires_grad_(False).eval()


def _evaluate_parametrizations(module: nn.Module) -> None:
    """As torch's remove_parametrizations, which would also change the class that a copy shares with its original."""
    values = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value))


def _rebuilt(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.RNNBase):
        return Scanned(module)
    for name, child in module.named_children():
        module.add_module(name, _rebuilt(_frozen(child)))
    return module


def _frozen(module: nn.Module) -> nn.Module:
    freeze: Any = getattr(module, "freeze", None)
    return freeze() if callable(freeze) else module


def _first(model: nn.Module, kind: Callable[[nn.Module], bool]) -> nn.Module | None:
    return next(filter(kind, model.modules()), None)


def _recurrent(module: nn.Module) -> bool:
    return isinstance(getattr(module, "input_size", None), int)


def batch_first(model: nn.Module) -> bool:
    """Whether inputs are (batch, time, …)."""
    return bool(getattr(_first(model, _recurrent), "batch_first", False))


def inputs_of(model: nn.Module, symbols: bool, example: Tensor | None) -> Draw:
    """A function that draws inputs for the model from the sizes of time and batch, in the model's order."""
    if isinstance(model, RelationalNetwork) or getattr(model, "front", None) is not None:
        raise InputError(
            f"`model` must read vectors or symbols to be exported; got {type(model).__name__}, which reads whole "
            "sequences of images. Save it with kreiss.save instead."
        )
    generator = torch.Generator().manual_seed(0)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    draw_symbols = lambda count, tail=(): lambda *sizes: torch.randint(count, (*sizes, *tail), generator=generator)  # noqa: E731
    draw_numbers = lambda tail: lambda *sizes: torch.randn(*sizes, *tail, generator=generator, dtype=dtype)  # noqa: E731
    if example is not None:
        check_tensor("example", example)
        if example.dim() < 2 or not example.numel():
            raise InputError(
                f"`example` must be a batch of sequences; got shape {tuple(example.shape)}. Give it time and batch."
            )
        tail = tuple(example.shape[2:])
        return draw_numbers(tail) if example.is_floating_point() else draw_symbols(int(example.max()) + 1, tail)
    if count := int(getattr(model, "symbols", 0)):  # of a RecurrentNetwork
        return draw_symbols(count)
    if isinstance(model, Agent):
        return draw_numbers((math.prod(model.image or (0,)) + model.others,))
    first = _first(model, lambda module: isinstance(module, nn.Embedding) or _recurrent(module))
    if isinstance(first, nn.Embedding):
        return draw_symbols(first.num_embeddings)
    if first is None:
        raise InputError(
            f"`model` must contain a recurrent layer; got {type(model).__name__} without one. "
            "Pass an `example` of its input."
        )
    size = int(first.input_size)  # type: ignore[arg-type]
    return draw_symbols(size) if symbols else draw_numbers((size,))


def tensors_of(outputs: Any) -> list[Tensor]:
    """All tensors that a model returns, in order."""
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


class Flat(nn.Module):
    """A model with plain tensors as inputs and outputs, as a file has them: the input, and the parts of a state.

    Args:
        model: takes an input and, if there is a form, a state.
        form: of the state; None leaves it out.
        step: whether the input is one step, without a dimension of time.
    """

    def __init__(self, model: nn.Module, form: StateForm | None, step: bool = False) -> None:
        super().__init__()
        self.model, self.form, self.step = model, form, step
        self.time = 1 if batch_first(model) else 0
        self.answers_at_end = getattr(model, "answers", "every") == "last"

    def forward(self, input: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, ...]:
        """All tensors that the model returns."""
        given = () if self.form is None else (self.form.packed(state),)
        outputs = self.model(input.unsqueeze(self.time) if self.step else input, *given)
        if isinstance(outputs, Tensor):
            return outputs
        first, *rest = tensors_of(outputs)
        return first.squeeze(self.time) if self.step and not self.answers_at_end else first, *rest
