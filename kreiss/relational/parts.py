"""What networks over sequences of images share: the encoder, context normalisation, small decoders, their start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.errors import InputError, check_size
from kreiss.pooled import Pooled

FEATURES = 128  # of an encoded image
CHANNELS, KERNEL, STRIDE, PADDING, CONVOLUTIONS = 32, 4, 2, 1, 3
EPSILON = 1e-8  # added to the variance in context normalisation
TANH_GAIN = 5 / 3  # of weights in front of tanh


@contextmanager
def drawn_from(generator: torch.Generator | None) -> Iterator[None]:
    """Modules made inside get torch's default initial values, drawn from `generator` (the global one if None)."""
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Encoder(nn.Sequential):
    """Encodes images (K, channels, height, width) as vectors (K, 128).

    Three convolutions with 32 kernels of 4 × 4, stride 2 and padding 1, then 256 and 128 units, all with ReLU; weights
    Kaiming normal, biases zero. 198,624 parameters for 3 × 32 × 32, 75,744 for 3 × 12 × 12 (thesis, Table C.1).

    Args:
        image: (channels, height, width).
    """

    def __init__(self, image: tuple[int, int, int]) -> None:
        channels, height, width = image
        rows, columns = _reduced("height", height), _reduced("width", width)
        parts: list[nn.Module] = []
        for before in (channels, *[CHANNELS] * (CONVOLUTIONS - 1)):
            parts += [nn.Conv2d(before, CHANNELS, KERNEL, STRIDE, PADDING), nn.ReLU()]
        parts += [
            nn.Flatten(),
            nn.Linear(CHANNELS * rows * columns, 256),
            nn.ReLU(),
            nn.Linear(256, FEATURES),
            nn.ReLU(),
        ]
        super().__init__(*parts)
        for part in self:
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight)
                part.bias.data.zero_()  # type: ignore[union-attr]


def _reduced(name: str, size: int) -> int:
    """What the convolutions leave of an image's height or width."""
    left = check_size(name, size)
    for _ in range(CONVOLUTIONS):
        left = (left + 2 * PADDING - KERNEL) // STRIDE + 1
    if left < 1:
        raise InputError(f"`{name}` of an image must be at least 8 for the encoder; got {size}. Give larger images.")
    return left


