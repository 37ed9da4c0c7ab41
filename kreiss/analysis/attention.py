"""What attention does to gradients: how many states are read, how far apart reads chain, and what theory says of both.

An attention record is any object with `past` and `weight` (T, B, M) and `start` (B,), as a layer's `attention` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array, as_array, as_square
from kreiss.errors import InputError, check_size

ROUNDING = 1e-5  # relative error of a weight in single precision


@dataclass(frozen=True)
class Sparsity:
    """How many states each step reads.

    Attributes:
        counts: states with a non-zero weight, (T, B).
        strong: states with a weight of at least `threshold`, (T, B).
        threshold: as given.
    """

    counts: Array
    strong: Array
    threshold: float

    @property
    def largest(self) -> int:
        """κ: the most states that a step reads (thesis, 4.4.3)."""
        return int(self.counts.max(initial=0))

    @property
    def effective(self) -> int:
        """The most states that a step reads with a weight of at least `threshold`."""
        return int(self.strong.max(initial=0))


def sparsity(record: Any, threshold: float = 0.01) -> Sparsity:
    """How many states each step of a network with memory reads.

    Args:
        record: what `layer.attention(x)` returns.
        threshold: weights below it do not count as effective; a softmax gives every state some weight.

    Reference: the thesis, 4.4.3.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.analysis import sparsity
        >>> layer = kreiss.RelRNN(3, 8, short=4, relevant=2)
        >>> sparsity(layer.attention(torch.randn(30, 5, 3))).largest
        6
    """
    if not 0 < threshold <= 1:
        raise InputError(
            f"`threshold` must lie above 0 and not above 1; got threshold={threshold}. Pass, for example, 0.01."
        )
    weight = np.where(as_array("past", record.past) >= 0, np.abs(as_array("weight", record.weight)), 0)
    return Sparsity((weight != 0).sum(-1), (weight >= threshold).sum(-1), threshold)


@dataclass(frozen=True)
class DependencyDepth:
    """How many steps of computation lie between each state and the end.

    Attributes:
        depth: (T, B); 0 at the end, 1 where the end reads the state itself.
        strength: (T, B), the product of the weights along such a chain, the largest one; a recurrent step has weight 1.
    """

    depth: Array
    strength: Array

    @property
    def largest(self) -> int:
        """d: the depth of the deepest state (thesis, 4.4.3)."""
        return int(self.depth.max(initial=0))


def dependency_depth(record: Any, threshold: float | None = None, *, ends: int = 1) -> DependencyDepth:
    """The length of the shortest chain from each state to the end of the sequence.

    A chain goes from h_i to h_τ if step τ reads h_i with a weight of at least `threshold`, or if i = τ − 1, through the
    recurrence. Each link passes V once, so that gradients along a chain of d links vanish with the d-th power of
    something; where a network truncates the recurrence, as `SAB` does, none passes that link. The thesis counts the
    states between the two ends, which is one less, and leaves open how large a weight must be.

    Args:
        record: what `layer.attention(x)` returns.
        threshold: by default a weight counts if it is at least that of uniform attention over what the step reads.
        ends: the number of last steps that are an end, such as those in the loss.

    Reference: the thesis, 4.4.1 and 4.4.3.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.analysis import dependency_depth
        >>> layer = kreiss.MemRNN(3, 8)
        >>> _ = torch.nn.init.zeros_(layer.attention_score_l0)  # uniform attention: the end reads every state
        >>> dependency_depth(layer.attention(torch.randn(30, 5, 3))).largest
        1
    """
    past = as_array("past", record.past).astype(int)
    weight = np.where(past >= 0, np.abs(as_array("weight", record.weight)), 0)  # those of some networks are signed
    check_size("ends", ends)
    counts = (weight != 0).sum(-1, keepdims=True)
    least: Any = (1 - ROUNDING) / np.maximum(counts, 1) if threshold is None else threshold
    read = (weight > 0) & (weight >= least)
    rows = np.where(
        read, past - as_array("start", record.start).astype(int)[:, None], -1
    )  # −1, or less: nothing, or before the record
    steps, batch = weight.shape[:2]
    depth = np.full((steps, batch), steps)
    depth[steps - min(ends, steps) :] = 0
    strength = (depth == 0).astype(float)
    recurrent = np.ones((batch, 1))
    for row in reversed(range(1, steps)):  # links lead to later states, whose depth is known by then
        _link(depth, strength, row, rows[row], weight[row])
        _link(depth, strength, row, np.full((batch, 1), row - 1), recurrent)
    return DependencyDepth(depth, strength)


def _link(depth: Array, strength: Array, row: int, sources: Array, weight: Array) -> None:
    """Shorten chains by the links from `sources` (B, M) to one row; of two equally short ones keep the stronger."""
    b, slot = np.nonzero(sources >= 0)
    i = sources[b, slot]
    length, product = depth[row, b] + 1, strength[row, b] * weight[b, slot]
    better = (length < depth[i, b]) | ((length == depth[i, b]) & (product > strength[i, b]))
    depth[i[better], b[better]] = length[better]
    strength[i[better], b[better]] = product[better]


# ---------------------------------------------------------------- theory


def uniform_exponent(matrix: Any, mixing: float = 1.0) -> float:
    """The power of T with which ‖∂s_T/∂h_t‖ goes under uniform attention, in a linear network with normal V.

    Along an eigenvector with eigenvalue λ let C_T be the sum of the perturbed states up to T. Then C_{T+1} − C_T =
    μ (C_T − C_{T−1} + C_T/T) with μ = mλ. For |μ| < 1 its solutions are T^{μ/(1−μ)} and one that decays like μᵀ, so
    ∂s_T/∂h_t goes like T^{μ/(1−μ) − 1}. This is Ω(1/T) if and only if some μ lies in the disc |μ − ½| ≤ ½.

    Args:
        matrix: V, normal, with m times its spectral radius below 1.
        mixing: m in s = m (h + c); 1 in the thesis.

    Reference: corrects the thesis, Prop. B.1.33, which has T^{λ−1} and 1/T; see docs/errata.md.

    Example:
        >>> from kreiss.analysis import uniform_exponent
        >>> [round(uniform_exponent([[value]]), 4) for value in (-0.5, 0.0, 0.5)]
        [-1.3333, -1.0, 0.0]
    """
    scaled = mixing * np.linalg.eigvals(as_square(matrix))
    if np.abs(scaled).max() >= 1:
        raise InputError(
            f"`matrix` must have a spectral radius below 1/mixing = {1 / mixing:.4g}; got "
            f"{np.abs(scaled).max() / mixing:.4g}. Scale it; beyond, gradients grow faster than any power."
        )
    return float((scaled / (1 - scaled)).real.max()) - 1


def sparse_bound(matrix: Any, kappa: int, depth: Any, mixing: float = 1.0) -> Array:
    """The lower bound (mλ/κ)^d on ‖∂h_T/∂h_t‖ under κ-sparse uniform attention, in a linear network with normal V.

    λ is the largest positive real eigenvalue. All chains then add up with the same sign, and one of d links is worth
    at least (mλ/κ)^d; it is 0 where there is no such eigenvalue.

    Args:
        matrix: V, normal.
        kappa: κ, see `sparsity`.
        depth: d, see `dependency_depth`; a number or an array.
        mixing: m.

    Reference: the thesis, Theorem B.1.39, whose Ω(1/κ^d) omits λ.

    Example:
        >>> from kreiss.analysis import sparse_bound
        >>> float(sparse_bound([[0.5]], kappa=2, depth=3))
        0.015625
    """
    values = np.linalg.eigvals(as_square(matrix))
    positive = values.real[(np.abs(values.imag) <= ROUNDING * np.abs(values)) & (values.real > 0)]
    largest = positive.max(initial=0.0)
    bound: Array = (mixing * largest / check_size("kappa", kappa)) ** np.asarray(depth, dtype=float)
    return bound
