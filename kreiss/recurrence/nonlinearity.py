"""The nonlinearities φ of the recurrence, and their gradients in terms of the state."""

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

    Neighbouring entries (re, im) are one complex number; its b is the mean of their two biases, which layers set
    equal.
    """
    unit, modulus, zero = _polar(z)
    return unit * torch.where(zero, 0.0, _above(modulus, bias))


def stretch(z: Tensor, bias: Tensor | None) -> Tensor:
    """|h|/|z| of every complex number, one per pair of entries: needed for the gradient besides h = cmodrelu(z; b).

    |z| cannot be recovered from |h| − b where it is much smaller than b.
    """
    _, modulus, zero = _polar(z)
    return torch.where(zero, 0.0, _above(modulus, bias) / modulus)[..., ::2]


def _above(modulus: Tensor, bias: Tensor | None) -> Tensor:
    return (modulus if bias is None else modulus + _pair_sum(bias.to(modulus.dtype)) / 2).relu()


def _polar(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z/|z| and |z| of every pair, and whether it is 0; there they are set to 0 and 1: |z| has no derivative at 0.

    z is scaled by its larger part before squaring, so that squares neither overflow nor underflow; the scale is
    detached, because the result does not depend on it.
    """
    larger = _larger(z.detach().abs())
    zero = larger == 0
    size = torch.where(zero, 1.0, larger)
    part = z / size
    length = torch.where(zero, 1.0, _pair_sum(part.square())).sqrt()
    return part / length, size * length, zero


def _pair_sum(values: Tensor) -> Tensor:
    """The sum of each pair of neighbours, at both positions."""
    return values + _swapped(values)


def _larger(values: Tensor) -> Tensor:
    """The larger of each pair of neighbours, at both positions."""
    return torch.maximum(values, _swapped(values))


def _swapped(values: Tensor) -> Tensor:
    if torch.compiler.is_exporting():  # a view of pairs would capture batch sizes in the body of a scan
        first = torch.arange(values.shape[-1], device=values.device) % 2 == 0
        return torch.where(first, values.roll(-1, -1), values.roll(1, -1))
    return values.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def _biased(phi: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor | None], Tensor]:
    return lambda z, bias: phi(z if bias is None else z + bias.to(z.dtype))


APPLY: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "identity": _biased(lambda z: z),
    "tanh": _biased(torch.tanh),
    "relu": _biased(torch.relu),
    "modrelu": modrelu,
    "cmodrelu": cmodrelu,
}

# φ'(z) from h = φ(z) alone, so that a backward pass stores only the states.
SLOPE: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": torch.ones_like,
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: (h > 0).to(h.dtype),
    "modrelu": lambda h: (h != 0).to(h.dtype),
}


def through(nonlinearity: str, back: Tensor, h: Tensor, stretched: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients of z and of the bias (for every state separately), from that of h = φ(z; b) and the stored |h|/|z|."""
    if nonlinearity == "cmodrelu":
        assert stretched is not None
        return _through_pairs(back, h, stretched.repeat_interleave(2, -1))
    grad_z = back * SLOPE[nonlinearity](h)
    return grad_z, grad_z * h.sign() if nonlinearity == "modrelu" else grad_z  # along sign(z) = sign(h)


def _through_pairs(back: Tensor, h: Tensor, stretched: Tensor) -> tuple[Tensor, Tensor]:
    """The component along h is unchanged and is the bias gradient; the orthogonal one is scaled by |h|/|z|."""
    on, unit = stretched != 0, _polar(h)[0]
    along = _pair_sum(unit * back)
    grad_z = unit * along + (back - unit * along) * stretched
    return torch.where(on, grad_z, 0.0), torch.where(on, along / 2, 0.0)
