"""The recurrence in plain torch: a loop over time that supports every feature of autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.recurrence.nonlinearity import APPLY


def drive(x: Tensor, weight: Tensor | None) -> Tensor:
    """u = U x (T, B, N); x (T, B, I), or integer symbols (T, B) that stand for one-hot vectors; U = I for None."""
    if weight is None:
        return x
    return F.linear(x, weight) if x.is_floating_point() else F.embedding(x, weight.mT)


def zero_state(x: Tensor, weight: Tensor | None) -> Tensor:
    """The state (B, N) before a sequence of which nothing is known."""
    if weight is None:
        return x.new_zeros(x.shape[1:])
    return (x if x.is_floating_point() else weight).new_zeros(x.shape[1], weight.shape[0])


def _by_matrix(transposed: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda h: h @ transposed


def states(
    u: Tensor,
    matrix: Tensor | Callable[[Tensor], Tensor],
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """All states (T, B, N) of h_t = φ(V h_{t−1} + u_t); see `kreiss.recurrence.recur`."""
    phi, h = APPLY[nonlinearity], h0.to(u.dtype)
    times = _by_matrix(matrix.mT) if isinstance(matrix, Tensor) else matrix
    inputs = u.unbind(0)  # not u[t], whose backward pass makes a zero tensor of the whole length at every step
    steps: list[Tensor] = [h] * len(inputs)
    for t in reversed(range(len(inputs))) if reverse else range(len(inputs)):
        new = phi(inputs[t] + times(h), bias)  # nnRNN paper, eq. (1)
        h = new if lengths is None else torch.where((t < lengths)[:, None], new, h)
        steps[t] = h
    return torch.stack(steps)
