"""The recurrence h_t = φ(V h_{t−1} + u_t), the same for every set of matrices.

`run_plain` runs all layers without gates and chooses the path: the compiled kernel, the loop of
`kreiss.recurrence.unroll`, one opaque operator under torch.compile, a scan under torch.export. `recur` is the
recurrence alone, for given u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kreiss import derivatives
from kreiss.errors import InputError
from kreiss.recurrence.nonlinearity import APPLY
from kreiss.recurrence.plain import fused, operator, reference

NONLINEARITIES = tuple(APPLY)
REAL_NONLINEARITIES = tuple(name for name in APPLY if name != "cmodrelu")  # those that act elementwise

__all__ = ["NONLINEARITIES", "REAL_NONLINEARITIES", "last_state", "recur", "reference_only", "run_plain"]

_reference_only = False


@contextmanager
def reference_only() -> Iterator[None]:
    """Context in which eager code uses the plain loop, for comparison."""
    global _reference_only
    before, _reference_only = _reference_only, True
    try:
        yield
    finally:
        _reference_only = before


def reference_is_forced() -> bool:
    """Whether `reference_only` is active."""
    return _reference_only


def run_plain(
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor | Callable[[Tensor], Tensor],
    h0: Tensor | None,
    *,
    nonlinearity: str,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run h_t = φ(V h_{t−1} + U x_t; b) over a sequence, by the fastest path that applies.

    Args:
        x: inputs (T, B, I), or integer symbols (T, B) below I, which represent one-hot vectors.
        weight: U (N, I); None for U = I, and then x is (T, B, N).
        h0: initial state (B, N); None for zero, which saves a product.
        others: see `recur`.

    Returns:
        States (T, B, N) and the last state computed (B, N).
    """
    _check_pairs(matrix, nonlinearity)
    if isinstance(matrix, Tensor) and not _reference_only and fused.usable(x, weight, matrix, h0, bias, lengths):
        differentiable = torch.is_grad_enabled()
        return fused.Recurrence.apply(x, weight, bias, matrix, h0, lengths, nonlinearity, reverse, differentiable)
    u = reference.drive(x, weight)
    h0 = reference.zero_state(x, weight) if h0 is None else h0
    return recur(u, matrix, h0, nonlinearity=nonlinearity, bias=bias, lengths=lengths, reverse=reverse)


def last_state(
    x: Tensor,
    weight: Tensor | None,
    matrix: Tensor | Callable[[Tensor], Tensor],
    h0: Tensor | None,
    *,
    nonlinearity: str,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> Tensor:
    """The last state (B, N) of `run_plain`; with the kernel, it stores about 2√T states instead of T."""
    _check_pairs(matrix, nonlinearity)
    if isinstance(matrix, Tensor) and not _reference_only and fused.usable(x, weight, matrix, h0, bias, lengths):
        return fused.LastState.apply(x, weight, bias, matrix, h0, lengths, nonlinearity, reverse)
    return run_plain(
        x, weight, matrix, h0, nonlinearity=nonlinearity, bias=bias, lengths=lengths, reverse=reverse
    )[1]  # fmt: skip


def _check_pairs(matrix: Tensor | Callable[[Tensor], Tensor], nonlinearity: str) -> None:
    if nonlinearity == "cmodrelu" and isinstance(matrix, Tensor) and matrix.shape[-1] % 2:
        raise InputError(
            f"states of complex numbers must have an even number of entries; got {matrix.shape[-1]}. "
            "Pass pairs (re, im)."
        )


def recur(
    u: Tensor,
    matrix: Tensor | Callable[[Tensor], Tensor],
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
        matrix: V (N, N), or a function h → V h of rows h (B, N), for which the plain loop is used.
        h0: initial state (B, N).
        nonlinearity: "identity", "tanh", "relu", "modrelu", or "cmodrelu" for complex numbers, as pairs of entries
            (re, im).
        bias: (N,), inside φ: added to z, or the threshold of modReLU.
        lengths: (B,), valid steps of each sequence; beyond them the state is unchanged.
        reverse: run from the last step to the first (from the end of each sequence).

    Returns:
        States (T, B, N) and the last state computed (B, N).
    """
    if not isinstance(matrix, Tensor):
        out = reference.states(u, matrix, h0, bias, lengths, nonlinearity, reverse)
        return out, out[0] if reverse else out[-1]
    traced = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    # the operator would drop forward-mode derivatives silently
    states = operator.states if traced and not derivatives.forward_mode() else reference.states
    out = states(u, matrix, h0, bias, lengths, nonlinearity, reverse)
    return out, out[0] if reverse else out[-1]
