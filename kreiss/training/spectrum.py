"""The spectrum of a network at a glance."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def glance(model: nn.Module) -> dict[str, float]:
    """Smallest, mean and largest |λ| and Henrici's departure √(‖V‖² − Σ|λ|²) of the first recurrent matrix.

    Empty for a network that has no single recurrent matrix, such as an LSTM.
    """
    matrix = recurrent_matrix(model)
    if matrix is None or not torch.isfinite(matrix).all():
        return {}
    wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    moduli = torch.linalg.eigvals(wide).abs()
    departure = (wide.abs().square().sum() - moduli.square().sum()).clamp(min=0).sqrt()
    return {
        "modulus_min": float(moduli.min()),
        "modulus_mean": float(moduli.mean()),
        "modulus_max": float(moduli.max()),
        "departure": float(departure),
    }


def recurrent_matrix(model: nn.Module) -> Tensor | None:
    """V of the first layer that has one, or None."""
    for module in model.modules():
        matrix = getattr(module, "weight_hh_l0", None)
        if isinstance(matrix, Tensor) and matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1]:
            return matrix.detach()
    return None
