"""Matrices with singular values in a band around 1."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError, check_square
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.orthogonal import Orthogonal


class Band(Set):
    """Real matrices W = U Σ Vᵀ with every singular value in [1 − m, 1 + m].

    s_i = 1 + 2m(σ(p_i) − ½), σ the logistic function, U and V orthogonal. The band holds by construction, also in
    floating point. The n² parameters are the dimension of the set.

    Symbols::

        U   left       role orthogonal   n(n−1)/2, see Orthogonal            set by the initialiser
        p   singular   role singular     n                                   initially 0, so s = 1
        V   right      role orthogonal   n(n−1)/2                            initially the identity

    Args:
        n: size of the matrix.
        margin: m in [0, 1]; for 0 there is no p and W is orthogonal.
        orthogonal: how U and V are parametrized, a method of `Orthogonal`.
        **options: options of the orthogonal method, such as reflections=.

    Reference: Vorontsov et al. (2017); Zhang, Lei & Dhillon (2018), with U and V as products of reflections.

    Note: `right_inverse` and `contains` use one singular value decomposition. Orthogonal methods that do not reach
    every matrix (few reflections) may not reach its U and V although the matrix is in the set.

    Example:
        >>> import kreiss, torch
        >>> band = kreiss.Band(4, margin=0.1)
        >>> free = [5 * torch.randn(shape) for shape in band.shapes]
        >>> s = torch.linalg.svdvals(band(*free))
        >>> bool((s > 0.899).all() and (s < 1.101).all())
        True
    """

    initialisers = ("henaff", "cayley", "random", "identity")

    def __init__(self, n: int, margin: float = 0.1, orthogonal: str = "householder", **options: Any) -> None:
        super().__init__(n)
        self.margin = _checked_margin(margin)
        self.left, self.right = (Orthogonal(n, orthogonal, **options) for _ in range(2))
        packed = self.left.shapes[0]
        shapes = {"left": packed, "singular": (n,), "right": packed}
        if not self.margin:
            del shapes["singular"]
        self._names, self.shapes = tuple(shapes), tuple(shapes.values())
        self.roles = tuple(name if name == "singular" else "orthogonal" for name in shapes)
        self._declare_kind()

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def extra_repr(self) -> str:
        return f"{self.n}, margin={self.margin!r}"

    # ------------------------------------------------------------ free parameters → matrix

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        u, v = self.left(free[0]), self.right(free[-1])
        return (u * self.singular_values(*free)) @ v.mT if self.margin else u @ v.mT

    def singular_values(self, *free: Tensor) -> Tensor:
        """The singular values from the free parameters, unordered."""
        if not self.margin:
            return free[0].new_ones(self.n)
        return 1 + 2 * self.margin * (free[1].sigmoid() - 0.5)  # Kerg (2022), §D.3: 2m(σ(p_i) − ½) + 1

    # ------------------------------------------------------------ matrix → free parameters

    def _fit(self, matrix: Tensor, tol: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """U, s and V of `matrix` in float64, if its singular values lie in the band."""
        check_square(matrix, self.n)
        u, s, vh = torch.linalg.svd(matrix.detach().double())
        limit = default_tolerance(matrix.dtype) if tol is None else tol
        off = float((s - 1).abs().max()) - self.margin
        if off > limit:
            raise InputError(
                f"`matrix` must have every singular value within {self.margin} of 1; got {float(s[-1]):.6g} to "
                f"{float(s[0]):.6g}. Use a larger margin, or scale the matrix."
            )
        v = vh.mT.clone()
        if torch.linalg.det(u) < 0:  # so that methods restricted to rotations can represent both where possible
            u[:, 0], v[:, 0] = -u[:, 0], -v[:, 0]
        copy.deepcopy(self.left).right_inverse(u)
        copy.deepcopy(self.right).right_inverse(v)
        return u, s, v

    def right_inverse(self, matrix: Tensor) -> Free_:
        u, s, v = self._fit(matrix)
        part = {"left": self.left.right_inverse(u)[0], "right": self.right.right_inverse(v)[0]}
        if self.margin:
            tiny = 8 * torch.finfo(matrix.dtype).eps  # at the edges of the band p would be infinite
            part["singular"] = ((s - 1) / (2 * self.margin) + 0.5).clamp(tiny, 1 - tiny).logit()
        self.to(matrix)
        return tuple(part[name].to(matrix) for name in self._names)

    # ------------------------------------------------------------ the rest of the interface

    def error(self, *free: Tensor) -> float:
        with torch.no_grad():
            s = torch.linalg.svdvals(self(*free).double())
        return max(float((s - 1).abs().max()) - self.margin, self.left.error(free[0]), self.right.error(free[-1]))

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base points of U and V, see `Orthogonal.rebase`."""
        self.left.rebase(free[0], project=project)
        self.right.rebase(free[-1], project=project)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        part = {
            "left": self.left._initial(name, generator)[0],
            "singular": torch.zeros(self.n, dtype=torch.float64, device="cpu"),
            "right": self.right._initial("identity", generator)[0],
        }
        return tuple(part[name] for name in self._names)


def _checked_margin(margin: float) -> float:
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(
            f"`margin` must be a number; got {margin!r} of type {type(margin).__name__}. Pass, for example, 0.1."
        )
    if not 0 <= margin <= 1:
        raise InputError(f"`margin` must be in [0, 1]; got margin={margin}. Pass, for example, 0.1.")
    return float(margin)
