"""The unitary network of full capacity."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.errors import check_name
from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.sets import Unitary


class FullURNN(ComplexLayer):
    """A complex network whose recurrent matrix may be any unitary matrix.

    h_t = modReLU(V h_{t−1} + U x_t; b), V*V = I; V ← (I + λ/2·S)⁻¹(I − λ/2·S)V, S = GV* − VG*, for the gradient G.

    Symbols: V `weight_hh_l{k}` (its real 2N×2N form), λ the learning rate of `kreiss.optim.Stiefel`, which makes that
    step; U `weight_ih_l{k}` (2N rows), b `bias_l{k}`. `unitary_l{k}` are N² parameters around a base point. See
    `kreiss.layers.contract.complex.ComplexLayer` for complex states as pairs of reals.

    Reference: Wisdom et al. (2016); Hyland & Rätsch (2017).

    Differs: V is parametrized as B·Cayley(A) with a base point B, so any other optimiser also keeps it unitary; with
    `Stiefel`, which moves B at every step, this is the published multiplicative update. The base point is projected
    when it moves, so rounding errors do not accumulate. The initial state is zero (or `hx`) and is not trained.

    `unitary="expm"` is the network of Hyland & Rätsch (2017): V = exp(Σ ν_j T_j) over a basis T_j of the Lie algebra
    u(N), with the N² parameters ν_j in `unitary_l{k}`, trained by any optimiser but `Stiefel`.

    Args:
        hidden_size: N, the number of complex units; outputs have 2N features.
        unitary: how V is parametrized, "trivialization" or "expm".
        init: "random" (Haar), "henaff", "cayley" or "identity".
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.FullURNN(3, 8)
        >>> optimizer = kreiss.optim.Stiefel(layer, lr=0.1)
        >>> layer(torch.randn(5, 2, 3))[0].square().sum().backward()
        >>> optimizer.step()
        >>> layer.constraint_error() < 1e-5
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        unitary: str = "trivialization",
        nonlinearity: str = "cmodrelu",
        init: str = "random",
        **options: Unpack[LayerOptions],
    ) -> None:
        check_name("parametrization of V", unitary, ("trivialization", "expm"))
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Unitary, hidden_size, unitary),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
