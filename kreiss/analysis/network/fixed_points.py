"""Fixed points and slow points, with their stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kreiss.analysis.network.dynamics import Dynamics, dynamics
from kreiss.analysis.network.jacobians import one_step
from kreiss.analysis.schur import SchurForm, real_schur
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class FixedPoints:
    """Points where F(x, h) ≈ h, slowest first.

    Attributes:
        points: (K, S).
        speeds: ‖F(x, h) − h‖ of each.
        jacobians: ∂F/∂h there, (K, S, S).
        fixed: which are fixed points up to rounding error; the others are slow points, local minima of the speed.
        moduli: |λ| of each Jacobian, largest first, (K, S).
        stable: which are stable, all |λ| < 1.
        found_by: number of starts that converged to each.
    """

    points: Tensor
    speeds: Tensor
    jacobians: Tensor
    fixed: Tensor
    moduli: Tensor
    stable: Tensor
    found_by: Tensor

    def schur(self, i: int) -> SchurForm:
        """The ordered Schur form of the Jacobian at point i: its modes, least stable first."""
        return real_schur(self.jacobians[i])

    def __len__(self) -> int:
        return len(self.points)


def fixed_points(
    network: Any,
    *,
    input: Tensor | None = None,
    starts: Tensor | None = None,
    count: int = 256,
    descent: int = 500,
    newton: int = 30,
    slow: float = 1e-3,
    apart: float = 1e-3,
    generator: torch.Generator | None = None,
    **sizes: int,
) -> FixedPoints:
    """Minimise ‖F(x, h) − h‖² from many starts at once, refine by Newton's method, and remove duplicates.

    Args:
        network: see `dynamics`.
        input: the constant x, (I,); zero by default.
        starts: flat initial states (K, S), such as states of a trajectory; random ones of scale 1 by default.
        count: number of random starts.
        descent: steps of gradient descent (Adam).
        newton: maximal number of Newton steps.
        slow: speed up to which a point that is not fixed is kept as a slow point.
        apart: distance below which two points are considered equal.
        generator: for the random starts.

    Reference: Sussillo and Barak (2013).

    Example:
        >>> import torch
        >>> from kreiss.analysis import fixed_points
        >>> found = fixed_points(lambda x, h: torch.tanh(2 * h), input_size=1, state_size=1)
        >>> sorted((round(float(p), 4), bool(s)) for p, s in zip(found.points[:, 0], found.stable))
        [(-0.9575, True), (0.0, False), (0.9575, True)]
    """
    system = dynamics(network, **sizes)
    x = _constant(system, input)
    h = _starts(system, starts, check_size("count", count), generator)
    h = _descended(system, x, h, descent)
    h = _polished(system, x, h, newton)
    return _collected(system, x, h, slow, apart)


def _constant(system: Dynamics, input: Tensor | None) -> Tensor:
    x = system.like.new_zeros(system.input_size) if input is None else torch.as_tensor(input).to(system.like)
    if x.shape != (system.input_size,):
        raise InputError(
            f"`input` must be of shape ({system.input_size},), held constant; got {tuple(x.shape)}. Pass one vector."
        )
    return x


def _starts(system: Dynamics, starts: Tensor | None, count: int, generator: torch.Generator | None) -> Tensor:
    if starts is None:
        drawn = torch.randn(count, system.state_size, generator=generator or torch.Generator().manual_seed(0))
        return drawn.to(system.like)
    if starts.dim() != 2 or starts.shape[1] != system.state_size or not len(starts):
        raise InputError(
            f"`starts` must be of shape (points, {system.state_size}); got {tuple(starts.shape)}. Pass flat states."
        )
    return starts.detach().to(system.like)


def _speed(system: Dynamics, x: Tensor, h: Tensor) -> Tensor:
    return (system.step(x.expand(len(h), -1), h) - h).norm(dim=1)


def _descended(system: Dynamics, x: Tensor, h: Tensor, steps: int) -> Tensor:
    h = h.clone().requires_grad_()
    optimizer = torch.optim.Adam([h], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1), 1e-3)
    with torch.enable_grad():
        for _ in range(steps):
            optimizer.zero_grad()
            (grad,) = torch.autograd.grad(_speed(system, x, h).square().sum(), h)
            h.grad = grad
            optimizer.step()
            schedule.step()
    return h.detach()


def _polished(system: Dynamics, x: Tensor, h: Tensor, steps: int) -> Tensor:
    """Newton's method where it lowers the speed; a slow point stays where descent ended."""
    eye = torch.eye(system.state_size).to(h)
    for _ in range(steps):
        new, jacobian, _ = one_step(system, x.expand(len(h), -1), h)
        distance = new - h
        move = torch.linalg.lstsq(eye - jacobian, distance.unsqueeze(-1), driver="gelsd").solution.squeeze(-1)
        moved = torch.zeros(len(h), dtype=torch.bool, device=h.device)
        for share in (1.0, 0.5, 0.2, 0.05):  # a full step may overshoot
            tried = h + share * move
            better = ~moved & (_speed(system, x, tried).detach() < distance.norm(dim=1))
            h, moved = torch.where(better.unsqueeze(1), tried, h), moved | better
        if not moved.any():
            break
    return h


def _collected(system: Dynamics, x: Tensor, h: Tensor, slow: float, apart: float) -> FixedPoints:
    speeds = _speed(system, x, h).detach()
    order = speeds.argsort()
    h, speeds = h[order], speeds[order]
    distinct: list[int] = []
    votes: list[int] = []
    for i in range(int((speeds <= slow).sum())):
        near = [k for k, j in enumerate(distinct) if float((h[i] - h[j]).norm()) < apart]
        if near:
            votes[near[0]] += 1
        else:
            distinct.append(i)
            votes.append(1)
    points, speeds = h[distinct], speeds[distinct]
    jacobians = (
        one_step(system, x.expand(len(points), -1), points)[1] if distinct else h.new_zeros(0, *[h.shape[1]] * 2)
    )
    moduli = torch.tensor(np.array([np.repeat(f.moduli, f.sizes) for f in map(real_schur, jacobians)])).to(h)
    moduli = moduli.reshape(len(distinct), h.shape[1])
    rounding = 100 * torch.finfo(h.dtype).eps * (1 + points.norm(dim=1))
    return FixedPoints(
        points,
        speeds,
        jacobians,
        speeds <= rounding,
        moduli,
        (moduli < 1).all(1),
        torch.tensor(votes, dtype=torch.long),
    )
