"""Matrices with prescribed eigenvalues and a free non-normal part: V = P(Λ + T)Pᵀ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kreiss import derivatives, linalg
from kreiss.errors import InputError, check_name, check_size, check_square
from kreiss.sets import initial
from kreiss.sets.base import Free_, Set, default_tolerance
from kreiss.sets.conjugation import Conjugation
from kreiss.sets.orthogonal import DEFAULT_METHOD, Orthogonal
from kreiss.sets.orthogonal.skew import Trivialization
from kreiss.sets.quasitriangular import count_pairs, equalise_diagonal, lower_schur, shear_of, structure

BLOCKS = ("exact", "rotation", "paper")
COUPLED = ("chain", "delay_line", "random_coupling")  # non-normal initialisers
STRENGTH = 0.5  # scale of their T


class Schur(Set):
    """Real matrices in real Schur form, V = P(Λ + T)Pᵀ, with the eigenvalues as free parameters.

    block_i of Λ = γ_i [[cos θ_i, −e^{κ_i} sin θ_i], [e^{−κ_i} sin θ_i, cos θ_i]], then 1×1 blocks ±γ;
    P orthogonal; T block-strictly lower triangular. The eigenvalues are γ_i e^{±iθ_i} (and ±γ_i)
    for any κ, T and P, and Henrici's departure from normality grows with κ and T alone.

    Symbols::

        P   orthogonal   n(n−1)/2, see Orthogonal            set by the initialiser
        γ   radius       one per block                       initially 1
        θ   angle        one per 2×2 block                   initially U[0, 2π)
        κ   shear        one per 2×2 block                   initially 0
        T   coupling     its entries, row by row             initially 0

    Initialisers: `henaff`, `cayley`, `random` and `identity` choose P and leave V normal. The blocks of `henaff` and
    `cayley` are aligned with those of Λ and commute with them, so that both give V = Λ with different P.
    Non-normal initialisers have P = I: `delay_line` links each block to the next by `strength`, `random_coupling` draws
    T ~ N(0, strength²/n) (both keep γ and θ), `chain` is a pure delay line, T_{i+1,i} = I₂, γ = 0 if free.

    Args:
        n: size of the matrix.
        blocks: "exact" (the form above, n² parameters for n² dimensions); "rotation" (κ = 0: blocks are
            scaled rotations); "paper" (κ = 0 and T strictly lower triangular, including the entry
            inside each 2×2 block, as printed: the eigenvalues then move with T).
        radius: "free", or a number that fixes every γ.
        orthogonal: how P is parametrized, a method of `Orthogonal`.
        real: (p, q), the numbers of 1×1 blocks with eigenvalue +γ and −γ, behind the 2×2 blocks;
            default (n mod 2, 0). A set without 1×1 blocks has det V ≥ 0 and no simple real eigenvalue.
        strength: scale of T for the initialisers `delay_line` and `random_coupling`.
        **options: options of the orthogonal method.

    Reference: Kerg et al. (2019), eqs. (4) and (5).

    Differs from the paper: `blocks="exact"` is the default, because eq. (5) as printed does not
    control the spectrum (an in-block entry t of T moves the squared modulus of a pair from γ² to γ² + γ t sin θ).

    Note: a matrix has many real Schur forms, one per order of its eigenvalues. `right_inverse` and `contains` try
    one of them. For "exact" and for "paper" with free radii any suffices; for "rotation", and for "paper" with a fixed
    radius, another order might fit where this one does not.

    Example:
        >>> import kreiss, torch
        >>> schur = kreiss.Schur(4, radius=0.9)
        >>> schur.roles
        ('orthogonal', 'angle', 'shear', 'coupling')
        >>> v = schur(*schur.initial("random", dtype=torch.float64))
        >>> torch.linalg.eigvals(v).abs().round(decimals=12).tolist()
        [0.9, 0.9, 0.9, 0.9]
    """

    initialisers = ("henaff", "cayley", "random", "identity", *COUPLED)
    index: Tensor

    def __init__(
        self,
        n: int,
        blocks: str = "exact",
        radius: str | float = "free",
        orthogonal: str = DEFAULT_METHOD,
        *,
        real: Sequence[int] | None = None,
        strength: float = STRENGTH,
        **options: Any,
    ) -> None:
        super().__init__(n)
        check_name("form of blocks", blocks, BLOCKS)
        self.blocks = blocks
        self.radius = checked_radius(radius)
        self.strength = checked_strength(strength)
        self.positive, self.negative = _checked_real(n, real)
        self.pairs = (n - self.positive - self.negative) // 2
        self.orthogonal = Orthogonal(n, orthogonal, **options)
        self.add_constant("index", partial(_schur_index, n, self.pairs, blocks))
        shapes = self._all_shapes()
        self.roles = tuple(shapes)
        self.shapes = tuple(shapes.values())
        self._declare_kind()

    def _all_shapes(self) -> dict[str, tuple[int, ...]]:
        in_block = 0 if self.blocks == "paper" else self.pairs
        shapes = {
            "orthogonal": self.orthogonal.shapes[0],
            "radius": (self.pairs + self.positive + self.negative,),
            "angle": (self.pairs,),
            "shear": (self.pairs,),
            "coupling": (self.n * (self.n - 1) // 2 - in_block,),
        }
        if self.radius != "free":
            del shapes["radius"]
        if self.blocks != "exact":
            del shapes["shear"]
        return shapes

    # ------------------------------------------------------------ free parameters → matrix

    def forward(self, *free: Tensor) -> Tensor:
        method = self.orthogonal.map
        # not if P has forward hooks (an optimiser that needs its gradient): the closed form does not compute P
        by_cayley = isinstance(method, Trivialization) and method.retraction == "cayley" and not method._forward_hooks
        if by_cayley and derivatives.ordinary() and not any(tensor.is_meta for tensor in free):
            self.check_free(free)
            return Conjugation.apply(self, method.base, method.constant("index", free[0].device), *free)
        core, p = self.core(*free), self.orthogonal(free[0])
        return p @ core @ p.mT  # eq. (5): V = P(Λ + T)Pᵀ

    def core(self, *free: Tensor) -> Tensor:
        """Λ + T, the matrix in the basis P."""
        self.check_free(free)
        part = dict(zip(self.roles, free, strict=True))
        angle = part["angle"]
        gamma = self._gamma(part)
        diagonal = gamma[: self.pairs] * angle.cos()  # eq. (4): blocks γ R(θ)
        upper = lower = gamma[: self.pairs] * angle.sin()
        if "shear" in part:
            upper, lower = upper * part["shear"].exp(), lower * (-part["shear"]).exp()
        real = torch.cat([gamma[self.pairs :][: self.positive], -gamma[self.pairs + self.positive :]])
        entries = torch.cat([diagonal, diagonal, -upper, lower, real, part["coupling"]])
        return linalg.place(entries, self.constant("index", entries.device), self.n)

    def core_gradient(self, grad: Tensor, *free: Tensor) -> list[Tensor]:
        """Gradients of all free tensors but the first from that of Λ + T: the chain rule through `core`."""
        part = dict(zip(self.roles, free, strict=True))
        angle, k = part["angle"], self.pairs
        gamma = self._gamma(part)[:k]
        entries = grad.view(-1).index_select(0, self.constant("index", grad.device))
        real = k + self.positive + self.negative
        first, second, upper, lower, single, coupling = entries.split(
            [k, k, k, k, real - k, len(entries) - 3 * k - real]
        )
        along = first + second  # to γ cos θ
        across_upper, across_lower = -upper, lower  # to γ e^κ sin θ and γ e^{−κ} sin θ
        if "shear" in part:
            stretch = part["shear"].exp()
            across_upper, across_lower = across_upper * stretch, across_lower / stretch
        across = across_upper + across_lower
        cos, sin = angle.cos(), angle.sin()
        gradients = {"angle": gamma * (across * cos - along * sin), "coupling": coupling}
        if "shear" in part:
            gradients["shear"] = gamma * sin * (across_upper - across_lower)
        if "radius" in part:
            turned = along * cos + across * sin
            gradients["radius"] = torch.cat([turned, single[: self.positive], -single[self.positive :]])
        return [gradients[role] for role in self.roles[1:]]

    def _gamma(self, part: dict[str, Tensor]) -> Tensor:
        """The radius of every block, free or fixed."""
        if "radius" in part:
            return part["radius"]
        return part["angle"].new_full((self.pairs + self.positive + self.negative,), float(self.radius))

    def eigenvalues(self, *free: Tensor) -> Tensor:
        """The eigenvalues from the free parameters, γe^{iθ}, γe^{−iθ}, then ±γ (not for "paper")."""
        if self.blocks == "paper":
            raise InputError(
                'blocks="paper" does not fix its eigenvalues; got blocks="paper". '
                "Use torch.linalg.eigvals on the matrix."
            )
        core = self.core(*free)
        even = torch.arange(0, 2 * self.pairs, 2, device=core.device)
        a = core[even, even]
        b = (-core[even, even + 1] * core[even + 1, even]).clamp(min=0).sqrt()
        real = core.diagonal()[2 * self.pairs :]
        return torch.cat([torch.complex(a, b), torch.complex(a, -b), torch.complex(real, torch.zeros_like(real))])

    # ------------------------------------------------------------ matrix → free parameters

    @classmethod
    def from_dense(
        cls, matrix: Tensor, *, blocks: str = "exact", orthogonal: str = DEFAULT_METHOD, **options: Any
    ) -> tuple[Schur, Free_]:
        """A set with the block structure of any real square matrix, and its free tensors.

        Example:
            >>> import kreiss, torch
            >>> w = torch.randn(5, 5, dtype=torch.float64)
            >>> schur, free = kreiss.Schur.from_dense(w)
            >>> torch.allclose(schur(*free), w)
            True
        """
        check_square(matrix)
        core, p = lower_schur(matrix)
        positive, negative = structure(core)
        schur = cls(len(core), blocks, "free", orthogonal, real=(positive, negative), **options)
        return schur, schur._free(core, p, matrix)

    def adapted(self, matrix: Tensor) -> tuple[Set, Free_]:
        if self.radius != "free":
            return super().adapted(matrix)
        return Schur.from_dense(matrix, blocks=self.blocks, orthogonal=self.orthogonal.method)

    def right_inverse(self, matrix: Tensor) -> Free_:
        core, p = self._fit(matrix)
        return self._free(core, p, matrix)

    def _fit(self, matrix: Tensor, tol: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(Λ + T, P) of `matrix`, if it has this set's structure."""
        check_square(matrix, self.n)
        core, p = lower_schur(matrix)
        limit = default_tolerance(matrix.dtype) if tol is None else tol
        if self.blocks == "paper":  # a block as printed can have any two eigenvalues, including real ones
            for i in range(2 * count_pairs(core), 2 * self.pairs, 2):
                equalise_diagonal(core, p, i)
        if not self._has_structure(core, limit):
            positive, negative = structure(core)
            raise InputError(
                f"`matrix` must have {self.positive} real eigenvalues ≥ 0 and {self.negative} < 0, as this set has "
                f"1×1 blocks; got {positive} and {negative}. Use Schur.from_dense(matrix), which finds the structure."
            )
        part = self._read(core)
        if self.radius != "free":
            off = np.abs(part["radius"] - float(self.radius)).max()
            if off > limit:
                raise InputError(
                    f"`matrix` must have every |λ| = {self.radius}; got one that is off by {off:.3g}. "
                    'Use radius="free", or scale the matrix.'
                )
        if self.blocks == "rotation" and self.pairs and np.abs(part["shear"]).max() > limit:
            raise InputError(
                "`matrix` must have normal 2×2 blocks in its real Schur form; "
                f'got a shear κ of {np.abs(part["shear"]).max():.3g}. Use blocks="exact".'
            )
        return core, p

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        try:
            _, p = self._fit(matrix, tol)
        except InputError:
            return False
        return self.orthogonal.contains(torch.from_numpy(p))

    def _has_structure(self, core: np.ndarray, tol: float) -> bool:
        """Whether `core` has this set's blocks; two equal real eigenvalues form a 2×2 block with sin θ = 0."""
        diagonal, below = core.diagonal(), core.diagonal(-1)
        pairs = count_pairs(core)
        extra = np.arange(2 * pairs, 2 * self.pairs, 2)
        equal = np.abs(diagonal[extra] - diagonal[extra + 1]) <= tol
        uncoupled = self.blocks == "paper" or np.abs(below[extra]) <= tol
        real = diagonal[2 * self.pairs :]
        signs = (real[: self.positive] >= -tol).all() and (real[self.positive :] <= tol).all()
        return pairs <= self.pairs and bool((equal & uncoupled).all() and signs)

    def _free(self, core: np.ndarray, p: np.ndarray, like: Tensor) -> Free_:
        part = self._read(core)
        # P is orthogonal to float64 rounding error, so it fits for every dtype of the matrix.
        part["orthogonal"] = self.orthogonal.right_inverse(torch.from_numpy(p))[0].numpy()
        self.to(like)
        return tuple(torch.from_numpy(np.ascontiguousarray(part[role])).to(like) for role in self.roles)

    def _read(self, core: np.ndarray) -> dict[str, np.ndarray]:
        """γ, θ, κ and T of a lower quasi-triangular matrix."""
        even = np.arange(0, 2 * self.pairs, 2)
        a, b, c = core[even, even], core[even, even + 1], core[even + 1, even]
        t = core.copy()
        if self.blocks == "paper":  # the upper entry is γ sin θ; the excess of the lower one belongs to T
            angle, gamma = np.arctan2(-b, a), np.hypot(a, b)
            t[even + 1, even] = c + b
            shear = np.zeros(self.pairs)
        else:
            beta = np.sqrt(np.abs(b)) * np.sqrt(np.abs(c)) * np.sign(c)
            angle, gamma = np.arctan2(beta, a), np.hypot(a, beta)
            shear = np.zeros(self.pairs)  # κ of a block with sin θ = 0 is arbitrary
            turns = beta != 0
            shear[turns] = shear_of(b[turns], c[turns], gamma[turns] * np.sin(angle[turns]))
        real = np.abs(core.diagonal()[2 * self.pairs :])
        in_block = 0 if self.blocks == "paper" else self.pairs
        coupling = t.reshape(-1)[linalg.strictly_lower_index(self.n, in_block)]
        return {"radius": np.concatenate([gamma, real]), "angle": angle, "shear": shear, "coupling": coupling}

    # ------------------------------------------------------------ the rest of the interface

    def error(self, *free: Tensor) -> float:
        return self.orthogonal.error(free[0])

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move the base point of P, see `Orthogonal.rebase`."""
        self.orthogonal.rebase(free[0], project=project)

    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        zeros = {
            role: torch.zeros(shape, dtype=torch.float64, device="cpu")
            for role, shape in zip(self.roles, self.shapes, strict=True)
        }
        zeros["orthogonal"] = self.orthogonal._initial("identity" if name in COUPLED else name, generator)[0]
        if name != "identity":
            zeros["angle"] = initial.uniform(self.pairs, 0.0, 2 * math.pi, generator)
        if "radius" in zeros:
            zeros["radius"] += 0.0 if name == "chain" else 1.0
        if name in COUPLED:
            t = self._gaussian(generator) if name == "random_coupling" else self._linked(name)
            in_block = 0 if self.blocks == "paper" else self.pairs
            zeros["coupling"] = t.flatten()[linalg.strictly_lower_index(self.n, in_block)]
        return tuple(zeros[role] for role in self.roles)

    def _linked(self, name: str) -> Tensor:
        """T of a delay line from block to block; `chain` links the 2×2 blocks alone, with strength 1."""
        rows = np.arange(1, self.n if name == "delay_line" else 2 * self.pairs)
        sources = rows - np.where(rows < 2 * self.pairs, 2, 1)
        linked = sources >= 0
        t = torch.zeros(self.n, self.n, dtype=torch.float64, device="cpu")
        t[rows[linked], sources[linked]] = self.strength if name == "delay_line" else 1.0
        return t

    def _gaussian(self, generator: torch.Generator | None) -> Tensor:
        """T ~ N(0, strength²/n), zero inside the blocks of every form, so that Λ keeps its eigenvalues."""
        drawn = torch.randn(self.n, self.n, generator=generator, dtype=torch.float64, device="cpu")
        t, below = torch.zeros(self.n**2, dtype=torch.float64), linalg.strictly_lower_index(self.n, self.pairs)
        t[below] = drawn.flatten()[below] * self.strength / math.sqrt(self.n)
        return t

    def extra_repr(self) -> str:
        return f"{self.n}, blocks={self.blocks!r}, radius={self.radius!r}, real=({self.positive}, {self.negative})"


# ---------------------------------------------------------------- parts


def checked_radius(radius: str | float) -> str | float:
    """`radius` if it is "free" or a modulus."""
    if isinstance(radius, str):
        check_name("radius", radius, ("free",))
        return radius
    if isinstance(radius, bool) or not isinstance(radius, (int, float)):
        raise TypeError(
            f'`radius` must be "free" or a number; got {radius!r} of type {type(radius).__name__}. Pass one of these.'
        )
    if not (math.isfinite(radius) and radius > 0):
        raise InputError(
            f"`radius` must be positive and finite; got radius={radius}. "
            'Pass the modulus of every eigenvalue, such as 1.0, or "free".'
        )
    return float(radius)


def checked_strength(strength: float) -> float:
    """`strength` if it is a number."""
    if isinstance(strength, bool) or not isinstance(strength, (int, float)) or not math.isfinite(strength):
        raise InputError(
            f"`strength` must be a finite number; got strength={strength!r}. Pass, for example, {STRENGTH}."
        )
    return float(strength)


def _checked_real(n: int, real: Sequence[int] | None) -> tuple[int, int]:
    if real is None:
        return n % 2, 0
    if not isinstance(real, Sequence) or len(real) != 2:
        raise InputError(
            f"`real` must be a pair, the numbers of eigenvalues +γ and −γ; got real={real!r}. "
            "Pass, for example, (1, 0)."
        )
    positive, negative = (check_size("real", count, 0) for count in real)
    if positive + negative > n or (n - positive - negative) % 2:
        raise InputError(
            f"`real` must leave an even number of the n={n} eigenvalues for complex pairs; "
            f"got real=({positive}, {negative}). Change one of the counts by one."
        )
    return positive, negative


def _schur_index(n: int, pairs: int, blocks: str) -> np.ndarray:
    """Flat positions of the entries that `core` lists: blocks, 1×1 blocks, then T."""
    even, single = np.arange(0, 2 * pairs, 2), np.arange(2 * pairs, n)
    rows = np.concatenate([even, even + 1, even, even + 1, single])
    columns = np.concatenate([even, even + 1, even + 1, even, single])
    coupling = linalg.strictly_lower_index(n, 0 if blocks == "paper" else pairs)
    return np.concatenate([rows * n + columns, coupling])
