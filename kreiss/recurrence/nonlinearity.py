"""The nonlinearities φ of the recurrence, and what their gradients make of the state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def modrelu(z: Tensor, bias: Tensor | None) -> Tensor:
    """modReLU(z) = sign(z)·relu(|z| + b) (Arjovsky et al. 2016); z = 0 gives 0."""
    magnitude = z.abs() if bias is None else z.abs() + bias.to(z.dtype)
    return z.sign() * magnitude.relu()


def cmodrelu(z: Tensor, bias: Tensor | None) -> Tensor:
    """modReLU on the modulus of complex numbers (Arjovsky et al. 2016): z·relu(|z| + b)/|z|; z = 0 gives 0.

    Neighbouring entries (re, im) are one complex number; its b is the mean of their two biases, which layers give
    equal.
    """
    square = _pair_sum(z.square())
    zero = square == 0
    modulus = torch.where(zero, 1.0, square).sqrt()  # 1 and not 0, whose root has no derivative
    above = modulus if bias is None else modulus + _pair_sum(bias.to(z.dtype)) / 2
    return z * torch.where(zero, 0.0, above.relu() / modulus)


def _pair_sum(values: Tensor) -> Tensor:
    """The sum of each pair of neighbours, in both places."""
    if torch.compiler.is_exporting():  # a view of pairs would take sizes of the batch into the body of a scan
        first = torch.arange(values.shape[-1], device=values.device) % 2 == 0
        return values + torch.where(first, values.roll(-1, -1), values.roll(1, -1))
    return values + values.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def _biased(phi: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor | None], Tensor]:
    return lambda z, bias: phi(z if bias is None else z + bias.to(z.dtype))


APPLY: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "identity": _biased(lambda z: z),
    "tanh": _biased(torch.tanh),
    "relu": _biased(torch.relu),
    "modrelu": modrelu,
    "cmodrelu": cmodrelu,
}

# φ'(z) from h = φ(z) alone, so that a backward pass keeps the states and nothing else.
SLOPE: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": torch.ones_like,
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: (h > 0).to(h.dtype),
    "modrelu": lambda h: (h != 0).to(h.dtype),
}


def through(nonlinearity: str, back: Tensor, h: Tensor, bias: Tensor | None) -> Tensor:
    """The gradient to z, from that to h = φ(z; b)."""
    if nonlinearity != "cmodrelu":
        return back * SLOPE[nonlinearity](h)
    u, modulus = _direction(h)
    along = u * _pair_sum(u * back)
    inner = modulus if bias is None else modulus - _pair_sum(bias.to(h.dtype)) / 2  # |z|
    smallest = torch.finfo(h.dtype).eps * modulus  # |z| is not known better than this
    return along + (back - along) * torch.where(modulus == 0, 0.0, modulus / torch.maximum(inner, smallest))


def to_bias(nonlinearity: str, grad_z: Tensor, h: Tensor) -> Tensor:
    """What each state adds to the gradient of the bias, from the gradient to z."""
    if nonlinearity == "modrelu":  # the bias acts along sign(z) = sign(h)
        return grad_z * h.sign()
    if nonlinearity == "cmodrelu":  # along z/|z| = h/|h|, for both entries of a pair alike
        return _pair_sum(grad_z * _direction(h)[0]) / 2
    return grad_z


def _direction(h: Tensor) -> tuple[Tensor, Tensor]:
    """h/|h| of every pair, 0 where h is 0, and |h|."""
    modulus = _pair_sum(h.square()).sqrt()
    return h / torch.where(modulus == 0, 1.0, modulus), modulus
