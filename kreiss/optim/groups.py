"""Optimiser groups from the roles of parameters."""

from __future__ import annotations

from typing import Any

from torch import nn

from kreiss.errors import InputError
from kreiss.optim.roles import roles


def param_groups(
    model: nn.Module, lr: float, orthogonal_lr: float | None = None, coupling_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser: orthogonal factors, couplings T, and all else.

    Args:
        model: any module; layers and constrained matrices are found at any depth.
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
