"""Any recurrent network as a map (x, h) → h on flat states, the common input of all analyses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kreiss.errors import InputError, check_size, check_tensor

Step = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Dynamics:
    """A network as a map h_t = F(x_t, h_{t−1}) with h (batch, state_size).

    Attributes:
        run: (x, h) → (output, h), x (batch, input_size), h (batch, state_size).
        input_size: features of x.
        state_size: size of the complete state: layers × hidden units, twice that for an LSTM and for complex states.
        like: a tensor with the dtype and device of the network.
        read: h → output, if the output is part of the state; else None.
        batch_first: whether inputs are (batch, time, feature), as for the layer. Results are always time first.
    """

    run: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    input_size: int
    state_size: int
    like: Tensor
    read: Callable[[Tensor], Tensor] | None = None
    batch_first: bool = False

    def time_first(self) -> Dynamics:
        """The same network for inputs (T, B, input_size), also if its layer is batch-first."""
        return replace(self, batch_first=False)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """F(x, h)."""
        return self.run(x, h)[1]

    def initial(self, batch: int) -> Tensor:
        """The zero state."""
        return self.like.new_zeros(batch, self.state_size)

    def inputs(self, inputs: Any) -> Tensor:
        """`inputs`, in the layout of the layer, as (T, B, input_size).

        Symbols become one-hot vectors, a single sequence a batch of one.
        """
        return vectors(inputs, self.input_size, self.like, self.batch_first)

    def swapped(self, sequences: Tensor, batched: bool = True) -> Tensor:
        """Convert between (T, B, …) and the layout of the layer, in either direction."""
        return sequences.transpose(0, 1) if self.batch_first and batched else sequences

    def states(self, inputs: Tensor, state: Tensor | None = None) -> Tensor:
        """The flat states (T + 1, B, state_size), from `state` or from zero."""
        h = self.initial(inputs.shape[1]) if state is None else state
        states = [h]
        with torch.no_grad():
            for x in inputs:
                states.append(self.step(x, states[-1]))
        return torch.stack(states)


def dynamics(network: Any, *, input_size: int | None = None, state_size: int | None = None) -> Dynamics:
    """The map that `network` iterates.

    Args:
        network: a layer of this package, `torch.nn.RNN`, `GRU` or `LSTM`; a module with exactly one of these inside; a
            network with a recurrence of its own, `forward(inputs, state, lengths) -> (outputs, state)`; or a function
            `step(x, state) -> state` on batches (B, input_size) and (B, state_size).
        input_size, state_size: of a function; of a network with a recurrence of its own, `input_size` alone.

    Example:
        >>> import torch
        >>> from kreiss.analysis import dynamics
        >>> dynamics(torch.nn.LSTM(3, 5, num_layers=2)).state_size
        20
    """
    if isinstance(network, Dynamics):
        return network
    if isinstance(network, nn.Module):
        own = input_size is not None and not holds_layer(network)
        return (
            _of_network(network, check_size("input_size", input_size)) if own else _of_layer(recurrent_layer(network))
        )
    if not callable(network):
        raise TypeError(
            f"`network` must be a recurrent layer or a function step(x, state); got {type(network).__name__}. "
            "Pass one of these."
        )
    if input_size is None or state_size is None:
        raise InputError(
            f"a step function needs its sizes; got input_size={input_size}, state_size={state_size}. Pass both."
        )
    sizes = check_size("input_size", input_size), check_size("state_size", state_size)
    step: Step = network
    rest = torch.zeros((), dtype=torch.float64)
    return Dynamics(lambda x, h: (new := step(x, h), new), *sizes, rest, lambda h: h)


def vectors(inputs: Any, size: int, like: Tensor, batch_first: bool = False) -> Tensor:
    """`inputs`, (T, B, size) or symbols, or batch first, as (T, B, size) with the dtype and device of `like`."""
    check_tensor("inputs", inputs)
    if not inputs.is_floating_point():
        inputs = F.one_hot(inputs.long(), size).to(like)
    x = inputs.unsqueeze(1) if inputs.dim() == 2 else inputs
    if x.dim() != 3 or x.shape[-1] != size or not x.numel():
        order = "batch, time" if batch_first else "time, batch"
        raise InputError(
            f"`inputs` must be of shape ({order}, {size}), for batch_first={batch_first}, or "
            f"(time, {size}); got {tuple(inputs.shape)}. Use the layout of the layer."
        )
    turned: Tensor = x.transpose(0, 1) if batch_first and inputs.dim() == 3 else x
    return turned.detach().to(like)


def holds_layer(module: nn.Module) -> bool:
    """Whether a module is a recurrent layer, or holds exactly one."""
    return _is_recurrent(module) or sum(map(_is_recurrent, module.modules())) == 1


def recurrent_layer(module: nn.Module) -> nn.Module:
    """The recurrent layer that `module` is, or the only one inside it."""
    if _is_recurrent(module):
        return module
    inside = [part for part in module.modules() if _is_recurrent(part)]
    if len(inside) != 1:
        raise InputError(
            f"`network` must hold exactly one recurrent layer; got {len(inside)} in {type(module).__name__}. "
            "Pass the layer itself."
        )
    return inside[0]


def _is_recurrent(module: nn.Module) -> bool:
    has_contract = all(callable(getattr(module, name, None)) for name in ("step", "init_state"))
    return isinstance(module, nn.RNNBase) or (has_contract and hasattr(module, "hidden_size"))


def _of_layer(layer: nn.Module) -> Dynamics:
    """By the layer's own step and init_state, or by torch.nn's forward over one step."""
    if getattr(layer, "bidirectional", False):
        raise InputError(
            "`network` must run in one direction; got bidirectional=True, whose state is not carried forward. "
            "Analyse a unidirectional layer."
        )
    if callable(getattr(layer, "attention", None)):
        raise InputError(
            f"`network` must have a state of a fixed number of reals; got {type(layer).__name__}, which attends to "
            "past states. Use gradient_flow, sparsity and dependency_depth for it."
        )
    freeze = getattr(layer, "freeze", None)
    layer = freeze() if callable(freeze) else layer  # computes constrained matrices once, without dropout
    like = next(layer.parameters()).detach()
    like = torch.zeros((), dtype=like.real.dtype if like.is_complex() else like.dtype, device=like.device)
    step, init_state = _contract(layer)
    packing = _Packing(init_state(1))

    def run(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        output, state = step(x, packing.unpack(h))
        return output, packing.pack(state)

    system = Dynamics(run, int(layer.input_size), packing.size, like)  # type: ignore[arg-type]
    return replace(system, read=_read(system, packing), batch_first=bool(getattr(layer, "batch_first", False)))


def _of_network(network: nn.Module, input_size: int) -> Dynamics:
    """By the contract of a network, over one step; it starts from zero, as large as the state that it returns."""
    network = copy.deepcopy(network).requires_grad_(False).eval()
    like = next((parameter.detach().new_zeros(()) for parameter in network.parameters()), torch.zeros(()))
    with torch.no_grad():
        _, state = network(like.new_zeros(1, 1, input_size), None, None)
    parts = list(state) if isinstance(state, tuple) else [state]
    if not all(isinstance(part, Tensor) and part.dim() > 1 and part.shape[1] == 1 for part in parts):
        raise InputError(
            "`network` must return its state as a tensor, or a tuple of tensors, with the batch as second dimension; "
            f"got {type(state).__name__}. Return such a state."
        )
    packing = _Packing(state)

    def run(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        output, after = network(x.unsqueeze(0), packing.unpack(h), None)
        return output.flatten(0, 1) if output.dim() == 3 else output, packing.pack(after)

    system = Dynamics(run, input_size, packing.size, like)
    return replace(system, read=_read(system, packing))


def _read(system: Dynamics, packing: _Packing) -> Callable[[Tensor], Tensor] | None:
    """The part of the state that is the output: the top layer of one of its tensors, found by comparison."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        x = torch.randn(2, system.input_size, generator=g).to(system.like)
        output, h = system.run(x, torch.randn(2, system.state_size, generator=g).to(system.like))
        parts = packing.parts_of(packing.unpack(h))
        for i, part in enumerate(parts):
            if part.dim() == 3 and part[-1].shape == output.shape and torch.equal(part[-1], output):
                return lambda h, i=i: packing.parts_of(packing.unpack(h))[i][-1]  # type: ignore[misc]
    return None


