"""The eigenvalue-normalised network."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from kreiss.errors import InputError
from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.layers.contract.checks import autocast_is_on
from kreiss.sets import LongShort


class ENRNN(RecurrentLayer):
    """A network with a long-term and a short-term part of the state.

    h_t = modReLU(W h_{t−1} + U x_t; b), h = (h_L, h_S), W = [[W_L, W_C], [0, W_S]], W_L orthogonal, W_S = T/(ρ(T) + ε).

    Symbols: W_L `orthogonal_l{k}` (its skew matrix), W_C `coupling_l{k}`, T `disc_l{k}` (see `kreiss.LongShort`),
    W `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`; h_L is the first hidden_size − short entries of the state.

    Reference: Helfrich & Ye (2020), eqs. (1)–(5).

    Differs from the paper: ε > 0 by default, and the gradient of W_S is corrected for it (see `kreiss.UnitDisc`).

    Args:
        short: size of h_S; default two fifths of hidden_size.
        coupled: whether h_L reads h_S through W_C.
        epsilon: ε ≥ 0; 0 in the paper.
        orthogonal: how W_L is parametrized, a method of `kreiss.Orthogonal`; in the paper "scaled_cayley".
        negative: number of −1s in the scaled Cayley transform; default half of the size of W_L.
        coupling: initialiser of W_C, "glorot" or "orthogonal" (the paper, on characters).
        identity_input: fix U of the first layer to the identity; input_size must be hidden_size (the set-up of the
            paper on characters, after a linear embedding).
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.ENRNN(2, 160, short=64)
        >>> sum(p.numel() for p in layer.parameters()) + 161
        15441
        >>> bool(layer.weight_hh_l0[96:, :96].any())
        False
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        short: int | None = None,
        coupled: bool = True,
        epsilon: float = 1e-3,
        orthogonal: str = "scaled_cayley",
        negative: int | None = None,
        coupling: str = "glorot",
        identity_input: bool = False,
        nonlinearity: str = "modrelu",
        init: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.identity_input = bool(identity_input)
        if identity_input and input_size != hidden_size:
            raise InputError(
                f"with identity_input=True `input_size` must be hidden_size={hidden_size}; got {input_size}. "
                "Put an embedding of that size in front."
            )
        extra: dict[str, Any] = {} if negative is None else {"negative": negative}
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(
                LongShort,
                hidden_size,
                short,
                coupled=coupled,
                epsilon=epsilon,
                orthogonal=orthogonal,
                coupling=coupling,
                **extra,
            ),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        super()._allocate(device, dtype)
        for weight in self._identity_weights():
            weight.requires_grad_(False)

    def _identity_weights(self) -> list[nn.Parameter]:
        """U of the first layer, in both directions, if it is fixed."""
        names = ("weight_ih_l0", "weight_ih_l0_reverse") if self.identity_input else ()
        return [self._parameters[name] for name in names if name in self._parameters]  # type: ignore[misc]

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        for weight in self._identity_weights():
            if not weight.is_meta:
                nn.init.eye_(weight)

    def _input_weight(self, suffix: str, x: Tensor) -> Tensor | None:
        plain = self.identity_input and suffix.startswith("l0") and x.is_floating_point()
        return None if plain and not autocast_is_on(x.device) else super()._input_weight(suffix, x)
