"""What torch's own gated layers lack to be used like every other layer here."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_size, check_tensor
from kreiss.layers.loading import CheckedLoading

State = Tensor | tuple[Tensor, Tensor]


class Gated(CheckedLoading, nn.RNNBase):
    """Mixed into `torch.nn.LSTM` and `torch.nn.GRU`: step, init_state, freeze, from_torch, to_torch."""

    torch_class: type[nn.RNNBase]
    state_tensors: int

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
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            check_size(name, value)
        super().__init__(
            input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first, dropout=dropout,  # type: ignore[arg-type]
            bidirectional=bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        if generator is not None:
            self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """torch's own U(−1/√N, 1/√N), drawn from `generator`."""
        bound = self.hidden_size**-0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=generator)

    def free_roles(self) -> dict[str, str]:
        """No recurrent matrix is constrained: every one is a plain weight."""
        return {}

    def constraint_error(self) -> float:
        """Nothing is constrained."""
        return 0.0

    def rebase(self, project: bool = True) -> None:
        """No base points to move."""

    def init_state(self, batch_size: int | None = None) -> State:
        """The zero state for `batch_size` sequences, or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        cells = self.num_layers * (2 if self.bidirectional else 1)
        shape = (cells, self.hidden_size) if batch_size is None else (cells, batch_size, self.hidden_size)
        like = next(self.parameters())
        zeros = [like.new_zeros(shape) for _ in range(self.state_tensors)]
        return zeros[0] if len(zeros) == 1 else (zeros[0], zeros[1])

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One time step: x (batch, input_size) or (input_size,); equal to `forward`."""
        if self.bidirectional:
            raise InputError(
                "`step` must be called on a layer of one direction; got bidirectional=True, which needs the whole "
                "sequence. Use forward()."
            )
        check_tensor("x", x)
        if x.dim() not in (1, 2):
            raise InputError(f"`x` must be 1-D or 2-D, one time step; got {x.dim()}-D. Use forward() for a sequence.")
        time = 1 if self.batch_first and x.dim() == 2 else 0
        out, new = self(x.unsqueeze(time), state)
        return out.squeeze(time), new

    def final_state(self, input: Any, hx: Any = None) -> State:
        """h_n of `forward` alone; torch's gated layers keep every state all the same."""
        return self(input, hx)[1]

    def freeze(self) -> Self:
        """A copy for inference, without gradients."""
        return copy.deepcopy(self).requires_grad_(False).eval()

    @classmethod
    def from_torch(cls, layer: nn.RNNBase) -> Self:
        """A layer with the weights of torch's."""
        if not isinstance(layer, cls.torch_class):
            raise TypeError(
                f"`layer` must be a torch.nn.{cls.torch_class.__name__}; got {type(layer).__name__}. "
                "Pass the layer itself."
            )
        return _rebuilt(cls, layer)

    def to_torch(self) -> nn.RNNBase:
        """torch's layer with these weights."""
        return _rebuilt(self.torch_class, self)


def _rebuilt(cls: type[Any], layer: nn.RNNBase) -> Any:
    like = layer.weight_ih_l0
    new = cls(
        layer.input_size, layer.hidden_size, layer.num_layers, bias=layer.bias, batch_first=layer.batch_first,
        dropout=layer.dropout, bidirectional=layer.bidirectional, device=like.device, dtype=like.dtype,
    )  # fmt: skip
    new.load_state_dict(layer.state_dict())
    return new.train(layer.training)
