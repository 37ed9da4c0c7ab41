"""Penalties on recurrent matrices, to be added to a loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_name
from kreiss.optim.roles import declared, outside_sets


def radius_penalty(model: nn.Module, weight: float, *, reduction: str = "sum") -> Tensor:
    """δ‖1 − γ‖², which pulls eigenvalue moduli to the unit circle (nnRNN paper, §4).

    Args:
        model: any module.
        weight: δ.
        reduction: over the blocks of one matrix, "sum" (the paper and its released code) or "mean".
            Matrices are summed.

    Example:
        >>> import kreiss
        >>> float(kreiss.radius_penalty(kreiss.NNRNN(3, 4), weight=0.1).detach())
        0.0
    """
    check_name("reduction", reduction, ("sum", "mean"))
    if not weight >= 0:
        raise InputError(f"`weight` must be at least 0; got weight={weight}. Pass δ ≥ 0.")
    total: Tensor | None = None
    for module in outside_sets(model):
        for name, role in declared(module).items():
            if role == "radius":
                off = getattr(module, name) - 1
                term = (weight if reduction == "sum" else weight / len(off)) * off.dot(off)
                total = term if total is None else total + term
    if total is None:
        first = next(model.parameters(), None)
        return torch.zeros(()) if first is None else first.new_zeros(())
    return total


def soft_orthogonality(model: nn.Module, weight: float, *, norm: str = "frobenius") -> Tensor:
    """λ‖WᵀW − I‖², which pulls recurrent matrices towards orthogonal ones.

    Args:
        model: any module; summed over the recurrent matrices of kreiss layers and of `torch.nn.RNN`.
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
                matrix = getattr(module, name.replace("ih", "hh", 1), None)
                if isinstance(matrix, Tensor) and matrix.shape[0] == matrix.shape[1]:
                    yield matrix
