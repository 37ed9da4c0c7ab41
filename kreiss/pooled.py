"""Sequences of images of which many are equal: the distinct images, and which of them is where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from kreiss.errors import InputError


@dataclass(frozen=True)
class Pooled:
    """Stands for a tensor (T, B, channels, height, width) whose images are few: a network encodes each image once.

    It has those methods of a tensor that training needs, so that a batch of a task can hold it as `inputs`.

    Args:
        images: the distinct images (K, channels, height, width).
        index: which image is where (T, B), integers below K.

    Example:
        >>> import torch
        >>> from kreiss.pooled import Pooled
        >>> inputs = Pooled(torch.rand(2, 3, 32, 32), torch.tensor([[0, 1], [0, 0]]))
        >>> inputs.shape, inputs.expanded().shape
        (torch.Size([2, 2, 3, 32, 32]), torch.Size([2, 2, 3, 32, 32]))
    """

    images: Tensor
    index: Tensor

    def __post_init__(self) -> None:
        if self.images.dim() != 4 or self.index.dim() != 2 or self.index.is_floating_point():
            raise InputError(
                f"`images` must be (K, channels, height, width) and `index` integers (T, B); got shapes "
                f"{tuple(self.images.shape)} and {tuple(self.index.shape)}, {self.index.dtype}. Reshape them."
            )
        low, high = (int(edge) for edge in self.index.aminmax()) if self.index.numel() else (0, -1)
        if low < 0 or high >= len(self.images):
            raise InputError(
                f"`index` must be of the {len(self.images)} images, from 0; got {low} to {high}. Give every image."
            )

    @property
    def shape(self) -> torch.Size:
        """That of the tensor it stands for."""
        return torch.Size([*self.index.shape, *self.images.shape[1:]])

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    @property
    def dtype(self) -> torch.dtype:
        """That of the images."""
        return self.images.dtype

    def is_floating_point(self) -> bool:
        """Whether the images are numbers between 0 and 1, and not bytes."""
        return self.images.is_floating_point()

    def to(self, where: Any) -> Self:
        """The same on a device, or with images of a data type."""
        index = self.index if isinstance(where, torch.dtype) else self.index.to(where)
        return replace(self, images=self.images.to(where), index=index)

    def contiguous(self) -> Self:
        """Itself."""
        return self

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, where: Any) -> Self:
        """Some steps and sequences, with the same images."""
        return replace(self, index=self.index[where])

    def expanded(self) -> Tensor:
        """The tensor that this stands for, in full."""
        return self.images[self.index]
