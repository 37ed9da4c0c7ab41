"""torch's LSTM with the interface of the other layers."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.checks import checked_number
from kreiss.layers.contract.torch_layer import TorchLayer


class LSTM(TorchLayer, nn.LSTM):
    """`torch.nn.LSTM` with `step`, `init_state`, `freeze`, `from_torch` and `to_torch`.

    Reference: Hochreiter & Schmidhuber (1997).

    Args: those of `torch.nn.LSTM`, keyword-only after num_layers, without `proj_size`; `generator`; and

        forget_bias: initial bias of the forget gates (the sum of torch's two); by default that of torch's own
            initialiser.

    Example:
        >>> import kreiss, torch
        >>> lstm = kreiss.LSTM(3, 5)
        >>> output, (h_n, c_n) = lstm(torch.zeros(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    torch_class = nn.LSTM
    state_tensors = 2
    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        forget_bias: float | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.forget_bias = None if forget_bias is None else checked_number("forget_bias", forget_bias)
        super().__init__(input_size, hidden_size, num_layers, **options)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """As in torch, U(−1/√N, 1/√N), then the bias of the forget gates."""
        super().reset_parameters(generator)
        if self.forget_bias is None or not self.bias:
            return
        forget = slice(self.hidden_size, 2 * self.hidden_size)  # torch's order of gates: i, f, g, o
        for name, bias in self.named_parameters():
            if name.startswith("bias_"):
                bias[forget] = self.forget_bias if name.startswith("bias_ih") else 0.0
