"""The gated recurrence, the same for every set of matrices.

    r_t, g_t = sigmoid(W h_{t−1} + s_t + d),  c_t = φ(r_t ⊙ V h_{t−1} + u_t; b),  h_t = g_t ⊙ h_{t−1} + (1 − g_t) ⊙ c_t

`run_gated` chooses the path as `kreiss.recurrence.run_plain` does: the compiled kernel; a loop with a hand-written
backward pass where there is none; plain autograd for other derivatives; one opaque operator under torch.compile; a scan
under torch.export.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.recurrence import plain
from kreiss.recurrence.gated import fused, loop, operator, reference
from kreiss.recurrence.plain.reference import drive

__all__ = ["run_gated"]


def run_gated(
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor,
    gates: Tensor,
    h0: Tensor | None,
    *,
    nonlinearity: str,
    bias: Tensor | None = None,
    gate_bias: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the gated recurrence over a sequence, by the fastest path that applies; [u, s] = [U; S] x.

    Args:
        x: inputs (T, B, I), T ≥ 1, or integer symbols (T, B) below I, which represent one-hot vectors.
        weight: [U; S] (3N, I), the rows of the candidate, then those of r and g; None for x = [u, s] (T, B, 3N).
        matrix: V (N, N).
        gates: W (2N, N), the rows of r, then those of g.
        h0: initial state (B, N); None for zero, which saves a product.
        bias: b (N,).
        gate_bias: d (2N,).
        others: see `kreiss.recurrence.recur`.

    Returns:
        States (T, B, N) and the last state computed (B, N).
    """
    tensors = (x, weight, bias, gate_bias, matrix, gates, h0)
    if not plain.takes_reference() and fused.usable(x, weight, matrix, gates, h0, bias, gate_bias, lengths):
        differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        return fused.Recurrence.apply(*tensors, lengths, nonlinearity, reverse, differentiable)
    driven = drive(x, weight)
    h0 = driven.new_zeros(driven.shape[1], matrix.shape[-1]) if h0 is None else h0
    out = _states(driven, matrix, gates, h0, bias, gate_bias, lengths, nonlinearity, reverse)
    return out, out[0] if reverse else out[-1]


def _states(
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
    """All states where the kernel does not apply directly."""
    if torch.compiler.is_exporting():  # without gradients: those of a scan are unreliable
        driven, matrix, gates, h0 = (tensor.detach() for tensor in (driven, matrix, gates, h0))
        bias, gate_bias = (None if tensor is None else tensor.detach() for tensor in (bias, gate_bias))
        return reference.states(driven, matrix, gates, h0, bias, gate_bias, None, nonlinearity, reverse)
    tensors = (driven, matrix, gates, h0, bias, gate_bias)
    if torch.compiler.is_compiling() and not derivatives.forward_mode():
        out: Tensor = operator.gated_op(*tensors, lengths, nonlinearity, reverse)[0]
        return out
    if not plain.takes_reference() and derivatives.ordinary() and _one_dtype(driven, matrix, gates, h0):
        return loop.GatedRecurrence.apply(*tensors, lengths, nonlinearity, reverse)
    return reference.states(*tensors, lengths, nonlinearity, reverse)


def _one_dtype(*tensors: Tensor) -> bool:
    device = tensors[0].device.type
    same = len({tensor.dtype for tensor in tensors}) == 1
    return same and device != "meta" and not torch.is_autocast_enabled(device)
