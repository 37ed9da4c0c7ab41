"""Matrices with all eigenvalues in the unit disc, normalised by the spectral radius."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kreiss import derivatives, linalg
from kreiss.errors import InputError, check_square
from kreiss.sets import initial
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.radius import FOLLOW_FROM, spectral_radius

CHECK_EVERY = 100
"""Training passes between two full decompositions of a matrix whose dominant eigenpair is tracked."""


class UnitDisc(Set):
    """Real matrices with spectral radius at most 1, W = T/(ρ(T) + ε).

    W = T until ρ(T) exceeds 1 (by more than rounding error) for the first time in training; from then on
    W = T/(ρ(T) + ε) for any ρ(T). The buffer `latched` records this and is saved with the state. With ε > 0 the
    eigenvalues of the normalised matrix lie strictly inside the disc: its spectral radius is ρ/(ρ + ε).

    Symbols: T `disc` (n² parameters), ρ its spectral radius, ε `epsilon`.

    Gradient, with λ = α + iβ the dominant eigenvalue, u and v* its right and left eigenvectors::

        ∂L/∂T = (G − ⟨G, W⟩ C/ρ) / (ρ + ε),   C = α Re S + β Im S,   S = v̄ uᵀ / (v* u),   G = ∂L/∂W

    For small matrices the eigenpair comes from a full decomposition. For larger ones the pair of the previous step is
    tracked by Arnoldi's method and inverse iteration; a full decomposition is computed where its residuals are not
    small, and after every hundred training passes.

    A (nearly) multiple dominant eigenvalue has no gradient. Among eigenvalues of equal modulus the one with the largest
    real part is used; where u and v are nearly orthogonal (condition number above 1e4, as in a defective block) or
    ρ = 0, ρ is treated as a constant of that step. Values are always finite; a T with ρ + ε = 0 is not divided.

    Args:
        n: size of the matrix.
        epsilon: ε ≥ 0.

    Reference: Helfrich & Ye (2020), §3.1 and §4.

    Differs from the paper: Prop. 3.2 as printed has 1/(ρ + ε) where the chain rule gives 1/ρ, and is correct only for
    ε = 0; ours is correct for every ε. The paper uses ε = 0, which makes the radius exactly 1, not less; our default is
    1e-3.

    Example:
        >>> import kreiss, torch
        >>> disc = kreiss.UnitDisc(4)
        >>> w = disc(3 * torch.eye(4, dtype=torch.float64))
        >>> round(float(torch.linalg.eigvals(w).abs().max()), 6)
        0.999667
    """

    roles = ("disc",)
    initialisers = ("disc", "glorot", "henaff", "cayley", "random", "identity", "chain")
    latched: Tensor
    start: Tensor | None
    age: Tensor

    def __init__(self, n: int, epsilon: float = 1e-3) -> None:
        super().__init__(n)
        self.epsilon = _checked_epsilon(epsilon)
        self.shapes = ((n, n),)
        self.register_buffer("latched", torch.zeros((), dtype=torch.bool))
        follow = n >= FOLLOW_FROM
        self.register_buffer("start", torch.zeros(n) if follow else None)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64) if follow else None)
        self._declare_kind()

    def extra_repr(self) -> str:
        return f"{self.n}, epsilon={self.epsilon!r}"

    # ------------------------------------------------------------ free parameters → matrix

    def forward(self, *free: Tensor) -> Tensor:
        self.check_free(free)
        (t,) = free
        radius, start = spectral_radius(t, self._start())
        divisor = radius + self.epsilon
        outside = radius > 1 + _slack(t.dtype)
        normalise = (self.latched | outside) & (divisor > 0)
        if t.requires_grad and torch.is_grad_enabled():
            self._remember(outside, start)
        return t / torch.where(normalise, divisor, 1.0)  # eq. (4): W = T / (ρ(T) + ε)

    def _start(self) -> Tensor | None:
        """The starting vector for tracking the eigenpair; None requests a full decomposition."""
        if self.start is None or not derivatives.ordinary() or self.start.is_meta or int(self.age) >= CHECK_EVERY:
            return None
        return self.start

    @torch.no_grad()
    def _remember(self, outside: Tensor, start: Tensor | None) -> None:
        """Update the latch (§4) and the starting vector after a training pass."""
        compiling = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
        if compiling or derivatives.ordinary():
            self.latched.logical_or_(outside)
        if self.start is not None and start is not None:
            self.start.copy_(start)
            self.age.add_(1).remainder_(CHECK_EVERY + 1)

    # ------------------------------------------------------------ matrix → free parameters

    def right_inverse(self, matrix: Tensor) -> Free_:
        radius = self._fit(matrix)
        self._forget()
        self.to(matrix)
        # T = W before latching; a radius above 1 within the tolerance would latch
        return (matrix / radius if radius > 1 else matrix,)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> float:
        """The spectral radius of `matrix`, if it is at most 1."""
        check_square(matrix, self.n)
        radius = float(abs(linalg.eigenvalues(matrix)).max())
        if radius > 1 + (default_tolerance(matrix.dtype) if tol is None else tol):
            raise InputError(
                f"`matrix` must have every eigenvalue in the unit disc; got one of modulus {radius:.6g}. "
                "Divide the matrix by it."
            )
        return radius

    # ------------------------------------------------------------ the rest of the interface

    def error(self, *free: Tensor) -> float:
        with torch.no_grad():
            return max(float(abs(linalg.eigenvalues(self(*free))).max()) - 1, 0.0)

    def _forget(self) -> None:
        self.latched = torch.zeros_like(self.latched)
        if self.start is not None:
            self.start, self.age = torch.zeros_like(self.start), torch.zeros_like(self.age)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        self._forget()
        if name == "disc":
            return (initial.disc(self.n, generator=generator),)
        return (initial.INITIALISERS[name](self.n, generator=generator),)


def _slack(dtype: torch.dtype) -> float:
    """How far above 1 rounding error may put the modulus of an eigenvalue, as for a rotation."""
    return 32 * torch.finfo(dtype).eps


def _checked_epsilon(epsilon: float) -> float:
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise TypeError(
            f"`epsilon` must be a number; got {epsilon!r} of type {type(epsilon).__name__}. Pass, for example, 1e-3."
        )
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"`epsilon` must be at least 0 and finite; got epsilon={epsilon}. Pass, for example, 1e-3.")
    return float(epsilon)
