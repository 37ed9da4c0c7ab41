"""Metalearned neural memory over objects: a memory that is itself a network, trained while it is used."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor, nn

from kreiss.recurrence import unroll
from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES

LAYERS = 3


class Written(NamedTuple):
    """What was added to a matrix of the memory: W = start − Σ_s error_s before_sᵀ, over the s writes so far.

    A few outer products take far less time and room than a matrix for every sequence of the batch.
    """

    errors: Tensor  # (B, s, 128)
    before: Tensor  # (B, s, 128)

    def and_also(self, error: Tensor, before: Tensor) -> Written:
        """After one more write of error and before, both (B, 128)."""
        return Written(torch.cat([self.errors, error[:, None]], 1), torch.cat([self.before, before[:, None]], 1))

    def times(self, x: Tensor) -> Tensor:
        """Σ_s error_s (before_s · x), for x (B, 128)."""
        return (self.errors.mT @ (self.before @ x[..., None])).squeeze(-1)


class NeuralMemory(nn.Module):
    """f(k) = W₃ tanh(W₂ tanh(W₁ k)), written by W_l ← W_l − (2 β / n) (a_l − u_l) a_l−1ᵀ with [u₁; u₂; u₃] = U v + b.

    a_l are the activations for the key that is written, a_0 the key itself, before any matrix changes; n = 128. The
    targets u_l that a trained map makes of the value v take the place of backpropagated errors.

    Symbols: the first W_l `start_1` to `start_3`, drawn once and never trained; U, b `targets`.

    Args:
        features: whether what is read is linear in [f(k); a₂], not f(k) itself.
    """

    def __init__(self, features: bool = False) -> None:
        super().__init__()
        for layer in range(1, LAYERS + 1):
            self.register_buffer(f"start_{layer}", nn.Linear(FEATURES, FEATURES).weight.detach())
        self.targets = nn.Linear(FEATURES, LAYERS * FEATURES)
        self.projection = nn.Linear(2 * FEATURES, FEATURES) if features else None

    def empty(self, batch: int) -> list[Written]:
        """The memory of every sequence before anything is written, layer by layer."""
        nothing = self.targets.weight.new_zeros(batch, 0, FEATURES)
        return [Written(nothing, nothing) for _ in range(LAYERS)]

    def activations(self, held: list[Written], key: Tensor) -> list[Tensor]:
        """a₀ = key, a₁, a₂ and f(key), each (B, 128)."""
        found = [key]
        for layer, written in enumerate(held, 1):
            reached = found[-1] @ self.get_buffer(f"start_{layer}").T - written.times(found[-1])
            found.append(reached.tanh() if layer < LAYERS else reached)
        return found

    def write(self, held: list[Written], key: Tensor, value: Tensor, rate: Tensor) -> list[Written]:
        """The memory after `value` is written under `key`, with rate β (B, 1)."""
        active = self.activations(held, key)
        targets = self.targets(value).chunk(LAYERS, -1)
        return [
            written.and_also(2 / FEATURES * rate * (after - target), before)
            for written, before, after, target in zip(held, active[:-1], active[1:], targets, strict=True)
        ]

    def read(self, held: list[Written], key: Tensor) -> Tensor:
        """What is found under `key`, (B, 128)."""
        *_, last_hidden, value = self.activations(held, key)
        if self.projection is None:
            return value
        projected: Tensor = self.projection(torch.cat([value, last_hidden], -1))
        return projected


class Held(NamedTuple):
    """The state of an MNM; the first three (B, 128)."""

    hidden: Tensor
    cell: Tensor
    read: Tensor
    memory: list[Written]


class MNM(RelationalNetwork):
    """h_t = LSTM([z_t; r_t]); write v_t under k_t in f, with rate β_t; r_t+1 = f(q_t); logits = W_y W_o [h_T; r_T+1].

    [β̂; k; v; q]_t = tanh(W h_t), β_t = σ(w · β̂_t), for t = 0, …, T: one step more than objects, with z_T = 0. In
    training, `penalty` is the error of what was just written, Σ_t ‖f(k_t) − v_t‖² / (128 T), mean of the batch.

    Symbols: z the encoded objects after context normalisation (`front`); LSTM `controller`, 128 units; W `heads`; w
    `rate`; f `memory`; W_o `out`; W_y `readout`.

    Reference: Munkhdalai et al., "Metalearned neural memory", 2019, the variant MNM-p with learned local updates; sizes
    and initial values of Webb et al., 2021.

    Differs from Webb's public code, which registers 33,920 parameters more that nothing depends on: a normalisation of
    the heads and a map from the memory's features. `norm_heads=True` and `features=True` put them to use, for its count
    of 579,299 (T = 2, two classes). The sum of T + 1 errors is divided by T, as there. Steps of gradient accumulation
    count only the errors of their last piece.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        norm_heads: whether the heads are normalised (layer normalisation) in place of tanh.
        features: whether what is read also depends on the last hidden units of the memory.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.MNM(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        545637
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape, bool(network.penalty() > 0)
        (torch.Size([5, 4]), True)
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        norm_heads: bool = False,
        features: bool = False,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        self.norm_heads, self.features = bool(norm_heads), bool(features)
        super().__init__(length, classes, generator=generator, **front)

    def _make(self) -> None:
        self.controller = nn.LSTMCell(2 * FEATURES, FEATURES)
        self.heads = nn.Linear(FEATURES, 4 * FEATURES)
        self.bound: nn.Module = nn.LayerNorm(4 * FEATURES) if self.norm_heads else nn.Tanh()
        self.rate = nn.Linear(FEATURES, 1)
        self.memory = NeuralMemory(self.features)
        self.out = nn.Linear(2 * FEATURES, FEATURES)
        self.readout = nn.Linear(FEATURES, self.classes)
        self._errors: Tensor | None = None  # of the last pass in training

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        z = self.front.norm(encoded)
        nothing = torch.zeros_like(z[0])
        errors, last = unroll(
            self._step, torch.cat([z, nothing[None]]), Held(nothing, nothing, nothing, self.memory.empty(z.shape[1]))
        )
        self._errors = errors.sum() / self.length if self.training else None
        logits: Tensor = self.readout(self.out(torch.cat([last.hidden, last.read], -1)))
        return logits

    def _step(self, z: Tensor, state: Held) -> tuple[Tensor, Held]:
        """One object: write what the controller makes of it, and read; returns the error of what was written."""
        hidden, cell = self.controller(torch.cat([z, state.read], -1), (state.hidden, state.cell))
        rate, key, value, query = self.bound(self.heads(hidden)).chunk(4, -1)
        memory = self.memory.write(state.memory, key, value, self.rate(rate).sigmoid())
        error = (self.memory.activations(memory, key)[-1] - value).square().mean()
        return error, Held(hidden, cell, self.memory.read(memory, query), memory)

    def penalty(self) -> Tensor | None:
        """The error of what was written in the last pass, if that was in training."""
        return self._errors

    def __getstate__(self) -> dict[str, Any]:
        """Without the errors: they carry a graph, which can be neither copied nor pickled."""
        return {**self.__dict__, "_errors": None}
