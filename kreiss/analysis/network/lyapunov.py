"""Lyapunov exponents along trajectories, by QR."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kreiss.analysis.network.dynamics import dynamics
from kreiss.analysis.network.jacobians import one_step
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class LyapunovSpectrum:
    """Result of `lyapunov_spectrum`.

    Attributes:
        exponents: per step, largest first, mean over trajectories; −∞ for directions that vanish entirely.
        error: standard error of each, from blocks of time.
        history: running means, (steps, exponents).
    """

    exponents: Tensor
    error: Tensor
    history: Tensor

    @property
    def dimension(self) -> float:
        """The Kaplan–Yorke dimension of the attractor."""
        sums = self.exponents.cumsum(0)
        k = int((sums >= 0).sum())
        if k == 0:
            return 0.0
        if k == len(sums):
            return float(k)
        return k + float(sums[k - 1] / -self.exponents[k])


def lyapunov_spectrum(
    network: Any,
    inputs: Tensor | None = None,
    *,
    steps: int = 1000,
    warmup: int = 100,
    count: int | None = None,
    state: Tensor | None = None,
    generator: torch.Generator | None = None,
    **sizes: int,
) -> LyapunovSpectrum:
    """Mean logarithmic growth of volumes along trajectories: Q_t R_t = J_t Q_{t−1}, exponents = mean of log diag R.

    Args:
        network: see `dynamics`.
        inputs: driving inputs (T, B, I), or (B, T, I) if it is batch-first; the first `warmup` steps are not counted.
            None for an autonomous network.
        steps: number of steps to count if there are no inputs.
        warmup: initial steps, for the state to reach its attractor and the directions to align.
        count: number of exponents; all by default.
        state: flat initial state (B, S); small random numbers by default if there are no inputs.

    Reference: Benettin et al. (1980); Engelken et al. (2023) for recurrent networks.

    Example:
        >>> import torch
        >>> from kreiss.analysis import lyapunov_spectrum
        >>> found = lyapunov_spectrum(lambda x, h: 0.5 * h, input_size=1, state_size=2, steps=50)
        >>> [round(value, 6) for value in found.exponents.tolist()]
        [-0.693147, -0.693147]
    """
    system = dynamics(network, **sizes)
    check_size("warmup", warmup, 0)
    x = _drive(system, inputs, check_size("steps", steps) + warmup)
    if len(x) <= warmup:
        raise InputError(f"`inputs` must be longer than the warm-up of {warmup}; got {len(x)} steps. Lower `warmup`.")
    batch = x.shape[1]
    count = system.state_size if count is None else min(check_size("count", count), system.state_size)
    h = _start(system, batch, inputs is None, state, generator)
    q = torch.eye(system.state_size, count).to(system.like).expand(batch, -1, -1)
    logs = []
    for t, now in enumerate(x):
        h, jacobian, _ = one_step(system, now, h)
        q, r = torch.linalg.qr(jacobian @ q)
        if t >= warmup:
            logs.append(r.diagonal(dim1=-2, dim2=-1).abs().log())
    return _summary(torch.stack(logs))


def _drive(system: Any, inputs: Tensor | None, steps: int) -> Tensor:
    if inputs is None:
        return system.like.new_zeros(steps, 1, system.input_size)
    return system.inputs(inputs)


def _start(system: Any, batch: int, alone: bool, state: Tensor | None, generator: torch.Generator | None) -> Tensor:
    if state is not None:
        return state.to(system.like)
    h: Tensor = system.initial(batch)
    # without input the origin is often a fixed point rather than the attractor of interest
    noise = torch.randn(h.shape, generator=generator or torch.Generator().manual_seed(0))
    return h + 0.1 * noise.to(h) if alone else h


def _summary(logs: Tensor) -> LyapunovSpectrum:
    """From log diag R, (T, B, count)."""
    by_time = logs.mean(1)
    mean = by_time.mean(0)
    order = mean.argsort(descending=True)
    blocks = by_time.split(max(1, math.ceil(len(by_time) / 10)))
    means = torch.stack([block.mean(0) for block in blocks])
    error = means.std(0) / math.sqrt(len(means)) if len(means) > 1 else torch.full_like(mean, math.nan)
    running = by_time.cumsum(0) / torch.arange(1, len(by_time) + 1).to(by_time)[:, None]
    return LyapunovSpectrum(mean[order], error[order], running[:, order])
