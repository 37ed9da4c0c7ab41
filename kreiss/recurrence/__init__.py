"""The recurrence h_t = φ(V h_{t−1} + u_t), the same for every set of matrices.

`recur` is the one function through which every layer runs, and the seam for faster paths.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.recurrence import exporting, operator, reference
from kreiss.recurrence.nonlinearity import APPLY

NONLINEARITIES = tuple(APPLY)

__all__ = ["NONLINEARITIES", "recur"]


def _forward_mode() -> bool:
    """Whether forward-mode derivatives are being taken; the operator has none and would drop them silently."""
    return torch.autograd.forward_ad._current_level >= 0


def recur(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    *,
    nonlinearity: str,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run h_t = φ(V h_{t−1} + u_t) over a sequence.

    Args:
        u: inputs (T, B, N), T ≥ 1.
        matrix: V (N, N).
        h0: first state (B, N).
        nonlinearity: "identity", "tanh", "relu" or "modrelu".
        bias: (N,), inside φ: added to z, or the threshold of modReLU.
        lengths: (B,), valid steps of each sequence; after them the state stays what it was.
        reverse: run from the last step to the first (from each sequence's own end).

    Returns:
        States (T, B, N) and the last state computed (B, N).
    """
    if torch.compiler.is_exporting():
        states = exporting.states
    elif torch.compiler.is_compiling() and not _forward_mode():
        states = operator.recur_op
    else:
        states = reference.states
    out = states(u, matrix, h0, bias, lengths, nonlinearity, reverse)
    return out, out[0] if reverse else out[-1]
