"""CoRelNet: a decision from the similarities of all pairs of objects, and from nothing else."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.errors import InputError, check_name, check_size
from kreiss.pooled import Pooled
from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES, Views, decoder

RELATIONS = ("dot", "asymmetric", "difference", "mix")
RULES, SIGNATURE = 2, 8  # of mix: similarity and difference, and the size of their keys


def causal_softmax(left: Tensor, right: Tensor) -> Tensor:
    """R (B, T, T): softmax over j ≤ i of left_i · right_j, for objects (T, B, features); zero above the diagonal."""
    products = torch.einsum("ibn,jbn->bij", left, right)
    later = torch.ones(products.shape[-2:], dtype=torch.bool, device=products.device).triu(1)
    return products.masked_fill(later, float("-inf")).softmax(-1)


class CoRelNet(RelationalNetwork):
    """R_ij = softmax_j≤i(z_i · z_j); logits = MLP(lower triangle of R), with the diagonal, row by row.

    Symbols: z the encoded objects after context normalisation (`front`); R `relations`; MLP `decoder`, one hidden layer
    of `hidden` ReLU units.

    Variants: `relation="asymmetric"` compares W₁e with W₂e; `cat=True` gives the decoder the objects as well; `hidden`
    of other sizes is CoRelNet-nhid; `l1` puts a penalised linear layer before the normalisation; `encoder="random"`
    keeps the encoder as it was drawn. `relation="difference"` (CoRelNet diff) decides from D_ij = w · (z_i − z_j).
    `relation="mix"` (CoRelNet mix) chooses between R and D with a straight-through Gumbel softmax of the products of
    two trained keys with a query, linear in the mean object.

    Reference: Kerg et al., "On neural architecture inductive biases for relational tasks", 2022; Kerg's thesis, 2022,
    5.5, and 7.2 and 7.3 for diff and mix.

    Differs from the thesis: it flattens all of R, but the parameter counts of its Table C.3 are those of the triangle,
    as in its public code. It takes the query of mix from the encoded objects (`query="encoded"`), and finds that the
    choice of a rule is sensitive to the start. The mean of normalised objects is β, whatever they are: with
    `query="normalised"`, the default, all sequences share one rule with nearly even odds, and training finds the
    right one.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        relation: "dot", "asymmetric", "difference" or "mix".
        hidden: units of the decoder.
        cat: whether the decoder sees the normalised objects too.
        l1: λ of the penalised linear layer after the encoder; None for no such layer.
        temperature: τ of the Gumbel softmax of mix.
        query: "normalised" or "encoded": the objects whose mean asks for a rule in mix.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.CoRelNet(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        211684
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        relation: str = "dot",
        hidden: int = 256,
        cat: bool = False,
        l1: float | None = None,
        temperature: float = 1.0,
        query: str = "normalised",
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        check_name("relation", relation, RELATIONS)
        check_name("query", query, ("normalised", "encoded"))
        if not 0 < temperature < float("inf"):
            raise InputError(f"`temperature` must be positive and finite; got {temperature}. Pass for example 1.")
        self.relation, self.hidden, self.cat = relation, check_size("hidden", hidden), bool(cat)
        self.l1, self.temperature, self.query_from = l1, temperature, query
        super().__init__(length, classes, generator=generator, **front)

    def _make(self) -> None:
        self.views = Views(self.front.norm, self.relation == "asymmetric", self.l1)
        whole = self.length * self.length
        inputs = whole if self.relation in ("difference", "mix") else self.length * (self.length + 1) // 2
        if self.relation in ("difference", "mix"):
            self.scale = nn.Linear(FEATURES, 1, bias=False)  # w of D; a bias would cancel
        if self.relation == "mix":
            self.keys = nn.Parameter(torch.randn(RULES, SIGNATURE))
            self.query = nn.Linear(FEATURES, SIGNATURE)
        self.decoder = decoder(inputs + self.cat * self.length * FEATURES, self.hidden, self.classes)

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        left, right = self.views(encoded)
        relations = self._related(encoded, left, right)
        if self.relation in ("difference", "mix"):
            shown = relations.flatten(1)
        else:
            rows, columns = torch.tril_indices(self.length, self.length, device=relations.device)
            shown = relations[:, rows, columns]
        if self.cat:
            shown = torch.cat([shown, left.transpose(0, 1).flatten(1)], -1)
        logits: Tensor = self.decoder(shown)
        return logits

    def _related(self, encoded: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """The matrix (B, T, T) that the decoder is given."""
        if self.relation == "difference":
            return self._differences(left)
        similar = causal_softmax(left, right)  # thesis, 5.5
        if self.relation != "mix":
            return similar
        return torch.einsum(
            "br,brij->bij", self._rule(encoded, left), torch.stack([similar, self._differences(left)], 1)
        )

    def _differences(self, z: Tensor) -> Tensor:
        """D_ij = w · z_i − w · z_j (thesis, 7.2)."""
        scaled = self.scale(z).squeeze(-1).T  # (B, T)
        return scaled[:, :, None] - scaled[:, None, :]

    def _rule(self, encoded: Tensor, z: Tensor) -> Tensor:
        """Which rule decides each sequence, one-hot (B, 2): similarity or difference (thesis, 7.3)."""
        asked = self.query((z if self.query_from == "normalised" else encoded).mean(0))
        scores = asked @ self.keys.T
        if self.training:
            return F.gumbel_softmax(scores, self.temperature, hard=True)
        return F.one_hot(scores.argmax(-1), RULES).to(scores.dtype)

    def penalty(self) -> Tensor | None:
        """The L1 penalty of the variant that has one."""
        return self.views.penalty()

    @torch.no_grad()
    def relations(self, inputs: Tensor | Pooled) -> Tensor:
        """The matrix of relations (B, T, T) that the decision is made from.

        R is zero above the diagonal, and its rows sum to one; D is antisymmetric.
        """
        self._check(inputs, None)
        encoded = self.front.encode(inputs)
        return self._related(encoded, *self.views(encoded))
