"""The network with an orthogonal recurrent matrix, parametrized by the exponential map."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Orthogonal
from kreiss.sets.orthogonal import DEFAULT_METHOD


class ExpRNN(RecurrentLayer):
    """A network whose recurrent matrix stays orthogonal.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = exp(A) or B·r(A), A skew.

    Symbols: A `orthogonal_l{k}` (its strictly lower triangle), V `weight_hh_l{k}`, U `weight_ih_l{k}`,
    b `bias_l{k}`.

    Reference: Lezcano-Casado & Martínez-Rubio (2019), eq. (3); trivializations, Lezcano-Casado (2019).

    Differs: by default V is parametrized by a trivialization with the Cayley retraction, which has the
    same initial matrix and is two to three times faster; `orthogonal="expm"` is the map of the paper.

    Args:
        orthogonal: how V is parametrized, a method of `kreiss.Orthogonal`.
        retraction: r of a trivialization, "cayley" (the default) or "exp". With "exp" and `kreiss.rebase_every` this is
            dtriv: the base point B moves to V every K optimiser steps.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.ExpRNN(3, 8)
        >>> layer.constraint_error() < 1e-5
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        orthogonal: str = DEFAULT_METHOD,
        retraction: str | None = None,
        nonlinearity: str = "modrelu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        method_options: dict[str, Any] = {} if retraction is None else {"retraction": retraction}
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Orthogonal, hidden_size, orthogonal, **method_options),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
