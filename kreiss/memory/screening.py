"""Screening rules: which states stay in memory when they leave the short-term buffer.

A rule gives every leaving state a score, once. The relevant set keeps the ρ highest: while there is room every state
enters whose score is not −inf, then one enters if its score is strictly greater than the lowest, which leaves. Scores
never change afterwards.

To write another rule, derive from `Screening`; such layers run on the reference path.

Example:
    >>> import kreiss, torch
    >>> class Largest(kreiss.memory.Screening):
    ...     '''Keeps the states of largest norm.'''
    ...     def score(self, candidate):
    ...         return candidate.state.norm(dim=-1)
    >>> layer = kreiss.RelRNN(3, 8, short=2, relevant=4, screening=Largest())
    >>> layer(torch.randn(20, 5, 3))[0].shape
    torch.Size([20, 5, 8])
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from kreiss.errors import check_name
from kreiss.recurrence.memory import Candidate


class Screening(ABC):
    """A rule that scores states as they leave the short-term memory."""

    code: int | None = None  # how the compiled kernel calls it
    learned = False  # whether it has weights, w of `Candidate.gate`

    @abstractmethod
    def score(self, candidate: Candidate) -> Tensor:
        """Scores (B,) of the states that leave the short-term memory, one per sequence."""


class Relevance(Screening):
    """β(i): the attention that a state received while it was in the short-term memory (thesis, 4.5)."""

    code = 0

    def score(self, candidate: Candidate) -> Tensor:
        return candidate.reads


class Oldest(Screening):
    """Keeps the first ρ states and never replaces one. A control."""

    code = 1

    def score(self, candidate: Candidate) -> Tensor:
        return -candidate.step.to(candidate.reads.dtype)


class Random(Screening):
    """A hash of the step and the place in the batch: ρ steps drawn without replacement, the same in every batch.

    A control. The draw is fixed, so that a network resumes exactly and the kernel keeps the same states.
    """

    code = 2

    def score(self, candidate: Candidate) -> Tensor:
        rows = torch.arange(candidate.step.shape[0], device=candidate.step.device)
        x = (candidate.step * 0x9E3779B1 + rows * 0x85EBCA77) & MASK  # a hash of 32 bits
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
        x = ((x ^ (x >> 15)) * 0x46CA68B) & MASK
        return ((x ^ (x >> 16)) >> 8).to(candidate.reads.dtype) * 2.0**-24


class Surprise(Screening):
    """How far a state was from (h_{t−1} + Σ α_i h_i)/2, the prediction that nothing new happens; after thesis, 7.5."""

    code = 3

    def score(self, candidate: Candidate) -> Tensor:
        return candidate.surprise


class Learned(Screening):
    """w·h_i with a trained w, `screening_l{k}`; after thesis, 7.5.

    The choice is hard, its gradient straight-through: the score of every kept state is added to its attention logit
    with value 0, so that w grows along states that should have been attended to more. The gradient reaches w alone:
    through the states, of which no output depends on the score, it would grow from one read to the next.
    """

    code = 4
    learned = True

    def score(self, candidate: Candidate) -> Tensor:
        assert candidate.gate is not None
        return candidate.gate


class Nothing(Screening):
    """−inf: nothing is kept, and attention is over the short-term memory alone (thesis, App. B, Figs 8 and 9)."""

    code = 5

    def score(self, candidate: Candidate) -> Tensor:
        return torch.full_like(candidate.reads, -torch.inf)


MASK = 2**32 - 1
RULES: dict[str, type[Screening]] = {
    "relevance": Relevance,
    "oldest": Oldest,
    "random": Random,
    "surprise": Surprise,
    "learned": Learned,
    "none": Nothing,
}


def checked_rule(screening: str | Screening) -> Screening:
    """The rule of that name, or the rule itself."""
    if isinstance(screening, Screening):
        return screening
    if not isinstance(screening, str):
        what = f"the class {screening.__name__}" if isinstance(screening, type) else type(screening).__name__
        raise TypeError(
            f"`screening` must be the name of a rule or a kreiss.memory.Screening; got {what}. Make an object of it, "
            f"or choose one of: {', '.join(RULES)}."
        )
    check_name("screening rule", screening, RULES)
    return RULES[screening]()
