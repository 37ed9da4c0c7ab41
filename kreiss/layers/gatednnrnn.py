"""The non-normal network with gates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.gated import GatedLayer
from kreiss.sets import Schur
from kreiss.sets.orthogonal import DEFAULT_METHOD
from kreiss.sets.schur import STRENGTH


class GatedNNRNN(GatedLayer):
    """A gated network whose recurrent matrix has prescribed eigenvalues and a free non-normal part.

    h_t = g_t ⊙ h_{t−1} + (1 − g_t) ⊙ c_t,
    c_t = modReLU(r_t ⊙ V h_{t−1} + U x_t; b), r_t, g_t = σ(W h_{t−1} + S x_t + d), V = P(Λ + T)Pᵀ.

    Symbols: P `orthogonal_l{k}`, γ `radius_l{k}`, θ `angle_l{k}`, κ `shear_l{k}`, T `coupling_l{k}` (see
    `kreiss.Schur`), V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`, W `gate_hh_l{k}` (rows of r, then of g),
    S `gate_ih_l{k}`, d `gate_bias_l{k}`.

    Reference: gates of Jing et al. (2019) with eq. (5) of Kerg et al. (2019), who propose it as future work.
    With γ = 1, κ = 0 and T = 0, V is orthogonal and the layer is `kreiss.GORU`.

    Args:
        blocks: "exact", "rotation" or "paper".
        radius: "free", or the modulus of every eigenvalue.
        orthogonal: how P is parametrized, a method of `kreiss.Orthogonal`.
        real: (p, q), the numbers of 1×1 blocks with eigenvalue +γ and −γ; default (hidden_size mod 2, 0).
        strength: scale of T for the initialisers "delay_line" and "random_coupling".
        reset_bias, keep_bias: initial biases of r and g.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.GatedNNRNN(3, 8, radius=0.9)
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
        reset_bias: float = 2.0,
        keep_bias: float = 0.0,
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
            reset_bias=reset_bias,
            keep_bias=keep_bias,
            **options,
        )
