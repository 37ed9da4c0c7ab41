"""Gradients of a loss through time, at one point of training and over its course."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kreiss.analysis.network.dynamics import dynamics
from kreiss.errors import InputError


@dataclass(frozen=True)
class GradientFlow:
    """‖∂L/∂h_t‖ for t = 0 … T.

    Attributes:
        norms: (T + 1, B), one column per sequence.
        growth: mean factor per step backwards in time, over steps with a non-zero gradient.
    """

    norms: Tensor
    growth: float

    @property
    def mean(self) -> Tensor:
        """Norms averaged over the batch, (T + 1,)."""
        return self.norms.mean(1)


def gradient_flow(
    network: Any, inputs: Tensor, loss: Callable[[Tensor], Tensor], *, state: Tensor | None = None, **sizes: int
) -> GradientFlow:
    """‖∂L/∂h_t‖ through time.

    Args:
        network: see `dynamics`.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols.
        loss: maps the outputs (T, B, H), or (B, T, H) of a batch-first network, to one number; use a sum over sequences
            to get ‖∂L/∂h_t‖ of each sequence.
        state: flat initial state (B, S).

    If the output is not part of the state, ∂L/∂h_t includes only the outputs after t.

    Reference: Kerg (2022), App. A.6, Fig. 3 left.

    Example:
        >>> import torch
        >>> from kreiss.analysis import gradient_flow
        >>> step = lambda x, h: 0.5 * h + x
        >>> found = gradient_flow(step, torch.ones(3, 1), lambda y: y[-1].sum(), input_size=1, state_size=1)
        >>> found.mean.tolist()
        [0.125, 0.25, 0.5, 1.0]
    """
    system = dynamics(network, **sizes)
    x = system.inputs(inputs)
    h = system.initial(x.shape[1]) if state is None else state.detach().to(system.like)
    states, outputs = [h.requires_grad_()], []
    with torch.enable_grad():
        for now in x:
            output, h = system.run(now, states[-1])
            states.append(h)
            outputs.append(output if system.read is None else system.read(h))  # so that ∂L/∂h_t includes y_t
        value = loss(system.swapped(torch.stack(outputs)))
        if value.dim() or not torch.isfinite(value):
            got = f"shape {tuple(value.shape)}" if value.dim() else float(value.detach())
            raise InputError(
                f"`loss` must return one finite number; got {got}. Reduce it with .mean(), or look for overflow."
            )
        gradients = torch.autograd.grad(value, states, allow_unused=True)
    parts = [torch.zeros_like(states[0]) if part is None else part for part in gradients]
    norms = torch.stack([part.norm(dim=1) for part in parts]).detach()
    return GradientFlow(norms, _growth(norms.mean(1)))


def _growth(mean: Tensor) -> float:
    """The factor per step backwards, from a straight-line fit to the logarithms."""
    seen = torch.nonzero(mean > 0)[:, 0]
    if len(seen) < 2:
        return float("nan")
    t, y = seen.double(), mean[seen].double().log()
    t, y = t - t.mean(), y - y.mean()
    return float(torch.exp(-(t @ y) / (t @ t)))


@dataclass
class GradientHistory:
    """Gradient flow through training: call `add` at intervals, then read `norms`.

    Attributes:
        updates: update number of each measurement.
        flows: the measurements.
        recorded: update → norm of the gradient of all parameters, if the training recorded it.

    Reference: Kerg (2022), App. A.6, Fig. 3 right.

    Example:
        >>> import torch
        >>> from kreiss.analysis import GradientHistory
        >>> history, layer = GradientHistory(), torch.nn.RNN(1, 4)
        >>> for update in range(3):
        ...     history.add(update, layer, torch.ones(5, 1), lambda y: y[-1].sum())
        >>> history.norms.shape, history.updates
        (torch.Size([3, 6]), [0, 1, 2])
    """

    updates: list[int] = field(default_factory=list)
    flows: list[GradientFlow] = field(default_factory=list)
    recorded: dict[int, float] = field(default_factory=dict)

    def add(self, update: int, network: Any, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> None:
        """Measure the current network."""
        self.flows.append(gradient_flow(network, inputs, loss))
        self.updates.append(update)

    @property
    def norms(self) -> Tensor:
        """‖∂L/∂h_t‖ averaged over the batch, (records, T + 1)."""
        return torch.stack([flow.mean for flow in self.flows])
