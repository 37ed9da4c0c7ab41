"""The non-normal recurrent network with complex states."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.sets import ComplexSchur
from kreiss.sets.schur import STRENGTH


class ComplexNNRNN(ComplexLayer):
    """A complex network whose recurrent matrix has prescribed eigenvalues and a free non-normal part.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = P(Λ + T)P*, Λ = diag(γe^{iθ}).

    Symbols: P `unitary_l{k}`, γ `radius_l{k}`, θ `angle_l{k}`, T `coupling_l{k}` (see `kreiss.ComplexSchur`),
    V `weight_hh_l{k}` (its real 2N×2N form), U `weight_ih_l{k}` (2N rows), b `bias_l{k}`. See
    `kreiss.layers.contract.complex.ComplexLayer` for complex states as pairs of reals.

    Reference: Kerg et al. (2019), eqs. (1) and (5) with a complex Schur form, proposed in their discussion.

    Differs from `NNRNN`: the Schur form of a complex matrix is triangular, so eigenvalues are γe^{iθ} exactly without
    2×2 blocks and need not come in conjugate pairs.

    Args:
        hidden_size: N, the number of complex units; outputs have 2N features.
        radius: "free", or the modulus of every eigenvalue.
        strength: scale of T for the initialisers "delay_line" and "random_coupling".
        init: of P, "henaff", "cayley", "random" or "identity", with T = 0; or "delay_line" or "random_coupling".
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.ComplexNNRNN(3, 8, radius=0.9)
        >>> bool((torch.linalg.eigvals(layer.weight_hh_l0).abs() - 0.9).abs().max() < 1e-5)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        radius: str | float = "free",
        strength: float = STRENGTH,
        nonlinearity: str = "cmodrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(ComplexSchur, hidden_size, radius, strength=strength),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
