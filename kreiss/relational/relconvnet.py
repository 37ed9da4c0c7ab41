"""The relational convolutional network: filters matched against the relations within groups of objects."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_memory, check_size
from kreiss.relational.base import Front, RelationalNetwork
from kreiss.relational.parts import FEATURES, decoder

GROUP = 3
FILTER_SCALE = 0.05  # standard deviation of the first filters


class RelConvNet(RelationalNetwork):
    """R_ij^r = (A_r z_i + a_r) · (B_r z_j + b_r); Q_gf = Σ_x,y,r F_fxy^r R_g(x)g(y)^r; logits = MLP(Q).

    g runs over all groups of `group` objects, in order: every filter F_f, a pattern of relations, is matched against
    the relations within every group.

    Symbols: z the encoded objects after context normalisation (`front`); A, a `left`, 16 relations of 4 numbers each;
    B, b `right`, the same as `left` where relations are symmetric; F `filters`; MLP `decoder`, 64 units of ReLU.

    Reference: Altabaa and Lafferty, "Learning hierarchical relational representations through relational
    convolutions", 2024; sizes of its experiments on relational games.

    Differs: one layer of convolution, as in those experiments, and no learned groups. They scale objects to length
    one or normalise the context; here it is the context, as in all networks of this package.

    Args:
        length: T, objects in a sequence.
        classes: possible answers.
        relations: r, relations of a pair.
        projection: numbers from which each relation is computed.
        symmetric: whether A = B and a = b.
        filters: f, graphlet filters.
        group: objects in a group, at most T; None for 3, or 2 where there are two objects.
        hidden: units of the decoder.
        front: image, encoder, normalisation, segments: see `RelationalNetwork`.
        generator: for the initial values.

    Example:
        >>> import kreiss, torch
        >>> network = kreiss.relational.RelConvNet(length=9, classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        295780
        >>> logits, _ = network(torch.rand(9, 5, 3, 32, 32))
        >>> logits.shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        relations: int = 16,
        projection: int = 4,
        symmetric: bool = True,
        filters: int = 16,
        group: int | None = None,
        hidden: int = 64,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        length = check_size("length", length, minimum=2)
        group = min(GROUP, length) if group is None else check_size("group", group, minimum=2)
        if group > length:
            raise InputError(
                f"`group` must be at most the {length} objects of a sequence; got group={group}. Pass fewer."
            )
        self.group, self.hidden, self.symmetric = group, check_size("hidden", hidden), bool(symmetric)
        self.sizes = tuple(
            check_size(name, size)
            for name, size in (("relations", relations), ("projection", projection), ("filters", filters))
        )
        super().__init__(length, classes, generator=generator, **front)

    def _make(self) -> None:
        relations, projection, filters = self.sizes
        matched = math.comb(self.length, self.group) * filters
        check_memory("the decoder of all groups", 4 * matched * self.hidden, "Choose smaller groups")
        self.left = nn.Linear(FEATURES, relations * projection)
        self.right = None if self.symmetric else nn.Linear(FEATURES, relations * projection)
        self.filters = nn.Parameter(FILTER_SCALE * torch.randn(filters, self.group, self.group, relations))
        self.decoder = decoder(matched, self.hidden, self.classes)

    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes)."""
        z = self.front.norm(encoded)
        sides = [side(z).unflatten(-1, self.sizes[:2]) for side in (self.left, self.right or self.left)]
        related = torch.einsum("ibrp,jbrp->bijr", *sides)
        logits: Tensor = self.decoder(self._convolved(related).flatten(1))
        return logits

    def _convolved(self, related: Tensor) -> Tensor:
        """Q (B, groups, filters) of relations (B, T, T, r)."""
        members = torch.combinations(torch.arange(self.length, device=related.device), self.group).T
        # every pair is matched with every place of a filter once, not once for each group that it is in
        matched = torch.einsum("bijr,fxyr->xybijf", related, self.filters)
        found = [
            matched[x, y][:, members[x], members[y]] for x in range(self.group) for y in range(self.group)
        ]  # of (B, groups, filters)
        return torch.stack(found).sum(0)
