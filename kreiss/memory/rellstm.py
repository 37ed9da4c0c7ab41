"""The LSTM with relevancy screening."""

from __future__ import annotations

from typing import Unpack

from kreiss.errors import check_size
from kreiss.layers.contract.base import LayerOptions
from kreiss.memory.base import AttentiveLayer, check_options
from kreiss.memory.screening import Screening, checked_rule


class RelLSTM(AttentiveLayer):
    """An LSTM that attends to its last ν states and to at most ρ screened ones.

    i, f, g, o = σ, σ, tanh, σ of U x_t + V s_{t−1} + b, c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t), with s, the
    attention and the screening of `kreiss.RelRNN`.

    Symbols: as in `kreiss.RelRNN`; `weight_ih_l{k}`, `weight_hh_l{k}` and `bias_l{k}` stack the gates i, f, g, o, with
    one bias each.

    Reference: Kerg et al. (2020), Algorithm 1; the thesis, 4.5.

    Differs: as `kreiss.RelRNN`.

    Args:
        short, relevant, mixing: ν, ρ and m.
        screening: "relevance" (β), "oldest", "random", "surprise", "learned", "none", or a `kreiss.memory.Screening`.
        carry_memory: whether training carries the memory from one window of a long sequence to the next.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.RelLSTM(10, 128)
        >>> sum(p.numel() for p in layer.parameters()) + 128 * 9 + 9
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
        short: int = 10,
        relevant: int = 10,
        mixing: float = 0.5,
        screening: str | Screening = "relevance",
        carry_memory: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        check_options(self, options)
        super().__init__(
            input_size, hidden_size, num_layers, short=check_size("short", short), relevant=relevant, mixing=mixing,
            screening=checked_rule(screening), nonlinearity="tanh", recurrent="free", init=None,
            carry_memory=carry_memory, **options,
        )  # fmt: skip
