"""The parts of a recurrence with memory: weights, options, states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

STEP = torch.int64


class Weights(NamedTuple):
    """The tensors of one cell. N is the size of the state, G = 4 for an LSTM, else 1."""

    recurrent: Tensor  # V (G·N, N)
    query: Tensor  # V_a (N, N)
    key: Tensor  # U_a (N, N)
    score: Tensor  # v (N,)
    threshold: Tensor | None = None  # of modReLU (N,)
    gate: Tensor | None = None  # w of a learned screening rule (N,)


class Candidate(NamedTuple):
    """A state that leaves the short-term memory, for every sequence of a batch."""

    state: Tensor  # h_i (B, N)
    reads: Tensor  # β(i) (B,), the sum of the attention it received in its ν reads
    surprise: Tensor  # (B,), the squared distance of h_i from what the network expected
    step: Tensor  # i (B,), counted from the start of the sequence
    gate: Tensor | None  # w·h_i (B,), for a rule with weights; its gradient reaches w alone


class Rule(Protocol):
    """What the recurrence needs to know about a screening rule."""

    code: int | None  # how the kernel calls it; None for a rule that it does not have
    learned: bool  # whether it has weights, trained through a straight-through choice

    def score(self, candidate: Candidate) -> Tensor:
        """(B,), by which the relevant set keeps the highest."""


@dataclass(frozen=True)
class Kind:
    """What one cell computes.

    Args:
        lstm: whether the cell is an LSTM.
        nonlinearity: φ of a cell that is not.
        mixing: m in s_t = m (h_t + c_t).
        rule: of screening; None for attention over all states.
    """

    lstm: bool
    nonlinearity: str
    mixing: float
    rule: Rule | None

    @property
    def gates(self) -> int:
        """G: rows of V per unit."""
        return 4 if self.lstm else 1


class FullState(NamedTuple):
    """The state of a network that attends to all past states; M of them have room."""

    h: Tensor  # (B, N)
    query: Tensor  # (B, N), with which the next step attends
    memory: Tensor  # (B, M, N), past states
    times: Tensor  # (B, M), the step of each, −1 where there is none
    steps: Tensor  # (B,), steps seen


class FullLSTMState(NamedTuple):
    """As `FullState`, with the cell state c."""

    h: Tensor
    c: Tensor  # (B, N)
    query: Tensor
    memory: Tensor
    times: Tensor
    steps: Tensor


class ScreenedState(NamedTuple):
    """The state of a network that attends to the last ν states and to ρ screened ones."""

    h: Tensor  # (B, N)
    query: Tensor  # (B, N), with which the next step attends
    short: Tensor  # (B, ν, N), the last states: step i in slot i mod ν
    reads: Tensor  # (B, ν), attention received so far
    surprise: Tensor  # (B, ν)
    relevant: Tensor  # (B, ρ, N), screened states
    scores: Tensor  # (B, ρ), −inf where there is none
    times: Tensor  # (B, ρ), the step of each, −1 where there is none
    steps: Tensor  # (B,), steps seen


class ScreenedLSTMState(NamedTuple):
    """As `ScreenedState`, with the cell state c."""

    h: Tensor
    c: Tensor  # (B, N)
    query: Tensor
    short: Tensor
    reads: Tensor
    surprise: Tensor
    relevant: Tensor
    scores: Tensor
    times: Tensor
    steps: Tensor


State = FullState | FullLSTMState | ScreenedState | ScreenedLSTMState


def empty_state(like: Tensor, leading: tuple[int, ...], n: int, lstm: bool, short: int | None, relevant: int) -> State:
    """The state before the first step, with these leading dimensions: (B,), or (cells, B); full for `short=None`."""

    def zeros(*shape: int) -> Tensor:
        return like.new_zeros(*leading, *shape)

    def counts(*shape: int, fill: int) -> Tensor:
        return like.new_full((*leading, *shape), fill, dtype=STEP)

    cell = {"c": zeros(n)} if lstm else {}
    common = {"h": zeros(n), **cell, "query": zeros(n), "steps": counts(fill=0)}
    if short is None:
        kind: type = FullLSTMState if lstm else FullState
        return kind(**common, memory=zeros(0, n), times=counts(0, fill=-1))
    kind = ScreenedLSTMState if lstm else ScreenedState
    return kind(
        **common, short=zeros(short, n), reads=zeros(short), surprise=zeros(short), relevant=zeros(relevant, n),
        scores=zeros(relevant) - float("inf"), times=counts(relevant, fill=-1),
    )  # fmt: skip
