"""The interface of a set of matrices.

A set defines which n×n matrices are allowed and how they are parametrized, in the convention of
`torch.nn.utils.parametrize`: `forward(*free) -> matrix`, `right_inverse(matrix) -> free`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_memory, check_name, check_size
from kreiss.recorded import Recorded

Free_ = tuple[Tensor, ...]


def _at_least_float32(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    moved = fn(tensor)
    if moved.dtype in (torch.float16, torch.bfloat16):
        return tensor.to(device=moved.device, dtype=torch.float32)
    return moved


class Packed(nn.Module):
    """A module with constant integer tensors, which are rebuilt rather than copied when the module moves.

    Rebuilding keeps them correct after `to_empty`, which leaves buffers uninitialised. Buffers (base points, signs)
    stay at least float32 when the module is cast: a base point rounded to half precision is not orthogonal.
    """

    def __init__(self) -> None:
        super().__init__()
        self._makers: dict[str, Callable[[], np.ndarray]] = {}

    def add_constant(self, name: str, make: Callable[[], np.ndarray]) -> None:
        """Store the integer array `make()` as the tensor attribute `name`."""
        self._makers[name] = make
        setattr(self, name, torch.from_numpy(make()).to(torch.get_default_device()))

    def constant(self, name: str, device: torch.device) -> Tensor:
        """The constant `name` on `device`, also after `load_state_dict(assign=True)` moved the parameters there."""
        tensor = getattr(self, name)
        return tensor if tensor.device == device else torch.from_numpy(self._makers[name]()).to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        super()._apply(lambda tensor: _at_least_float32(fn, tensor), recurse)
        for name, make in self._makers.items():
            device = fn(torch.empty(0, dtype=torch.int64, device=getattr(self, name).device)).device
            setattr(self, name, torch.from_numpy(make()).to(device))
        return self


class Set(Recorded, Packed):
    """A set of n×n real matrices, parametrized by free tensors.

    Attributes:
        n: size of the matrices.
        roles: the role of each free tensor, in the order `forward` takes them.
        names: the name of each free tensor among the parameters of a layer; its role, unless two share a role.
        shapes: the shape of each free tensor.
        initialisers: the names `initial` accepts, the default first.
    """

    n: int
    roles: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    initialisers: tuple[str, ...]

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = check_size("n", n)
        check_memory(f"a set of {n}×{n} matrices", 64 * n)  # a lower bound for every set

    def describe(self) -> str:
        """A description of the set; two are equal exactly if equal free tensors give equal matrices."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def _declare_kind(self) -> None:
        """Store the description in the state_dict, as bytes, so that a state_dict of another set is recognised."""
        self.register_buffer("kind", None)
        self.add_constant("kind", partial(_as_bytes, self.describe()))

    @property
    def names(self) -> tuple[str, ...]:
        return self.roles

    # ------------------------------------------------------------ what every set defines

    @abstractmethod
    def forward(self, *free: Tensor) -> Tensor:
        """The matrix given by the free tensors."""

    @abstractmethod
    def right_inverse(self, matrix: Tensor) -> Free_:
        """Free tensors of `matrix`; raises if it is not in the set."""

    @abstractmethod
    def error(self, *free: Tensor) -> float:
        """The violation of the constraint by rounding error (0 for an unconstrained matrix)."""

    @abstractmethod
    def _initial(self, name: str, generator: torch.Generator | None) -> Free_:
        """Free tensors in float64 on the CPU."""

    # ------------------------------------------------------------ what follows from it

    def initial(
        self,
        name: str | None = None,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Free_:
        """Free tensors drawn by a named initialiser.

        Numbers are drawn on the CPU in float64 and then converted, so a seed gives the same matrix for
        every dtype and device. Fixed parts of the set (a base point, signs) are initialised too.
        """
        if name is None:
            name = self.initialisers[0]
        check_name(f"initialiser of {type(self).__name__}", name, self.initialisers)
        dtype = dtype or torch.get_default_dtype()
        device = torch.device(device) if device is not None else torch.get_default_device()
        if device.type == "meta":
            return tuple(torch.empty(shape, dtype=dtype, device=device) for shape in self.shapes)
        check_memory("the free tensors", 8 * sum(math.prod(shape) for shape in self.shapes))
        free = self._initial(name, generator)
        self.to(dtype=dtype, device=device)
        return tuple(tensor.to(dtype=dtype, device=device) for tensor in free)

    def contains(self, matrix: Tensor, tol: float | None = None) -> bool:
        """Whether `matrix` lies in the set up to `tol` (default: 1e-9 in float64, 1e-4 in float32)."""
        try:
            self._fit(matrix, tol)
        except InputError:
            return False
        return True

    def rebase(self, *free: Tensor, project: bool = True) -> None:
        """Move base points (trivializations) to the current matrix; no effect on other sets.

        Args:
            project: whether to project the new base point onto the orthogonal group, which removes rounding errors.
        """

    def adapted(self, matrix: Tensor) -> tuple[Set, Free_]:
        """A set of this kind that contains `matrix`, and its free tensors; by default the set itself."""
        return self, self.right_inverse(matrix)

    @abstractmethod
    def _fit(self, matrix: Tensor, tol: float | None = None) -> Any:
        """What `right_inverse` needs to know about `matrix`, or an error; has no side effects."""

    def check_free(self, free: tuple[Tensor, ...]) -> None:
        """Raise unless there is one tensor of the right shape per role."""
        shapes = tuple(tuple(tensor.shape) for tensor in free)
        if shapes != self.shapes:
            raise InputError(
                f"{type(self).__name__} takes free tensors {self.roles} of shapes {self.shapes}; "
                f"got {len(free)} of shapes {shapes}. Use the tuple that initial() or right_inverse() returns."
            )


def _as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


def default_tolerance(dtype: torch.dtype) -> float:
    """The tolerance for membership of a set: 1e-9 in float64, 1e-4 in lower precision."""
    return 1e-9 if dtype == torch.float64 else 1e-4
