"""The non-normal recurrent network."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.base import LayerOptions, RecurrentLayer
from kreiss.sets import Schur
from kreiss.sets.orthogonal import DEFAULT_METHOD


class NNRNN(RecurrentLayer):
    """A network whose recurrent matrix has chosen eigenvalues and a free non-normal part.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = P(Λ + T)Pᵀ.

    Symbols: P `orthogonal_l{k}`, γ `radius_l{k}`, θ `angle_l{k}`, κ `shear_l{k}`, T `coupling_l{k}`
    (see `kreiss.Schur`), V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Kerg et al. (2019), eqs. (1) and (5).

    Differs from the paper: with the default `blocks="exact"` the eigenvalues of V are exactly
    γe^{±iθ}; eq. (5) as printed, `blocks="paper"`, does not control them.

    Args:
        blocks: "exact", "rotation" or "paper".
        radius: "free", or the modulus of every eigenvalue.
        orthogonal: how P is held, a method of `kreiss.Orthogonal`.
        others: see `kreiss.layers.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.NNRNN(3, 8, radius=0.9)
        >>> bool((torch.linalg.eigvals(layer.weight_hh_l0).abs() - 0.9).abs().max() < 1e-5)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        blocks: str = "exact",
        radius: str | float = "free",
        orthogonal: str = DEFAULT_METHOD,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Schur, hidden_size, blocks, radius, orthogonal),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