class ContextNorm(nn.Module):
    """z̃ = γ (z − mean) / √(variance + 1e-8) + β, per sequence and feature over time (temporal context normalisation).

    The variance is unbiased. γ = 1 and β = 0 at the start, both trained.

    Reference: Webb et al., "Learning representations that support extrapolation", 2020.

    Args:
        segments: lengths of the segments of a sequence that are normalised by themselves; one for all of it if empty.
    """

    def __init__(self, segments: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.segments = tuple(check_size("segments", length, minimum=2) for length in segments)
        self.gain = nn.Parameter(torch.ones(FEATURES))  # γ
        self.shift = nn.Parameter(torch.zeros(FEATURES))  # β

    def forward(self, z: Tensor) -> Tensor:
        """z (T, B, features), normalised."""
        parts = z.split(self.segments) if self.segments else (z,)
        return torch.cat([_standardised(part) for part in parts]) * self.gain + self.shift


def _standardised(z: Tensor) -> Tensor:
    centred = z - z.mean(0)
    variance = centred.square().sum(0) / (len(z) - 1)  # torch.var is several times slower along this dimension
    return centred * torch.rsqrt(variance + EPSILON)


def segment_lengths(value: str | tuple[int, ...] | list[int], length: int) -> tuple[int, ...]:
    """Lengths of segments from "2,2,2" or (2, 2, 2), which must add up to `length`; none from ""."""
    try:
        lengths = tuple(int(part) for part in (value.split(",") if isinstance(value, str) else value) if part != "")
    except ValueError:
        lengths = (0,)
    if lengths and (sum(lengths) != length or min(lengths) < 2):
        raise InputError(
            f"`segments` must be lengths of at least 2 that add up to the {length} objects of a sequence; got "
            f"{value!r}. Pass for example {','.join(map(str, _pairs(length)))}."
        )
    return lengths


def _pairs(length: int) -> list[int]:
    edges = [*range(0, length - 1, 2), length]
    return [after - before for before, after in pairwise(edges)]


def encoded(encoder: nn.Module, inputs: Tensor | Pooled) -> Tensor:
    """The images of `inputs` (T, B, channels, height, width) as vectors (T, B, 128), each distinct one encoded once."""
    if isinstance(inputs, Pooled):
        return F.embedding(inputs.index, encoder(inputs.images))
    vectors: Tensor = encoder(inputs.flatten(0, 1))
    return vectors.unflatten(0, inputs.shape[:2])


def decoder(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """One hidden layer of ReLU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def positioned(z: Tensor) -> Tensor:
    """Objects (T, B, features) with their position 0, 1, … as a last feature."""
    place = torch.arange(len(z), device=z.device, dtype=z.dtype)
    return torch.cat([z, place[:, None, None].expand(-1, z.shape[1], 1)], -1)


# ---------------------------------------------------------------- initial values of Webb et al., 2021


def before_relu(inputs: int, outputs: int) -> nn.Linear:
    """A linear map in front of a ReLU: Kaiming normal, bias zero."""
    linear = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return linear


def balanced(inputs: int, outputs: int, gain: float = 1.0, bias: bool = True) -> nn.Linear:
    """A linear map in front of anything else: Xavier normal, bias zero."""
    linear = nn.Linear(inputs, outputs, bias)
    nn.init.xavier_normal_(linear.weight, gain)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def controller(inputs: int, hidden: int) -> nn.LSTMCell:
    """An LSTM whose biases are zero and whose weights are Xavier normal, those of the cell input with gain 5/3."""
    cell = nn.LSTMCell(inputs, hidden)
    for weight in (cell.weight_ih, cell.weight_hh):
        first_gates, cell_input, output_gate = weight.data.split([2 * hidden, hidden, hidden])
        for rows, gain in ((first_gates, 1.0), (cell_input, TANH_GAIN), (output_gate, 1.0)):
            nn.init.xavier_normal_(rows, gain)
    for bias in (cell.bias_ih, cell.bias_hh):
        nn.init.zeros_(bias)
    return cell


class Views(nn.Module):
    """The two sides from which a similarity is computed, both normalised by the same context normalisation.

    Symmetric: both are TCN(e). Asymmetric: TCN(W₁ e + b₁) and TCN(W₂ e + b₂) (thesis, 5.6, "Symmetry"). With a
    penalty: TCN(W e + b), whose W and b are pressed towards zero (thesis, Fig. 6).

    Args:
        norm: the normalisation.
        asymmetric: whether the sides have matrices of their own.
        l1: λ of the penalty λ (Σ|W| + Σ|b|) on a linear layer before the normalisation; None for no such layer.
    """

    def __init__(self, norm: nn.Module, asymmetric: bool = False, l1: float | None = None) -> None:
        super().__init__()
        if l1 is not None and not 0 <= l1 < float("inf"):
            raise InputError(f"`l1` must be a finite number of at least 0; got {l1}. Pass the weight of the penalty.")
        self.l1 = l1
        self.linear = None if l1 is None else nn.Linear(FEATURES, FEATURES)
        self.sides = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2 if asymmetric else 0))
        self._norm = [norm]  # in a list, so that its parameters belong to one module alone

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides (T, B, 128) of encoded objects (T, B, 128)."""
        norm = self._norm[0]
        if self.linear is not None:
            encoded = self.linear(encoded)
        if self.sides:
            return norm(self.sides[0](encoded)), norm(self.sides[1](encoded))
        z = norm(encoded)
        return z, z

    def penalty(self) -> Tensor | None:
        """λ (Σ|W| + Σ|b|), or None."""
        if self.linear is None or self.l1 is None:
            return None
        return self.l1 * (self.linear.weight.abs().sum() + self.linear.bias.abs().sum())
