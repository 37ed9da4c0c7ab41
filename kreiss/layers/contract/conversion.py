"""Conversion from and to `torch.nn.RNN`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kreiss.errors import InputError

if TYPE_CHECKING:
    from kreiss.layers.contract.base import Layer, RecurrentLayer


@torch.no_grad()
def from_torch(cls: type[Layer], rnn: nn.RNN, options: dict[str, Any]) -> Layer:
    """A layer of class `cls` equivalent to `rnn`."""
    if not isinstance(rnn, nn.RNN):
        raise TypeError(f"`rnn` must be a torch.nn.RNN; got {type(rnn).__name__}. Pass the layer itself.")
    if not cls.elman:
        raise InputError(
            f"{cls.__name__} must be created directly; got a torch.nn.RNN, which computes a different recurrence. "
            "Use RNN.from_torch or NNRNN.from_torch."
        )
    like = next(rnn.parameters())
    if rnn.hidden_size % cls.reals:
        raise InputError(
            f"a complex layer has two real entries per unit; got a torch.nn.RNN with hidden_size={rnn.hidden_size}. "
            "Pass one with an even hidden_size."
        )
    layer = cls(
        rnn.input_size, rnn.hidden_size // cls.reals, rnn.num_layers, nonlinearity=rnn.nonlinearity, bias=rnn.bias,
        batch_first=rnn.batch_first, dropout=rnn.dropout, bidirectional=rnn.bidirectional,
        device=like.device, dtype=like.dtype, **options,
    )  # fmt: skip
    for suffix, _ in layer._cells():
        getattr(layer, f"weight_ih_{suffix}").copy_(getattr(rnn, f"weight_ih_{suffix}"))
        layer._install(suffix, *layer._set(suffix).adapted(getattr(rnn, f"weight_hh_{suffix}")))
        biases = [getattr(rnn, f"{name}_{suffix}") for name in ("bias_ih", "bias_hh") if rnn.bias]
        if len(layer._bias_names) == 1:
            biases = [biases[0] + biases[1]]
        for name, value in zip(layer._bias_names, biases, strict=True):
            getattr(layer, f"{name}_{suffix}").copy_(value)
    return layer.train(rnn.training)


@torch.no_grad()
def to_torch(layer: RecurrentLayer) -> nn.RNN:
    """The `torch.nn.RNN` equivalent to `layer`."""
    if not layer.elman:
        raise InputError(
            f"to_torch must be called on a layer that torch.nn.RNN can compute; got {type(layer).__name__}, whose "
            "recurrence differs. Use freeze() for a plain layer instead."
        )
    if layer.nonlinearity not in ("tanh", "relu"):
        raise InputError(
            f"torch.nn.RNN supports tanh and relu; got nonlinearity={layer.nonlinearity!r}. "
            "Use freeze() for a plain layer instead."
        )
    like = layer.weight_ih_l0
    rnn = nn.RNN(
        layer.input_size, layer.state_size, layer.num_layers, nonlinearity=layer.nonlinearity, bias=layer.bias,
        batch_first=layer.batch_first, dropout=layer.dropout, bidirectional=layer.bidirectional,
        device=like.device, dtype=like.dtype,
    )  # fmt: skip
    for suffix, _ in layer._cells():
        getattr(rnn, f"weight_ih_{suffix}").copy_(getattr(layer, f"weight_ih_{suffix}"))
        getattr(rnn, f"weight_hh_{suffix}").copy_(layer.recurrent_matrix(suffix))
        if layer.bias:
            biases = [getattr(layer, f"{name}_{suffix}") for name in layer._bias_names]
            getattr(rnn, f"bias_ih_{suffix}").copy_(biases[0])
            getattr(rnn, f"bias_hh_{suffix}").copy_(biases[1] if len(biases) == 2 else torch.zeros_like(biases[0]))
    return rnn.train(layer.training)
