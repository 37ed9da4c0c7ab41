"""Stacked sets, for matrices of several gates."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from kreiss.errors import InputError
from kreiss.sets.base import Free_, Set


class Stacked(Set):
    """Matrices of k stacked square blocks, each block in its own set.

    `torch.nn.LSTM` stores its four recurrent gate matrices this way (rows i, f, g, o), `torch.nn.GRU`
    its three.

    Args:
        *sets: one set per block, top first, all of the same size.

    Example:
        >>> import kreiss
        >>> h = 8
        >>> gates = kreiss.Stacked(kreiss.Free(h), kreiss.Free(h), kreiss.Orthogonal(h), kreiss.Free(h))
        >>> gates(*gates.initial()).shape
        torch.Size([32, 8])
    """

    def __init__(self, *sets: Set) -> None:
        if wrong := [type(s).__name__ for s in sets if not isinstance(s, Set)]:
            raise TypeError(f"`Stacked` takes sets of matrices; got {', '.join(wrong)}. Pass, for example, Free(n).")
        if not sets or len({s.n for s in sets}) != 1:
            raise InputError(
                f"`Stacked` takes one or more sets of the same size; got sizes {[s.n for s in sets]}. "
                "Pass one set per block."
            )
        super().__init__(sets[0].n)
        self.sets = nn.ModuleList(sets)
        self.roles = tuple(role for s in sets for role in s.roles)
        self.shapes = tuple(shape for s in sets for shape in s.shapes)
        self.initialisers = ("default", *_common([s.initialisers for s in sets]))

    def _members(self) -> list[Set]:
        return [s for s in self.sets if isinstance(s, Set)]

    def _split(self, free: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        parts, start = [], 0
        for member in self._members():
            parts.append(free[start : start + len(member.roles)])
            start += len(member.roles)
        return parts

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        return torch.cat([member(*part) for member, part in zip(self._members(), self._split(free), strict=True)])

    def right_inverse(self, matrix: Tensor) -> Free_:
        blocks = self._fit(matrix)
        return tuple(
            tensor
            for member, block in zip(self._members(), blocks, strict=True)
            for tensor in member.right_inverse(block)
        )

    def error(self, *free: Tensor) -> float:
        return max(member.error(*part) for member, part in zip(self._members(), self._split(free), strict=True))

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Rebase every member that has a base point."""
        for member, part in zip(self._members(), self._split(free), strict=True):
            member.rebase(*part, project=project)

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        try:
            blocks = self._blocks(matrix)
        except InputError:
            return False
        return all(member.contains(block, tol) for member, block in zip(self._members(), blocks, strict=True))

    def _blocks(self, matrix: Tensor) -> tuple[Tensor, ...]:
        expected = (len(self.sets) * self.n, self.n)
        if tuple(matrix.shape) != expected:
            raise InputError(
                f"`matrix` must be of shape {expected}; got {tuple(matrix.shape)}. Stack the blocks vertically."
            )
        return matrix.split(self.n)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> tuple[Tensor, ...]:
        """The blocks, checked against every set first, so that an error leaves all sets unchanged."""
        blocks = self._blocks(matrix)
        for member, block in zip(self._members(), blocks, strict=True):
            copy.deepcopy(member).right_inverse(block)
        return blocks

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        return tuple(
            tensor
            for member in self._members()
            for tensor in member._initial(member.initialisers[0] if name == "default" else name, generator)
        )


def _common(names: list[tuple[str, ...]]) -> list[str]:
    return [name for name in names[0] if all(name in other for other in names)]
