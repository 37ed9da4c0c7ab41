"""CoRelNet-T: CoRelNet whose decoder attends to the rows of the similarity matrix."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from kreiss.errors import check_name
from kreiss.relational.attention import AttentionLayer
from kreiss.relational.base import Front
from kreiss.relational.corelnet import CoRelNet
from kreiss.relational.parts import Views, decoder

TOKEN, INNER, HEADS, FEEDFORWARD = 8, 512, 8, 128


class CoRelNetT(CoRelNet):
    """R_ij = softmax_j≤i(z_i · z_j); tokens R P; one trained query attends to them; logits = MLP(what it has read).

    Symbols: R `relations`; P `places`, a trained vector of 8 numbers for each object, so that token i is the mean of
    the places of earlier objects, weighted by their similarity to object i; the query `reader`; attention with 8 heads
    of 64 numbers, residuals and normalisation `attention`; MLP `decoder`, one hidden layer of ReLU.

    Variants: `relation="asymmetric"` and `l1`, as of `CoRelNet`.

    Reference: Kerg et al., "On neural architecture inductive biases for relational tasks", 2022; Kerg's thesis, 2022,
    5.5 and Table C.1. The places and the query start normal with variance one.

    Differs from its public code: that registers 23,088 parameters more (T = 2, two classes) that nothing depends on.
    The thesis "combines" rows and places; the code multiplies them, as here.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        relation: "dot" or "asymmetric".
        hidden: units of the decoder.
        l1: λ of the penalised linear layer after the encoder; None for no such layer.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.CoRelNetT(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        222436
        >>> network.relations(torch.rand(9, 5, 3, 32, 32)).shape
        torch.Size([5, 9, 9])
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        relation: str = "dot",
        hidden: int = 256,
        l1: float | None = None,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        check_name("relation", relation, ("dot", "asymmetric"))
        super().__init__(length, classes, relation=relation, hidden=hidden, l1=l1, generator=generator, **front)

    def _make(self) -> None:
        self.views = Views(self.front.norm, self.relation == "asymmetric", self.l1)
        self.places = nn.Parameter(torch.randn(self.length, TOKEN))  # P
        self.reader = nn.Parameter(torch.randn(TOKEN))
        self.attention = AttentionLayer(TOKEN, INNER, HEADS, FEEDFORWARD)
        self.decoder = decoder(TOKEN, self.hidden, self.classes)

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        tokens = self._related(encoded, *self.views(encoded)) @ self.places  # (B, T, 8)
        read, _ = self.attention(self.reader.expand(len(tokens), 1, TOKEN), tokens)
        logits: Tensor = self.decoder(read.squeeze(1))
        return logits
