"""The LSTM whose gradient through h is cut off at random."""

from __future__ import annotations

from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.checks import check_tensors_fit
from kreiss.layers.contract.lstm import LSTMLayer
from kreiss.layers.contract.states import check_parts
from kreiss.recurrence.lstm import run_lstm


class HDetach(LSTMLayer):
    """An LSTM that in training stops the gradient from the gates to h_{t−1} at random steps.

    i, f, g, o = V h̃_{t−1} + U x_t + b, c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g), h_t = σ(o) ⊙ tanh(c_t), where h̃ has the
    value of h and, with probability p at each step, no gradient. Long-term gradients pass through c; those through h
    are large and short, and hide them. The forward pass is that of `torch.nn.LSTM`, and in `eval()` so is the gradient.

    Symbols: U `weight_ih_l{k}`, V `weight_hh_l{k}`, b = `bias_ih_l{k}` + `bias_hh_l{k}`; p `probability`.

    Reference: Kanuparthi et al. (2019).

    Args:
        probability: p, one draw per step for the whole batch, from torch's global generator. It is a plain attribute:
            the published runs set it to 0 for the last epochs.
        others: see `kreiss.layers.contract.base.RecurrentLayer`; one direction only.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.HDetach(1, 128, probability=0.5)
        >>> sum(p.numel() for p in layer.parameters()) + 128 * 9 + 9
        68233
        >>> output, (h_n, c_n) = layer(torch.zeros(7, 2, 1))
        >>> layer.probability = 0.0
    """

    one_direction = "the method is defined for networks that run forward in time"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        probability: float = 0.5,
        **options: Unpack[LayerOptions],
    ) -> None:
        checked_probability(probability)
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.probability = probability

    # ------------------------------------------------------------ running

    def _run_cell(
        self, suffix: str, x: Tensor, h0: tuple[Tensor, Tensor] | None, lengths: Tensor | None, backwards: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        weight = getattr(self, f"weight_ih_{suffix}")
        if h0 is None:
            zero = (x if x.is_floating_point() else weight).new_zeros(x.shape[1], self.hidden_size)
            h0 = zero, zero.clone()  # torch's scan takes no tensor twice
        bias, matrix = self._bias(suffix), self.recurrent_matrix(suffix)
        return run_lstm(x, weight, bias, matrix, h0, self._drawn(x.shape[0]), lengths)

    def _drawn(self, steps: int) -> Tensor | None:
        """(T,), the steps at which h is detached: drawn on the CPU, so that they are the same on every device."""
        p = checked_probability(self.probability)
        if not self.training or p == 0:
            return None
        return torch.rand(steps, dtype=torch.float32, device="cpu") < p

    # ------------------------------------------------------------ states

    def init_state(self, batch_size: int | None = None) -> tuple[Tensor, Tensor]:
        """Zero h and c for `batch_size` sequences, or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        like, shape = self.weight_ih_l0, (*self._leading(batch_size), self.hidden_size)
        check_tensors_fit([shape, shape], like.device, like.dtype, what="the state")
        return like.new_zeros(shape), like.new_zeros(shape)

    def _check_state(self, hx: Any, batch_size: int | None, x: Tensor) -> None:
        if hx is None:
            return
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            got = type(hx).__name__ + (f" of {len(hx)}" if isinstance(hx, (tuple, list)) else "")
            raise TypeError(
                f"`hx` must be a pair of Tensors, (h_0, c_0); got {got}. "
                "Pass what an earlier call returned, or init_state(batch_size)."
            )
        like = self.weight_ih_l0.new_empty(()).expand(*self._leading(batch_size), self.hidden_size)
        check_parts(("h", "c"), hx, (like, like), like.device)

    # ------------------------------------------------------------ conversion

    @classmethod
    def from_torch(cls, rnn: nn.LSTM, **options: Any) -> Self:  # type: ignore[override]
        """A layer with the weights of a `torch.nn.LSTM`.

        Args:
            rnn: without `proj_size`, in one direction.
            **options: further options of the layer, such as `probability=`.
        """
        if not isinstance(rnn, nn.LSTM):
            raise TypeError(f"`rnn` must be a torch.nn.LSTM; got {type(rnn).__name__}. Pass the layer itself.")
        if rnn.proj_size:
            raise InputError(
                f"`rnn` must have no projection; got proj_size={rnn.proj_size}. Pass a torch.nn.LSTM without it."
            )
        like: Tensor = rnn.weight_ih_l0  # type: ignore[assignment]
        layer = cls(
            rnn.input_size, rnn.hidden_size, rnn.num_layers, bias=rnn.bias, batch_first=rnn.batch_first,
            dropout=rnn.dropout, bidirectional=rnn.bidirectional, device=like.device, dtype=like.dtype, **options,
        )  # fmt: skip
        _copy_weights(rnn, layer)
        return layer.train(rnn.training)

    def to_torch(self) -> nn.LSTM:  # type: ignore[override]
        """The `torch.nn.LSTM` with these weights."""
        like = self.weight_ih_l0
        lstm = nn.LSTM(
            self.input_size, self.hidden_size, self.num_layers, bias=self.bias, batch_first=self.batch_first,
            dropout=self.dropout, device=like.device, dtype=like.dtype,
        )  # fmt: skip
        _copy_weights(self, lstm)
        return lstm.train(self.training)

    def extra_repr(self) -> str:
        return super().extra_repr().replace("nonlinearity='tanh'", f"probability={self.probability}")


def checked_probability(value: Any) -> float:
    """`value` if it is a probability."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(
            f"`probability` must be in [0, 1]; got probability={value!r}. Pass 0 to detach nowhere, 1 at every step."
        )
    return float(value)


@torch.no_grad()
def _copy_weights(source: nn.Module, target: nn.Module) -> None:
    for name, parameter in target.named_parameters():
        parameter.copy_(getattr(source, name))
