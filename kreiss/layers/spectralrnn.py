"""The network parametrized by a singular value decomposition with reflections."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Band


class SpectralRNN(RecurrentLayer):
    """A network whose recurrent matrix is parametrized by a singular value decomposition with products of reflections.

    h_t = modReLU(W h_{t−1} + Ux_t; b), W = U_W Σ V_Wᵀ, s_i = 2r(σ(p_i) − ½) + 1, U_W and V_W products of reflections.

    Symbols: U_W `left_l{k}`, V_W `right_l{k}` (the vectors of their reflections), p `singular_l{k}` (see
    `kreiss.Band`), r `margin`, W `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Zhang, Lei & Dhillon (2018).

    Differs: as in `kreiss.ORNN` the leading entry of each vector is 1; φ is modReLU by default.

    Args:
        margin: r in [0, 1].
        reflections: number in each of the two products, 1 to hidden_size − 1; default all.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.SpectralRNN(3, 8, reflections=4)
        >>> layer.left_l0.numel(), layer.singular_l0.numel(), layer.right_l0.numel()
        (22, 8, 22)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        margin: float = 0.1,
        reflections: int | None = None,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Band, hidden_size, margin, "householder", reflections=reflections),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
