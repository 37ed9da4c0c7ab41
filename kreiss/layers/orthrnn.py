"""The orthogonally initialised network."""

from __future__ import annotations

from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.rnn import RNN


class OrthRNN(RNN):
    """A plain network whose recurrent matrix is initialised orthogonal and then unconstrained.

    h_t = modReLU(V h_{t−1} + U x_t; b), VᵀV = I only initially.

    Symbols: as `RNN`; b is `bias_l{k}`, the threshold of modReLU.

    Reference: "RNN-orth" of Kerg et al. (2019), Table 2; Henaff, Szlam & LeCun (2016).

    Args: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> kreiss.Orthogonal(8).contains(kreiss.OrthRNN(3, 8).weight_hh_l0)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "modrelu",
        init: str = "random",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, nonlinearity=nonlinearity, init=init, **options)
