"""Layers of equal size: the hidden size closest to a number of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from kreiss.errors import InputError, check_name, check_size
from kreiss.networks.registry import LAYERS


def hidden_size_for(
    model: str | type[nn.Module],
    parameters: int,
    *,
    input_size: int,
    output_size: int | None = None,
    **options: Any,
) -> int:
    """The hidden size at which the number of trained parameters is closest to a budget.

    Args:
        model: a name in `kreiss.LAYERS`, or a layer class.
        parameters: the budget.
        input_size: features of the input.
        output_size: count a linear readout with this many outputs too; by default only the layer counts.
        **options: further options of the layer, such as reflections=16.

    Returns:
        The hidden size; the smaller of two that are equally close.

    Example:
        >>> import kreiss
        >>> kreiss.hidden_size_for("nnrnn", 18_953, input_size=10, output_size=9)
        128
        >>> kreiss.hidden_size_for("exprnn", 18_953, input_size=10, output_size=9)
        176
    """
    if isinstance(model, str):
        check_name("model", model, LAYERS)
        model = LAYERS[model]
    budget = check_size("parameters", parameters)
    inputs = check_size("input_size", input_size)
    outputs = None if output_size is None else check_size("output_size", output_size)

    def count(hidden: int) -> int:
        layer = model(inputs, hidden, device="meta", **options)
        trained = sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad)
        features = getattr(layer, "output_size", hidden)  # two reals per complex unit
        return trained + (0 if outputs is None else outputs * (features + 1))

    return closest(count, budget)


def closest(count: Callable[[int], int], budget: int) -> int:
    """The hidden size whose number of parameters, which grows with it, is closest to a budget."""
    low = _smallest(count)
    high = low
    while count(high) < budget:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < budget else (low, middle)
    return low if budget - count(low) <= count(high) - budget else high


def _smallest(count: Callable[[int], int]) -> int:
    """The smallest hidden size that the options allow: 16 reflections need 17 units."""
    last: InputError | None = None
    for hidden in range(1, 2049):
        try:
            count(hidden)
        except InputError as error:
            last = error
        else:
            return hidden
    assert last is not None
    raise last