def _contract(layer: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if callable(getattr(layer, "step", None)):
        return layer.step, layer.init_state
    cells = layer.num_layers
    zeros = lambda batch: next(layer.parameters()).new_zeros(cells, batch, layer.hidden_size)  # noqa: E731
    pair = isinstance(layer, nn.LSTM)
    time = 1 if layer.batch_first else 0

    def step(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        training = layer.training
        layer.eval()
        try:
            output, new = layer(x.unsqueeze(time), state)
        finally:
            layer.train(training)
        return output.squeeze(time), new

    return step, lambda batch: (zeros(batch), zeros(batch)) if pair else zeros(batch)


class _Packing:
    """Conversion between states of a layer, one or several tensors (cells, batch, …), and flat states (batch, size)."""

    def __init__(self, example: Any) -> None:
        self.tuple = isinstance(example, tuple)
        self.parts = list(example) if self.tuple else [example]
        self.sizes = [(2 if part.is_complex() else 1) * part.numel() for part in self.parts]
        self.size = sum(self.sizes)

    def parts_of(self, state: Any) -> list[Tensor]:
        return list(state) if self.tuple else [state]

    def pack(self, state: Any) -> Tensor:
        flat = []
        for part in self.parts_of(state):
            real = torch.view_as_real(part) if part.is_complex() else part
            flat.append(real.movedim(1, 0).flatten(1))
        return torch.cat(flat, 1)

    def unpack(self, h: Tensor) -> Any:
        tensors = []
        for part, flat in zip(self.parts, h.split(self.sizes, 1), strict=True):
            shape = (part.shape[0], *part.shape[2:], *((2,) if part.is_complex() else ()))
            state = flat.reshape(len(h), *shape).movedim(0, 1).contiguous()
            tensors.append(torch.view_as_complex(state) if part.is_complex() else state)
        return tuple(tensors) if self.tuple else tensors[0]
