"""The recurrence as a torch `scan`, which exports with dynamic time and batch (ONNX: Scan).

For inference only: the second derivatives of torch's scan are wrong in torch 2.13.
"""

from __future__ import annotations

from torch import Tensor

from kreiss.recurrence.nonlinearity import APPLY


def states(
    u: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
) -> Tensor:
    """All states (T, B, N), traced once whatever T is; layers refuse to export packed sequences, so no lengths."""
    from torch._higher_order_ops.scan import scan

    phi = APPLY[nonlinearity]

    def step(h: Tensor, u_t: Tensor) -> tuple[Tensor, Tensor]:
        new = phi(u_t + h @ matrix.mT, bias)
        return new, new.clone()

    _, out = scan(step, h0.to(u.dtype), u, dim=0, reverse=reverse)
    return out
