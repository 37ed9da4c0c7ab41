"""Constrain any square matrix of any module to a set."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from kreiss.errors import InputError
from kreiss.sets.base import Free_, Set
from kreiss.sets.stacked import Stacked


def constrain(
    module: nn.Module,
    name: str,
    set: Set,
    *,
    init: str | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Keep the matrix `module.name` in `set`, through `torch.nn.utils.parametrize`.

    The set is copied, so one object may constrain many matrices. In a matrix of stacked square blocks
    (the gates of `torch.nn.LSTM` or `torch.nn.GRU`) each block is constrained; pass a `Stacked` to
    treat them differently.

    Args:
        module: any module.
        name: the name of its matrix, such as "weight" or "weight_hh_l0".
        set: the set to keep it in.
        init: name of an initialiser. By default the current matrix is kept if it lies in the set, and
            is otherwise replaced using the first initialiser of the set.
        generator: for the initialiser.

    Returns:
        The module.

    Example:
        >>> import kreiss, torch
        >>> lstm = torch.nn.LSTM(3, 8)
        >>> lstm = kreiss.constrain(lstm, "weight_hh_l0", kreiss.Orthogonal(8))
        >>> kreiss.Orthogonal(8).contains(lstm.weight_hh_l0[:8])
        True

    Note:
        A module under torch's parametrize evaluates the set at every access. `torch.nn.RNN`,
        `GRU` and `LSTM` read their weights more than once per call: wrap the call in
        `torch.nn.utils.parametrize.cached()`.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"`module` must be a torch.nn.Module; got {type(module).__name__}. Pass the module that has the matrix."
        )
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        raise InputError(
            f"`name` must name a tensor of {type(module).__name__}; got name={name!r}. "
            f"Its parameters are: {', '.join(n for n, _ in module.named_parameters()) or 'none'}."
        )
    if parametrize.is_parametrized(module, name):
        raise InputError(
            f"`{name}` must not be constrained already; got a matrix with a parametrization. "
            "Remove it first with torch.nn.utils.parametrize.remove_parametrizations."
        )
    if not isinstance(set, Set):
        raise TypeError(
            f"`set` must be a kreiss set; got {type(set).__name__}. Pass, for example, kreiss.Orthogonal(n)."
        )
    if weight.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"`{name}` must be float32 or float64; got {weight.dtype}. "
            "Keep the matrix in float32 and use torch.autocast."
        )
    chosen = _sized(set, weight, name).to(weight)
    free = _start(chosen, weight, init, generator)
    chosen.right_inverse = lambda matrix: free  # type: ignore[method-assign]  # torch calls it on registration
    try:
        parametrize.register_parametrization(module, name, chosen)
    finally:
        del chosen.right_inverse
    return module


def _sized(set: Set, weight: Tensor, name: str) -> Set:
    """A copy of the set for `weight`, stacked if the matrix consists of several blocks of that size."""
    shape, n = tuple(weight.shape), set.n
    if isinstance(set, Stacked):
        blocks = len(set.sets)
        fits = shape == (blocks * n, n)
    else:
        blocks = shape[0] // n if len(shape) == 2 else 0
        fits = blocks > 0 and shape == (blocks * n, n)
    if not fits:
        raise InputError(
            f"`{name}` must be of shape ({n}, {n}), or several such blocks stacked; got {shape}. "
            "Pass a set of its size."
        )
    if isinstance(set, Stacked) or blocks == 1:
        return copy.deepcopy(set)
    return Stacked(*(copy.deepcopy(set) for _ in range(blocks)))


def _start(set: Set, weight: Tensor, init: str | None, generator: torch.Generator | None) -> Free_:
    """Free tensors of the current matrix if it lies in the set, else from the initialiser."""
    if init is None and weight.device.type != "meta" and set.contains(weight):
        return set.right_inverse(weight.detach())
    return set.initial(init, generator=generator, dtype=weight.dtype, device=weight.device)
