"""The network with an orthogonal recurrent matrix, parametrized by the scaled Cayley transform."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Orthogonal


class ScoRNN(RecurrentLayer):
    """A network whose recurrent matrix is a scaled Cayley transform.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = (I + A)⁻¹(I − A)D, A skew, D = diag(±1).

    Symbols: A `orthogonal_l{k}` (its strictly lower triangle), D fixed by `negative`,
    V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Helfrich, Willmott & Ye (2018), eq. (2).

    Args:
        negative: number of entries −1 of D; default half of them.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> kreiss.ScoRNN(3, 8, negative=2).constraint_error() < 1e-5
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        negative: int | None = None,
        nonlinearity: str = "modrelu",
        init: str = "cayley",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Orthogonal, hidden_size, "scaled_cayley", negative=negative),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
