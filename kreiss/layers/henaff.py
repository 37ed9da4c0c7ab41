"""Henaff's network: a linear recurrence driven through a nonlinearity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from torch import Tensor

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.recurrence.nonlinearity import APPLY
from kreiss.recurrence.plain.reference import drive
from kreiss.sets import Free, Orthogonal, Set


class Henaff(RecurrentLayer):
    """A network with a linear recurrence; only the input passes through the nonlinearity.

    h_t = φ(U x_t + b) + V h_{t−1}, V orthogonal initially.

    Symbols: V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_l{k}`.

    Reference: Henaff, Szlam & LeCun (2016); in Kerg (2022), §D.2. Their solutions of the copy and adding tasks
    initialise V as rotations (`init="henaff"`) and as the identity (`init="identity"`); `kreiss.training.copy_solution`
    and `adding_solution` build them.

    Args:
        orthogonal: a method of `kreiss.Orthogonal` to keep V orthogonal; by default V is only initialised so.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.Henaff(1, 4, init="identity", bias=False)
        >>> x = torch.tensor([[1.0], [-1.0], [2.0]])
        >>> torch.allclose(layer(x)[0][-1], layer(x[:1])[0][0] + layer(x[1:2])[0][0] + layer(x[2:])[0][0])
        True
    """

    elman = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        orthogonal: str | None = None,
        nonlinearity: str = "relu",
        init: str = "henaff",
        **options: Unpack[LayerOptions],
    ) -> None:
        make_set: Callable[[], Set] = partial(Free, hidden_size)
        if orthogonal is not None:
            make_set = partial(Orthogonal, hidden_size, orthogonal)
        super().__init__(
            input_size, hidden_size, num_layers, make_set=make_set, nonlinearity=nonlinearity, init=init, **options
        )

    def _arguments(
        self, suffix: str, x: Tensor, h0: Tensor | None, lengths: Tensor | None, backwards: bool
    ) -> dict[str, Any]:
        arguments = super()._arguments(suffix, x, h0, lengths, backwards)
        u = APPLY[self.nonlinearity](drive(x, arguments["weight"]), arguments["bias"])
        return {**arguments, "x": u, "weight": None, "bias": None, "nonlinearity": "identity"}  # Kerg (2022), §D.2
