"""Complex matrices with prescribed eigenvalues and a free non-normal part, V = P(Λ + T)P*, in real form."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_size
from kreiss.sets import initial
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.schur import COUPLED, STRENGTH, checked_radius, checked_strength
from kreiss.sets.unitary import Unitary, checked_image


class ComplexSchur(Set):
    """Complex matrices in Schur form, V = P(Λ + T)P*, with the eigenvalues as free parameters.

    Λ = diag(γ_j e^{iθ_j}), P unitary, T strictly lower triangular. The eigenvalues are γ_j e^{iθ_j} for any T and P:
    the complex form needs no 2×2 blocks. As a real 2N×2N matrix V has these and their conjugates.

    Symbols::

        P   unitary    N² − N parameters around a base point   set by the initialiser
        γ   radius     one per unit                            initially 1
        θ   angle      one per unit                            initially U[0, 2π)
        T   coupling   real parts, row by row, then imaginary  initially 0

    In total 2N² parameters for the 2N² dimensions of a complex matrix: P has no column phases, which T absorbs.

    Initialisers: `henaff`, `cayley`, `random` and `identity` choose P and leave V normal; for `henaff` P is diagonal
    and commutes with Λ, so that V = Λ. `delay_line`, T_{j+1,j} = strength, and `random_coupling`, E|T_jk|² =
    strength²/N, have P = I and are non-normal.

    Args:
        units: N, the number of complex units; matrices are real and of size n = 2N, see `Unitary`.
        radius: "free", or a number that fixes every γ.
        strength: scale of T for the initialisers `delay_line` and `random_coupling`.

    Reference: Kerg et al. (2019), eq. (5) in the complex form of its footnotes, proposed in their discussion (i).

    Example:
        >>> import kreiss, torch
        >>> schur = kreiss.ComplexSchur(4, radius=0.9)
        >>> v = schur(*schur.initial("random", dtype=torch.float64))
        >>> v.shape, bool((torch.linalg.eigvals(v).abs() - 0.9).abs().max() < 1e-12)
        (torch.Size([8, 8]), True)
    """

    initialisers = ("henaff", "cayley", "random", "identity", "delay_line", "random_coupling")
    index: Tensor

    def __init__(self, units: int, radius: str | float = "free", *, strength: float = STRENGTH) -> None:
        super().__init__(2 * check_size("units", units))
        self.units = units
        self.radius = checked_radius(radius)
        self.strength = checked_strength(strength)
        self.unitary = Unitary(units, "trivialization", diagonal=False)
        self.add_constant("index", partial(linalg.strictly_lower_index, units))
        shapes = {
            "orthogonal": self.unitary.shapes[0],
            "radius": (units,),
            "angle": (units,),
            "coupling": (units * (units - 1),),
        }
        if self.radius != "free":
            del shapes["radius"]
        self.roles, self.shapes = tuple(shapes), tuple(shapes.values())
        self._declare_kind()

    @property
    def names(self) -> tuple[str, ...]:
        return ("unitary", *self.roles[1:])

    def extra_repr(self) -> str:
        return f"{self.units}, radius={self.radius!r}"

    def forward(self, *free: Tensor) -> Tensor:
        core, p = self.core(*free), self.unitary.complex(free[0])
        return linalg.real_image(p @ core @ p.mH)  # eq. (5): V = P(Λ + T)P*

    def core(self, *free: Tensor) -> Tensor:
        """Λ + T, the complex matrix in the basis P."""
        self.check_free(free)
        real, imaginary = free[-1].view(2, self.units * (self.units - 1) // 2).unbind(0)
        index = self.constant("index", real.device)
        t = torch.complex(linalg.place(real, index, self.units), linalg.place(imaginary, index, self.units))
        return t + torch.diag_embed(self.eigenvalues(*free))

    def eigenvalues(self, *free: Tensor) -> Tensor:
        """The eigenvalues γe^{iθ} of the complex matrix, from the free parameters."""
        angle = free[-2]
        gamma = free[1] if self.radius == "free" else torch.full_like(angle, float(self.radius))
        return gamma * linalg.phases(angle)

    def right_inverse(self, matrix: Tensor) -> Free_:
        core, p = self._fit(matrix)
        lower = core.reshape(-1)[self.constant("index", core.device)]
        part = {
            "orthogonal": self.unitary.map.inverse(p)[0],
            "radius": core.diagonal().abs(),
            "angle": core.diagonal().angle(),
            "coupling": torch.cat([lower.real, lower.imag]),
        }
        self.to(matrix)  # the base point computed in float64 takes the dtype of the matrix
        return tuple(part[role].to(matrix) for role in self.roles)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> tuple[Tensor, Tensor]:
        """(Λ + T, P) of `matrix`, complex128, if it is complex and has the radius of this set."""
        from scipy.linalg import schur

        limit = default_tolerance(matrix.dtype) if isinstance(matrix, Tensor) and tol is None else tol or 0.0
        c = checked_image(matrix, self.n, limit)
        t, p = schur(c.mH.resolve_conj().cpu().numpy(), output="complex")  # of V*, so that Λ + T is lower triangular
        core = torch.from_numpy(t).mH.resolve_conj()
        if self.radius != "free":
            off = float((core.diagonal().abs() - float(self.radius)).abs().max())
            if off > limit:
                raise InputError(
                    f"`matrix` must have every |λ| = {self.radius}; got one that is off by {off:.3g}. "
                    'Use radius="free", or scale the matrix.'
                )
        return core.to(c.device), torch.from_numpy(p).to(c.device)

    def error(self, *free: Tensor) -> float:
        return self.unitary.error(free[0])

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point of P, see `Unitary.rebase`."""
        self.unitary.rebase(free[0], project=project)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        part = {
            role: torch.zeros(shape, dtype=torch.float64, device="cpu")
            for role, shape in zip(self.roles, self.shapes, strict=True)
        }
        part["orthogonal"] = self.unitary.map.start("identity" if name in COUPLED else name, generator)[0]
        if name != "identity":
            part["angle"] = initial.uniform(self.units, 0.0, 2 * math.pi, generator)
        if "radius" in part:
            part["radius"] += 1.0
        if name == "delay_line":
            rows, columns = np.tril_indices(self.units, -1)
            part["coupling"][: len(rows)][rows == columns + 1] = self.strength
        if name == "random_coupling":
            drawn = torch.randn(self.shapes[-1], generator=generator, dtype=torch.float64, device="cpu")
            part["coupling"] = drawn * self.strength / math.sqrt(2 * self.units)
        return tuple(part[role] for role in self.roles)
