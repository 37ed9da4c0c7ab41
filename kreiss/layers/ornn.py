"""The network whose recurrent matrix is a product of reflections."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Orthogonal


class ORNN(RecurrentLayer):
    """A network whose recurrent matrix is a product of m Householder reflections.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = H(v₁)···H(v_m) D, H(v) = I − 2vvᵀ/‖v‖², v_k = (0, …, 0, 1, free).

    Symbols: v `orthogonal_l{k}` (the free entries, vector by vector), m `reflections`, D signs fixed at initialisation,
    V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Mhammedi et al. (2017); in Kerg (2022), §D.3.

    Differs: the leading entry of each vector is 1 instead of free, since only its direction matters: m fewer
    parameters. At most N − 1 reflections: with the signs D these reach every orthogonal matrix, like N reflections in
    the paper. The initial state is zero, not trained; φ is modReLU by default.

    Args:
        reflections: m, 1 to hidden_size − 1; default all.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> kreiss.ORNN(2, 128, reflections=16).orthogonal_l0.shape
        torch.Size([1912])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        reflections: int | None = None,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Orthogonal, hidden_size, "householder", reflections=reflections),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
