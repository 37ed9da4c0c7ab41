"""Moving the base points of trivializations."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from kreiss.errors import check_size
from kreiss.optim.roles import owners


def rebase(model: nn.Module, project: bool = True) -> None:
    """Move the base points of all trivializations to the current matrices; the outputs do not change.

    Optional upkeep after optimiser steps: the matrix is exact without it. The optimiser's
    moments of the free parameters are left as they are.

    Args:
        model: any module.
        project: whether new base points are projected on the orthogonal group, which removes their rounding errors.
    """
    for owner in owners(model):
        owner.rebase(project)


def rebase_every(
    model: nn.Module, optimizer: torch.optim.Optimizer, period: int, *, project: int = 1
) -> RemovableHandle:
    """Move the base points of all trivializations after every K-th step of an optimiser (dynamic trivializations).

    Args:
        model: any module; layers and constrained matrices are found at any depth.
        optimizer: whose steps count.
        period: K, the steps between two moves; 1 is Riemannian gradient descent, never calling this a static
            trivialization.
        project: moves per projection of the new base points on the orthogonal group, which removes rounding errors;
            1 projects at every move.

    Returns:
        A handle whose remove() stops it. Steps are counted from this call: resume at a multiple of K.

    Reference: Lezcano-Casado (2019), the dynamic trivialization framework.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.ExpRNN(3, 8, retraction="exp")
        >>> optimizer = torch.optim.Adam(layer.parameters())
        >>> handle = kreiss.rebase_every(layer, optimizer, 100, project=10)
    """
    check_size("period", period)
    check_size("project", project)
    steps = 0

    def after_step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps % period == 0:
            rebase(model, project=(steps // period) % project == 0)

    return optimizer.register_step_post_hook(after_step)
