"""torch's LSTM, used like every other layer."""

from __future__ import annotations

from torch import nn

from kreiss.layers.gated import Gated


class LSTM(Gated, nn.LSTM):
    """`torch.nn.LSTM` with `step`, `init_state`, `freeze`, `from_torch` and `to_torch`.

    Reference: Hochreiter & Schmidhuber (1997).

    Args: those of `torch.nn.LSTM`, keyword-only after num_layers, without `proj_size`; and `generator`.

    Example:
        >>> import kreiss, torch
        >>> lstm = kreiss.LSTM(3, 5)
        >>> output, (h_n, c_n) = lstm(torch.zeros(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    torch_class = nn.LSTM
    state_tensors = 2
