"""Moving base points as training goes on, and the soft orthogonality penalty."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kreiss.errors import InputError, check_name, check_size
from kreiss.training.groups import rebase


def rebase_every(
    model: nn.Module, optimizer: torch.optim.Optimizer, period: int, *, project: int = 1
) -> RemovableHandle:
    """Move the base points of all trivializations after every K-th step of an optimiser (dynamic trivializations).

    Args:
        model: any module; layers and constrained matrices are found however deep.
        optimizer: whose steps count.
        period: K, the steps between two moves; 1 is Riemannian gradient descent, never calling this a static
            trivialization.
        project: every how many moves the new base points are projected on the orthogonal group, which removes rounding
            errors; 1 for every move.

    Returns:
        A handle whose remove() ends it. Steps are counted from this call on: resume at a multiple of K.

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


def soft_orthogonality(model: nn.Module, weight: float, *, norm: str = "frobenius") -> Tensor:
    """λ‖WᵀW − I‖², which pulls recurrent matrices towards orthogonal ones.

    Args:
        model: any module; the recurrent matrices of our layers and of `torch.nn.RNN` count, and are summed.
        weight: λ.
        norm: "frobenius", or "spectral" for the largest singular value of WᵀW − I.

    Reference: Vorontsov et al. (2017).

    Example:
        >>> import kreiss
        >>> round(float(kreiss.soft_orthogonality(kreiss.RNN(3, 4, init="random"), 0.1).detach()), 6)
        0.0
    """
    check_name("norm", norm, ("frobenius", "spectral"))
    if not weight >= 0:
        raise InputError(f"`weight` must be at least 0; got weight={weight}. Pass λ ≥ 0.")
    terms = []
    for w in _recurrent_matrices(model):
        off = w.mT @ w - torch.eye(w.shape[1], dtype=w.dtype, device=w.device)
        terms.append(weight * torch.linalg.matrix_norm(off, "fro" if norm == "frobenius" else 2) ** 2)
    if not terms:
        raise InputError(
            f"`model` must have a square recurrent matrix; got {type(model).__name__}, which has none. "
            "Pass a model with a recurrent layer."
        )
    return torch.stack(terms).sum()


def _recurrent_matrices(model: nn.Module) -> Iterator[Tensor]:
    """weight_hh of every layer and direction that is square: not the stacked gates of LSTM and GRU."""
    for module in model.modules():
        for name in dir(module):
            if name.startswith("weight_ih_l"):
                found = getattr(module, name.replace("ih", "hh", 1), None)
                if isinstance(found, Tensor) and found.shape[0] == found.shape[1]:
                    yield found
