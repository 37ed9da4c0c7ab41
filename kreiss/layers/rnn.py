"""The plain recurrent network."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Free


class RNN(RecurrentLayer):
    """The plain (Elman) network: an unconstrained recurrent matrix.

    h_t = φ(V h_{t−1} + U x_t + b), V ∈ ℝ^{N×N}.

    Symbols: V `weight_hh_l{k}`, U `weight_ih_l{k}`, b `bias_ih_l{k}` + `bias_hh_l{k}`. Parameters, their names and the
    outputs are those of `torch.nn.RNN`, so a state_dict loads either way (with tanh or relu).

    Reference: Elman (1990); "RNN" of Kerg et al. (2019), Table 2.

    Differs from torch: V is initialised Glorot normal, as in the papers, not uniform; biases are initially 0.

    Args: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss, torch
        >>> rnn = kreiss.RNN(3, 5)
        >>> output, h_n = rnn(torch.zeros(7, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([7, 2, 5]), torch.Size([1, 2, 5]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        init: str = "glorot",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Free, hidden_size),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
