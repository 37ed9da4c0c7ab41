"""Unitary matrices as real matrices of twice the size, with six parametrizations."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_name, check_size, check_square
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.unitary.methods import UnitaryExponential, UnitaryMethod, UnitaryScaledCayley, UnitaryTrivialization
from kreiss.sets.unitary.products import Butterfly, Fourier, Mesh, Product

UNITARY_METHODS: dict[str, type[UnitaryMethod]] = {
    "trivialization": UnitaryTrivialization,
    "expm": UnitaryExponential,
    "scaled_cayley": UnitaryScaledCayley,
    "fourier": Fourier,
    "mesh": Mesh,
    "butterfly": Butterfly,
}


class Unitary(Set):
    """Unitary matrices, P*P = I, as real 2N×2N matrices that act on pairs (re, im).

    Methods::

        trivialization   B·r(A), B a fixed base point        N² parameters
        expm             exp(A)                              N²
        scaled_cayley    (I + A)⁻¹(I − A)·D, phases D        N² + N
        fourier          D₃R₂F⁻¹D₂ΠR₁FD₁                     7N
        mesh             D·L_m···L₁, rotations of neighbours about N(m + 1); capacity (N): m
        butterfly        D·L_m···L₁, m = log₂ N distances    about N(log₂ N + 1)

    A is skew-Hermitian. The first three and a mesh of full capacity reach every unitary matrix.

    Args:
        units: N, the number of complex units. Matrices are real and of size n = 2N: entry c of the complex matrix is
            the block [[re c, −im c], [im c, re c]].
        method: one of the names above.
        **options: options of the method.

    Reference: trivialization, Wisdom et al. (2016) and Lezcano-Casado (2019); expm, Hyland & Rätsch (2017);
    scaled_cayley, Maduranga, Helfrich & Ye (2019); fourier, Arjovsky, Shah & Bengio (2016); mesh and butterfly, Jing et
    al. (2017).

    Example:
        >>> import kreiss, torch
        >>> unitary = kreiss.Unitary(4, "scaled_cayley")
        >>> free = unitary.initial(generator=torch.Generator().manual_seed(0))
        >>> [tuple(tensor.shape) for tensor in free], unitary(*free).shape
        ([(16,), (4,)], torch.Size([8, 8]))
        >>> unitary.contains(unitary(*free))
        True
    """

    def __init__(self, units: int, method: str = "trivialization", **options: Any) -> None:
        super().__init__(2 * check_size("units", units))
        self.units = units
        check_name("unitary method", method, UNITARY_METHODS)
        self.method = method
        known = inspect.signature(UNITARY_METHODS[method]).parameters.keys() - {"n", "options"}
        if options.keys() - known:
            raise TypeError(
                f"method {method!r} does not take these options; got {sorted(options.keys() - known)}. "
                "See help(kreiss.Unitary) for the options of each method."
            )
        self.map = UNITARY_METHODS[method](units, **options)
        self.roles, self.shapes, self.initialisers = self.map.roles, self.map.shapes, self.map.initialisers
        self._declare_kind()

    @property
    def names(self) -> tuple[str, ...]:
        return self.map.names

    def extra_repr(self) -> str:
        return ", ".join(part for part in (f"{self.units}, {self.method!r}", self.map.extra_repr()) if part)

    def forward(self, *free: Tensor) -> Tensor:
        return linalg.real_image(self.complex(*free))

    def complex(self, *free: Tensor) -> Tensor:
        """The matrix itself, N×N and complex."""
        self.check_free(free)
        return self.map(*free)

    @property
    def product(self) -> Product | None:
        """The method, if it can be applied to a vector as a product of sparse matrices."""
        return self.map if isinstance(self.map, Product) else None

    def right_inverse(self, matrix: Tensor) -> Free_:
        p = self._fit(matrix)
        free = tuple(tensor.to(matrix) for tensor in self.map.inverse(p, default_tolerance(matrix.dtype)))
        self.to(matrix)  # a base point computed in float64 takes the dtype of the matrix
        return free

    def error(self, *free: Tensor) -> float:
        return linalg.orthogonality_error(self(*free))

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point of a trivialization to the current matrix; other methods have none."""
        self.map.rebase(*free, project=project)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> Tensor:
        """The complex128 matrix, after a Newton–Schulz step, if `matrix` is its real image and unitary up to `tol`."""
        limit = default_tolerance(matrix.dtype) if isinstance(matrix, Tensor) and tol is None else tol or 0.0
        c = checked_image(matrix, self.n, limit)
        error = linalg.orthogonality_error(linalg.real_image(c))
        if error > limit:
            raise InputError(
                f"`matrix` must be unitary to {limit:g}; got max|P*P − I| = {error:.3g}. "
                "Orthogonalise it first, for example with torch.linalg.qr."
            )
        return linalg.newton_schulz(c)

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        """Whether `matrix` lies in the set up to `tol`; an error for "fourier" with more than 5 units."""
        try:
            p = self._fit(matrix, tol)
        except InputError:
            return False
        method = copy.deepcopy(self.map)  # the inverse may set fixed parts
        limit = default_tolerance(matrix.dtype) if tol is None else tol
        try:
            method.inverse(p, limit)
        except InputError:
            if isinstance(method, Fourier) and not method.searchable:
                raise
            return False
        return True

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        return self.map.start(name, generator)


def checked_image(matrix: Tensor, n: int, limit: float) -> Tensor:
    """The complex128 matrix whose real image `matrix` is, up to `limit`; raises otherwise."""
    wide = check_square(matrix, n).detach().double()
    c = linalg.complex_part(wide)
    off = float((wide - linalg.real_image(c)).abs().max())
    if off > limit:
        raise InputError(
            f"`matrix` must be a complex matrix in real form, blocks [[a, −b], [b, a]], to {limit:g}; got blocks off "
            f"by {off:.3g}. Make one with kreiss.linalg.real_image."
        )
    return c
