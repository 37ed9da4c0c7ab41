"""Six ways to hold an orthogonal matrix with free numbers, behind one small interface.

Each method has one free tensor of `shape`, and `forward(free) -> P`, `inverse(P, tol) -> free` (P float64,
orthogonal to `tol`), `rotations(angles) -> free` for a start at 2×2 rotations down the diagonal. Fixed parts (a
base point, signs) are buffers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_memory, check_name, check_size
from kreiss.sets import initial
from kreiss.sets.base import Packed
from kreiss.sets.meshes import layer_sizes

NO_MINUS_ONE = (
    "the matrix has an eigenvalue at −1 (or within rounding of it), which the Cayley map does not reach. "
    'Use method="trivialization" or "expm", or another number of negative signs with "scaled_cayley".'
)


class Method(Packed):
    """A map from free numbers onto orthogonal matrices."""

    shape: tuple[int, ...]

    def __init__(self, n: int, **options: str | int) -> None:
        super().__init__()
        self.n = n
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())

    @abstractmethod
    def forward(self, free: Tensor) -> Tensor:
        """The orthogonal matrix."""

    @abstractmethod
    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        """Free numbers of the float64 matrix `p`, orthogonal to `tol`; may set the method's fixed parts."""

    @abstractmethod
    def rotations(self, angles: Tensor) -> Tensor:
        """Free numbers (float64) of 2×2 rotations by `angles` down the diagonal."""

    def random(self, generator: torch.Generator | None) -> Tensor:
        """Free numbers of a Haar distributed rotation, where the method holds all rotations."""
        return self.inverse(initial.random(self.n, generator=generator))

    def angle_of_skew(self, entry: Tensor) -> Tensor:
        """The rotation angle that this method makes of a 2×2 skew block with entry `entry`."""
        return entry


