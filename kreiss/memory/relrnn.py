"""The recurrent network with relevancy screening."""

from __future__ import annotations

from typing import Unpack

from kreiss.errors import check_size
from kreiss.layers.contract.base import LayerOptions
from kreiss.memory.base import AttentiveLayer, check_options
from kreiss.memory.screening import Screening, checked_rule
from kreiss.sets import Set


class RelRNN(AttentiveLayer):
    """A recurrent network that attends to its last ν states and to at most ρ screened ones.

    h_t = φ(V s_{t−1} + U x_t + b), s_t = m (h_t + Σ_i α_i h_i), α = softmax_i(vᵀ tanh(V_a s_{t−1} + U_a h_i)) over
    the short-term memory S (the last ν states) and the relevant set R. A state that leaves S after ν reads enters R
    if there is room, or if the attention β it received is strictly greater than the lowest score in R.

    Symbols: ν `short`, ρ `relevant`, m `mixing`; V `weight_hh_l{k}`, from the free parameters of its set; U
    `weight_ih_l{k}`; b `bias_l{k}`; V_a `attention_query_l{k}`; U_a `attention_key_l{k}`; v `attention_score_l{k}`.

    Reference: Kerg et al. (2020), Algorithm 1; the thesis, 4.5.

    Differs: the algorithm screens h_{t−ρ}; the state that leaves S is h_{t−ν}. m = ½, as in the authors' code; the
    text has m = 1.

    Args:
        short, relevant, mixing: ν, ρ and m.
        screening: "relevance" (β), "oldest", "random", "surprise", "learned", "none", or a `kreiss.memory.Screening`.
        recurrent: the set of V, such as `kreiss.Schur(n)` or its name; unconstrained by default.
        init: initialiser of V, one of those of its set.
        carry_memory: whether training carries the memory from one window of a long sequence to the next.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.RelRNN(10, 128, short=10, relevant=10)
        >>> sum(p.numel() for p in layer.parameters()) + 128 * 9 + 9
        51849
        >>> out, state = layer(torch.randn(50, 2, 10))
        >>> out.shape, state.relevant.shape
        (torch.Size([50, 2, 128]), torch.Size([1, 2, 10, 128]))
    """

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
        nonlinearity: str = "tanh",
        recurrent: str | Set = "free",
        init: str | None = None,
        carry_memory: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        check_options(self, options)
        super().__init__(
            input_size, hidden_size, num_layers, short=check_size("short", short), relevant=relevant, mixing=mixing,
            screening=checked_rule(screening), nonlinearity=nonlinearity, recurrent=recurrent, init=init,
            carry_memory=carry_memory, **options,
        )  # fmt: skip
