"""The identity-initialised network."""

from __future__ import annotations

from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.rnn import RNN


class IRNN(RNN):
    """A plain ReLU network whose recurrent matrix is initialised as the identity.

    h_t = relu(V h_{t−1} + U x_t + b), V = I initially, then unconstrained.

    Symbols: as `RNN`.

    Reference: Le, Jaitly & Hinton (2015).

    Args: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> kreiss.IRNN(3, 2).weight_hh_l0.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "relu",
        init: str = "identity",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, nonlinearity=nonlinearity, init=init, **options)
