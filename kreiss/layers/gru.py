"""torch's GRU with the interface of the other layers."""

from __future__ import annotations

from torch import nn

from kreiss.layers.contract.torch_layer import TorchLayer


class GRU(TorchLayer, nn.GRU):
    """`torch.nn.GRU` with `step`, `init_state`, `freeze`, `from_torch` and `to_torch`.

    Reference: Cho et al. (2014).

    Args: those of `torch.nn.GRU`, keyword-only after num_layers; and `generator`.

    Example:
        >>> import kreiss, torch
        >>> gru = kreiss.GRU(3, 5)
        >>> output, h_n = gru(torch.zeros(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    torch_class = nn.GRU
    state_tensors = 1
    gates = 3
