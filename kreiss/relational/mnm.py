"""Metalearned neural memory over objects: a memory that is itself a network, trained while it is used."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES

LAYERS = 3


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

    def start(self, batch: int) -> list[Tensor]:
        """The matrices (B, 128, 128) before anything is written."""
        return [self.get_buffer(f"start_{layer}").expand(batch, -1, -1) for layer in range(1, LAYERS + 1)]

    def activations(self, matrices: list[Tensor], key: Tensor) -> list[Tensor]:
        """a₀ = key, a₁, a₂ and f(key), each (B, 128)."""
        found = [key]
        for layer, matrix in enumerate(matrices, 1):
            reached = (matrix @ found[-1][..., None]).squeeze(-1)
            found.append(reached.tanh() if layer < LAYERS else reached)
        return found

    def written(self, matrices: list[Tensor], key: Tensor, value: Tensor, rate: Tensor) -> list[Tensor]:
        """The matrices after `value` is written under `key`, with rate β (B, 1)."""
        active = self.activations(matrices, key)
        targets = self.targets(value).chunk(LAYERS, -1)
        errors = [2 / FEATURES * (after - target) for after, target in zip(active[1:], targets, strict=True)]
        return [
            matrix - error[..., None] * (rate * before)[:, None]
            for matrix, error, before in zip(matrices, errors, active[:-1], strict=True)
        ]

    def read(self, matrices: list[Tensor], key: Tensor) -> Tensor:
        """What is found under `key`, (B, 128)."""
        *_, last_hidden, value = self.activations(matrices, key)
        if self.projection is None:
            return value
        projected: Tensor = self.projection(torch.cat([value, last_hidden], -1))
        return projected


class MNM(RelationalNetwork):
    """h_t = LSTM([z_t; r_t]); write v_t under k_t in f, with rate β_t; r_t+1 = f(q_t); logits = W_y W_o [h_T; r_T+1].

    [β̂; k; v; q]_t = tanh(W h_t), β_t = σ(w · β̂_t), for t = 0, …, T: one step more than objects, with z_T = 0. In
    training, `penalty` is the error of what was just written, Σ_t |f(k_t) − v_t|² / (128 T), mean of the batch.

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
        matrices = self.memory.start(z.shape[1])
        read, errors, state = torch.zeros_like(z[0]), z.new_zeros(()), None
        for seen in (*z, torch.zeros_like(z[0])):
            state = self.controller(torch.cat([seen, read], -1), state)
            rate, key, value, query = self.bound(self.heads(state[0])).chunk(4, -1)
            matrices = self.memory.written(matrices, key, value, self.rate(rate).sigmoid())
            errors = errors + (self.memory.activations(matrices, key)[-1] - value).square().mean()
            read = self.memory.read(matrices, query)
        self._errors = errors / self.length if self.training else None
        assert state is not None
        logits: Tensor = self.readout(self.out(torch.cat([state[0], read], -1)))
        return logits

    def penalty(self) -> Tensor | None:
        """The error of what was written in the last pass, if that was in training."""
        return self._errors

    def __getstate__(self) -> dict[str, Any]:
        """Without the errors: they carry a graph, which can be neither copied nor pickled."""
        return {**self.__dict__, "_errors": None}
