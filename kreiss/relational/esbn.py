"""ESBN: a recurrent network that sees only whether an object was seen before, and under which key."""

from __future__ import annotations

from typing import NamedTuple, Unpack

import torch
from torch import Tensor, nn

from kreiss.pooled import Pooled
from kreiss.recurrence import unroll
from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES, Views, balanced, before_relu, controller

KEY, HIDDEN = 256, 512


def earlier_softmax(scores: Tensor) -> Tensor:
    """Softmax of scores (B, T, T) over j < i; the first row, which has nothing before it, is zero."""
    now_or_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu()
    weights = scores[:, 1:].masked_fill(now_or_later[1:], float("-inf")).softmax(-1)
    return torch.cat([torch.zeros_like(scores[:, :1]), weights], 1)


class Binding(NamedTuple):
    """The state of an ESBN after t objects."""

    hidden: Tensor
    cell: Tensor
    read: Tensor  # (B, 257)
    keys: Tensor  # (B, t, 256)


class ESBN(RelationalNetwork):
    """h_t = LSTM(r_t); key k_t = ReLU(W_k h_t); r_t+1 = g_t Σ_j<t w_tj [k_j; c_tj]; logits = W_y h_T.

    s_tj = z_t · z_j, w_t = softmax_j<t(s_t), c_tj = σ(a s_tj + b), g_t = σ(w_g · h_t + b_g), r_0 = r_1 = 0, for
    t = 0, …, T: one step more than objects, which takes in what was read last.

    Symbols: z the encoded objects after context normalisation (`front`); LSTM `controller`, 512 units; W_k `key`; g
    `gate`; a, b `confidence_gain`, `confidence_bias`; W_y `readout`. The controller never sees an object: keys are
    bound to objects in a memory, objects z_j as what is searched for and keys k_j as what is found.

    Variants: `asymmetric=True` keeps W₁e in the memory and searches with W₂e; `cat=True` gives the controller
    the object too (zeros in the last step; W₁e of the asymmetric variant); `l1` puts a penalised linear layer before
    the normalisation.

    Reference: Webb, Sinha and Cohen, "Emergent symbols through binding in external memory", 2021, 2.1; variants of
    Kerg et al., 2022. Initial values as in Webb's public code.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        asymmetric: whether objects are stored and searched for under different maps.
        cat: whether the controller sees the objects.
        l1: λ of the penalised linear layer after the encoder; None for no such layer.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.ESBN(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        1911783
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        asymmetric: bool = False,
        cat: bool = False,
        l1: float | None = None,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        self.asymmetric, self.cat, self.l1 = bool(asymmetric), bool(cat), l1
        super().__init__(length, classes, generator=generator, **front)

    def _make(self) -> None:
        self.views = Views(self.front.norm, self.asymmetric, self.l1)
        self.controller = controller(KEY + 1 + self.cat * FEATURES, HIDDEN)
        self.key = before_relu(HIDDEN, KEY)
        self.gate = balanced(HIDDEN, 1)
        self.confidence_gain = nn.Parameter(torch.ones(1))
        self.confidence_bias = nn.Parameter(torch.zeros(1))
        self.readout = balanced(HIDDEN, self.classes)

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        stored, searched = self.views(encoded)
        weights, confidence = self._recalled(stored, searched)
        nothing = encoded.new_zeros(encoded.shape[1], HIDDEN)
        start = Binding(nothing, nothing, nothing[:, : KEY + 1], nothing.new_zeros(len(nothing), 0, KEY))
        _, last = unroll(self._step, (stored, weights.transpose(0, 1), confidence.transpose(0, 1)), start)
        hidden, _ = self.controller(self._seen(last.read, torch.zeros_like(stored[0])), (last.hidden, last.cell))
        logits: Tensor = self.readout(hidden)
        return logits

    def _step(self, now: tuple[Tensor, Tensor, Tensor], state: Binding) -> tuple[Tensor, Binding]:
        """One object: search for it among the earlier ones, read their keys, and give it a key of its own."""
        z, weights, confidence = now
        hidden, cell = self.controller(self._seen(state.read, z), (state.hidden, state.cell))
        earlier = state.keys.shape[1]
        found = torch.cat([state.keys, confidence[:, :earlier, None]], -1)
        read = self.gate(hidden).sigmoid() * (weights[:, None, :earlier] @ found).squeeze(1)
        key = self.key(hidden).relu()[:, None]
        return read, Binding(hidden, cell, read, torch.cat([state.keys, key], 1))

    def _seen(self, read: Tensor, z: Tensor) -> Tensor:
        return torch.cat([read, z], -1) if self.cat else read

    def _recalled(self, stored: Tensor, searched: Tensor) -> tuple[Tensor, Tensor]:
        """Weights w and confidences c (B, T, T) of every object's search among the earlier ones."""
        scores = torch.einsum("ibn,jbn->bij", searched, stored)
        return earlier_softmax(scores), (self.confidence_gain * scores + self.confidence_bias).sigmoid()

    def penalty(self) -> Tensor | None:
        """The L1 penalty of the variant that has one."""
        return self.views.penalty()

    @torch.no_grad()
    def relations(self, inputs: Tensor | Pooled) -> Tensor:
        """The weights w (B, T, T) with which each object finds earlier ones; rows sum to one, but the first is zero."""
        self._check(inputs, None)
        return self._recalled(*self.views(self.front.encode(inputs)))[0]
