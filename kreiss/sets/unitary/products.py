"""Unitary matrices as products of sparse matrices, applied to a vector in O(n log n) or O(Ln).

In addition to the methods of `UnitaryMethod`, a product has `factors(*free)`, computed once, and
`times(factors, h) -> P h` for complex rows h (…, n). Its matrix is the product applied to the identity.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kreiss import linalg
from kreiss.errors import InputError, check_size
from kreiss.sets import initial
from kreiss.sets.base import Free_
from kreiss.sets.meshes import butterfly_angles, butterfly_firsts, layer_sizes, mesh_angles
from kreiss.sets.unitary.methods import START, Generator, UnitaryMethod

LARGEST_FOUND = 5  # units up to which the Fourier product reaches every unitary matrix, and its parameters are searched
STARTS = 40


class Product(UnitaryMethod):
    """A unitary matrix that is a product of sparse matrices."""

    @abstractmethod
    def factors(self, *free: Tensor) -> list[Tensor]:
        """What `times` needs, from the free tensors."""

    @abstractmethod
    def times(self, factors: list[Tensor], h: Tensor) -> Tensor:
        """P h for complex rows h (…, n)."""

    def forward(self, *free: Tensor) -> Tensor:
        factors = self.factors(*free)
        eye = torch.eye(self.n, dtype=torch.promote_types(free[0].dtype, torch.complex64), device=free[0].device)
        return self.times(factors, eye).mT  # row j of the result is P e_j


class Fourier(Product):
    """P = D₃R₂F⁻¹D₂ΠR₁FD₁ (uRNN, Arjovsky, Shah & Bengio 2016), 7n parameters.

    D_k = diag(e^{iθ}), R_k = I − 2vv*/‖v‖² reflections, F the discrete Fourier transform, Π a fixed permutation. Two
    phases are shared between the D_k, each v matters up to a complex factor, and both reflections can be rotated
    together in one plane (with M = F⁻¹D₂Π, R₂MR₁ = M·(M*R₂M)R₁, a product of two reflections, which fixes only the
    angle between them): the products form a set of dimension 7n − 7, or n² if that is less, n ≤ 5. In that case every
    unitary matrix is such a product, and its parameters are searched by least squares.
    """

    names, roles = ("phase", "reflection"), ("orthogonal", "orthogonal")
    initialisers = ("random",)
    permutation: Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.shapes = ((3, n), (2, n, 2))
        self.add_constant("permutation", partial(_scattered, n))

    def factors(self, *free: Tensor) -> list[Tensor]:
        v = torch.complex(free[1][..., 0], free[1][..., 1])
        return [*linalg.phases(free[0]).unbind(0), *v.unbind(0), *(2 / free[1].square().sum((1, 2))).unbind(0)]

    def times(self, factors: list[Tensor], h: Tensor) -> Tensor:
        if h.numel() == 0:  # an empty batch, which MKL's Fourier transform rejects
            return h
        d1, d2, d3, v1, v2, scale1, scale2 = factors
        h = _reflect(torch.fft.fft(h * d1, norm="ortho"), v1, scale1)
        h = h[..., self.constant("permutation", h.device)] * d2
        return _reflect(torch.fft.ifft(h, norm="ortho"), v2, scale2) * d3

    @property
    def searchable(self) -> bool:
        """Whether the parameters of a given matrix can be searched."""
        return self.n <= LARGEST_FOUND

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        if not self.searchable:
            raise InputError(
                f"the parameters of D₃R₂F⁻¹D₂ΠR₁FD₁ can be found for a matrix of at most {LARGEST_FOUND} units; "
                f'got {self.n} units. Load a state_dict, or use method="trivialization", which holds any.'
            )
        for seed in range(STARTS):
            free, off = self._nearest(p.cpu(), torch.Generator().manual_seed(seed))
            if off <= max(tol / 10, 1e-12):
                return tuple(tensor.to(p.device) for tensor in free)
        raise InputError(
            f"the matrix was not found to be a product D₃R₂F⁻¹D₂ΠR₁FD₁; got a distance of {off:.3g} after {STARTS} "
            'searches. Use method="trivialization", which holds any unitary matrix.'
        )

    def _nearest(self, p: Tensor, generator: torch.Generator) -> tuple[Free_, float]:
        """Free tensors at a local minimum of the distance to `p`, and that distance."""
        from scipy.optimize import least_squares

        def difference(packed: Tensor) -> Tensor:
            return torch.view_as_real(self(*self._unpack(packed)) - p).flatten()

        start = torch.cat([tensor.flatten() for tensor in self.start("random", generator)])
        solution = least_squares(
            lambda x: difference(torch.from_numpy(x)).numpy(),
            start.numpy(),
            lambda x: torch.autograd.functional.jacobian(difference, torch.from_numpy(x)).numpy(),
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=200,
        )
        return self._unpack(torch.from_numpy(solution.x)), float(np.abs(solution.fun).max())

    def _unpack(self, packed: Tensor) -> Free_:
        return packed[: 3 * self.n].view(3, self.n), packed[3 * self.n :].view(2, self.n, 2)

    def start(self, name: str, generator: Generator) -> Free_:
        """Phases U(−π, π), reflections U(−1, 1), as published."""
        drawn = initial.uniform(4 * self.n, -1.0, 1.0, generator)
        return initial.henaff_entries(3 * self.n, generator).view(3, -1), drawn.view(2, -1, 2)


class Rotations(Product):
    """P = D·L_m···L₁: layers of 2×2 rotations with phases, then D = diag(e^{iφ}) (EURNN, Jing et al. 2017).

    A rotation of entries i, j is [[e^{iφ}cos θ, −sin θ], [e^{iφ}sin θ, cos θ]]: a phase, then a rotation.
    """

    names, roles = ("rotation", "phase"), ("orthogonal", "orthogonal")
    initialisers = ("random", "henaff", "identity")
    sizes: list[int]

    def _declare(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.shapes = ((2, sum(sizes)), (self.n,))  # rows: θ, φ

    def factors(self, *free: Tensor) -> list[Tensor]:
        theta, phi = free[0].unbind(0)
        turns = torch.stack([theta.cos(), theta.sin()]).split(self.sizes, 1)
        return [linalg.phases(free[1]), *turns, *linalg.phases(phi).split(self.sizes)]

    def times(self, factors: list[Tensor], h: Tensor) -> Tensor:
        for k in range(len(self.sizes)):
            h = self._layer(k, factors[1 + k], factors[1 + len(self.sizes) + k], h)
        return h * factors[0]

    @abstractmethod
    def _layer(self, k: int, turns: Tensor, phases: Tensor, h: Tensor) -> Tensor:
        """The k-th layer L_{k+1} applied to h."""

    def start(self, name: str, generator: Generator) -> Free_:
        if name == "random":  # all angles uniform, as published; not Haar-distributed
            return (
                initial.henaff_entries(2 * sum(self.sizes), generator).view(2, -1),
                initial.henaff_entries(self.n, generator),
            )
        turned = torch.zeros(self.shapes[0], dtype=torch.float64, device="cpu")
        return turned, START[name](self.n, generator).diagonal().angle()


class Mesh(Rotations):
    """Layers of rotations of neighbours, alternately (0,1), (2,3), … and (1,2), (3,4), … (tunable EUNN).

    m = n layers (the default) have n² parameters and reach every unitary matrix (Clements et al. 2016).
    """

    def __init__(self, n: int, capacity: int | None = None) -> None:
        count = n if capacity is None else check_size("capacity", capacity)
        super().__init__(n, capacity=count)
        self._declare(layer_sizes(n, count))

    def _layer(self, k: int, turns: Tensor, phases: Tensor, h: Tensor) -> Tensor:
        first, end = k % 2, k % 2 + 2 * self.sizes[k]
        x, y = h[..., first:end:2] * phases, h[..., first + 1 : end : 2]
        mixed = torch.stack([turns[0] * x - turns[1] * y, turns[1] * x + turns[0] * y], -1).flatten(-2)
        return mixed if mixed.shape[-1] == self.n else torch.cat([h[..., :first], mixed, h[..., end:]], -1)

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        try:
            angles = mesh_angles(p.cpu().numpy(), len(self.sizes), 1e-14)
        except InputError:  # treat entries within the tolerance as 0: rounding errors may look like rotations
            angles = mesh_angles(p.cpu().numpy(), len(self.sizes), tol)
        return tuple(torch.from_numpy(part).to(p.device) for part in angles)


class Butterfly(Rotations):
    """Layers that rotate the pairs (i, i + 2^{k−1}), k = 1 … log₂ n (FFT-style EUNN).

    About n log₂ n parameters. If n is not a power of two, entries without a partner are left unchanged. Every entry of
    P may be non-zero, but the set is a small part of the unitary group.
    """

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.strides = [2**k for k in range((n - 1).bit_length())]
        firsts = [butterfly_firsts(n, stride) for stride in self.strides]
        for stride in self.strides:
            self.add_constant(f"first_{stride}", partial(butterfly_firsts, n, stride))
        self._declare([len(first) for first in firsts])

    def _layer(self, k: int, turns: Tensor, phases: Tensor, h: Tensor) -> Tensor:
        stride = self.strides[k]
        if 2 * self.sizes[k] == self.n:  # all paired: blocks of 2·stride, no index needed
            x, y = h.unflatten(-1, (-1, 2, stride)).unbind(-2)
            c, s = (turn.view(-1, stride) for turn in turns)
            x = x * phases.view(-1, stride)
            return torch.stack([c * x - s * y, s * x + c * y], -2).flatten(-3)
        first = self.constant(f"first_{stride}", h.device)
        x, y = h[..., first] * phases, h[..., first + stride]
        mixed = torch.cat([turns[0] * x - turns[1] * y, turns[1] * x + turns[0] * y], -1)
        return h.index_copy(-1, torch.cat([first, first + stride]), mixed)

    def inverse(self, p: Tensor, tol: float = 1e-9) -> Free_:
        free = tuple(torch.from_numpy(part).to(p.device) for part in butterfly_angles(p.cpu().numpy(), self.strides))
        if not torch.allclose(self(*free), p, rtol=0, atol=max(tol, 1e-6)):
            raise InputError(
                "the matrix is not a product of butterfly layers. Use a mesh of full capacity, "
                'Unitary(n, "mesh"), or method="trivialization", which hold any unitary matrix.'
            )
        return free


def _reflect(h: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    """h − 2v(v*h)/‖v‖²."""
    return h - (scale * (h @ v.conj()))[..., None] * v


def _scattered(n: int) -> np.ndarray:
    """A fixed pseudo-random permutation, from hashed multiples of the golden ratio."""
    mixed = (np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable").astype(np.int64)
