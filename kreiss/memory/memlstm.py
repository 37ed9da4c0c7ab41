"""The LSTM with attention over all of its past states."""

from __future__ import annotations

from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.memory.base import AttentiveLayer, check_options


class MemLSTM(AttentiveLayer):
    """An LSTM that attends to all of its past states.

    i, f, g, o = σ, σ, tanh, σ of U x_t + V s_{t−1} + b, c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t), with s and the
    attention of `kreiss.MemRNN`.

    Symbols: as in `kreiss.RelLSTM`.

    Reference: Bahdanau et al. (2015), as applied in the thesis, 4.6.

    Differs: as `kreiss.MemRNN`.

    Args:
        mixing: m.
        carry_memory: whether training carries the memory, which then grows, from one window of a long sequence to the
            next.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> sum(p.numel() for p in kreiss.MemLSTM(10, 128).parameters()) + 128 * 9 + 9
        105225
    """

    lstm = True
    blocks = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        mixing: float = 0.5,
        carry_memory: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        check_options(self, options)
        super().__init__(
            input_size, hidden_size, num_layers, short=None, relevant=0, mixing=mixing, screening=None,
            nonlinearity="tanh", recurrent="free", init=None, carry_memory=carry_memory, **options,
        )  # fmt: skip
