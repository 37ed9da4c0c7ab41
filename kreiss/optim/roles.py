"""The roles of parameters, as sets of matrices declare them, and the modules that own such matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from kreiss.sets import Set


def roles(model: nn.Module) -> dict[str, str]:
    """The role of every parameter of `model` by its full name; "weight" where no set declares one.

    Example:
        >>> import kreiss
        >>> kreiss.roles(kreiss.NNRNN(3, 4))["angle_l0"]
        'angle'
    """
    by_name = {name: "weight" for name, _ in model.named_parameters()}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        by_name.update({prefix + name: role for name, role in declared(module).items() if prefix + name in by_name})
    return by_name


def declared(module: Any) -> dict[str, str]:
    """Roles that a module declares for its own parameters: a layer, or torch's parametrization by a set."""
    if isinstance(module, ParametrizationList):
        first = module[0]
        return {f"original{i}": role for i, role in enumerate(first.roles)} if isinstance(first, Set) else {}
    return module.free_roles() if _declares(module) else {}


def _declares(module: Any) -> bool:
    """Whether the class says which roles its parameters have; asking a module itself is slow where it does not."""
    return callable(getattr(type(module), "free_roles", None))


class Owner(NamedTuple):
    """A module that owns matrices of a set: a layer, or torch's parametrization by a set.

    Attributes:
        module: the module.
        rebase: moves the base points of its trivializations; takes whether they are projected.
    """

    module: nn.Module
    rebase: Callable[[bool], None]

    def parameters(self, role: str) -> list[nn.Parameter]:
        """Its parameters with this role."""
        return [getattr(self.module, name) for name, had in declared(self.module).items() if had == role]


def outside_sets(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of a model in the order of `modules()`, without sets of matrices and what is in them."""
    seen: set[nn.Module] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if module in seen or isinstance(module, Set):
            continue
        seen.add(module)
        yield module
        waiting.extend(child for child in reversed(module._modules.values()) if child is not None)


def owners(model: nn.Module) -> Iterator[Owner]:
    """The owners in a model, at any depth."""
    for module in outside_sets(model):
        if isinstance(module, ParametrizationList):
            if isinstance(module[0], Set):
                yield Owner(module, partial(_rebase_parametrization, module))
        elif _declares(module):
            layer: Any = module
            yield Owner(module, layer.rebase)


@torch.no_grad()
def _rebase_parametrization(parametrization: ParametrizationList, project: bool) -> None:
    constrained = parametrization[0]
    assert isinstance(constrained, Set)
    free = (getattr(parametrization, f"original{i}") for i in range(len(constrained.roles)))
    constrained.rebase(*free, project=project)
