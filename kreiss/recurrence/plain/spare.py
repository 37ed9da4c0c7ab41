"""Buffers that no tensor outside refers to, handed from one pass to the next.

Memory that is allocated anew at each pass is returned to the system and faulted in again, page by page, which for small
networks takes as long as a good part of the arithmetic. Only work space is kept, never a result: what a caller or
autograd may hold is always new. Whoever takes a buffer has it alone until it is given back.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 1 << 22  # bytes of one buffer
MOST = 4  # buffers

_spare: dict[tuple[int, torch.dtype], Tensor] = {}


def take(like: Tensor) -> Tensor:
    """An uninitialised contiguous tensor of that shape and dtype."""
    buffer = _spare.pop((like.numel(), like.dtype), None)  # in one operation: of several threads one has it
    return torch.empty_like(like, memory_format=torch.contiguous_format) if buffer is None else buffer.view(like.shape)


def give(buffer: Tensor) -> None:
    """Keep a buffer that nothing refers to any more."""
    if buffer.nbytes > LARGEST or type(buffer) is not Tensor or buffer.is_inference():
        return
    if len(_spare) >= MOST:
        _spare.clear()
    _spare[buffer.numel(), buffer.dtype] = buffer
