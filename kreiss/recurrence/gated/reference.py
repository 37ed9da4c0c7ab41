"""The gated recurrence in plain torch, which supports every feature of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kreiss.recurrence.nonlinearity import APPLY
from kreiss.recurrence.unroll import Step, settled, unroll


def gated_step(
    matrix: Tensor, gates: Tensor, bias: Tensor | None, gate_bias: Tensor | None, nonlinearity: str, *, keep: bool
) -> Step:
    """One time step of the state; with `keep` its output is the state, and c_t, r_t, g_t and V h_{t−1} side by side."""
    n, both = len(matrix), torch.cat([matrix, gates]).mT  # one product for all three
    phi = APPLY[nonlinearity]

    def step(driven: Tensor, h: Tensor) -> tuple[Any, Tensor]:
        products = h @ both
        s = driven[..., n:] + products[..., n:]
        opened = (s if gate_bias is None else s + gate_bias.to(s.dtype)).sigmoid()
        candidate = phi(opened[..., :n] * products[..., :n] + driven[..., :n], bias)
        share = opened[..., n:]
        new = share * h + (1 - share) * candidate
        return (new, torch.cat([candidate, opened, products[..., :n]], -1)) if keep else new, new

    return step


def states(
    driven: Tensor,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    gate_bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """All states (T, B, N) for given inputs u, s side by side (T, B, 3N)."""
    first = h0.to(driven.dtype)
    step = gated_step(matrix, gates, bias, gate_bias, nonlinearity, keep=False)
    out, last = unroll(step, driven, first, lengths=lengths, reverse=reverse)
    return settled(out, first, last, lengths, reverse)
