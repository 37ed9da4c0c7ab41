"""Hidden states over time: norms, spread, dimensionality, growth of perturbations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kreiss.analysis.network.dynamics import dynamics
from kreiss.errors import InputError, check_size


@dataclass(frozen=True)
class HiddenTransients:
    """Statistics of flat states (T + 1, B, S) over the batch, one entry per step.

    Attributes:
        states: the states.
        norm_mean, norm_deviation: of their norms.
        unit_mean, unit_deviation: of the standard deviation across units.
    """

    states: Tensor
    norm_mean: Tensor
    norm_deviation: Tensor
    unit_mean: Tensor
    unit_deviation: Tensor


def hidden_transients(network: Any, inputs: Tensor, state: Tensor | None = None, **sizes: int) -> HiddenTransients:
    """Run the network and summarise its states, as in Kerg et al. (2019), Fig. 1(b), for linear networks."""
    system = dynamics(network, **sizes)
    states = system.states(system.inputs(inputs), None if state is None else state.to(system.like))
    norms, spread = states.norm(dim=2), states.std(dim=2, correction=0)
    return HiddenTransients(
        states, norms.mean(1), norms.std(1, correction=0), spread.mean(1), spread.std(1, correction=0)
    )


@dataclass(frozen=True)
class Dimensionality:
    """The effective dimension of a set of states.

    Attributes:
        participation: (Σλ)²/Σλ² of the eigenvalues of their covariance; between 1 and the number of units.
        variances: λ, largest first.
        directions: principal directions, one per row.
    """

    participation: float
    variances: Tensor
    directions: Tensor

    def project(self, states: Tensor, count: int = 2) -> Tensor:
        """Coordinates of states (…, S) along the first principal directions."""
        return states.to(self.directions) @ self.directions[:count].mT


def dimensionality(states: Tensor) -> Dimensionality:
    """Principal components and participation ratio of states (…, S).

    Example:
        >>> import torch
        >>> from kreiss.analysis import dimensionality
        >>> round(dimensionality(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).participation, 6)
        2.0
    """
    flat = states.detach().reshape(-1, states.shape[-1]).double()
    if len(flat) < 2:
        raise InputError(f"`states` must hold at least two states; got {len(flat)}. Run the network for longer.")
    values, vectors = torch.linalg.eigh(torch.cov(flat.mT).reshape(flat.shape[1], -1))
    values = values.flip(0).clamp(min=0)
    total = float(values.sum())
    participation = total**2 / float(values.square().sum()) if total else 0.0
    return Dimensionality(participation, values, vectors.flip(1).mT)


@dataclass(frozen=True)
class PerturbationGrowth:
    """Distance between a trajectory and perturbed ones, relative to the perturbation.

    Attributes:
        growth: (T + 1, directions), starting at 1; mean over the batch.
        rate: mean logarithmic growth per step of all directions, over the steps before the distance saturates.
    """

    growth: Tensor
    rate: float


def perturbation_growth(
    network: Any,
    inputs: Tensor,
    *,
    size: float = 1e-6,
    directions: int = 8,
    state: Tensor | None = None,
    generator: torch.Generator | None = None,
    **sizes: int,
) -> PerturbationGrowth:
    """The distance between trajectories from nearby initial states.

    Args:
        network: see `dynamics`.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols; the same for all.
        size: norm of the perturbation of the initial state.
        directions: number of random perturbations.
        state: flat initial state (B, S).
    """
    if not size > 0:
        raise InputError(f"`size` must be positive; got size={size}. Pass a small length, such as 1e-6.")
    system = dynamics(network, **sizes)
    x = system.inputs(inputs)
    start = system.initial(x.shape[1]) if state is None else state.to(system.like)
    many = check_size("directions", directions)
    noise = torch.randn(many, *start.shape, generator=generator or torch.Generator().manual_seed(0)).to(start)
    disturbed = start + size * noise / noise.norm(dim=2, keepdim=True)
    away = system.states(x.repeat(1, many, 1), disturbed.flatten(0, 1)).unflatten(1, (many, -1))
    distance = (away - system.states(x, start).unsqueeze(1)).norm(dim=3).mean(2) / size
    small = int((distance.mean(1) * size < 1e-2).sum())  # beyond that the distance is no longer infinitesimal
    seen = distance[: max(small, 2)].clamp(min=torch.finfo(distance.dtype).tiny).log().mean(1)
    return PerturbationGrowth(distance, float(seen[-1] - seen[0]) / (len(seen) - 1))
