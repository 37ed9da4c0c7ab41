"""A layer of multi-head attention with a feed-forward part, normalised after each."""

from __future__ import annotations

from torch import Tensor, nn


class AttentionLayer(nn.Module):
    """x′ = LN(x + W_o [A₁v₁ … A_hv_h]), A = softmax(q kᵀ / √d); output LN(x′ + W₂ ReLU(W₁ x′)).

    q, k and v are linear in the objects that ask and in the tokens that are asked, and split into heads of d numbers.

    Args:
        features: of objects and tokens.
        inner: numbers of q, k and v, all heads together.
        heads: h.
        feedforward: units of the feed-forward part.
        symmetric: whether q and k are the same map, so that q kᵀ is symmetric.
    """

    def __init__(self, features: int, inner: int, heads: int, feedforward: int, symmetric: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(features, inner)
        self.key = None if symmetric else nn.Linear(features, inner)
        self.value = nn.Linear(features, inner)
        self.out = nn.Linear(inner, features)
        self.first_norm = nn.LayerNorm(features)
        self.feedforward = nn.Sequential(nn.Linear(features, feedforward), nn.ReLU(), nn.Linear(feedforward, features))
        self.second_norm = nn.LayerNorm(features)

    def forward(self, objects: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Objects (B, S, features) after attention to tokens (B, T, features), and the weights (B, heads, S, T)."""
        asked = self._split(self.query(objects))
        known = self._split((self.key or self.query)(tokens))
        weights = (asked @ known.mT / asked.shape[-1] ** 0.5).softmax(-1)
        read = (weights @ self._split(self.value(tokens))).transpose(1, 2).flatten(2)
        objects = self.first_norm(objects + self.out(read))
        return self.second_norm(objects + self.feedforward(objects)), weights

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, S, inner) as (B, heads, S, d)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)
