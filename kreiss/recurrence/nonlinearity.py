"""The nonlinearities φ of the recurrence, and their derivatives as functions of the state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def modrelu(z: Tensor, bias: Tensor | None) -> Tensor:
    """modReLU(z) = sign(z)·relu(|z| + b) (Arjovsky et al. 2016); z = 0 gives 0."""
    magnitude = z.abs() if bias is None else z.abs() + bias.to(z.dtype)
    return z.sign() * magnitude.relu()


def _biased(phi: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor | None], Tensor]:
    return lambda z, bias: phi(z if bias is None else z + bias.to(z.dtype))


APPLY: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "identity": _biased(lambda z: z),
    "tanh": _biased(torch.tanh),
    "relu": _biased(torch.relu),
    "modrelu": modrelu,
}

# φ'(z) from h = φ(z) alone, so that a backward pass keeps the states and nothing else.
SLOPE: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": torch.ones_like,
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: (h > 0).to(h.dtype),
    "modrelu": lambda h: (h != 0).to(h.dtype),
}
