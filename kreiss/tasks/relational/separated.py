"""Same or different shapes with colours between them."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from kreiss.tasks.relational.glyphs import COLOURS, GlyphOptions, no_colour
from kreiss.tasks.relational.samedifferent import SameDifferent


class Separated(SameDifferent):
    """A glyph, a flat colour, a glyph, a flat colour: are the glyphs the same (0) or different (1)?

    The colours say nothing. They stand apart from the shapes, so that a network may ignore them by their places.

    Options: see `Glyphs`. Reference: Kerg's thesis, C.6.

    Example:
        >>> from kreiss.tasks import Separated
        >>> Separated(held_out=98).train(update=0, batch=96, seed=0).inputs.shape
        torch.Size([4, 96, 3, 32, 32])
    """

    objects = 4

    def __init__(self, **options: Unpack[GlyphOptions]) -> None:
        super().__init__(**options)
        no_colour(self)

    def dressed(self, which: NDArray[Any], source: np.random.Generator) -> NDArray[Any]:
        colours = -source.integers(1, COLOURS + 1, size=which.shape)  # negative numbers stand for flat colours
        return np.stack([which, colours], 2).reshape(len(which), self.objects)

    def pictures(self, which: NDArray[Any]) -> NDArray[Any]:
        images = super().pictures(np.maximum(which, 0))
        flat = which < 0
        images[flat] = self.colours[-which[flat]][:, :, None, None]
        return images
