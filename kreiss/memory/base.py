"""Layers that attend to their own past states."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from kreiss import derivatives
from kreiss.errors import InputError, check_memory, check_name, check_size
from kreiss.layers.contract.base import LayerOptions, RecurrentLayer
from kreiss.layers.contract.checks import check_tensors_fit, checked_number
from kreiss.layers.contract.states import check_parts, with_stored
from kreiss.memory.record import AttentionRecord, Stay
from kreiss.memory.screening import Screening
from kreiss.recurrence.memory import Kind, State, Weights, empty_state, run_memory
from kreiss.recurrence.memory.parts import FullLSTMState, FullState
from kreiss.sets import SETS, Free, Set

ATTENTION = ("attention_query", "attention_key", "attention_score")
COMPLEX = ("ComplexSchur", "Unitary", "Stacked")  # sets whose size is not that of the state


class AttentiveLayer(RecurrentLayer):
    """h_t from (x_t, s_{t−1}), where s_{t−1} = m (h_{t−1} + Σ α_i h_i) adds what attention reads from past states.

    e_i = vᵀ tanh(V_a q + U_a h_i), α = softmax(e); the query q is s of the step before.

    Symbols::

        V    weight_hh_l{k}               V_a  attention_query_l{k} (N, N)      m  mixing
        U    weight_ih_l{k}               U_a  attention_key_l{k} (N, N)
        b    bias_l{k}                    v    attention_score_l{k} (N,)

    Args:
        short: ν, states of the short-term memory; None attends to all states.
        relevant: ρ, screened states kept at most.
        mixing: m.
        screening: rule by which states are kept, or None.
        recurrent: the set of V: a set of matrices, or the name of one.
        carry_memory: whether the memory is carried from one window of a long sequence to the next in training, or
            cleared; h, and c of an LSTM, are carried in any case.
        others: see `kreiss.layers.contract.base.RecurrentLayer`.
    """

    elman = False
    lstm = False
    state: State

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        short: int | None,
        relevant: int,
        mixing: float,
        screening: Screening | None,
        nonlinearity: str,
        recurrent: str | Set,
        init: str | None,
        carry_memory: bool,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.short = None if short is None else check_size("short", short)
        self.relevant = check_size("relevant", relevant) if short is not None else 0
        self.mixing = _positive("mixing", mixing)
        self.carry_memory = bool(carry_memory)
        self.rule = screening
        make_set, name = _maker(recurrent, check_size("hidden_size", hidden_size), self.blocks)
        if isinstance(recurrent, Set) and name in _real_sets():  # by name: a file holds the sets themselves too
            self.__dict__["config"]["recurrent"] = name
            self.__dict__["unrecorded"] = tuple(key for key in self.unrecorded if key != "recurrent")
        super().__init__(
            input_size, hidden_size, num_layers, make_set=make_set, nonlinearity=nonlinearity, init=init, **options
        )

    # ------------------------------------------------------------ parameters

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        n = self.hidden_size
        check_tensors_fit([(2 * n, n) for _ in self._cells()], device, dtype)
        super()._allocate(device, dtype)
        gate = ("screening",) if self.rule is not None and self.rule.learned else ()
        for suffix, _ in self._cells():
            for name, shape in zip((*ATTENTION, *gate), ((n, n), (n, n), (n,), (n,)), strict=False):
                tensor = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(f"{name}_{suffix}", nn.Parameter(tensor))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """As for every layer; V_a and U_a ~ U(±1/√N), v Glorot normal; gates of an LSTM Glorot normal together."""
        super().reset_parameters(generator)
        if self.weight_ih_l0.is_meta:
            return
        n = self.hidden_size
        for suffix, _ in self._cells():
            if self.lstm:
                self._reset_gates(suffix, generator)
            for name in ("attention_query", "attention_key"):
                _draw(getattr(self, f"{name}_{suffix}"), torch.rand, generator, 2 * n**-0.5, -(n**-0.5))
            _draw(getattr(self, f"attention_score_{suffix}"), torch.randn, generator, (2 / (n + 1)) ** 0.5)
            if hasattr(self, f"screening_{suffix}"):
                _draw(getattr(self, f"screening_{suffix}"), torch.randn, generator, n**-0.5)

    def _reset_gates(self, suffix: str, generator: torch.Generator | None) -> None:
        """Each gate is one matrix [U, V] (N, I + N), Glorot normal."""
        u, v = getattr(self, f"weight_ih_{suffix}"), getattr(self, f"weight_hh_{suffix}")
        deviation = (2 / (2 * self.hidden_size + u.shape[1])) ** 0.5
        for weight in (u, v):
            _draw(weight, torch.randn, generator, deviation)

    # ------------------------------------------------------------ running

    def _kind(self) -> Kind:
        lacks_weights = self.rule is not None and self.rule.learned and not hasattr(self, "screening_l0")
        if self.short is not None and (self.rule is None or lacks_weights):
            got = "None" if self.rule is None else f"{type(self.rule).__name__}, which has weights that are not there"
            raise InputError(
                f"`rule` must be a screening rule that the layer was made with; got {got}. Make a layer with "
                '`screening`, "none" to keep nothing.'
            )
        return Kind(self.lstm, self.nonlinearity, self.mixing, self.rule)

    def _weights(self, suffix: str) -> Weights:
        threshold = getattr(self, f"bias_{suffix}", None) if self.nonlinearity == "modrelu" else None
        query, key, score = (getattr(self, f"{name}_{suffix}") for name in ATTENTION)
        gate = getattr(self, f"screening_{suffix}", None)
        return Weights(self.recurrent_matrix(suffix), query, key, score, threshold, gate)

    def _run_cell(
        self, suffix: str, x: Tensor, h0: State | None, lengths: Tensor | None, backwards: bool
    ) -> tuple[Tensor, State]:
        x = _turned(x, lengths) if backwards else x
        out, last, _ = self._attend(suffix, x, h0, lengths)
        return _turned(out, lengths) if backwards else out, last

    def _attend(
        self, suffix: str, x: Tensor, state: State | None, lengths: Tensor | None, keep: bool = False
    ) -> tuple[Tensor, State, Any]:
        weight, weights = getattr(self, f"weight_ih_{suffix}"), self._weights(suffix)
        bias = None if weights.threshold is not None else getattr(self, f"bias_{suffix}", None)
        kind = self._kind()
        self._check_room(x, weight, state, keep)
        if state is None:
            like = x if x.is_floating_point() else weight
            state = self._empty(like, (x.shape[1],))
        return run_memory(x, weight, bias, weights, state, kind, lengths, keep=keep)

    def _check_room(self, x: Tensor, weight: Tensor, state: State | None, keep: bool) -> None:
        """Raise if the memory, with U_a of each state, does not fit, or what every step read; the least they take."""
        if torch.compiler.is_compiling() or x.is_meta:
            return
        (steps, batch), name, advice = x.shape[:2], type(self).__name__, "Choose smaller sizes"
        if self.short is None:
            stored = steps + (0 if state is None else state.memory.shape[-2])  # type: ignore[union-attr]
            advice += f", or Rel{name[3:]}, which keeps few of them"
        else:
            stored = self.short + self.relevant
        check_memory(
            f"the memory of {name}, {stored} states of each sequence in a batch of {batch},",
            2 * stored * batch * self.hidden_size * weight.element_size(), advice,
        )  # fmt: skip
        if keep:
            check_memory(
                f"what {steps} steps of a batch of {batch} read from {stored} states",
                steps * batch * stored * (weight.element_size() + torch.int64.itemsize),
                "Look at fewer sequences or steps",
            )

    def _last_state(self, suffix: str, x: Tensor, h0: Any, lengths: Tensor | None, backwards: bool) -> State:
        return self._run_cell(suffix, x, h0, lengths, backwards)[1]

    # ------------------------------------------------------------ states

    def init_state(self, batch_size: int | None = None) -> State:
        """The state before the first step, for `batch_size` sequences or for one unbatched sequence."""
        if batch_size is not None:
            check_size("batch_size", batch_size, 0)
        leading, like = self._leading(batch_size), self.weight_ih_l0
        per_sequence = (self.short or 0) + self.relevant + 3
        check_tensors_fit([(*leading, per_sequence, self.hidden_size)], like.device, like.dtype, what="the state")
        return self._empty(like, leading)

    def _empty(self, like: Tensor, leading: tuple[int, ...]) -> State:
        return empty_state(like, leading, self.hidden_size, self.lstm, self.short, self.relevant)

    def _leading(self, batch_size: int | None) -> tuple[int, ...]:
        cells = self.num_layers * (2 if self.bidirectional else 1)
        return (cells,) if batch_size is None else (cells, batch_size)

    def _check_state(self, hx: Any, batch_size: int | None, x: Tensor) -> None:
        """Raise unless hx has the parts of `init_state`; a full memory may hold any number of states."""
        if hx is None:
            return
        leading, weight = self._leading(batch_size), self.weight_ih_l0
        sizes = (self.hidden_size, self.lstm, self.short, self.relevant)
        expected: Any = (_expected if torch.compiler.is_compiling() else _remembered)(leading, weight.dtype, sizes)
        if type(hx) is not type(expected):
            raise TypeError(
                f"`hx` must be a {type(expected).__name__}, the state of this layer; got {type(hx).__name__}. "
                "Pass the state of an earlier call, or init_state(batch_size)."
            )
        if self.short is None:
            expected = with_stored(expected, hx.times)
        check_parts(hx._fields, hx, expected, weight.device)
        check_stored(hx, (hx.steps - (self.short or 0)).clamp(min=0))

    def extra_repr(self) -> str:
        parts = [super().extra_repr()]
        if self.short is not None:
            parts += [f"short={self.short}", f"relevant={self.relevant}", f"screening={type(self.rule).__name__}"]
        if not isinstance(matrices := self._set("l0"), Free):
            parts.append(f"recurrent={type(matrices).__name__}")
        return ", ".join([*parts, f"mixing={self.mixing:g}", f"carry_memory={self.carry_memory}"])

    def cleared(self, state: State) -> State:
        """The state with an empty memory: h, and c of an LSTM, stay."""
        kept = {name: getattr(state, name) for name in ("h", "c") if name in state._fields}
        return self._empty(state.h, tuple(state.h.shape[:-1]))._replace(**kept)

    def carried(self, state: State) -> State:
        """What the next window of a long sequence starts from: see `carry_memory`."""
        return state if self.carry_memory else self.cleared(state)

    def moved(self, state: State, change: Tensor) -> State:
        """The state as if the last step had made h + change, in h and in memory.

        Args:
            state: with a batch; before the first step there is only h.
            change: like `state.h`.
        """
        newest = state.steps.unsqueeze(-1) - 1
        name = "memory" if isinstance(state, FullState | FullLSTMState) else "short"
        stored = getattr(state, name)
        slots = torch.arange(stored.shape[-2], device=stored.device)
        where = slots == newest % len(slots) if name == "short" else state.times == newest
        added = (where & (newest >= 0)).unsqueeze(-1) * change.unsqueeze(-2)
        return state._replace(h=state.h + change, **{name: stored + added})

    # ------------------------------------------------------------ what was read

    @torch.no_grad()
    def attention(self, input: Tensor, hx: State | None = None, *, layer: int = 0) -> AttentionRecord:
        """What every step of one layer read from memory.

        Args:
            input, hx: as for `forward`.
            layer: which of the stacked layers, from 0.
        """
        if self.bidirectional:
            raise InputError(
                "`attention` needs a unidirectional layer; got bidirectional=True. Make a layer of one direction."
            )
        if layer not in range(self.num_layers):
            raise InputError(f"`layer` must be below num_layers={self.num_layers}; got layer={layer}. Count from 0.")
        if not isinstance(input, Tensor):
            raise TypeError(f"`input` must be a Tensor; got {type(input).__name__}. Pad packed sequences.")
        x, state, _ = self._prepared(input, hx)
        for k in range(layer + 1):
            part = None if state is None else type(state)(*(tensor[k] for tensor in state))
            x, _, reads = self._attend(f"l{k}", x, part, None, keep=k == layer)
        return AttentionRecord.of(reads, x, 0 if state is None else state.steps[layer], self.relevant)

    def memory_trace(self, input: Tensor, hx: State | None = None, *, layer: int = 0) -> list[Stay]:
        """Which states the screening kept, and from when to when, in the order in which they came.

        Args:
            input, hx, layer: as for `attention`.

        Example:
            >>> import kreiss, torch
            >>> layer = kreiss.RelRNN(3, 8, short=2, relevant=1, screening="oldest")
            >>> layer.memory_trace(torch.randn(6, 3))
            [Stay(sequence=0, past=0, entered=3, left=None)]
        """
        return self.attention(input, hx, layer=layer).stays()


def check_options(layer: nn.Module, options: LayerOptions) -> None:
    """Raise for options that the layer does not have; some are of this base class, which would name itself."""
    unknown = [name for name in options if name not in LayerOptions.__annotations__]
    if unknown:
        name = type(layer).__name__
        raise TypeError(
            f"{name} must be given options that it has; got {', '.join(unknown)}. help(kreiss.{name}) lists them."
        )


def check_stored(state: Any, most: Tensor) -> None:
    """Raise if a sequence holds more states than it can, such as one of a state that was filled with zeros.

    Args:
        state: with `steps` and `times`.
        most: states that each sequence can hold after its steps.
    """
    if not derivatives.ordinary() or torch.compiler.is_compiling() or state.steps.is_meta:
        return
    held = (state.times >= 0).sum(-1)
    wrong = (held > most) | (state.steps < 0)
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        raise InputError(
            f"`hx` must hold no more states than the steps it has seen allow; got {int(held[place])} after "
            f"{int(state.steps[place])} steps. Start with init_state, or empty a memory with cleared(state)."
        )


def _expected(leading: tuple[int, ...], dtype: torch.dtype, sizes: tuple[int, bool, int | None, int]) -> State:
    """An empty state without numbers, to compare others with."""
    return empty_state(torch.empty(0, dtype=dtype, device="meta"), leading, *sizes)


_remembered = functools.lru_cache(maxsize=64)(_expected)  # a stream would make one at every step


def _positive(name: str, value: float) -> float:
    number = checked_number(name, value)
    if number <= 0:
        raise InputError(f"`{name}` must be positive; got {name}={value}. Pass 0.5, or 1 for a plain sum.")
    return number


def _maker(recurrent: str | Set, n: int, blocks: int) -> tuple[Callable[[], Set], str]:
    """A function that makes the set of V for each cell, and the set's name."""
    if isinstance(recurrent, Set):
        if type(recurrent).__name__ in COMPLEX:
            raise InputError(
                f"`recurrent` must be a set of real matrices; got {type(recurrent).__name__}. Choose one of: "
                f"{', '.join(_real_sets())}."
            )
        if recurrent.n != n:
            raise InputError(
                f"`recurrent` must hold {n}×{n} matrices, as hidden_size={n}; got {recurrent.n}×{recurrent.n}. "
                f"Make the set with n={n}."
            )
        return (lambda: copy.deepcopy(recurrent)), type(recurrent).__name__.lower()
    check_name("set of matrices", recurrent, known := _real_sets())
    if recurrent == "free":
        return (lambda: Free(n, blocks)), recurrent
    return (lambda: known[recurrent](n)), recurrent


def _real_sets() -> dict[str, type[Set]]:
    """Sets that are made from the size of the state alone, by name."""
    return {name.lower(): cls for name, cls in SETS.items() if name not in COMPLEX}


def _draw(
    tensor: Tensor, draw: Callable[..., Tensor], generator: torch.Generator | None, scale: float, shift: float = 0.0
) -> None:
    """Fill with random numbers drawn on the CPU in float64, the same for every dtype and device."""
    tensor.copy_(scale * draw(tensor.shape, generator=generator, dtype=torch.float64, device="cpu") + shift)


def _turned(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Every sequence (T, B, …) from its end to its start; what is behind the end stays there."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(len(x), device=x.device).unsqueeze(-1)
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x[places, torch.arange(x.shape[1], device=x.device)]
