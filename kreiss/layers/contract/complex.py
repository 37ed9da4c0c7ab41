"""Layers with complex states, represented as pairs of reals."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kreiss.layers.contract.base import RecurrentLayer
from kreiss.layers.contract.checks import full_precision
from kreiss.layers.contract.matrices import HALF
from kreiss.recurrence import NONLINEARITIES
from kreiss.sets import Unitary


class ComplexLayer(RecurrentLayer):
    """h_t = φ(V h_{t−1} + U x_t; b) with complex h, V and U, and real inputs.

    A complex unit is two neighbouring real entries (re, im) of states and outputs: with hidden_size=N they have
    `state_size` = 2N real features, also for readouts, in files and in ONNX. `as_complex` gives the complex view.
    `weight_hh_l{k}` is the real 2N×2N matrix of V, so the recurrence is the real one of twice the size;
    `weight_ih_l{k}` (2N, I) stores the rows of U in the same way. The input of upper layers is the 2N reals of the
    layer below.

    φ is by default "cmodrelu", modReLU on the modulus with one threshold per complex unit,
    modReLU(z) = z·relu(m + b)/m with m the modulus of z. The others act on real and imaginary parts, each with its own
    bias.

    If V is a product of sparse matrices, `structured` makes every step apply its factors in turn, in the plain loop.
    Otherwise, and in compiled and exported graphs and frozen layers, V is formed once per pass and the kernel is used.
    """

    reals = 2
    nonlinearities = NONLINEARITIES
    structured: bool | None = None  # whether V is applied as a product; None if it is not a product

    @staticmethod
    def as_complex(state: Tensor) -> Tensor:
        """States or outputs (…, 2N) as complex numbers (…, N); a view.

        Example:
            >>> import kreiss, torch
            >>> layer = kreiss.ScuRNN(3, 8)
            >>> output, h_n = layer(torch.zeros(5, 2, 3))
            >>> layer.as_complex(output).shape
            torch.Size([5, 2, 8])
        """
        return torch.view_as_complex(state.unflatten(-1, (-1, 2)))

    def _transition(self, suffix: str) -> Tensor | Callable[[Tensor], Tensor]:
        if not self.applies_product(suffix) or torch.compiler.is_compiling():  # the graph would unroll a loop
            return super()._transition(suffix)
        unitary = self._set(suffix)
        assert isinstance(unitary, Unitary)
        product = unitary.product
        assert product is not None
        with full_precision(self.weight_ih_l0.device):
            factors = product.factors(*self._wide_free(suffix))

        def apply(h: Tensor) -> Tensor:
            with full_precision(h.device):
                wide = self.as_complex(h.float() if h.dtype in HALF else h)
                return torch.view_as_real(product.times(factors, wide)).flatten(-2).to(h.dtype)

        return apply

    def applies_product(self, suffix: str = "l0") -> bool:
        """Whether states of this layer and direction are multiplied by the factors of V instead of V itself."""
        return bool(self.structured) and isinstance(self._set(suffix), Unitary)

    def extra_repr(self) -> str:
        if self.structured is None:
            return super().extra_repr()
        way = "structured" if self.applies_product() else "dense"
        return f"{super().extra_repr()}, applied={way!r}"
