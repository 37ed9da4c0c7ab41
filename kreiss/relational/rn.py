"""The relation network: one function of every pair of objects, summed."""

from __future__ import annotations

from torch import Tensor, nn

from kreiss.relational.base import RelationalNetwork
from kreiss.relational.parts import FEATURES, balanced, before_relu, positioned

PAIR_HIDDEN, PAIR, HIDDEN = 512, 256, 256


class RN(RelationalNetwork):
    """logits = f(Σ_i,j g(x_i, x_j)) over all ordered pairs, each object with itself too.

    Symbols: x_t the encoded object after context normalisation with its position t as a last number; g `first` and
    `second`, 512 and 256 units, both with ReLU; f `decoder`, 256 units of ReLU.

    Reference: Santoro et al., "A simple neural network module for relational reasoning", 2017, eq. (1); sizes and
    initial values of Webb et al., 2021.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.RN(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        529636
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def _make(self) -> None:
        self.first = before_relu(2 * (FEATURES + 1), PAIR_HIDDEN)
        self.second = before_relu(PAIR_HIDDEN, PAIR)
        self.decoder = nn.Sequential(before_relu(PAIR, HIDDEN), nn.ReLU(), balanced(HIDDEN, self.classes))

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        x = positioned(self.front.norm(encoded))
        left, right = self.first.weight.chunk(2, 1)
        # W [x_i; x_j] as the sum of two products, of T objects instead of T² pairs
        pairs = ((x @ left.T)[:, None] + (x @ right.T)[None] + self.first.bias).relu()  # (T, T, B, 512)
        logits: Tensor = self.decoder(self.second(pairs).relu().sum((0, 1)))
        return logits
