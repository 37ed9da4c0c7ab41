"""Three parametrizations of all unitary matrices, with a common interface.

A method has free tensors with `names`, `roles` and `shapes`, and `forward(*free) -> P` (complex n×n),
`inverse(P, tol) -> free` (P complex128, unitary up to `tol`), `start(name, generator) -> free` for each of its
`initialisers`. Fixed parts (a base point) are real buffers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.sets import initial
from kreiss.sets.base import Free_, Packed

Generator = torch.Generator | None
TRIES = 16  # draws of phases from which the best conditioned Cayley transform is chosen


class UnitaryMethod(Packed):
    """A map from free parameters to unitary matrices."""

    names: tuple[str, ...]
    roles: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    initialisers: tuple[str, ...] = ("henaff", "cayley", "random", "identity")

    def __init__(self, n: int, **options: bool | int) -> None:
        super().__init__()
        self.n = n
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())

    @abstractmethod
    def forward(self, *free: Tensor) -> Tensor:
        """The unitary matrix, complex."""

    @abstractmethod
    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        """Free tensors of the complex128 matrix `p`, unitary up to `tol`; may set the fixed parts of the method."""

    def start(self, name: str, generator: Generator) -> Free_:
        """Free tensors (float64) of the matrix of a named initialiser."""
        return self.inverse(START[name](self.n, generator))

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point, if there is one, to the current matrix."""


class UnitaryTrivialization(UnitaryMethod):
    """P = B(I − A/2)⁻¹(I + A/2) around a base point B, A skew-Hermitian: all unitary matrices.

    `rebase` moves B to P and A to 0; the matrix does not change. One step of gradient descent on the n² parameters
    followed by `rebase` is the multiplicative Cayley step of Wisdom et al. (2016), see `kreiss.optim.Stiefel`.

    Args:
        n: size of the matrix.
        diagonal: whether A has a diagonal. Without it there are n² − n parameters, and P is determined up to phases
            of its columns, which suffices for P D P* with a diagonal D.
    """

    names, roles = ("unitary",), ("orthogonal",)
    base: Tensor
    index: Tensor

    def __init__(self, n: int, diagonal: bool = True) -> None:
        super().__init__(n, **({} if diagonal else {"diagonal": False}))
        self.shapes = ((n * n if diagonal else n * n - n,),)
        self.add_constant("index", partial(linalg.strictly_lower_index, n))
        self.register_buffer("base", torch.view_as_real(torch.eye(n).to(torch.complex64)).clone())

    def forward(self, *free: Tensor) -> Tensor:
        a = linalg.skew_hermitian(free[0], self.constant("index", free[0].device), self.n)
        return torch.complex(self.base[..., 0], self.base[..., 1]) @ linalg.cayley(-a / 2)

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        self.base = torch.view_as_real(p).contiguous().to(self.base.device)
        return (torch.zeros(self.shapes[0], dtype=torch.float64, device=p.device),)

    @torch.no_grad()
    def rebase(self, *free: Tensor, project: bool = True) -> None:
        moved = self(*free)
        self.base.copy_(torch.view_as_real(linalg.newton_schulz(moved) if project else moved))
        free[0].zero_()


class UnitaryExponential(UnitaryMethod):
    """P = exp(A), A = Σ ν_j T_j over a basis of the Lie algebra u(n) (Hyland & Rätsch 2017): all unitary matrices.

    The n² parameters ν_j are the real and imaginary parts of the skew-Hermitian A below its diagonal and, divided by
    √2, the imaginary parts on it, so that all T_j have the same norm.
    """

    names, roles = ("unitary",), ("orthogonal",)
    index: Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.shapes = ((n * n,),)
        self.add_constant("index", partial(linalg.strictly_lower_index, n))

    def forward(self, *free: Tensor) -> Tensor:
        return linalg.expm_skew(linalg.skew_hermitian(free[0], self.constant("index", free[0].device), self.n))

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        return (linalg.pack_skew_hermitian(linalg.unitary_log(p), self.constant("index", p.device)),)


class UnitaryScaledCayley(UnitaryMethod):
    """P = (I + A)⁻¹(I − A) D, A skew-Hermitian, D = diag(e^{iθ}) (scuRNN, Maduranga, Helfrich & Ye 2019).

    All unitary matrices; the n phases are redundant, and allow A to stay small. For a given matrix, several draws of
    the phases are tried and the one furthest from the eigenvalue −1, which the Cayley transform cannot reach, is used.
    """

    names, roles = ("unitary", "phase"), ("orthogonal", "phase")
    initialisers = ("cayley", "henaff", "random", "identity")
    index: Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.shapes = ((n * n,), (n,))
        self.add_constant("index", partial(linalg.strictly_lower_index, n))

    def forward(self, *free: Tensor) -> Tensor:
        a = linalg.skew_hermitian(free[0], self.constant("index", free[0].device), self.n)
        return linalg.cayley(a) * linalg.phases(free[1])  # W = (I + A)⁻¹(I − A)D

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        turns = np.random.default_rng(0).uniform(0, 2 * math.pi, (TRIES, self.n))
        turns[0] = 0  # no phases where none are needed
        candidates = torch.from_numpy(turns).to(p.device)
        eye = torch.eye(self.n, dtype=p.dtype, device=p.device)
        distance = torch.linalg.svdvals(eye + p * linalg.phases(-candidates)[:, None])[:, -1]
        best = 0 if distance[0] > 0.1 else int(distance.argmax())
        return self._with_phases(p, candidates[best])

    def start(self, name: str, generator: Generator) -> Free_:
        if name != "cayley":
            return super().start(name, generator)
        core, angles = initial.cayley_unitary(self.n, generator)
        return self._with_phases(core * linalg.phases(angles), angles)  # the published A and D themselves

    def _with_phases(self, p: Tensor, angles: Tensor) -> Free_:
        a = linalg.inverse_cayley(p * linalg.phases(-angles))
        return linalg.pack_skew_hermitian(a, self.constant("index", a.device)), angles


def _identity(n: int, generator: Generator) -> Tensor:
    return torch.eye(n, dtype=torch.complex128, device="cpu")


def _henaff(n: int, generator: Generator) -> Tensor:
    return torch.diag(linalg.phases(initial.henaff_entries(n, generator)))


def _cayley(n: int, generator: Generator) -> Tensor:
    core, angles = initial.cayley_unitary(n, generator)
    return core * linalg.phases(angles)


START = {"henaff": _henaff, "cayley": _cayley, "random": initial.random_unitary, "identity": _identity}
