"""A frozen layer or network that keeps its state between calls, for streaming input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, check_size, check_tensor
from kreiss.layers.contract.base import RecurrentLayer
from kreiss.layers.contract.checks import check_features, check_symbols
from kreiss.recurrence.library import takes
from kreiss.recurrence.plain import kernel


class Stream:
    """Inference with a state that persists between calls, one step or one chunk at a time.

    Feeding a sequence in chunks of any size gives the same outputs as `forward`. The layer is frozen when the stream is
    created; later training does not change the stream. With the compiled kernel `step` of a layer allocates nothing:
    its result is an internal buffer, valid until the stream is used again, so clone it if you keep it.

    A network gives its outputs, those of embedding, layer and readout; one with `answers="last"` gives the answer so
    far at every step.

    Args:
        layer: any unidirectional layer, or a `RecurrentNetwork` around one.
        batch_size: number of parallel sequences; None for one sequence without a batch dimension.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.NNRNN(3, 8)
        >>> stream = kreiss.Stream(layer)
        >>> x = torch.randn(5, 3)
        >>> pieces = [stream.feed(x[:2]), stream.step(x[2]).clone()[None], stream.feed(x[3:])]
        >>> torch.allclose(torch.cat(pieces), layer(x)[0], atol=1e-6)
        True
    """

    def __init__(self, layer: nn.Module, batch_size: int | None = None) -> None:
        inner = getattr(layer, "layer", layer)
        if not all(callable(getattr(part, name, None)) for part in (layer, inner) for name in ("freeze", "init_state")):
            raise TypeError(
                f"`layer` must be a recurrent layer of kreiss, or a network around one; got {type(inner).__name__}. "
                "Pass one."
            )
        frozen: Any = layer.freeze()  # type: ignore[operator]
        self.layer: Any = getattr(frozen, "layer", frozen)
        self._enter: Callable[[Tensor], Tensor] = _same if self.layer is frozen else frozen.enter
        self._leave: Callable[[Tensor], Tensor] = _same if self.layer is frozen else frozen.readout
        if getattr(frozen, "front", None) is not None:
            raise InputError(
                "a stream needs vectors or symbols; got a network of images, which are normalised over the sequence. "
                "Use forward()."
            )
        if self.layer.bidirectional:
            raise InputError(
                "a stream needs a unidirectional layer; got bidirectional=True, which needs the whole sequence. "
                "Use forward()."
            )
        self.batch_size = None if batch_size is None else check_size("batch_size", batch_size)
        embedding = getattr(frozen, "embedding", None)
        # its second dimension is the number of inputs
        self._takes: Tensor = self.layer.weight_ih_l0 if embedding is None else embedding.weight.T
        self._state: Any = self.layer.init_state(batch_size)
        self._kernel = _kernel(self.layer, batch_size)
        self._outputs: tuple[Tensor, ...] = ()  # the buffers of the top layer, as `step` returns them
        if self._kernel:
            self._outputs = (
                self._kernel.outputs if batch_size is not None else tuple(h[0] for h in self._kernel.outputs)
            )
        self._at_once = self._kernel.at_once if self._kernel and self.layer is frozen else _never

    def step(self, x: Tensor) -> Tensor:
        """Output (batch, hidden) for the next input (batch, features), or symbols (batch,); no batch if unbatched."""
        written = self._at_once(x)
        return self._outputs[written] if written >= 0 else self._step(x)

    @torch.no_grad()
    def _step(self, x: Tensor) -> Tensor:
        """The same for any input and model, and with what is to be said of wrong input."""
        check_tensor("x", x)
        symbols = not x.is_floating_point()
        dims = (0 if symbols else 1) + (self.batch_size is not None)
        if x.dim() != dims or (self.batch_size is not None and x.shape[0] != self.batch_size):
            raise InputError(
                f"`x` must be one step, {dims}-D for batch_size={self.batch_size}; got shape {tuple(x.shape)}. "
                "Use feed() for a chunk."
            )
        (check_symbols if symbols else check_features)(x, self._takes)
        x = self._enter(x)
        if self._kernel is None:
            time = 1 if self.layer.batch_first and self.batch_size is not None else 0
            out, self._state = self.layer(x.unsqueeze(time), self._state)
            return self._leave(out.squeeze(time))
        h = self._kernel(x)
        return self._leave(h if self.batch_size is not None else h[0])

    @torch.no_grad()
    def feed(self, chunk: Tensor) -> Tensor:
        """Outputs of a chunk of any length, with the shapes of `forward`; one per step from a network."""
        out, state = self.layer(self._enter(chunk), self.state)
        self.state = state
        return self._leave(out)

    @property
    def state(self) -> Any:
        """The current state, with the shape of `hx` and `h_n`; may be set, for example to `h_n` of an earlier call."""
        if self._kernel is None:
            return self._state
        state = torch.stack(self._kernel.current())
        return state if self.batch_size is not None else state.squeeze(1)

    @state.setter
    @torch.no_grad()
    def state(self, state: Any) -> None:
        if self._kernel is None:
            self._state = state
            return
        check_tensor("state", state)
        shape = tuple(self.layer.init_state(self.batch_size).shape)
        if tuple(state.shape) != shape:
            raise InputError(f"`state` must be of shape {shape}; got {tuple(state.shape)}. Pass h_n of such a layer.")
        for current, h in zip(self._kernel.current(), state, strict=True):
            current.copy_(h)

    def reset(self) -> None:
        """Reset to the zero state."""
        self.state = self.layer.init_state(self.batch_size)


def _same(x: Tensor) -> Tensor:
    return x


def _never(x: object) -> int:
    return -1


def _kernel(layer: nn.Module, batch_size: int | None) -> kernel.Step | None:
    """The update of all layers by the kernel; None where it does not apply."""
    if not isinstance(layer, RecurrentLayer) or not takes(layer.weight_ih_l0):
        return None
    own = ("_run_cell", "_arguments")  # a class with a recurrence of its own overrides one of these
    if not layer.elman or any(getattr(type(layer), name) is not getattr(RecurrentLayer, name) for name in own):
        return None
    weights = [
        kernel.Weights(layer.recurrent_matrix(suffix), getattr(layer, f"weight_ih_{suffix}"), layer._bias(suffix))
        for suffix, _ in layer._cells()
    ]
    inputs = weights[0].weight.shape[1]
    batch, shape = (1, (inputs,)) if batch_size is None else (batch_size, (batch_size, inputs))
    return kernel.Step(weights, layer.nonlinearity, batch, shape)
