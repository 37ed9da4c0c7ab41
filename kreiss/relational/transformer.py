"""The Transformer over objects, as a rival of networks that see relations alone."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from kreiss.pooled import Pooled
from kreiss.relational.attention import AttentionLayer
from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES, balanced, before_relu

HEADS, FEEDFORWARD, HIDDEN = 8, 512, 256
STACKED = math.sqrt(0.5)  # gain that gives Q, K and V, each n × n, the variance of Xavier's rule for all three, 3n × n


def sinusoids(length: int, features: int) -> Tensor:
    """PE (T, features): sin(t / 10000^(2i/features)) in columns 2i, and the cosine in columns 2i + 1, float64."""
    rates = 10_000.0 ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Transformer(RelationalNetwork):
    """x_t = z_t + PE_t; x′ = LN(one layer of attention among all x); logits = MLP(mean_t x′_t).

    Symbols: z the encoded objects after context normalisation (`front`); PE sinusoids of the position; the layer
    `attention`, 8 heads and 512 feed-forward units, normalised after each part; LN `norm`; MLP `decoder`, 256 units.

    Variant: `symmetric=True` has one map for queries and keys, so that similarities are symmetric.

    Reference: Vaswani et al., "Attention is all you need", 2017; sizes and initial values of Webb et al., 2021, there
    without dropout.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        symmetric: whether queries and keys are the same map.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.Transformer(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        431460
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        symmetric: bool = False,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        self.symmetric = bool(symmetric)
        super().__init__(length, classes, generator=generator, **front)

    def _make(self) -> None:
        self.attention = AttentionLayer(FEATURES, FEATURES, HEADS, FEEDFORWARD, self.symmetric)
        _start(self.attention)
        self.norm = nn.LayerNorm(FEATURES)
        self.decoder = nn.Sequential(before_relu(FEATURES, HIDDEN), nn.ReLU(), balanced(HIDDEN, self.classes))

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        logits: Tensor = self.decoder(self.norm(self._attended(encoded)[0]).mean(1))
        return logits

    def _attended(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Objects (B, T, 128) after attention, and its weights (B, heads, T, T)."""
        z = self.front.norm(encoded).transpose(0, 1)
        x = z + sinusoids(self.length, FEATURES).to(z)
        attended: tuple[Tensor, Tensor] = self.attention(x, x)
        return attended

    @torch.no_grad()
    def relations(self, inputs: Tensor | Pooled) -> Tensor:
        """The attention weights (B, T, T), mean of all heads; rows sum to one."""
        self._check(inputs, None)
        return self._attended(self.front.encode(inputs))[1].mean(1)


def _start(layer: AttentionLayer) -> None:
    """Xavier normal for the maps of the attention, Kaiming normal for the feed-forward part, biases zero."""
    for linear in (layer.query, layer.key, layer.value):
        if linear is not None:
            nn.init.xavier_normal_(linear.weight, STACKED)
    nn.init.xavier_normal_(layer.out.weight)
    for part in layer.feedforward:
        if isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    for part in layer.modules():
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
