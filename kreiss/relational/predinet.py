"""PrediNet: each head picks two objects and compares them along learned directions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kreiss.relational.base import RelationalNetwork
from kreiss.relational.parts import FEATURES, balanced, before_relu, positioned

KEY, HEADS, RELATIONS, HIDDEN = 16, 32, 16, 8
PLACED = FEATURES + 1  # features of an object with its position


class PrediNet(RelationalNetwork):
    """E_a = Σ_t softmax_t(q_a · W_k x_t) x_t, a = 1, 2; logits = MLP of [W_s E₁ − W_s E₂; place₁; place₂] of all heads.

    Symbols: x_t the encoded object after context normalisation with its position t as a last number; q_a `queries`,
    two for each of 32 heads, linear in all x together; W_k `key`, 16 numbers; W_s `compare`, 16 relations; place_a the
    last number of E_a, the mean position of what was picked; MLP `decoder`, 8 units of ReLU.

    Reference: Shanahan et al., "An explicitly relational neural network architecture", 2020, 3; sizes and initial
    values of Webb et al., 2021.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.PrediNet(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        1396524
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def _make(self) -> None:
        self.key = balanced(PLACED, KEY, bias=False)
        self.queries = nn.ModuleList(balanced(self.length * PLACED, HEADS * KEY, bias=False) for _ in range(2))
        self.compare = balanced(PLACED, RELATIONS, bias=False)
        self.decoder = nn.Sequential(
            before_relu(HEADS * (RELATIONS + 2), HIDDEN), nn.ReLU(), balanced(HIDDEN, self.classes)
        )

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        x = positioned(self.front.norm(encoded)).transpose(0, 1)  # (B, T, 129)
        first, second = (self._picked(x, query) for query in self.queries)
        differences = self.compare(first) - self.compare(second)  # (B, heads, 16)
        found = torch.cat([differences, first[..., -1:], second[..., -1:]], -1)
        logits: Tensor = self.decoder(found.flatten(1))
        return logits

    def _picked(self, x: Tensor, query: nn.Module) -> Tensor:
        """One object for each head, (B, heads, 129)."""
        asked = query(x.flatten(1)).unflatten(-1, (HEADS, KEY))
        return (asked @ self.key(x).mT).softmax(-1) @ x
