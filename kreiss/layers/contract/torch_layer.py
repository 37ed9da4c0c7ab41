"""The interface of the other layers, added to torch's gated layers."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kreiss.errors import InputError, check_size
from kreiss.layers.contract.checks import (
    autocast_is_on,
    check_features,
    check_tensors_fit,
    check_vectors,
    checked_device,
    checked_dtype,
    checked_layers,
    checked_step,
)
from kreiss.layers.contract.loading import CheckedLoading
from kreiss.recorded import Recorded

State = Tensor | tuple[Tensor, Tensor]


class TorchLayer(Recorded, CheckedLoading, nn.RNNBase):
    """Mixin for `torch.nn.LSTM` and `torch.nn.GRU`: step, init_state, freeze, from_torch, to_torch."""

    torch_class: type[nn.RNNBase]
    state_tensors: int
    gates: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        inputs, hidden = check_size("input_size", input_size), check_size("hidden_size", hidden_size)
        directions, above = (2, 2 * hidden) if bidirectional else (1, hidden)
        widths = directions * [inputs, *[above] * (checked_layers(num_layers) - 1)]
        shapes = [(self.gates * hidden, width + hidden) for width in widths]
        check_tensors_fit(shapes, checked_device(device), checked_dtype(dtype))
        super().__init__(
            input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first, dropout=dropout,  # type: ignore[arg-type]
            bidirectional=bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        if generator is not None:
            self.reset_parameters(generator)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As in torch."""
        packed = isinstance(input, PackedSequence)
        (check_features if packed else check_vectors)(input.data if packed else input, next(self.parameters()))
        if not packed and input.shape[1 if self.batch_first and input.dim() == 3 else 0] == 0:
            raise InputError("the sequence must have at least one step; got length 0. Leave empty sequences out.")
        if hx is not None:
            self._check_state(hx, input)
        return super().forward(input, hx)

    def _check_state(self, hx: Any, input: Any) -> None:
        """Raise unless hx is a state of this layer for `input`: the right number and shape of tensors."""
        parts = [hx] if self.state_tensors == 1 else hx if isinstance(hx, (tuple, list)) else []
        if len(parts) != self.state_tensors or not all(isinstance(part, Tensor) for part in parts):
            expected = "a Tensor" if self.state_tensors == 1 else "a pair of Tensors, (h_0, c_0)"
            got = type(hx).__name__ + (f" of {[type(part).__name__ for part in hx]}" if parts is hx else "")
            raise TypeError(f"`hx` must be {expected}; got {got}. Pass what an earlier call returned, or init_state().")
        shape, like = self._state_shape(_batch_size(input, self.batch_first)), next(self.parameters())
        for part in parts:
            if tuple(part.shape) != shape or (part.dtype != like.dtype and not autocast_is_on(like.device)):
                raise InputError(
                    f"`hx` must be of shape {shape} and {like.dtype}; got {tuple(part.shape)} and {part.dtype}. "
                    "It is never batch-first; init_state(batch_size) makes one."
                )

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """As in torch, U(−1/√N, 1/√N), drawn from `generator`."""
        bound = self.hidden_size**-0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=generator)

    def free_roles(self) -> dict[str, str]:
        """Empty: no recurrent matrix is constrained."""
        return {}

    def constraint_error(self) -> float:
        """0: nothing is constrained."""
        return 0.0

    def rebase(self, project: bool = True) -> None:
        """Does nothing: there are no base points."""

    def init_state(self, batch_size: int | None = None) -> State:
        """The zero state for `batch_size` sequences, or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        like, shape = next(self.parameters()), self._state_shape(batch_size)
        check_tensors_fit([shape], like.device, like.dtype, what="the state")
        zeros = [like.new_zeros(shape) for _ in range(self.state_tensors)]
        return zeros[0] if len(zeros) == 1 else (zeros[0], zeros[1])

    def _state_shape(self, batch_size: int | None) -> tuple[int, ...]:
        cells = self.num_layers * (2 if self.bidirectional else 1)
        return (cells, self.hidden_size) if batch_size is None else (cells, batch_size, self.hidden_size)

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One time step: x (batch, input_size) or (input_size,); equivalent to `forward`."""
        time = checked_step(x, self.bidirectional, self.batch_first)
        out, new = self(x.unsqueeze(time), state)
        return out.squeeze(time), new

    def final_state(self, input: Any, hx: Any = None) -> State:
        """h_n of `forward` alone; torch's gated layers store every state nevertheless."""
        return self(input, hx)[1]

    def freeze(self) -> Self:
        """A copy for inference, without gradients."""
        return copy.deepcopy(self).requires_grad_(False).eval()

    @classmethod
    def from_torch(cls, layer: nn.RNNBase) -> Self:
        """A layer with the weights of torch's `layer`."""
        if not isinstance(layer, cls.torch_class):
            raise TypeError(
                f"`layer` must be a torch.nn.{cls.torch_class.__name__}; got {type(layer).__name__}. "
                "Pass the layer itself."
            )
        return _rebuilt(cls, layer)

    def to_torch(self) -> nn.RNNBase:
        """torch's layer with these weights."""
        return _rebuilt(self.torch_class, self)


def _batch_size(input: Any, batch_first: bool) -> int | None:
    """The batch size of an input; None for unbatched input."""
    if isinstance(input, PackedSequence):
        return int(input.batch_sizes[0])
    return None if input.dim() == 2 else input.shape[0 if batch_first else 1]


def _rebuilt(cls: type[Any], layer: nn.RNNBase) -> Any:
    like = layer.weight_ih_l0
    new = cls(
        layer.input_size, layer.hidden_size, layer.num_layers, bias=layer.bias, batch_first=layer.batch_first,
        dropout=layer.dropout, bidirectional=layer.bidirectional, device=like.device, dtype=like.dtype,
    )  # fmt: skip
    new.load_state_dict(layer.state_dict())
    return new.train(layer.training)
