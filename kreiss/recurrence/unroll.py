"""A loop and a scan over time, for any step function.

A step is a function `step(x_t, state) -> (out_t, state)`. `unroll` runs it over a sequence: as a loop, which
supports every feature of autograd, or, under torch.export, as a torch `scan`, which is traced once for any length and
keeps time and batch dynamic (ONNX: Scan). A scan is for inference only: its second derivatives are wrong in torch 2.13.
A sequence that is known to have one step is exported as that step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Step = Callable[[Any, Any], tuple[Any, Any]]


def unroll(
    step: Step,
    inputs: Tensor | tuple[Tensor, ...],
    state: Any,
    *,
    lengths: Tensor | None = None,
    reverse: bool = False,
    batch_dim: int = 0,
) -> tuple[Any, Any]:
    """Run `step` over a sequence.

    Args:
        step: maps the input of one time step and the previous state to the output (a tensor, or a tuple of tensors) and
            the next state.
        inputs: (T, …), T ≥ 1; or a tuple of such tensors, of which the step receives a tuple.
        state: the initial state, any pytree of tensors.
        lengths: (B,), valid steps of each sequence. Beyond them the state is unchanged and outputs are meaningless.
        reverse: run from the last step to the first (from the end of each sequence).
        batch_dim: the batch dimension of the tensors of the state, to which `lengths` refers.

    Returns:
        Outputs of all steps in time order (T, …), and the last state.
    """
    if torch.compiler.is_exporting() and not is_one_step(inputs):
        return _scan(step, inputs, state, reverse)
    # not x[t], whose backward pass allocates a zero tensor of the full length at every step
    slices = inputs.unbind(0) if isinstance(inputs, Tensor) else list(zip(*(x.unbind(0) for x in inputs), strict=True))
    outputs: list[Any] = [None] * len(slices)
    for t in reversed(range(len(slices))) if reverse else range(len(slices)):
        outputs[t], new = step(slices[t], state)
        state = new if lengths is None else _held(t < lengths, new, state, batch_dim)
    return _stacked(outputs), state


def is_one_step(inputs: Tensor | tuple[Tensor, ...]) -> bool:
    """Whether the graph being exported is for one step; a dynamic length is not taken for one and not fixed."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    first = inputs if isinstance(inputs, Tensor) else inputs[0]
    return statically_known_true(first.shape[0] == 1)


def _scan(step: Step, inputs: Tensor | tuple[Tensor, ...], state: Any, reverse: bool) -> tuple[Any, Any]:
    """`unroll` as one operator, for sequences of full length: layers do not export packed sequences."""
    from torch._higher_order_ops.scan import scan

    leaves, form = tree_flatten(state)  # scan takes tuples, and not those with names

    def advance(leaves: Any, x: Any) -> tuple[Any, Any]:
        out, new = step(x, tree_unflatten(leaves, form))
        return tuple(tree_leaves(new)), tree_map(torch.clone, out)  # an output must not share memory with the state

    first = tuple(leaf.clone() for leaf in leaves)  # tracing a view of the states of all layers may fail
    last, outputs = scan(advance, first, inputs, dim=0, reverse=reverse)
    return outputs, tree_unflatten(last, form)


def _held(valid: Tensor, new: Any, old: Any, batch_dim: int) -> Any:
    """The new state for sequences that have this step, the old state for the others."""

    def choose(after: Tensor, before: Tensor) -> Tensor:
        shape = [1] * after.dim()
        shape[batch_dim] = -1
        return torch.where(valid.view(shape), after, before)

    return choose(new, old) if isinstance(new, Tensor) else tree_map(choose, new, old)


def _stacked(outputs: Sequence[Any]) -> Any:
    if isinstance(outputs[0], Tensor):
        return torch.stack(list(outputs))
    return tuple(torch.stack(parts) for parts in zip(*outputs, strict=True))


def settled(states: Tensor, first: Tensor, last: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """States (T, B, N) as outputs, constant beyond the length of each sequence.

    The constant is the last state, or the first one if a sequence is run from its end.
    """
    if lengths is None:
        return states
    valid = torch.arange(len(states), device=states.device)[:, None] < lengths
    return torch.where(valid[..., None], states, first if reverse else last)
