"""Block matrices of an orthogonal long-term part and a short-term part in the unit disc."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError, check_name, check_size, check_square
from kreiss.sets import initial
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.disc import UnitDisc
from kreiss.sets.orthogonal import Orthogonal

COUPLINGS = ("glorot", "orthogonal")


class LongShort(Set):
    """Matrices W = [[W_L, W_C], [0, W_S]], W_L orthogonal and W_S with spectral radius at most 1.

    They act on the state h = (h_L, h_S): h_L is long-term memory, h_S forgets, and W_C lets h_L read h_S. The
    eigenvalues of W are those of W_L and W_S for any W_C.

    Symbols::

        W_L   orthogonal   q(q−1)/2, see Orthogonal            q = n − short
        W_C   coupling     q × short                            absent with coupled=False
        T     disc         short × short, W_S = T/(ρ(T) + ε)    see UnitDisc

    Args:
        n: size of the matrix.
        short: size of h_S, 0 to n; default two fifths of n.
        coupled: whether there is a W_C.
        epsilon: ε of W_S.
        orthogonal: how W_L is parametrized, a method of `Orthogonal`.
        coupling: initialiser of W_C, "glorot" (uniform) or "orthogonal" (orthonormal rows or columns).
        **options: options of the orthogonal method.

    Reference: Helfrich & Ye (2020), eq. (2).

    Differs: the initialisers are those of W_L; T is always initialised with eigenvalues in the disc (their eq. 5).

    Example:
        >>> import kreiss
        >>> both = kreiss.LongShort(5, short=2)
        >>> both.roles
        ('orthogonal', 'coupling', 'disc')
        >>> bool(both(*both.initial())[3:, :3].any())
        False
    """

    def __init__(
        self,
        n: int,
        short: int | None = None,
        *,
        coupled: bool = True,
        epsilon: float = 1e-3,
        orthogonal: str = "scaled_cayley",
        coupling: str = "glorot",
        **options: Any,
    ) -> None:
        super().__init__(n)
        self.short = _checked_short(n, short)
        self.long = n - self.short
        check_name("start of the coupling", coupling, COUPLINGS)
        self.coupling = coupling
        self.coupled = bool(coupled) and self.long > 0 and self.short > 0
        self.remembers = Orthogonal(self.long, orthogonal, **options) if self.long else None
        self.forgets = UnitDisc(self.short, epsilon) if self.short else None
        shapes = self._all_shapes()
        self.roles, self.shapes = tuple(shapes), tuple(shapes.values())
        first = self.remembers or self.forgets
        assert first is not None
        self.initialisers = ("cayley", "henaff", "random", "identity") if self.remembers else first.initialisers
        self._declare_kind()

    def _all_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        if self.remembers is not None:
            shapes["orthogonal"] = self.remembers.shapes[0]
        if self.coupled:
            shapes["coupling"] = (self.long, self.short)
        if self.forgets is not None:
            shapes["disc"] = self.forgets.shapes[0]
        return shapes

    def extra_repr(self) -> str:
        return f"{self.n}, short={self.short}, coupled={self.coupled}"

    # ------------------------------------------------------------ free parameters → matrix

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        part = dict(zip(self.roles, free, strict=True))
        if self.forgets is None or self.remembers is None:
            (only,) = free
            return (self.remembers or self.forgets)(only)  # type: ignore[misc]
        w_long, w_short = self.remembers(part["orthogonal"]), self.forgets(part["disc"])
        zeros = w_short.new_zeros(self.short, self.long)
        w_coupling = part["coupling"] if self.coupled else zeros.mT
        return torch.cat([torch.cat([w_long, w_coupling], 1), torch.cat([zeros, w_short], 1)])  # eq. (2)

    # ------------------------------------------------------------ matrix → free parameters

    def _fit(self, matrix: Tensor, tol: float | None = None) -> dict[str, Tensor]:
        """The blocks of `matrix`, after checking that each lies in its set."""
        check_square(matrix, self.n)
        q, limit = self.long, default_tolerance(matrix.dtype) if tol is None else tol
        blocks = {"orthogonal": matrix[:q, :q], "coupling": matrix[:q, q:], "disc": matrix[q:, q:]}
        zero = {"[0, W_S]": matrix[q:, :q], "[W_L, 0]": blocks["coupling"][:0] if self.coupled else blocks["coupling"]}
        for where, block in zero.items():
            if block.numel() and block.abs().max() > limit:
                raise InputError(
                    f"`matrix` must be zero outside its blocks, {where}; got an entry of "
                    f"{float(block.detach().abs().max()):.3g}. Use another `short`, or coupled=True."
                )
        for role, member in self._members().items():
            copy.deepcopy(member).right_inverse(blocks[role])  # a copy: it may set fixed parts
        return blocks

    def _members(self) -> dict[str, Set]:
        members = {"orthogonal": self.remembers, "disc": self.forgets}
        return {role: member for role, member in members.items() if member is not None}

    def right_inverse(self, matrix: Tensor) -> Free_:
        part = self._fit(matrix)
        for role, member in self._members().items():
            (part[role],) = member.right_inverse(part[role])
        return tuple(part[role].contiguous() for role in self.roles)

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        try:
            blocks = self._fit(matrix, tol)
        except InputError:
            return False
        return all(member.contains(blocks[role], tol) for role, member in self._members().items())

    # ------------------------------------------------------------ the rest of the interface

    def error(self, *free: Tensor) -> float:
        part = dict(zip(self.roles, free, strict=True))
        return max(member.error(part[role]) for role, member in self._members().items())

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point of W_L, see `Orthogonal.rebase`."""
        if self.remembers is not None:
            self.remembers.rebase(free[0], project=project)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        part: dict[str, Tensor] = {}
        if self.remembers is not None:
            (part["orthogonal"],) = self.remembers._initial(name, generator)
        if self.coupled and self.coupling == "orthogonal":
            part["coupling"] = initial.truncated_orthogonal(self.long, self.short, generator=generator)
        elif self.coupled:
            bound = math.sqrt(6 / (self.long + self.short))  # Glorot uniform
            entries = initial.uniform(self.long * self.short, -bound, bound, generator)
            part["coupling"] = entries.view(self.long, self.short)
        if self.forgets is not None:
            (part["disc"],) = self.forgets._initial("disc" if self.remembers else name, generator)
        return tuple(part[role] for role in self.roles)


def _checked_short(n: int, short: int | None) -> int:
    if short is None:
        return round(0.4 * n)
    if check_size("short", short, 0) > n:
        raise InputError(f"`short` must be at most n={n}; got short={short}. Pass the size of the part that forgets.")
    return short
