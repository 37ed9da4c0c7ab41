"""Which of two glyphs is larger?"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from kreiss.tasks.relational.base import SEEN, Drawn
from kreiss.tasks.relational.glyphs import GlyphOptions, Glyphs, in_turn, no_colour

SMALL, MEDIUM, LARGE = range(3)
SHARES = (1 / 2, 3 / 4, 1)  # of an image that a size takes


class Comparison(Glyphs):
    """The same glyph at two sizes, on white: which is larger, the first (0) or the second (1)?

    Glyphs are reduced to half and three quarters of the image, centred; all of it is the largest size. Without
    `transitive` one is small and the other large. With it, training shows small with medium and medium with large, and
    the unseen part small with large: a network must order three sizes of which it never saw the outer two together.

    Args:
        transitive: whether the unseen part has pairs of sizes that training has not.
        options: see `Glyphs`.

    Reference: Kerg's thesis, 7.2. Sizes are not printed there; these are ours.

    Example:
        >>> from kreiss.tasks import Comparison
        >>> Comparison(transitive=True, held_out=95).train(update=0, batch=96, seed=0).inputs.shape
        torch.Size([2, 96, 3, 32, 32])
    """

    objects, output_size = 2, 2

    def __init__(self, transitive: bool = False, **options: Unpack[GlyphOptions]) -> None:
        self.transitive = bool(transitive)
        super().__init__(**options)
        no_colour(self)
        self.sizes = np.stack([_reduced(self.glyphs, share) for share in SHARES])

    def needed(self, part: str) -> int:
        return 1

    def pairs(self, part: str) -> list[tuple[int, int]]:
        """Pairs of sizes, the smaller one first."""
        if self.transitive and part == SEEN:
            return [(SMALL, MEDIUM), (MEDIUM, LARGE)]
        return [(SMALL, LARGE)]

    def draw(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        pairs = np.array(self.pairs(part))
        sizes = pairs[in_turn(count, len(pairs), source)]
        swapped = source.permuted(np.arange(count) % 2).astype(bool)
        sizes[swapped] = sizes[swapped, ::-1]
        shapes = source.choice(self.shapes[part], size=(count, 1))
        return shapes + len(self.glyphs) * sizes, sizes.argmax(1)

    def pictures(self, which: NDArray[Any]) -> NDArray[Any]:
        size, glyph = np.divmod(which, len(self.glyphs))
        return self.sizes[size, glyph]


def _reduced(images: NDArray[Any], share: float) -> NDArray[Any]:
    """Images reduced to a share of their size, centred on white."""
    if share == 1:
        return images
    height, width = (round(size * share) for size in images.shape[2:])
    small = F.interpolate(torch.from_numpy(images), (height, width), mode="bilinear", antialias=True).numpy()
    top, left = ((whole - part) // 2 for whole, part in zip(images.shape[2:], (height, width), strict=True))
    out = np.ones_like(images)
    out[:, :, top : top + height, left : left + width] = small
    return out
