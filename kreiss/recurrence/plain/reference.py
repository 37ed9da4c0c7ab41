"""The recurrence in plain torch, which supports every feature of autograd."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from kreiss.recurrence.nonlinearity import APPLY
from kreiss.recurrence.unroll import Step, settled, unroll


def drive(x: Tensor, weight: Tensor | None) -> Tensor:
    """u = U x (T, B, N); x (T, B, I), or integer symbols (T, B) for one-hot vectors; U = I for None."""
    if weight is None:
        return x
    return F.linear(x, weight) if x.is_floating_point() else F.embedding(x, weight.mT)


def zero_state(x: Tensor, weight: Tensor | None) -> Tensor:
    """The zero initial state (B, N) for inputs x."""
    if weight is None:
        return x.new_zeros(x.shape[1:])
    return (x if x.is_floating_point() else weight).new_zeros(x.shape[1], weight.shape[0])


def plain_step(matrix: Tensor | Callable[[Tensor], Tensor], bias: Tensor | None, nonlinearity: str) -> Step:
    """One time step, h_t = φ(V h_{t−1} + u_t)."""
    phi = APPLY[nonlinearity]
    times = _by_matrix(matrix.mT) if isinstance(matrix, Tensor) else matrix

    def step(u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        new = phi(u + times(h), bias)  # nnRNN paper, eq. (1)
        return new, new

    return step


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
    first, step = h0.to(u.dtype), plain_step(matrix, bias, nonlinearity)
    out, last = unroll(step, u, first, lengths=lengths, reverse=reverse)
    return settled(out, first, last, lengths, reverse)
