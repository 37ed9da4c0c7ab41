"""Optimiser groups, penalties and upkeep, from the roles of parameters; no model is asked its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from kreiss.errors import InputError, check_name
from kreiss.sets import Set


def roles(model: nn.Module) -> dict[str, str]:
    """The role of every parameter of `model` by its full name; "weight" where no set declares one.

    Example:
        >>> import kreiss
        >>> kreiss.roles(kreiss.NNRNN(3, 4))["angle_l0"]
        'angle'
    """
    found = {name: "weight" for name, _ in model.named_parameters()}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        found.update({prefix + name: role for name, role in _declared(module).items() if prefix + name in found})
    return found


def _declared(module: nn.Module) -> dict[str, str]:
    """Roles that a module declares for its own parameters: a layer, or torch's parametrization by a set."""
    if isinstance(module, ParametrizationList):
        first = module[0]
        return {f"original{i}": role for i, role in enumerate(first.roles)} if isinstance(first, Set) else {}
    declare = getattr(module, "free_roles", None)
    return declare() if callable(declare) else {}


def param_groups(
    model: nn.Module, lr: float, orthogonal_lr: float | None = None, coupling_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser: orthogonal factors, couplings T, and all else.

    Args:
        model: any module; layers and constrained matrices are found however deep.
        lr: learning rate.
        orthogonal_lr: learning rate of orthogonal factors ("LR orth"); the papers keep it near lr / 10.
            Default: lr.
        coupling_decay: weight decay of couplings ("T decay"). Other groups take the optimiser's own.

    Example:
        >>> import kreiss, torch
        >>> model = torch.nn.Sequential(kreiss.NNRNN(3, 4))
        >>> groups = kreiss.param_groups(model, 1e-3, orthogonal_lr=1e-4, coupling_decay=1e-6)
        >>> [group["name"] for group in groups]
        ['orthogonal', 'coupling', 'other']
        >>> optimizer = torch.optim.RMSprop(groups)
    """
    for name, value in (("lr", lr), ("orthogonal_lr", orthogonal_lr), ("coupling_decay", coupling_decay)):
        if value is not None and not value >= 0:
            raise InputError(f"`{name}` must be at least 0; got {name}={value}. Pass a number ≥ 0.")
    members: dict[str, list[nn.Parameter]] = {"orthogonal": [], "coupling": [], "other": []}
    role = roles(model)
    for name, parameter in model.named_parameters():
        members[role[name] if role[name] in members else "other"].append(parameter)
    groups: list[dict[str, Any]] = [
        {"name": "orthogonal", "lr": lr if orthogonal_lr is None else orthogonal_lr},
        {"name": "coupling", "lr": lr, "weight_decay": coupling_decay},
        {"name": "other", "lr": lr},
    ]
    return [{"params": members[group["name"]], **group} for group in groups if members[group["name"]]]


def penalty(model: nn.Module, radius: float, *, reduction: str = "sum") -> Tensor:
    """δ‖1 − γ‖², which pulls eigenvalue moduli to the unit circle (nnRNN paper, §4).

    Args:
        model: any module.
        radius: δ.
        reduction: over the blocks of one matrix, "sum" (the paper and its released code) or "mean".
            Matrices are summed.

    Example:
        >>> import kreiss
        >>> float(kreiss.penalty(kreiss.NNRNN(3, 4), radius=0.1).detach())
        0.0
    """
    check_name("reduction", reduction, ("sum", "mean"))
    if not radius >= 0:
        raise InputError(f"`radius` must be at least 0; got radius={radius}. Pass δ ≥ 0.")
    total: Tensor | None = None
    for module in model.modules():
        for name, role in _declared(module).items():
            if role == "radius":
                squares = (1 - getattr(module, name)) ** 2
                term = radius * (squares.sum() if reduction == "sum" else squares.mean())
                total = term if total is None else total + term
    if total is None:
        first = next(model.parameters(), None)
        return torch.zeros(()) if first is None else first.new_zeros(())
    return total


def rebase(model: nn.Module, project: bool = True) -> None:
    """Move the base points of all trivializations to the present matrices; nothing computed changes.

    Optional upkeep after optimiser steps: the matrix is exact without it. Moments that an optimiser
    keeps for the free numbers are left as they are.

    Args:
        model: any module.
        project: whether new base points are projected on the orthogonal group, which removes their rounding errors.
    """
    for owner, module in _owners(model):
        owner(module, project)


def _owners(model: nn.Module) -> Iterator[tuple[Any, nn.Module]]:
    for module in model.modules():
        if isinstance(module, ParametrizationList):
            if isinstance(module[0], Set):
                yield _rebase_parametrization, module
        elif callable(getattr(module, "free_roles", None)):
            yield (lambda layer, project: layer.rebase(project)), module


@torch.no_grad()
def _rebase_parametrization(parametrization: ParametrizationList, project: bool) -> None:
    constrained = parametrization[0]
    assert isinstance(constrained, Set)
    free = (getattr(parametrization, f"original{i}") for i in range(len(constrained.roles)))
    constrained.rebase(*free, project=project)
