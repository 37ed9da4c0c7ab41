"""The network with a unitary recurrent matrix, parametrized by a scaled Cayley transform with learned phases."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.sets import Unitary


class ScuRNN(ComplexLayer):
    """A complex network whose recurrent matrix is a scaled Cayley transform with learned phases.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = (I + A)⁻¹(I − A)D, A skew-Hermitian, D = diag(e^{iθ}).

    Symbols: A `unitary_l{k}` (real parts below the diagonal, imaginary parts, then the diagonal over √2), θ
    `phase_l{k}`, V `weight_hh_l{k}` (its real 2N×2N form), U `weight_ih_l{k}` (2N rows), b `bias_l{k}`. See
    `kreiss.layers.contract.complex.ComplexLayer` for complex states as pairs of reals.

    Reference: Maduranga, Helfrich & Ye (2019).

    Differs: the initial state is zero (or `hx`) and is not trained; U is initialised Glorot normal as a real matrix.
    The published learning rates differ for A, D and the rest: roles `orthogonal`, `phase` and `weight`.

    Args:
        hidden_size: N, the number of complex units; outputs have 2N features.
        init: "cayley" (published: A of rotations by U(0, π/2), θ ~ U[0, 2π)), "henaff", "random" or "identity".
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.ScuRNN(3, 8)
        >>> layer.state_size, layer.constraint_error() < 1e-5
        (16, True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "cmodrelu",
        init: str = "cayley",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Unitary, hidden_size, "scaled_cayley"),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
