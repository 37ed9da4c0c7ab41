"""Modules of the user's own as networks: built from the sizes of a task, checked against the contract, and recorded."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kreiss import own
from kreiss.contracts import Sizes
from kreiss.errors import InputError
from kreiss.options import Option, options_of
from kreiss.recorded import NOT_PLAIN, PASSING, Recorded, plain
from kreiss.relational.parts import drawn_from
from kreiss.settings import NetworkSettings, SizedSettings

ARGUMENTS = "_constructor_arguments"  # of a module that was built by name
OF_TASK = ("input_size", "output_size", "input_shape", "symbols", "answers")
HIDDEN = ("hidden_size", "hidden")  # either of them is the setting `hidden`
CONTRACT = "forward(inputs, state, lengths) -> (outputs, state)"


class OwnModule:
    """Settings, options and construction of one class of modules, which has the contract of a network.

    Attributes:
        module: the class.
        Settings: the class of the settings section of such a network.
    """

    module: ClassVar[type[nn.Module]]
    Settings: ClassVar[type[NetworkSettings]]

    @classmethod
    def options(cls, name: str) -> dict[str, Option]:
        """Arguments of the constructor that neither the task nor `hidden` gives."""
        return options_of(cls.module, without=(*OF_TASK, *HIDDEN))

    @classmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> nn.Module:
        """The module, given those sizes of the task that its constructor names."""
        takes = inspect.signature(cls.module.__init__).parameters
        sizes = {
            "input_size": task.input_size, "output_size": task.output_size, "input_shape": task.input_shape,
            "symbols": task.input_size if task.symbols else 0, "answers": task.answers,
            **dict.fromkeys(HIDDEN, getattr(settings, "hidden", None)),
        }  # fmt: skip
        arguments = {name: value for name, value in sizes.items() if name in takes} | (settings.model_extra or {})
        try:
            with drawn_from(generator):
                made = cls.module(**arguments)
        except TypeError as error:
            raise InputError(
                f"the constructor of {settings.name} must take the sizes of a task and its own options; got "
                f"{error}. Arguments of its own are given as --model.NAME."
            ) from error
        return remembered(made, arguments).to(getattr(torch, settings.dtype))


def own_module(name: str, module: type[nn.Module]) -> type[OwnModule]:
    """How to build a module that has the contract of a network."""
    if not has_contract(module):
        raise InputError(
            f"`{name}` must be a kreiss.RecurrentLayer, a kreiss.Network or a module with {CONTRACT}; got a class with "
            f"forward{inspect.signature(module.forward)}. Give it these arguments."
        )
    sized = any(argument in inspect.signature(module.__init__).parameters for argument in HIDDEN)
    settings = SizedSettings if sized else NetworkSettings
    return type(module.__name__, (OwnModule,), {"module": module, "Settings": settings})


def remembered(module: nn.Module, arguments: dict[str, Any]) -> nn.Module:
    """The module, with the arguments of its constructor, unless it records them itself."""
    if not isinstance(module, Recorded):
        module.__dict__[ARGUMENTS] = arguments
    return module


def has_contract(module: type[nn.Module]) -> bool:
    """Whether the forward of a class can be called with inputs, state and lengths."""
    try:
        inspect.signature(module.forward).bind(None, "inputs", "state", "lengths")
    except TypeError:
        return False
    return True


def arguments_of(module: nn.Module) -> dict[str, Any]:
    """The constructor's arguments: recorded when it was built by name, or its attributes of the same names."""
    recorded = module.config if isinstance(module, Recorded) else module.__dict__.get(ARGUMENTS)
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        if name in PASSING or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = NOT_PLAIN if parameter.default is parameter.empty else parameter.default
        value = getattr(module, name, NOT_PLAIN) if recorded is None else recorded.get(name, default)
        arguments[name] = plain(value)
        if arguments[name] is NOT_PLAIN:
            raise InputError(
                f"`model` must hold the arguments of its constructor to be saved; got {type(module).__name__} without "
                f"`{name}` as a plain value. Write self.{name} = {name} in its constructor."
            )
    return {**arguments, **{name: plain(value) for name, value in (recorded or {}).items() if name not in arguments}}


@torch.no_grad()
def check_contract(
    name: str, network: nn.Module, inputs: Any, lengths: Tensor | None, expected: tuple[int, ...]
) -> None:
    """Raise if a network of the user's own does not map a batch to outputs of the expected shape, and a state."""
    modes = {part: part.training for part in network.modules()}
    kind = f"inputs of shape {tuple(inputs.shape)} and {inputs.dtype}"
    dtype = next((parameter.dtype for parameter in network.parameters()), torch.float32)
    try:
        found = network.eval()(inputs.to(dtype) if inputs.is_floating_point() else inputs, None, lengths)
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"`{name}` must have {CONTRACT} and take {kind}; got {type(error).__name__}: {said}. Correct its forward."
        ) from error
    finally:
        for part, training in modes.items():
            part.training = training
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Tensor)):
        raise InputError(f"`{name}` must have {CONTRACT}; got a {type(found).__name__}. Return outputs and state.")
    if tuple(found[0].shape) != expected:
        raise InputError(
            f"`{name}` must give outputs of shape {expected} for {kind}; got {tuple(found[0].shape)}. Its constructor "
            "may take input_size, output_size, symbols and answers of the task."
        )


def source_of(model: nn.Module) -> dict[str, str]:
    """Where the class of a model came from; nothing for one of kreiss."""
    return {} if own.is_ours(type(model)) else {"source": own.home_of(type(model))}
