"""The recurrent network with attention over all of its past states."""

from __future__ import annotations

from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.memory.base import AttentiveLayer, check_options
from kreiss.sets import Set


class MemRNN(AttentiveLayer):
    """A recurrent network that attends to all of its past states.

    h_t = φ(V s_{t−1} + U x_t + b), s_t = m (h_t + Σ_{i≤t} α_i h_i), α = softmax_i(vᵀ tanh(V_a s_{t−1} + U_a h_i)).

    Symbols: as in `kreiss.RelRNN`. Time grows with T², memory with T.

    Reference: Bahdanau et al. (2015), as applied in the thesis, eqs. (4.4.1) and (4.4.2).

    Differs: m = ½, as in the authors' code; the text has m = 1.

    Args:
        mixing: m.
        recurrent: the set of V, such as `kreiss.Schur(n)` or its name; unconstrained by default.
        init: initialiser of V, one of those of its set.
        carry_memory: whether training carries the memory, which then grows, from one window of a long sequence to the
            next.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.MemRNN(3, 8)
        >>> out, state = layer(torch.randn(20, 2, 3))
        >>> state.memory.shape
        torch.Size([1, 2, 20, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        mixing: float = 0.5,
        nonlinearity: str = "tanh",
        recurrent: str | Set = "free",
        init: str | None = None,
        carry_memory: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        check_options(self, options)
        super().__init__(
            input_size, hidden_size, num_layers, short=None, relevant=0, mixing=mixing, screening=None,
            nonlinearity=nonlinearity, recurrent=recurrent, init=init, carry_memory=carry_memory, **options,
        )  # fmt: skip
