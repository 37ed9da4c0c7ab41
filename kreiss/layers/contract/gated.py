"""Gated recurrent layers, for any set of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.layers.contract.checks import check_tensors_fit, checked_number
from kreiss.recurrence import run_gated
from kreiss.sets import Set


class GatedLayer(RecurrentLayer):
    """h_t = g_t ⊙ h_{t−1} + (1 − g_t) ⊙ c_t, gates and candidate from h_{t−1} and x_t, V in a set of matrices.

    r_t, g_t = sigmoid(W h_{t−1} + S x_t + d), c_t = φ(r_t ⊙ V h_{t−1} + U x_t; b).

    Symbols::

        V      weight_hh_l{k}, in a set of matrices        U   weight_ih_l{k}     b   bias_l{k}
        W      gate_hh_l{k} (2N, N), rows of r, then g     S   gate_ih_l{k}       d   gate_bias_l{k}

    Args:
        reset_bias: initial d in the rows of r.
        keep_bias: initial d in the rows of g; the larger, the longer the state is initially kept.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.
    """

    elman = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        make_set: Callable[[], Set],
        nonlinearity: str,
        init: str | None,
        reset_bias: float,
        keep_bias: float,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.reset_bias = checked_number("reset_bias", reset_bias)
        self.keep_bias = checked_number("keep_bias", keep_bias)
        super().__init__(
            input_size, hidden_size, num_layers, make_set=make_set, nonlinearity=nonlinearity, init=init, **options
        )

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        n = self.hidden_size
        check_tensors_fit([(2 * n, width + n) for _, width in self._input_shapes().values()], device, dtype)
        super()._allocate(device, dtype)
        new = lambda *shape: nn.Parameter(torch.empty(shape, device=device, dtype=dtype))  # noqa: E731
        for suffix, _ in self._cells():
            self.register_parameter(f"gate_ih_{suffix}", new(2 * n, getattr(self, f"weight_ih_{suffix}").shape[1]))
            self.register_parameter(f"gate_hh_{suffix}", new(2 * n, n))
            if self.bias:
                self.register_parameter(f"gate_bias_{suffix}", new(2 * n))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """As for every layer; gate matrices U(−0.01, 0.01), gate biases `reset_bias` and `keep_bias`."""
        super().reset_parameters(generator)
        if self.weight_ih_l0.is_meta:
            return
        for suffix, _ in self._cells():
            for name in ("gate_ih", "gate_hh"):
                weight = getattr(self, f"{name}_{suffix}")
                drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64, device="cpu")
                weight.copy_(0.02 * drawn - 0.01)
            if self.bias:
                bias = getattr(self, f"gate_bias_{suffix}")
                bias[: self.hidden_size], bias[self.hidden_size :] = self.reset_bias, self.keep_bias

    def _last_state(self, suffix: str, x: Tensor, h0: Tensor | None, lengths: Tensor | None, backwards: bool) -> Tensor:
        return self._run_cell(suffix, x, h0, lengths, backwards)[1]

    def _run_cell(
        self, suffix: str, x: Tensor, h0: Tensor | None, lengths: Tensor | None, backwards: bool
    ) -> tuple[Tensor, Tensor]:
        bias, gate_bias = (getattr(self, f"{name}_{suffix}", None) for name in ("bias", "gate_bias"))
        return run_gated(
            x,
            torch.cat([getattr(self, f"{name}_{suffix}") for name in ("weight_ih", "gate_ih")]),
            self.recurrent_matrix(suffix),
            getattr(self, f"gate_hh_{suffix}"),
            h0,
            nonlinearity=self.nonlinearity,
            bias=bias,
            gate_bias=gate_bias,
            lengths=lengths,
            reverse=backwards,
        )
