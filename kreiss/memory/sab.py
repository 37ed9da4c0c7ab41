"""Sparse attentive backtracking."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_memory, check_size
from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.checks import check_tensors_fit
from kreiss.layers.contract.lstm import LSTMLayer
from kreiss.layers.contract.states import check_parts, with_stored
from kreiss.memory.base import check_stored
from kreiss.memory.record import AttentionRecord
from kreiss.recurrence.memory.sparse import SparseWeights, run_sparse
from kreiss.recurrence.memory.sparse_reference import Schedule, SparseState, empty_sparse_state

SCORE_DEVIATION = 0.01


class SAB(LSTMLayer):
    """An LSTM with sparse attention over its stored states, and a truncated gradient that jumps to those it reads.

    h_t = ĥ_t + r_t, where ĥ_t, c_t = LSTM(x_t, h_{t−1}, c_{t−1}) and r_t = Σ_i a_i m_i. The scores of the memories are
    s_i = wᵀ tanh([ĥ_t; m_i]). Up to k memories a = s; with more of them a_i ∝ relu(s_i − (s of the k-th + 10⁻⁷)), so
    that at most k − 1 weights are not zero. The memory starts with a zero vector.

    Symbols: U `weight_ih_l{k}`, V `weight_hh_l{k}`, b = `bias_ih_l{k}` + `bias_hh_l{k}`; w `attention_score_l{k}`
    (2N,); k `top`.

    Reference: Ke et al. (2018).

    Args:
        attend_every: h_t is stored at every so many steps, counted from 1.
        top: k.
        truncate: at every so many steps, counted from 1, h and c enter the LSTM without gradient.
        read_output: whether outputs are [h_t; r_t], 2N numbers, which the published readout takes, or h_t.
        carry_memory: whether training carries the memory, which then grows, from one window of a long sequence to the
            next, or clears it; h and c are carried in any case.
        others: see `kreiss.layers.contract.base.RecurrentLayer`; one direction only.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.SAB(1, 128, read_output=True)
        >>> sum(p.numel() for p in layer.parameters()) + 10 * layer.output_size + 10
        69898
        >>> output, state = layer(torch.zeros(50, 4, 1))
        >>> output.shape, state.memory.shape
        (torch.Size([50, 4, 256]), torch.Size([1, 4, 26, 128]))
    """

    one_direction = "steps are counted from the start of the sequence, to store states and to truncate the gradient"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        attend_every: int = 2,
        top: int = 10,
        truncate: int = 10,
        read_output: bool = False,
        carry_memory: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.attend_every = check_size("attend_every", attend_every)
        self.top = check_size("top", top)
        self.truncate = check_size("truncate", truncate)
        self.read_output = bool(read_output)
        self.carry_memory = bool(carry_memory)
        super().__init__(input_size, hidden_size, num_layers, **options)

    @property
    def output_size(self) -> int:
        """N, or 2N with `read_output`."""
        return self.hidden_size * (2 if self.read_output else 1)

    # ------------------------------------------------------------ parameters

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        super()._allocate(device, dtype)
        for suffix, _ in self._cells():
            score = torch.empty(2 * self.hidden_size, device=device, dtype=dtype)
            self.register_parameter(f"attention_score_{suffix}", nn.Parameter(score))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Those of the LSTM U(−1/√N, 1/√N), w ~ N(0, 0.01²)."""
        super().reset_parameters(generator)
        for suffix, _ in self._cells():
            score = getattr(self, f"attention_score_{suffix}")
            if not score.is_meta:
                drawn = torch.randn(score.shape, generator=generator, dtype=torch.float64, device="cpu")
                score.copy_(SCORE_DEVIATION * drawn)

    # ------------------------------------------------------------ running

    def _run_cell(
        self, suffix: str, x: Tensor, h0: SparseState | None, lengths: Tensor | None, backwards: bool
    ) -> tuple[Tensor, SparseState]:
        out, last, _ = self._attend(suffix, x, h0, lengths)
        return out, last

    def _attend(
        self, suffix: str, x: Tensor, state: SparseState | None, lengths: Tensor | None, keep: bool = False
    ) -> tuple[Tensor, SparseState, Any]:
        weight = getattr(self, f"weight_ih_{suffix}")
        seen = 0 if state is None else None
        if state is None:
            like = x if x.is_floating_point() else weight
            state = empty_sparse_state(like, (x.shape[1],), self.hidden_size)
        self._check_room(x, state)
        score = getattr(self, f"attention_score_{suffix}")
        weights = SparseWeights(weight, self.recurrent_matrix(suffix), self._bias(suffix), score)
        schedule = Schedule(self.attend_every, self.top, self.truncate)
        h, read, last, reads = run_sparse(x, weights, state, schedule, lengths, seen=seen, keep=keep)
        return torch.cat([h, read], -1) if self.read_output else h, last, reads

    def _check_room(self, x: Tensor, state: SparseState) -> None:
        """Raise if the memory does not fit."""
        if torch.compiler.is_compiling() or x.is_meta:
            return
        stored, batch = state.memory.shape[-2] + x.shape[0] // self.attend_every, x.shape[1]
        check_memory(
            f"the memory of SAB, {stored} states of each sequence in a batch of {batch},",
            stored * batch * self.hidden_size * state.h.element_size(),
            "Choose smaller sizes, or a larger attend_every",
        )

    # ------------------------------------------------------------ states

    def init_state(self, batch_size: int | None = None) -> SparseState:
        """The state before the first step, for `batch_size` sequences or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        like, leading = self.weight_ih_l0, self._leading(batch_size)
        check_tensors_fit([(*leading, 3, self.hidden_size)], like.device, like.dtype, what="the state")
        return empty_sparse_state(like, leading, self.hidden_size)

    def _check_state(self, hx: Any, batch_size: int | None, x: Tensor) -> None:
        if hx is None:
            return
        if not isinstance(hx, SparseState):
            raise TypeError(
                f"`hx` must be a SparseState, the state of this layer; got {type(hx).__name__}. "
                "Pass the state of an earlier call, or init_state(batch_size)."
            )
        weight = self.weight_ih_l0
        like = torch.empty(0, dtype=weight.dtype, device="meta")
        expected = empty_sparse_state(like, self._leading(batch_size), self.hidden_size)
        check_parts(hx._fields, hx, with_stored(expected, hx.times), weight.device)
        check_stored(hx, hx.steps // self.attend_every + 1)  # the first is the zero vector

    def cleared(self, state: SparseState) -> SparseState:
        """The state with the memory of the start, one zero vector: h and c stay."""
        return empty_sparse_state(state.h, tuple(state.h.shape[:-1]), self.hidden_size)._replace(h=state.h, c=state.c)

    def carried(self, state: SparseState) -> SparseState:
        """What the next window of a long sequence starts from: see `carry_memory`."""
        return state if self.carry_memory else self.cleared(state)

    def moved(self, state: SparseState, change: Tensor) -> SparseState:
        """The state as if the last step had made h + change, in h and, if it was stored, in memory.

        Args:
            state: with a batch.
            change: like `state.h`.
        """
        stored = (state.times == state.steps.unsqueeze(-1)) & (state.times > 0)
        added = stored.unsqueeze(-1) * change.unsqueeze(-2)
        return state._replace(h=state.h + change, memory=state.memory + added)

    # ------------------------------------------------------------ what was read

    @torch.no_grad()
    def attention(self, input: Tensor, hx: SparseState | None = None, *, layer: int = 0) -> AttentionRecord:
        """What every step of one layer read from memory; −1 marks the zero vector too, whose weight is given.

        Args:
            input, hx: as for `forward`.
            layer: which of the stacked layers, from 0.
        """
        if layer not in range(self.num_layers):
            raise InputError(f"`layer` must be below num_layers={self.num_layers}; got layer={layer}. Count from 0.")
        if not isinstance(input, Tensor):
            raise TypeError(f"`input` must be a Tensor; got {type(input).__name__}. Pad packed sequences.")
        x, state, _ = self._prepared(input, hx)
        for k in range(layer + 1):
            part = None if state is None else SparseState(*(tensor[k] for tensor in state))
            x, _, reads = self._attend(f"l{k}", x, part, None, keep=k == layer)
        past = (reads.times - 1).clamp(min=-1)  # a state is stored after the step that made it
        return AttentionRecord.of(reads._replace(times=past), x, 0 if state is None else state.steps[layer], 0)

    def extra_repr(self) -> str:
        names = ("attend_every", "top", "truncate", "read_output", "carry_memory")
        own = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return super().extra_repr().replace("nonlinearity='tanh'", own)
