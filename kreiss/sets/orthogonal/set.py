"""Orthogonal matrices, with seven parametrizations."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_name, check_square
from kreiss.sets import initial
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.orthogonal.base import Method
from kreiss.sets.orthogonal.butterfly import Butterfly
from kreiss.sets.orthogonal.givens import Givens
from kreiss.sets.orthogonal.householder import Householder
from kreiss.sets.orthogonal.skew import Cayley, Expm, ScaledCayley, Trivialization

DEFAULT_METHOD = "trivialization"
"""The default parametrization of P; docs/orthogonal.md has the measurements behind the choice."""

METHODS: dict[str, type[Method]] = {
    "expm": Expm,
    "trivialization": Trivialization,
    "cayley": Cayley,
    "scaled_cayley": ScaledCayley,
    "householder": Householder,
    "givens": Givens,
}
"""Methods that reach all rotations."""

ALL_METHODS = {**METHODS, "butterfly": Butterfly}
"""Every method: those that reach all rotations, and the butterfly, which does not."""


class Orthogonal(Set):
    """Orthogonal n×n matrices, PᵀP = I.

    Methods::

        trivialization   B·r(A), B a fixed base point      retraction ("cayley" or "exp")
        expm             exp(A)
        cayley           (I + A)⁻¹(I − A)
        scaled_cayley    (I + A)⁻¹(I − A)·D                negative (n // 2): −1s in D
        householder      H₁···H_m·D, reflections           reflections (n − 1): m
        givens           D·L_m···L₁, layers of rotations   layers (n): m
        butterfly        L_m···L₁·D, m = log₂ n layers     (reaches few matrices)

    A is skew; its n(n−1)/2 free parameters are its strictly lower triangle, row by row.

    Args:
        n: size of the matrix.
        method: one of the names above.
        **options: options of the method.

    Reference: expm, Lezcano-Casado & Martínez-Rubio (2019); trivialization, Lezcano-Casado (2019);
    scaled_cayley, Helfrich, Willmott & Ye (2018); householder, Mhammedi et al. (2017); givens, Jing
    et al. (2017).

    Differs: initialisers other than `cayley` give the same matrix for every method. `cayley` gives
    the skew matrix its published entries s = tan(u/2), so that P rotates by u under the Cayley map
    (scoRNN) and by s under the exponential (expRNN). With signs D, this refers to P·D (`givens`: D·P).

    Example:
        >>> import kreiss, torch
        >>> rotations = kreiss.Orthogonal(4, "expm")
        >>> (a,) = rotations.initial("henaff", generator=torch.Generator().manual_seed(0))
        >>> a.shape
        torch.Size([6])
        >>> rotations.contains(rotations(a))
        True
    """

    roles = ("orthogonal",)
    initialisers = ("henaff", "cayley", "random", "identity")

    def __init__(self, n: int, method: str = DEFAULT_METHOD, **options: Any) -> None:
        super().__init__(n)
        check_name("orthogonal method", method, ALL_METHODS)
        self.method = method
        known = inspect.signature(ALL_METHODS[method]).parameters.keys() - {"n", "options"}
        if options.keys() - known:
            raise TypeError(
                f"method {method!r} does not take these options; got {sorted(options.keys() - known)}. "
                "See help(kreiss.Orthogonal) for the options of each method."
            )
        self.map = ALL_METHODS[method](self.n, **options)
        self.shapes = (self.map.shape,)
        self._declare_kind()

    def extra_repr(self) -> str:
        return ", ".join(part for part in (f"{self.n}, {self.method!r}", self.map.extra_repr()) if part)

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        return self.map(*free)

    def right_inverse(self, matrix: Tensor) -> Free_:
        p = self._fit(matrix)
        free = self.map.inverse(p, default_tolerance(matrix.dtype)).to(matrix)
        self.to(matrix)  # a base point or signs computed in float64 take the dtype of the matrix
        return (free,)

    def error(self, *free: Tensor) -> float:
        return linalg.orthogonality_error(self(*free))

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point of a trivialization to the current matrix; other methods have none."""
        if isinstance(self.map, Trivialization):
            self.map.rebase(free[0], project)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> Tensor:
        """`matrix` in float64, corrected by a Newton–Schulz step, if it is orthogonal up to `tol`."""
        check_square(matrix, self.n)
        error = linalg.orthogonality_error(matrix)
        limit = default_tolerance(matrix.dtype) if tol is None else tol
        if error > limit:
            raise InputError(
                f"`matrix` must be orthogonal to {limit:g}; got max|PᵀP − I| = {error:.3g}. "
                "Orthogonalise it first, for example with torch.linalg.qr."
            )
        return linalg.newton_schulz(matrix.detach().double())

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        try:
            p = self._fit(matrix, tol)
            limit = default_tolerance(matrix.dtype) if tol is None else tol
            copy.deepcopy(self.map).inverse(p, limit)  # a copy: the inverse may set fixed parts
        except InputError:
            return False
        return True

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        if name == "random":
            return (self.map.random(generator),)
        if name == "identity":
            angles = torch.zeros(self.n // 2, dtype=torch.float64, device="cpu")
        elif name == "henaff":
            angles = initial.henaff_entries(self.n // 2, generator)
        else:
            angles = self.map.angle_of_skew(initial.cayley_entries(self.n // 2, generator))
        return (self.map.rotations(angles),)
