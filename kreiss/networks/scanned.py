"""torch's own RNN, LSTM and GRU as a `scan`, so that they export with dynamic time and batch.

`torch.export` of torch 2.13 unrolls these layers step by step, which fixes the length. Here one step is traced,
whatever the length is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.recurrence.unroll import unroll

State = tuple[Tensor, ...]


def _lstm(u: Tensor, state: State, weight: Tensor, _: Tensor | None) -> State:
    h, c = state
    i, f, g, o = (u + h @ weight.mT).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(u: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    (h,) = state
    u_r, u_z, u_n = u.chunk(3, -1)
    v_r, v_z, v_n = F.linear(h, weight, bias).chunk(3, -1)
    z = (u_z + v_z).sigmoid()
    n = (u_n + (u_r + v_r).sigmoid() * v_n).tanh()  # the bias of V n is inside the gate, so it cannot be added to u
    return ((1 - z) * n + z * h,)


def _tanh(u: Tensor, state: State, weight: Tensor, _: Tensor | None) -> State:
    return ((u + state[0] @ weight.mT).tanh(),)


def _relu(u: Tensor, state: State, weight: Tensor, _: Tensor | None) -> State:
    return ((u + state[0] @ weight.mT).relu(),)


# torch's name of the architecture → one step: U x_t, state, V, bias inside → new state, whose first part is the output
STEPS: dict[str, Callable[[Tensor, State, Tensor, Tensor | None], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _tanh,
    "RNN_RELU": _relu,
}


class Scanned(nn.Module):
    """Computes what `layer`, a `torch.nn.RNN`, `LSTM` or `GRU`, computes on a batch of whole sequences."""

    batch_first: bool

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer
        for name in ("input_size", "hidden_size", "num_layers", "batch_first", "bidirectional"):
            setattr(self, name, getattr(layer, name))  # read by networks around the layer

    def forward(self, input: Tensor, hx: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
        """Output and last state, in the shapes of the layer itself."""
        layer, x = self.layer, input.transpose(0, 1) if self.batch_first else input
        first = self._zeros(x, x.shape[1]) if hx is None else (hx,) if isinstance(hx, Tensor) else hx
        last: list[State] = []
        for k in range(layer.num_layers):
            outs = []
            for suffix in (f"l{k}", f"l{k}_reverse")[: 1 + layer.bidirectional]:
                out, state = self._run(suffix, x, tuple(part[len(last)] for part in first))
                outs.append(out)
                last.append(state)
            x = torch.cat(outs, -1) if layer.bidirectional else outs[0]
        h_n = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return (x.transpose(0, 1) if self.batch_first else x), h_n if layer.mode == "LSTM" else h_n[0]

    def init_state(self, batch_size: int) -> Tensor | State:
        """The zero state for `batch_size` sequences."""
        zeros = self._zeros(next(self.parameters()), batch_size)
        return zeros if len(zeros) > 1 else zeros[0]

    def _zeros(self, like: Tensor, batch: int) -> State:
        layer = self.layer
        cells, sizes = layer.num_layers * (1 + layer.bidirectional), [layer.proj_size or layer.hidden_size]
        if layer.mode == "LSTM":
            sizes.append(layer.hidden_size)
        return tuple(like.new_zeros(cells, batch, size) for size in sizes)

    def _run(self, suffix: str, x: Tensor, state: State) -> tuple[Tensor, State]:
        layer = self.layer
        weight, inside = getattr(layer, f"weight_hh_{suffix}"), getattr(layer, f"bias_hh_{suffix}", None)
        projection = getattr(layer, f"weight_hr_{suffix}", None)
        u = F.linear(x, getattr(layer, f"weight_ih_{suffix}"), getattr(layer, f"bias_ih_{suffix}", None))
        if inside is not None and layer.mode != "GRU":
            u = u + inside
        step = STEPS[layer.mode]

        def advance(u_t: Tensor, state: State) -> tuple[Tensor, State]:
            h, *rest = step(u_t, state, weight, inside)
            h = h if projection is None else h @ projection.mT
            return h, (h, *rest)

        return unroll(advance, u, state, reverse=suffix.endswith("reverse"))
