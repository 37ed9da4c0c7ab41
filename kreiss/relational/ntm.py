"""The neural Turing machine over objects."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.recurrence import unroll
from kreiss.relational.base import RelationalNetwork
from kreiss.relational.parts import FEATURES, TANH_GAIN, balanced, before_relu, controller

HIDDEN, PLACES, WIDTH = 512, 10, 256
SHIFTS = (-1, 0, 1)


class Head(nn.Module):
    """Where a neural Turing machine reads or writes: weights over the places of its memory, from the controller's h.

    Content: w = softmax(β cos(k, M_i)); interpolation: w ← g w + (1 − g) w_t−1; shift: w(i) ← Σ_s p(s) w(i − s),
    s = −1, 0, 1, circular; sharpening: w ← w^γ / Σ w^γ.

    Symbols: k `key` with tanh; β `strength` with softplus; g `gate` with a sigmoid; p `shift` with softmax; γ
    `sharpen`, 1 + softplus.

    Reference: Graves, Wayne and Danihelka, 2014, eqs. (5) to (9).
    """

    def __init__(self) -> None:
        super().__init__()
        self.key = balanced(HIDDEN, WIDTH, TANH_GAIN)
        self.strength = before_relu(HIDDEN, 1)  # softplus is close to ReLU
        self.gate = balanced(HIDDEN, 1)
        self.shift = balanced(HIDDEN, len(SHIFTS))
        self.sharpen = before_relu(HIDDEN, 1)

    def forward(self, h: Tensor, memory: Tensor, before: Tensor | None) -> Tensor:
        """Weights (B, places) for a memory (B, places, width); `before` are those of the last step, if any."""
        similar = F.cosine_similarity(self.key(h).tanh()[:, None], memory, -1)
        weights = (F.softplus(self.strength(h)) * similar).softmax(-1)  # eq. (5)
        if before is not None:
            gate = self.gate(h).sigmoid()
            weights = gate * weights + (1 - gate) * before  # eq. (7)
        moved = torch.stack([weights.roll(shift, -1) for shift in SHIFTS], 1)
        weights = (self.shift(h).softmax(-1)[:, None] @ moved).squeeze(1)  # eq. (8)
        sharpened = weights ** (1 + F.softplus(self.sharpen(h)))
        return sharpened / sharpened.sum(-1, keepdim=True)  # eq. (9)


class Tape(NamedTuple):
    """The state of a neural Turing machine."""

    hidden: Tensor
    cell: Tensor
    read: Tensor  # (B, 256)
    memory: Tensor  # (B, places, 256)
    reading: Tensor | None  # the last weights (B, places) of each head, if it was used
    writing: Tensor | None


class NTM(RelationalNetwork):
    """h_t = LSTM([z_t; r_t]); r_t+1 = Σ_i w^r_t(i) M_i; M_i ← M_i (1 − w^w_t(i) e_t) + w^w_t(i) a_t; logits = W_y h_T.

    for t = 0, …, T: one step more than objects, with z_T = 0, which takes in what was read last. The first step reads
    nothing, r_0 = r_1 = 0, and every step reads before it writes.

    Symbols: z the encoded objects after context normalisation (`front`); LSTM `controller`, 512 units; w^r, w^w of
    `reads` and `writes`, each a `Head`; e `erase` with a sigmoid, a `add` with tanh; M `memory`, 10 places of 256
    numbers, trained at their start; W_y `readout`.

    Reference: Graves, Wayne and Danihelka, "Neural Turing machines", 2014; sizes and initial values of Webb et al.,
    2021.

    Differs from the paper, as Webb's public code does: a head's first weights are not interpolated with earlier ones,
    as there are none.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.NTM(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        2574064
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def _make(self) -> None:
        self.controller = controller(FEATURES + WIDTH, HIDDEN)
        self.reads, self.writes = Head(), Head()
        self.erase = balanced(HIDDEN, WIDTH)
        self.add = balanced(HIDDEN, WIDTH, TANH_GAIN)
        self.memory = nn.Parameter(nn.init.xavier_normal_(torch.empty(PLACES, WIDTH)))
        self.readout = balanced(HIDDEN, self.classes)

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        z = self.front.norm(encoded)
        nothing = z.new_zeros(z.shape[1], HIDDEN)
        start = Tape(nothing, nothing, nothing[:, :WIDTH], self.memory.expand(z.shape[1], -1, -1), None, None)
        _, last = unroll(self._step, z, start)
        hidden, _ = self.controller(torch.cat([torch.zeros_like(z[0]), last.read], -1), (last.hidden, last.cell))
        logits: Tensor = self.readout(hidden)
        return logits

    def _step(self, z: Tensor, state: Tape) -> tuple[Tensor, Tape]:
        """One object: the controller sees it and what was read, reads again, and writes."""
        h, cell = self.controller(torch.cat([z, state.read], -1), (state.hidden, state.cell))
        read, reading = state.read, state.reading
        if state.writing is not None:  # else nothing was written that could be read
            reading = self.reads(h, state.memory, reading)
            read = (reading[:, None] @ state.memory).squeeze(1)  # eq. (2)
        writing = self.writes(h, state.memory, state.writing)
        return read, Tape(h, cell, read, self._written(h, state.memory, writing), reading, writing)

    def _written(self, h: Tensor, memory: Tensor, weights: Tensor) -> Tensor:
        """The memory (B, places, width) after a write."""
        where = weights[..., None]
        kept = memory * (1 - where * self.erase(h).sigmoid()[:, None])  # eq. (3)
        return kept + where * self.add(h).tanh()[:, None]  # eq. (4)
