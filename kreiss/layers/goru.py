"""The gated orthogonal recurrent unit."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.gated import GatedLayer
from kreiss.sets import Orthogonal


class GORU(GatedLayer):
    """A gated network with an orthogonal recurrent matrix.

    h_t = g_t ⊙ h_{t−1} + (1 − g_t) ⊙ c_t,
    c_t = modReLU(r_t ⊙ Q h_{t−1} + U x_t; b), r_t, g_t = σ(W h_{t−1} + S x_t + d), Q orthogonal.

    Symbols: Q `weight_hh_l{k}` from `orthogonal_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`, W `gate_hh_l{k}` (rows of r,
    then of g), S `gate_ih_l{k}`, d `gate_bias_l{k}`.

    Reference: Jing et al. (2019), with the settings of the authors' code.

    Differs: U is initialised Glorot normal; the gates U(−0.01, 0.01), as in the paper. Q is by default the product of
    log₂ N layers of rotations of the paper, formed as a matrix once per pass.

    Args:
        orthogonal: how Q is parametrized, a method of `kreiss.Orthogonal`.
        reset_bias, keep_bias: initial biases of r and g.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.GORU(10, 128)
        >>> sum(p.numel() for p in layer.parameters()) + 128 * 9 + 9
        38601
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        orthogonal: str = "butterfly",
        reset_bias: float = 2.0,
        keep_bias: float = 0.0,
        nonlinearity: str = "modrelu",
        init: str = "random",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Orthogonal, hidden_size, orthogonal),
            nonlinearity=nonlinearity,
            init=init,
            reset_bias=reset_bias,
            keep_bias=keep_bias,
            **options,
        )
