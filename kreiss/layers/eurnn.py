"""The efficient unitary network."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.base import LayerOptions
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.sets import Unitary

SMALLEST_STRUCTURED = 768
"""Units from which a pass by the product is faster than by the matrix; docs/complex.md has the measurement."""
SMALLEST_OF_FEW_LAYERS = 512
"""The same for up to `FEW_LAYERS` layers of rotations."""
FEW_LAYERS = 4
UNITS_PER_LAYER = 48
"""Units per layer of rotations from which a single step is also faster, which matters for long sequences."""


def smallest_structured(layers: int | None) -> int:
    """Units from which V is applied as a product of this many layers or, for None, FFT-style."""
    if layers is None:
        return SMALLEST_STRUCTURED
    return max(SMALLEST_OF_FEW_LAYERS if layers <= FEW_LAYERS else SMALLEST_STRUCTURED, UNITS_PER_LAYER * layers)


class EURNN(ComplexLayer):
    """A complex network whose recurrent matrix is a product of layers of 2×2 rotations.

    h_t = modReLU(V h_{t−1} + U x_t; b), V = D·L_m···L₁; a rotation of entries i, j in a layer is
    [[e^{iφ}cos θ, −sin θ], [e^{iφ}sin θ, cos θ]].

    Symbols: θ and φ `rotation_l{k}` (2, rotations), phases of D `phase_l{k}`, m `capacity`, V `weight_hh_l{k}` (its
    real 2N×2N form), U `weight_ih_l{k}` (2N rows), b `bias_l{k}`. See `kreiss.layers.contract.complex.ComplexLayer` for
    complex states as pairs of reals.

    Reference: Jing et al. (2017). Tunable: layers rotate alternating neighbours; N layers reach all unitary
    matrices. FFT-style: log₂ N layers of distances 1, 2, 4, ….

    Differs: the phase is in the first column of a rotation instead of its first row, because otherwise D duplicates the
    phases of the last layer and N layers do not reach every unitary matrix. FFT-style allows any N; entries without a
    partner are left unchanged. The initial state is zero (or `hx`) and is not trained.

    Args:
        hidden_size: N, the number of complex units; outputs have 2N features.
        capacity: m, the number of layers of the tunable form (the paper's L); default 2.
        fft: whether to use the FFT-style form, which has no capacity.
        structured: whether V is applied as a product; by default if that is faster.
        init: "random" (all angles uniform), "henaff" or "identity".
        others: see `kreiss.layers.contract.base.RecurrentLayer`.

    Example:
        >>> import kreiss
        >>> tunable, fft = kreiss.EURNN(3, 8, capacity=4), kreiss.EURNN(3, 8, fft=True)
        >>> tunable.rotation_l0.shape, fft.rotation_l0.shape
        (torch.Size([2, 14]), torch.Size([2, 12]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        capacity: int | None = None,
        fft: bool = False,
        structured: bool | None = None,
        nonlinearity: str = "cmodrelu",
        init: str = "random",
        **options: Unpack[LayerOptions],
    ) -> None:
        if fft and capacity is not None:
            raise InputError(
                f"`capacity` belongs to the tunable form; got capacity={capacity} with fft=True. Leave one of them out."
            )
        count = check_size("capacity", 2 if capacity is None else capacity)
        make_set = partial(Unitary, hidden_size, "butterfly") if fft else partial(
            Unitary, hidden_size, "mesh", capacity=count
        )  # fmt: skip
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            make_set=make_set,
            nonlinearity=nonlinearity,
            init=init,
            **options,
        )
        self.structured = (
            hidden_size >= smallest_structured(None if fft else count) if structured is None else bool(structured)
        )
