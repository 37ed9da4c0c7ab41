"""Maps from skew matrices: the exponential, Cayley and scaled Cayley transforms, and trivializations."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kreiss import derivatives, linalg
from kreiss.errors import InputError, check_name, check_size
from kreiss.sets import basepoint, initial
from kreiss.sets.conjugation import Turn
from kreiss.sets.orthogonal.base import Method

NO_MINUS_ONE = (
    "the matrix has an eigenvalue at −1 (or within rounding of it), which the Cayley map does not reach. "
    'Use method="trivialization" or "expm", or another number of negative signs with "scaled_cayley".'
)


class _Skew(Method):
    """Base of the methods whose free parameters are the strictly lower triangle of a skew matrix."""

    index: Tensor

    def __init__(self, n: int, **options: str | int) -> None:
        super().__init__(n, **options)
        self.shape = (n * (n - 1) // 2,)
        self.add_constant("index", partial(linalg.strictly_lower_index, n))

    def skew(self, free: Tensor) -> Tensor:
        return linalg.skew(free, self.constant("index", free.device), self.n)

    def pack(self, a: Tensor) -> Tensor:
        return a.reshape(-1)[self.constant("index", a.device)]

    def pack_blocks(self, entries: Tensor) -> Tensor:
        a = torch.zeros(self.n, self.n, dtype=torch.float64, device="cpu")
        even = torch.arange(0, 2 * len(entries), 2)
        a[even + 1, even] = entries
        return self.pack(a)


class Expm(_Skew):
    """P = exp(A), A skew (Lezcano-Casado & Martínez-Rubio 2019): all rotations."""

    def forward(self, free: Tensor) -> Tensor:
        return linalg.expm_skew(self.skew(free))

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        _check_rotation(p)
        return self.pack(linalg.skew_log(p))

    def rotations(self, angles: Tensor) -> Tensor:
        return self.pack_blocks(angles)


class Cayley(_Skew):
    """P = (I + A)⁻¹(I − A), A skew: all rotations without the eigenvalue −1."""

    def forward(self, free: Tensor) -> Tensor:
        return linalg.cayley(self.skew(free))

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        eye = torch.eye(self.n, dtype=p.dtype, device=p.device)
        if torch.linalg.svdvals(eye + p)[-1] < 1e-8:
            raise InputError(NO_MINUS_ONE)
        return self.pack(linalg.inverse_cayley(p))

    def rotations(self, angles: Tensor) -> Tensor:
        return self.pack_blocks(-torch.tan(angles / 2))

    def angle_of_skew(self, entry: Tensor) -> Tensor:
        return 2 * torch.atan(entry)


class ScaledCayley(Cayley):
    """P = (I + A)⁻¹(I − A) D, D diagonal with `negative` entries −1 (Helfrich, Willmott & Ye 2018)."""

    def __init__(self, n: int, negative: int | None = None) -> None:
        count = n // 2 if negative is None else check_size("negative", negative, 0)
        super().__init__(n, negative=count)
        self.negative = count
        if self.negative > n:
            raise InputError(f"`negative` must be at most n={n}; got negative={negative}. Pass a smaller number.")

    def signs(self, device: torch.device) -> Tensor:
        """The diagonal of D: −1s first."""
        return 1 - 2 * (torch.arange(self.n, device=device) < self.negative).int()

    def forward(self, free: Tensor) -> Tensor:
        return super().forward(free) * self.signs(free.device)

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        return super().inverse(p * self.signs(p.device), tol)

    def random(self, generator: torch.Generator | None) -> Tensor:
        return super().inverse(initial.random(self.n, generator=generator))


class Trivialization(_Skew):
    """P = B·r(A) around a base point B, A skew (dtriv, Lezcano-Casado 2019): all orthogonal matrices.

    r is exp, or the Cayley retraction (I − A/2)⁻¹(I + A/2), which agrees with it to second order and
    costs one inverse. `rebase` moves B to P and A to 0; the matrix does not change. Without it B
    stays at the initial matrix.
    """

    base: Tensor

    def __init__(self, n: int, retraction: str = "cayley") -> None:
        super().__init__(n, retraction=retraction)
        check_name("retraction", retraction, ("cayley", "exp"))
        self.retraction = retraction
        self.register_buffer("base", torch.eye(n))

    def forward(self, free: Tensor) -> Tensor:
        if self.retraction == "cayley" and derivatives.ordinary() and not free.is_meta:
            return Turn.apply(self.base, self.constant("index", free.device), free)
        a = self.skew(free)
        return self.base @ (linalg.expm_skew(a) if self.retraction == "exp" else linalg.cayley(-a / 2))

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        self.base = p.contiguous().to(self.base.device)
        return torch.zeros(self.shape, dtype=p.dtype, device=p.device)

    def rotations(self, angles: Tensor) -> Tensor:
        return self.inverse(linalg.rotation_blocks(angles, self.n))

    @torch.no_grad()
    def rebase(self, free: Tensor, project: bool = True) -> None:
        """Move the base point to the current matrix, corrected for rounding error, and `free` to zero, in place."""
        if self.retraction == "cayley" and derivatives.ordinary() and basepoint.move(self.base, free, project):
            return
        moved = self(free) if self.retraction == "exp" else linalg.turned(self.base, self.skew(free))
        self.base.copy_(linalg.polished(moved) if project else moved)
        free.zero_()


def _check_rotation(p: Tensor) -> None:
    if torch.linalg.det(p) < 0:
        raise InputError(
            "the matrix has determinant −1 and this method holds rotations only (determinant +1). "
            'Use method="trivialization", "householder" or "givens".'
        )
