"""The unitary evolution network."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.sets import Unitary

SMALLEST_STRUCTURED = 512
"""Units from which applying the product is faster than the matrix; docs/complex.md has the measurement."""


class URNN(ComplexLayer):
    """A complex network whose recurrent matrix is a product of phases, reflections and Fourier transforms.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = D₃R₂F⁻¹D₂ΠR₁FD₁.

    Symbols: phases of the D `phase_l{k}` (3, N), vectors of the reflections R `reflection_l{k}` (2, N, re and im), F
    the Fourier transform, Π a fixed permutation, V `weight_hh_l{k}` (its real 2N×2N form), U `weight_ih_l{k}` (2N
    rows), b `bias_l{k}`. See `kreiss.layers.contract.complex.ComplexLayer` for complex states as pairs of reals.

    Reference: Arjovsky, Shah & Bengio (2016). V has 7N parameters and costs O(N log N) to apply; it does not reach
    every unitary matrix (Wisdom et al. 2016).

    Differs: Π is the same for all layers of a size; the initial state is zero (or `hx`) and is not trained. A matrix
    can be assigned only up to 5 units.

    Args:
        hidden_size: N, the number of complex units; outputs have 2N features.
        structured: whether V is applied as a product; by default if that is faster.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> layer = kreiss.URNN(3, 8)
        >>> layer.phase_l0.numel() + layer.reflection_l0.numel()
        56
        >>> layer
        URNN(
          3, 8, nonlinearity='cmodrelu', applied='dense'
          (sets): ModuleDict(
            (l0): Unitary(
              8, 'fourier'
              (map): Fourier()
            )
          )
        )
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        structured: bool | None = None,
        nonlinearity: str = "cmodrelu",
        init: str = "random",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=partial(Unitary, hidden_size, "fourier"),
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
        self.structured = hidden_size >= SMALLEST_STRUCTURED if structured is None else bool(structured)
