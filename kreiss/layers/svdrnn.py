"""The network with singular values within a margin of 1."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Band
from kreiss.sets.orthogonal import DEFAULT_METHOD


class SVDRNN(RecurrentLayer):
    """A network whose recurrent matrix has every singular value within a hard margin of 1.

    h_t = modReLU(W h_{t−1} + Ux_t; b), W = U_W Σ V_Wᵀ, s_i = 2m(σ(p_i) − ½) + 1.

    Symbols: U_W `left_l{k}`, V_W `right_l{k}`, p `singular_l{k}` (see `kreiss.Band`), m `margin`, W `weight_hh_l{k}`,
    U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Vorontsov et al. (2017); in Kerg (2022), §D.3. The soft form of the constraint is
    `kreiss.soft_orthogonality`.

    Differs: U_W and V_W are parametrized by a trivialization, so any optimiser trains them; the paper updates them by
    multiplicative Cayley steps. φ is modReLU by default.

    Args:
        margin: m in [0, 1].
        orthogonal: how U_W and V_W are parametrized, a method of `kreiss.Orthogonal`.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.SVDRNN(3, 8, margin=0.2)
        >>> torch.nn.init.normal_(layer.singular_l0, std=10.0).shape
        torch.Size([8])
        >>> bool((torch.linalg.svdvals(layer.weight_hh_l0) - 1).abs().max() < 0.2 + 1e-5)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        margin: float = 0.1,
        orthogonal: str = DEFAULT_METHOD,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Band, hidden_size, margin, orthogonal),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