class _Skew(Method):
    """Base of the methods whose free numbers are the strictly lower triangle of a skew matrix."""

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
    stays where the network started.
    """

    base: Tensor

    def __init__(self, n: int, retraction: str = "cayley") -> None:
        super().__init__(n, retraction=retraction)
        check_name("retraction", retraction, ("cayley", "exp"))
        self.retraction = retraction
        self.register_buffer("base", torch.eye(n))

    def forward(self, free: Tensor) -> Tensor:
        a = self.skew(free)
        return self.base @ (linalg.expm_skew(a) if self.retraction == "exp" else linalg.cayley(-a / 2))

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        self.base = p.contiguous().to(self.base.device)
        return torch.zeros(self.shape, dtype=p.dtype, device=p.device)

    def rotations(self, angles: Tensor) -> Tensor:
        return self.inverse(linalg.rotation_blocks(angles, self.n))

    @torch.no_grad()
    def rebase(self, free: Tensor, project: bool = True) -> None:
        """Move the base point to the present matrix, polished where rounding shows, and `free` to zero, in place."""
        moved = self(free) if self.retraction == "exp" else linalg.turned(self.base, self.skew(free))
        self.base.copy_(linalg.polished(moved) if project else moved)
        free.zero_()


class Householder(Method):
    """P = H₁(v₁)···H_m(v_m) D, v_k = (0, …, 0, 1, free) (oRNN, Mhammedi et al. 2017).

    With m = n − 1 reflections (the default) and signs D these are all orthogonal matrices and the
    n(n−1)/2 numbers are exactly their dimension. The product is formed as I − V S⁻¹ Vᵀ with
    S = ½diag(VᵀV) + striu(VᵀV): a triangular solve instead of m reflections.
    """

    index: Tensor
    signs: Tensor

    def __init__(self, n: int, reflections: int | None = None) -> None:
        count = max(n - 1, 1) if reflections is None else check_size("reflections", reflections)
        super().__init__(n, reflections=count)
        self.m = count
        if self.m > max(n - 1, 1):
            raise InputError(
                f"`reflections` must be at most n − 1 = {n - 1}; got reflections={reflections}. "
                "More reflections than that add no matrices."
            )
        self.shape = (self.m * (2 * n - self.m - 1) // 2,)
        self.add_constant("index", partial(_reflection_index, n, self.m))
        self.register_buffer("signs", torch.ones(n))

    def forward(self, free: Tensor) -> Tensor:
        index = self.constant("index", free.device)
        below = free.new_zeros(self.n * self.m).scatter_add(0, index, free).view(self.n, self.m)
        v = below + torch.eye(self.n, self.m, dtype=free.dtype, device=free.device)
        gram = v.mT @ v
        s = gram.triu(1) + torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1) / 2)
        eye = torch.eye(self.n, dtype=free.dtype, device=free.device)
        return (eye - v @ torch.linalg.solve_triangular(s, v.mT, upper=True)) * self.signs

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        # All n − 1 reflections hold any orthogonal matrix, so the signs may be chosen for the best
        # scaled vectors. With fewer the signs are part of what the set is.
        return self._reflect(p, None if self.m == max(self.n - 1, 1) else self.signs.to(p), tol)

    def rotations(self, angles: Tensor) -> Tensor:
        # A rotation is two reflections: m of them turn m // 2 planes, the other planes stay.
        return self._reflect(linalg.rotation_blocks(angles[: (self.m + 1) // 2], self.n), None, 1e-9)

    def random(self, generator: torch.Generator | None) -> Tensor:
        if self.m == max(self.n - 1, 1):
            return super().random(generator)
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        v = torch.randn(self.n, self.m, generator=generator, dtype=torch.float64, device="cpu")
        return (v / v.diagonal()).reshape(-1)[self.constant("index", v.device)]

    def _reflect(self, p: Tensor, signs: Tensor | None, tol: float) -> Tensor:
        """Reflect the columns of P one by one onto ±e_k; the vectors used are the free numbers."""
        rest, v = p.clone(), torch.zeros(self.n, self.m, dtype=p.dtype, device=p.device)
        for k in range(self.m):
            x = rest[k:, k].clone()
            x[0] -= signs[k] if signs is not None else (-1.0 if x[0] >= 0 else 1.0)
            if x[0].abs() < 1e-10:
                raise InputError(self._too_few())
            v[k:, k] = x / x[0]
            w = v[k:, k]
            rest[k:] -= torch.outer(w, (2 / (w @ w)) * (w @ rest[k:]))
        found = rest.diagonal().sign()
        if not torch.allclose(rest, (found if signs is None else signs).diag(), rtol=0, atol=max(tol, 1e-6)):
            raise InputError(self._too_few())
        self.signs = found.to(self.signs.device)
        return v.reshape(-1)[self.constant("index", v.device)]

    def _too_few(self) -> str:
        return (
            f"the matrix is not a product of reflections={self.m} reflections with this set's signs. "
            f"Use reflections={self.n - 1}, which holds any orthogonal matrix."
        )


class Givens(Method):
    """P = D·L_m···L₁, layers of 2×2 rotations of neighbours (tunable EUNN, Jing et al. 2017).

    Odd layers rotate the pairs (0,1), (2,3), …, even layers (1,2), (3,4), … . m = n layers (the
    default) hold n(n−1)/2 angles and, with signs D, reach every orthogonal matrix (Clements et al.
    2016).
    """

    signs: Tensor

    def __init__(self, n: int, layers: int | None = None) -> None:
        count = n if layers is None else check_size("layers", layers)
        super().__init__(n, layers=count)
        self.layers = count
        self.sizes = layer_sizes(n, self.layers)
        self.shape = (sum(self.sizes),)
        self.register_buffer("signs", torch.ones(n))

    def forward(self, free: Tensor) -> Tensor:
        p = torch.eye(self.n, dtype=free.dtype, device=free.device)
        cosines, sines = free.cos().split(self.sizes), free.sin().split(self.sizes)
        for k, (c, s) in enumerate(zip(cosines, sines, strict=True)):
            first, pairs = k % 2, self.sizes[k]
            x = p[first : first + 2 * pairs].view(pairs, 2, self.n)
            c, s = c[:, None], s[:, None]
            top, bottom = c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]
            mixed = torch.stack([top, bottom], dim=1).view(2 * pairs, self.n)
            p = torch.cat([p[:first], mixed, p[first + 2 * pairs :]])
        return self.signs[:, None] * p

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Tensor:
        try:
            angles, signs = self._decompose(p, 1e-14)
        except InputError:  # rounding in the matrix may look like rotations: take entries it could have made as 0
            angles, signs = self._decompose(p, tol)
        self.signs = torch.from_numpy(signs).to(self.signs.device)
        return torch.from_numpy(angles).to(p)

    def _decompose(self, p: Tensor, negligible: float) -> tuple[np.ndarray, np.ndarray]:
        gates, signs = _givens_gates(linalg.to_numpy(p), negligible)
        return _schedule(gates, self.n, self.layers), signs

    def rotations(self, angles: Tensor) -> Tensor:
        free = torch.zeros(self.shape, dtype=torch.float64, device="cpu")
        free[: len(angles)] = angles
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return free

    def random(self, generator: torch.Generator | None) -> Tensor:
        if self.layers >= self.n:
            return super().random(generator)
        self.signs = torch.ones(self.n, dtype=torch.float64, device=self.signs.device)
        return initial.henaff_entries(self.shape[0], generator)


METHODS: dict[str, type[Method]] = {
    "expm": Expm,
    "trivialization": Trivialization,
    "cayley": Cayley,
    "scaled_cayley": ScaledCayley,
    "householder": Householder,
    "givens": Givens,
}


# ---------------------------------------------------------------- parts of the inverses


def _check_rotation(p: Tensor) -> None:
    if torch.linalg.det(p) < 0:
        raise InputError(
            "the matrix has determinant −1 and this method holds rotations only (determinant +1). "
            'Use method="trivialization", "householder" or "givens".'
        )


def _reflection_index(n: int, m: int) -> np.ndarray:
    """Flat positions in an n×m matrix of the entries below the diagonal, column by column."""
    check_memory(f"{m} reflections of {n} entries", 9 * n * m)
    columns, rows = np.triu_indices(m, 1, n)
    return rows * m + columns


def _givens_gates(u: np.ndarray, negligible: float) -> tuple[list[tuple[int, float]], np.ndarray]:
    """U = D·G_k···G₁ as rotations (row, angle) in the order applied, and the signs D.

    Clements' scheme: anti-diagonals of the lower triangle are made zero by turns from the right and
    from the left, which keeps the mesh n layers deep.
    """
    n = len(u)
    right: list[tuple[int, float]] = []
    left: list[tuple[int, float]] = []
    for i in range(1, n):
        for j in range(i):
            if i % 2:
                row, k = n - 1 - j, i - 1 - j  # zero u[row, k] by mixing columns k, k+1
                angle = _zeroing_angle(u[row, k], u[row, k + 1], negligible)
                _mix(u.T, k, angle)
                right.append((k, angle))
            else:
                row, k = n - i + j, j  # zero u[row, k] by mixing rows row−1, row
                angle = -_zeroing_angle(u[row, k], u[row - 1, k], negligible)
                _mix(u, row - 1, angle)
                left.append((row - 1, -angle))
    signs = np.sign(u.diagonal()).astype(np.float64)
    # U = (left gates)·D·(right gates); moving D to the front turns a gate between unlike signs round.
    moved = [(k, angle * signs[k] * signs[k + 1]) for k, angle in left]
    return right + moved[::-1], signs


def _zeroing_angle(entry: float, other: float, negligible: float) -> float:
    """The angle whose rotation moves `entry` into `other`; 0 if there is nothing to move."""
    return math.atan2(entry, other) if abs(entry) > negligible else 0.0


def _mix(u: np.ndarray, k: int, angle: float) -> None:
    """Rotate rows k and k+1 of u by `angle`, in place."""
    c, s = math.cos(angle), math.sin(angle)
    u[k], u[k + 1] = c * u[k] - s * u[k + 1], s * u[k] + c * u[k + 1]


def _schedule(gates: list[tuple[int, float]], n: int, layers: int) -> np.ndarray:
    """Angles of the layered mesh, each gate in the first layer of its parity that is still free."""
    sizes = [(n - k % 2) // 2 for k in range(layers)]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    angles, busy = np.zeros(sum(sizes)), np.zeros(n, dtype=int)
    for row, angle in gates:
        if angle == 0:
            continue
        layer = int(max(busy[row], busy[row + 1]))
        layer += (layer - row) % 2
        if layer >= layers:
            raise InputError(
                f"the matrix needs more than layers={layers} layers of rotations. Use layers={n}, which holds any."
            )
        angles[starts[layer] + row // 2] = angle
        busy[row] = busy[row + 1] = layer + 1
    return angles
