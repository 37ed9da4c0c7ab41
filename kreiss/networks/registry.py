"""Every layer by name, from all rooms that define layers."""

from __future__ import annotations

from torch import nn

from kreiss.layers import LAYERS as PLAIN_LAYERS
from kreiss.memory import MEMORY_LAYERS

LAYERS: dict[str, type[nn.Module]] = {**PLAIN_LAYERS, **MEMORY_LAYERS}
