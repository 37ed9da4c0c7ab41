"""Recurrent matrices computed from free parameters: storage, access, assignment and upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import check_name
from kreiss.layers.contract.checks import full_precision
from kreiss.sets import Set

HALF = (torch.float16, torch.bfloat16)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor


class ComputedMatrices(nn.Module):
    """A module with one recurrent matrix per layer and direction, `weight_hh_l{k}`, each from a set of matrices.

    Reading the attribute computes the matrix from the free parameters {role}_l{k}; assigning to it sets them. An
    unconstrained matrix is its own parameter.

    Attributes:
        num_layers: number of stacked layers.
        bidirectional: whether each has a second direction.
        sets: the set of each matrix, by suffix ("l0", "l0_reverse", …).
    """

    num_layers: int
    bidirectional: bool
    sets: nn.ModuleDict
    _names: dict[str, list[str]]  # of the free parameters, by suffix

    def _cells(self) -> Iterator[tuple[str, bool]]:
        """(suffix, whether it runs backwards) of each layer and direction, in torch's order."""
        for k in range(self.num_layers):
            yield f"l{k}", False
            if self.bidirectional:
                yield f"l{k}_reverse", True

    def _set(self, suffix: str) -> Set:
        matrix_set = self.sets[suffix]
        assert isinstance(matrix_set, Set)
        return matrix_set

    def _free_names(self, suffix: str) -> list[str]:
        """Names of the free parameters of V; an unconstrained V is its own parameter, with torch's name."""
        return [("weight_hh" if name == "weight" else name) + f"_{suffix}" for name in self._set(suffix).names]

    def free_roles(self) -> dict[str, str]:
        """The role of each free parameter of the recurrent matrices, by parameter name."""
        return {
            name: role
            for suffix, names in self._names.items()
            for name, role in zip(names, self._set(suffix).roles, strict=True)
        }

    def _free(self, suffix: str) -> list[Tensor]:
        return [getattr(self, name) for name in self._names[suffix]]

    def _wide_free(self, suffix: str) -> list[Tensor]:
        """Free tensors in at least float32."""
        return [_widened(tensor) for tensor in self._free(suffix)]

    def _install(self, suffix: str, new_set: Set, free: tuple[Tensor, ...]) -> None:
        """Replace the set and the free tensors of a cell."""
        like = getattr(self, f"weight_ih_{suffix}")
        for name in self._free_names(suffix):
            delattr(self, name)
        self.sets[suffix] = new_set.to(device=like.device, dtype=like.dtype)
        self._names[suffix] = self._free_names(suffix)
        for name, tensor in zip(self._free_names(suffix), free, strict=True):
            self.register_parameter(name, nn.Parameter(tensor.detach().to(like).clone(), like.requires_grad))

    # ------------------------------------------------------------ the recurrent matrix

    def recurrent_matrix(self, suffix: str = "l0") -> Tensor:
        """V of one layer and direction, in at least float32 and with autocast off, differentiable."""
        own = self._parameters.get(f"weight_hh_{suffix}")
        if own is not None:  # unconstrained
            return own
        like = self.weight_ih_l0
        with full_precision(like.device):
            matrix: Tensor = self._set(suffix)(*self._wide_free(suffix))
        return matrix if matrix.dtype == like.dtype else matrix.to(like.dtype)

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", ())
        if name in parameters:  # first, because every parameter access passes here
            return parameters[name]
        if name.startswith("weight_hh_l") and self._is_computed(name.removeprefix("weight_hh_")):
            return self.recurrent_matrix(name.removeprefix("weight_hh_"))
        return super().__getattr__(name)

    def _is_computed(self, suffix: str) -> bool:
        """Whether V of this cell is computed from other parameters, all already registered."""
        if suffix not in self._modules.get("sets", ()):  # type: ignore[operator]
            return False
        names = self._names[suffix]
        return f"weight_hh_{suffix}" not in names and all(name in self._parameters for name in names)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("weight_hh_l") and self._takes_matrix(name, value):
            self._assign(name.removeprefix("weight_hh_"), value)
        else:
            super().__setattr__(name, value)

    def _takes_matrix(self, name: str, value: Any) -> bool:
        """Whether setting the attribute means setting V, not torch's own handling of parameters."""
        if hasattr(type(self), name):  # a property of torch.nn.utils.parametrize
            return False
        if name in self._parameters:
            return not isinstance(value, nn.Parameter)
        suffix = name.removeprefix("weight_hh_")
        return self._is_computed(suffix) or suffix not in self.sets

    @torch.no_grad()
    def _assign(self, suffix: str, matrix: Tensor) -> None:
        """`layer.weight_hh_l0 = matrix`, as with torch's parametrizations."""
        check_name("recurrent matrix", f"weight_hh_{suffix}", [f"weight_hh_{s}" for s, _ in self._cells()])
        for parameter, tensor in zip(self._free(suffix), self._set(suffix).right_inverse(matrix), strict=True):
            parameter.copy_(tensor)
        self._set(suffix).to(getattr(self, f"weight_ih_{suffix}"))

    def constraint_error(self) -> float:
        """The largest violation, by rounding error, of the constraint on a recurrent matrix; 0 if unconstrained."""
        with full_precision(self.weight_ih_l0.device):
            return max(self._set(suffix).error(*self._wide_free(suffix)) for suffix, _ in self._cells())

    @torch.no_grad()
    def rebase(self, project: bool = True) -> None:
        """Move base points of trivializations to the current matrices; outputs do not change."""
        with full_precision(self.weight_ih_l0.device):
            for suffix in self._names:
                free = self._free(suffix)
                wide = [_widened(tensor) for tensor in free]
                self._set(suffix).rebase(*wide, project=project)
                for parameter, tensor in zip(free, wide, strict=True):
                    if tensor is not parameter:
                        parameter.copy_(tensor)
