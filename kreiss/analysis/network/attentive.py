"""Layers that attend to their own past, one step at a time.

The state of such a layer holds h_t more than once: as h, and in memory. A derivative with respect to h_t alone must
change all copies together, which the layer's `moved` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kreiss.analysis.network.dynamics import recurrent_layer, vectors
from kreiss.errors import InputError


def attentive_layer(network: Any) -> Any:
    """The layer with memory that `network` is, or the only one inside it; None for any other network."""
    if not isinstance(network, nn.Module) or not any(_attends(part) for part in network.modules()):
        return None
    layer = recurrent_layer(network)
    return layer if _attends(layer) else None


def _attends(module: nn.Module) -> bool:
    return callable(getattr(module, "attention", None)) and callable(getattr(module, "step", None))


def run_attentive(layer: Any, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """Changes ε_0 … ε_T of h, all zero, and the outputs as a function of them, in the layout of the layer.

    ε_t is added to h_t where it is made, so that later steps, memory and readout all see it: ∂L/∂ε_t is the total
    derivative with respect to h_t. ε_0 changes the initial h.
    """
    if layer.bidirectional:
        raise InputError(
            "`network` must run in one direction; got bidirectional=True, whose state is not carried forward. "
            "Analyse a unidirectional layer."
        )
    if not callable(getattr(layer, "moved", None)):
        raise InputError(
            f"`network` must say where its state keeps h; got {type(layer).__name__} without `moved`. "
            "Give it a method moved(state, change)."
        )
    frozen = layer.freeze()
    like = torch.zeros((), dtype=frozen.weight_ih_l0.dtype, device=frozen.weight_ih_l0.device)
    x = vectors(inputs, frozen.input_size, like, frozen.batch_first)
    state, changes, outputs = _moved(frozen, frozen.init_state(x.shape[1])), [], []
    changes.append(state[1])
    for now in x:
        output, after = frozen.step(now, state[0])
        state = _moved(frozen, after)
        changes.append(state[1])
        h = state[0].h[-1]
        outputs.append(torch.cat([h, output[..., h.shape[-1] :]], -1))  # an output may hold more than h
    out = torch.stack(outputs)
    return changes, out.transpose(0, 1) if frozen.batch_first and inputs.dim() == x.dim() else out


def _moved(layer: Any, state: Any) -> tuple[Any, Tensor]:
    """The state with a change of h by zero, and that change."""
    change = torch.zeros_like(state.h).requires_grad_()
    return layer.moved(state, change), change
