"""LSTM cells with torch's weights, for layers that change how they remember or how their gradient flows."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.sets import Free


class LSTMLayer(RecurrentLayer):
    """Weights of `torch.nn.LSTM`, with its names and its order of gates, i, f, g, o; one direction.

    Symbols: U `weight_ih_l{k}` (4N, …), V `weight_hh_l{k}` (4N, N), b the sum of `bias_ih_l{k}` and `bias_hh_l{k}`.

    Args: see `kreiss.layers.contract.base.RecurrentLayer`.
    """

    elman = False
    torch_biases = True
    blocks = 4
    one_direction = ""  # why, as the end of a sentence

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, **options: Unpack[LayerOptions]) -> None:
        if options.get("bidirectional"):
            raise InputError(
                f"{type(self).__name__} must run in one direction; got bidirectional=True, but {self.one_direction}. "
                "Leave bidirectional out, or use LSTM."
            )
        n = check_size("hidden_size", hidden_size)
        super().__init__(
            input_size, hidden_size, num_layers, make_set=lambda: Free(n, self.blocks), nonlinearity="tanh", init=None,
            **options,
        )  # fmt: skip

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """As in torch, U(−1/√N, 1/√N), drawn from `generator`."""
        bound = self.hidden_size**-0.5
        for parameter in self.parameters():
            if not parameter.is_meta:  # drawn in float64, the same for every dtype and device
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64, device="cpu")
                parameter.copy_(2 * bound * drawn - bound)

    def _last_state(self, suffix: str, x: Tensor, h0: Any, lengths: Tensor | None, backwards: bool) -> Any:
        return self._run_cell(suffix, x, h0, lengths, backwards)[1]

    def _leading(self, batch_size: int | None) -> tuple[int, ...]:
        """Dimensions of every part of a state before its own."""
        return (self.num_layers,) if batch_size is None else (self.num_layers, batch_size)
