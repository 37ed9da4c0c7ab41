"""The non-normal recurrent network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Schur
from kreiss.sets.orthogonal import DEFAULT_METHOD
from kreiss.sets.schur import STRENGTH


class NNRNN(RecurrentLayer):
    """A network whose recurrent matrix has prescribed eigenvalues and a free non-normal part.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = P(Λ + T)Pᵀ.

    Symbols: P `orthogonal_l{k}`, γ `radius_l{k}`, θ `angle_l{k}`, κ `shear_l{k}`, T `coupling_l{k}`
    (see `kreiss.Schur`), V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Kerg et al. (2019), eqs. (1) and (5).

    Differs from the paper: with the default `blocks="exact"` the eigenvalues of V are exactly
    γe^{±iθ}; eq. (5) as printed, `blocks="paper"`, does not control them. An exact 2×2 block has a complex pair or a
    double real eigenvalue: with the default `real`, a layer of even size has det V ≥ 0 and no simple real
    eigenvalue, one of odd size has one, +γ. `NNRNN.from_torch` determines the blocks that a given matrix needs.

    Initialisers: "henaff", "cayley", "random" and "identity" choose P, and V is normal; the first two give the same V,
    because P commutes with Λ. "delay_line", "random_coupling" and "chain" are non-normal, see `kreiss.Schur`.

    Args:
        blocks: "exact", "rotation" or "paper".
        radius: "free", or the modulus of every eigenvalue.
        orthogonal: how P is parametrized, a method of `kreiss.Orthogonal`.
        real: (p, q), the numbers of 1×1 blocks with eigenvalue +γ and −γ; default (hidden_size mod 2, 0).
        strength: scale of T for the initialisers "delay_line" and "random_coupling".
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

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
        real: Sequence[int] | None = None,
        strength: float = STRENGTH,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Schur, hidden_size, blocks, radius, orthogonal, real=real, strength=strength),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
