"""The interface of `torch.nn.RNN`, for any set of matrices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils._pytree import tree_map

from kreiss.errors import InputError, check_name, check_size
from kreiss.layers.contract import conversion
from kreiss.layers.contract.checks import (
    autocast_is_on,
    check_features,
    check_input,
    check_state,
    check_symbols,
    check_tensors_fit,
    checked_device,
    checked_dropout,
    checked_dtype,
    checked_layers,
    checked_step,
)
from kreiss.layers.contract.loading import CheckedLoading
from kreiss.layers.contract.matrices import ComputedMatrices
from kreiss.recorded import Recorded
from kreiss.recurrence import REAL_NONLINEARITIES, last_state, run_plain
from kreiss.sets import Free, Set
from kreiss.sets.initial import uniform

Layer = TypeVar("Layer", bound="RecurrentLayer")


class LayerOptions(TypedDict, total=False):
    """Keyword-only options of every layer, named as in `torch.nn.RNN`."""

    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    generator: torch.Generator | None
    device: Any
    dtype: torch.dtype | None


class RecurrentLayer(Recorded, ComputedMatrices, CheckedLoading):
    """h_t = φ(V h_{t−1} + U x_t + b) with V in a set of matrices; same call signature as `torch.nn.RNN`.

    Symbols::

        V   weight_hh_l{k}, computed from the free parameters {role}_l{k} of its set
        U   weight_ih_l{k}
        b   bias_l{k}; with an unconstrained V and φ ≠ modReLU torch's pair bias_ih_l{k}, bias_hh_l{k}

    The second direction of a bidirectional layer carries the suffix `_reverse`.

    Args:
        input_size: features of x.
        hidden_size: size of the state.
        num_layers: number of stacked layers.
        make_set: creates the set of V, once per layer and direction.
        nonlinearity: "identity", "tanh", "relu" or "modrelu".
        init: initialiser of V, one of those of the set.
        bias: whether there is a b. For modReLU it is the threshold.
        batch_first: whether inputs and outputs are (batch, time, feature).
        dropout: probability of dropping an output between layers.
        bidirectional: whether a second direction runs backwards in time.
        generator: for the initial values.
        device, dtype: of the parameters.
    """

    elman = True  # whether a step is h ← φ(V h + U x; b), as in torch.nn.RNN, so that the kernel applies
    torch_biases = False  # whether b is torch's pair although the step is another
    reals = 1  # real numbers per unit of the state; two in complex layers
    blocks = 1  # rows of U, V and b per number of the state; four in an LSTM
    nonlinearities: tuple[str, ...] = REAL_NONLINEARITIES

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        make_set: Callable[[], Set],
        nonlinearity: str,
        init: str | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_size("input_size", input_size)
        self.hidden_size = check_size("hidden_size", hidden_size)
        self.num_layers = checked_layers(num_layers)
        check_name("nonlinearity", nonlinearity, self.nonlinearities)
        self.nonlinearity = nonlinearity
        self.bias = bool(bias)
        self.batch_first = bool(batch_first)
        self.dropout = checked_dropout(dropout, num_layers)
        self.bidirectional = bool(bidirectional)
        where = checked_device(device), checked_dtype(dtype)
        check_tensors_fit(self._input_shapes().values(), *where)  # first, because creating a set takes memory too
        self.sets = nn.ModuleDict({suffix: make_set() for suffix, _ in self._cells()})
        self._names = {suffix: self._free_names(suffix) for suffix, _ in self._cells()}
        first = self._set("l0")
        self.init = first.initialisers[0] if init is None else init
        check_name(f"initialiser of {type(first).__name__}", self.init, first.initialisers)
        torch_pair = isinstance(first, Free) and nonlinearity != "modrelu" and (self.elman or self.torch_biases)
        self._bias_names = () if not bias else ("bias_ih", "bias_hh") if torch_pair else ("bias",)
        self._allocate(*where)
        self.reset_parameters(generator)

    # ------------------------------------------------------------ parameters

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        """Register every parameter, uninitialised, in torch's order."""
        shapes: dict[str, tuple[int, ...]] = {}
        per_unit = 1 if self.nonlinearity == "cmodrelu" else self.reals  # one threshold on each modulus
        for suffix, wide in self._input_shapes().items():
            shapes[f"weight_ih_{suffix}"] = wide
            shapes |= zip(self._free_names(suffix), self._set(suffix).shapes, strict=True)
            shapes |= {f"{name}_{suffix}": (self.blocks * self.hidden_size * per_unit,) for name in self._bias_names}
        check_tensors_fit(shapes.values(), device, dtype)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.sets.to(device=device, dtype=dtype)

    def _input_shapes(self) -> dict[str, tuple[int, int]]:
        """The shape of U for each layer and direction, by suffix."""
        above = self.output_size * (2 if self.bidirectional else 1)
        widths = {suffix: self.input_size if suffix.startswith("l0") else above for suffix, _ in self._cells()}
        return {suffix: (self.blocks * self.state_size, width) for suffix, width in widths.items()}

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialise all parameters: V by `init`, U Glorot normal, b ~ U(−0.01, 0.01) for modReLU, else 0."""
        weight = self.weight_ih_l0
        if weight.device.type == "meta":
            return
        for suffix, _ in self._cells():
            ih = getattr(self, f"weight_ih_{suffix}")
            drawn = torch.randn(ih.shape, generator=generator, dtype=torch.float64, device="cpu")
            ih.copy_(drawn * (2 / (ih.shape[0] + ih.shape[1])) ** 0.5)
            free = self._set(suffix).initial(self.init, generator=generator, dtype=ih.dtype, device=ih.device)
            for name, tensor in zip(self._free_names(suffix), free, strict=True):
                getattr(self, name).copy_(tensor)
            for name in self._bias_names:
                b = getattr(self, f"{name}_{suffix}")
                if self.nonlinearity.endswith("modrelu"):
                    b.copy_(uniform(len(b), -0.01, 0.01, generator))
                else:
                    b.zero_()

    # ------------------------------------------------------------ forward

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Tensor | PackedSequence, Any]:
        """Run a sequence; shapes of input, hx, output and h_n as in `torch.nn.RNN`.

        An integer input (time, batch) or (time,) is a sequence of symbols below input_size, which represent one-hot
        vectors; columns of U are looked up instead of multiplied.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        x, state, batched = self._prepared(input, hx)
        outs, last = self._run(x, state, None)
        out = _side_by_side(outs)
        if not batched:
            return out.squeeze(1), _each(last, lambda part: part.squeeze(1))
        return (out.transpose(0, 1) if self.batch_first else out), last

    def final_state(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        """h_n of `forward` alone, storing about 2√T states of the top layer instead of T.

        Every √T-th state of that layer is stored (fewer if the segments would have less than 4,096 rows) and the others
        are recomputed for the gradient, which costs about one more forward pass. On the reference path (see
        `kreiss doctor`) it saves no memory.
        """
        if isinstance(input, PackedSequence):
            x, lengths = self._padded(input)
            self._check_state(hx, x.shape[1], x)
            return self._run(x, hx, lengths, only_last=True)[1]
        x, state, batched = self._prepared(input, hx)
        last = self._run(x, state, None, only_last=True)[1]
        return last if batched else _each(last, lambda part: part.squeeze(1))

    def _prepared(self, input: Tensor, hx: Any) -> tuple[Tensor, Any, bool]:
        """Checked input (T, B, …), state with a batch dimension, and whether the input had one."""
        check_input(input, self.weight_ih_l0)
        batched = input.dim() == (3 if input.is_floating_point() else 2)
        x = input.transpose(0, 1) if batched and self.batch_first else input if batched else input.unsqueeze(1)
        if x.shape[0] == 0:  # not len(x), which would fix the length in torch.export
            raise InputError("the sequence must have at least one step; got length 0. Leave empty sequences out.")
        self._check_state(hx, x.shape[1] if batched else None, input)
        state = hx if batched or hx is None else _each(hx, lambda part: part.unsqueeze(1))
        return x, state, batched

    def _padded(self, input: PackedSequence) -> tuple[Tensor, Tensor]:
        """Checked sequences (T, B, …) in the caller's order, and their lengths."""
        if torch.compiler.is_exporting():
            raise InputError(
                "a packed sequence cannot be exported; got PackedSequence input. Export with padded tensors instead."
            )
        (check_features if input.data.is_floating_point() else check_symbols)(input.data, self.weight_ih_l0)
        x, lengths = pad_packed_sequence(input)
        return x, lengths.to(x.device)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        x, lengths = self._padded(input)
        self._check_state(hx, x.shape[1], x)
        outs, last = self._run(x, hx, lengths)
        out, order = _side_by_side(outs), input.sorted_indices
        if order is not None:
            out, lengths = out.index_select(1, order), lengths[order]
        valid = torch.arange(len(out), device=x.device)[:, None] < lengths
        return PackedSequence(out[valid], *input[1:]), last

    def _run(
        self, x: Tensor, state: Any, lengths: Tensor | None, *, only_last: bool = False
    ) -> tuple[list[Tensor], Any]:
        """All layers over x (T, B, I), from a state whose first dimension indexes cells, or from zero."""
        last: list[Any] = []
        outs: list[Tensor] = []
        on_top = (self.num_layers - 1) * (2 if self.bidirectional else 1)  # index of the first cell of the top layer
        for suffix, backwards in self._cells():
            if suffix != "l0" and not backwards:  # a new layer: its input is the output of the layer below
                x = F.dropout(_side_by_side(outs), self.dropout, self.training)
                outs = []
            first = None if state is None else _each(state, lambda part: part[len(last)])
            if only_last and len(last) >= on_top:
                h = self._last_state(suffix, x, first, lengths, backwards)
            else:
                out, h = self._run_cell(suffix, x, first, lengths, backwards)
                outs.append(out)
            last.append(h)
        return outs, _each(last[0], lambda part: part.unsqueeze(0)) if len(last) == 1 else _stacked(last)

    def _run_cell(self, suffix: str, x: Tensor, h0: Any, lengths: Tensor | None, backwards: bool) -> tuple[Tensor, Any]:
        """All outputs and the last state of one layer and direction; override it to `unroll` another step."""
        return run_plain(**self._arguments(suffix, x, h0, lengths, backwards))

    def _last_state(self, suffix: str, x: Tensor, h0: Any, lengths: Tensor | None, backwards: bool) -> Any:
        """The last state alone."""
        return last_state(**self._arguments(suffix, x, h0, lengths, backwards))

    def _arguments(
        self, suffix: str, x: Tensor, h0: Tensor | None, lengths: Tensor | None, backwards: bool
    ) -> dict[str, Any]:
        """The arguments of the recurrence for one layer and direction."""
        return {
            "x": x,
            "weight": self._input_weight(suffix, x),
            "matrix": self._transition(suffix),
            "h0": h0,
            "nonlinearity": self.nonlinearity,
            "bias": self._bias(suffix),
            "lengths": lengths,
            "reverse": backwards,
        }

    def _input_weight(self, suffix: str, x: Tensor) -> Tensor | None:
        """U of one layer and direction; None if x enters the state directly."""
        return getattr(self, f"weight_ih_{suffix}")

    def _transition(self, suffix: str) -> Tensor | Callable[[Tensor], Tensor]:
        """V as passed to the recurrence: the matrix, or a function that applies it to states."""
        return self.recurrent_matrix(suffix)

    def _bias(self, suffix: str) -> Tensor | None:
        """b as passed to the recurrence, one number per entry of the state."""
        biases = [getattr(self, f"{name}_{suffix}") for name in self._bias_names]
        if self.nonlinearity == "cmodrelu":
            biases = [b[:, None].expand(-1, 2).flatten() for b in biases]
        return None if not biases else biases[0] if len(biases) == 1 else biases[0] + biases[1]

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One time step: x (batch, input_size) or (input_size,), state as `hx`; equivalent to `forward`.

        The matrix is computed at every call; `freeze()` the layer first if there are many steps.
        """
        time = checked_step(x, self.bidirectional, self.batch_first)
        out, state = self.forward(x.unsqueeze(time), state)
        assert isinstance(out, Tensor)
        return out.squeeze(time), state

    # ------------------------------------------------------------ state and checks

    @property
    def state_size(self) -> int:
        """Features of states: hidden_size, or twice that for complex units."""
        return self.reals * self.hidden_size

    @property
    def output_size(self) -> int:
        """Features of outputs, per direction: those of states, unless a layer adds others."""
        return self.state_size

    def init_state(self, batch_size: int | None = None) -> Any:
        """The zero state for `batch_size` sequences, or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        like, shape = self.weight_ih_l0, self._state_shape(batch_size)
        check_tensors_fit([shape], like.device, like.dtype, what="the state")
        return like.new_zeros(shape)

    def _state_shape(self, batch_size: int | None) -> tuple[int, ...]:
        cells = self.num_layers * (2 if self.bidirectional else 1)
        return (cells, self.state_size) if batch_size is None else (cells, batch_size, self.state_size)

    def _check_state(self, hx: Any, batch_size: int | None, x: Tensor) -> None:
        """Raise unless hx is a state for the input x: with the shape of `init_state` and the dtype and device of x."""
        if hx is None:
            return
        check_state(hx)
        shape = self._state_shape(batch_size)
        if hx.dim() != len(shape):
            raise InputError(
                f"`hx` must be {len(shape)}-D for {'un' if batch_size is None else ''}batched {x.dim()}-D input; "
                f"got {hx.dim()}-D. Its shape is {shape}."
            )
        if tuple(hx.shape) != shape:
            raise InputError(
                f"`hx` must be of shape {shape} (directions × layers, batch, hidden); got {tuple(hx.shape)}. "
                "It is never batch-first; init_state(batch_size) makes one."
            )
        like = x if x.is_floating_point() else self.weight_ih_l0
        if hx.dtype != like.dtype and not autocast_is_on(like.device):
            raise InputError(f"`hx` must be {like.dtype}, as the input is; got {hx.dtype}. Convert it with hx.to(...).")
        if hx.device != like.device:
            raise InputError(
                f"`hx` must be on {like.device}, as the input is; got {hx.device}. Move it with hx.to(...)."
            )

    # ------------------------------------------------------------ other forms of the same layer

    @torch.no_grad()
    def freeze(self: Layer) -> Layer:
        """A copy for inference and export: each V computed once and stored as a plain matrix."""
        frozen = copy.deepcopy(self)
        for suffix, _ in self._cells():
            frozen._install(suffix, Free(self.state_size, self.blocks), (self.recurrent_matrix(suffix),))
        return frozen.requires_grad_(False).eval()

    @classmethod
    def from_torch(cls: type[Layer], rnn: nn.RNN, **options: Any) -> Layer:
        """A layer equivalent to `rnn`, with each V in the set of this layer.

        Args:
            rnn: a `torch.nn.RNN`.
            **options: further options of the layer, such as `orthogonal=`.
        """
        return conversion.from_torch(cls, rnn, options)

    def to_torch(self) -> nn.RNN:
        """The `torch.nn.RNN` equivalent to this layer."""
        return conversion.to_torch(self)

    def flatten_parameters(self) -> None:
        """Does nothing; for compatibility with `torch.nn.RNN`."""

    # ------------------------------------------------------------ showing

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        parts += [f"{key}={getattr(self, key)}" for key, value in defaults.items() if getattr(self, key) != value]
        return ", ".join([*parts, f"nonlinearity={self.nonlinearity!r}"])


def _each(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with `change` applied to every tensor."""
    return change(state) if isinstance(state, Tensor) else tree_map(change, state)


def _stacked(states: list[Any]) -> Any:
    """The state of all cells from the states of each."""
    if isinstance(states[0], Tensor):
        return torch.stack(states)
    return tree_map(lambda *parts: torch.stack(parts), *states)


def _side_by_side(outs: list[Tensor]) -> Tensor:
    """The concatenated outputs of one or two directions, without a copy for one."""
    return outs[0] if len(outs) == 1 else torch.cat(outs, -1)
