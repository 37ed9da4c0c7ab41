"""Gradients of a loss through time, at one point of training and over its course."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.analysis.network.attentive import attentive_layer, run_attentive
from kreiss.analysis.network.dynamics import Dynamics, dynamics
from kreiss.errors import InputError, check_name


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

    @property
    def total(self) -> Tensor:
        """Norms over batch and units together, (T + 1,)."""
        return self.norms.norm(dim=1)


def gradient_flow(
    network: Any,
    inputs: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    state: Tensor | None = None,
    of: str = "state",
    **sizes: int,
) -> GradientFlow:
    """‖∂L/∂h_t‖ through time.

    The derivative is total: it counts every way from the state, as step t made it, to the loss. In a network with
    memory these are the next step, all steps that read the state later, and the readout.

    Args:
        network: see `dynamics`; or a layer that attends to its past, or a module with one inside.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols.
        loss: maps the outputs (T, B, H), or (B, T, H) of a batch-first network, to one number; use a sum over sequences
            to get ‖∂L/∂h_t‖ of each sequence. See `recall_loss`.
        state: flat initial state (B, S); for networks without memory.
        of: "state" for the complete state, "output" for the part of it that is the output: h without c of an LSTM, the
            last of several layers. Of a network with memory it is always h.

    If the output is not part of the state, ∂L/∂h_t includes only the outputs after t.

    Reference: Kerg (2022), App. A.6, Fig. 3 left, and 4.7.

    Example:
        >>> import torch
        >>> from kreiss.analysis import gradient_flow
        >>> step = lambda x, h: 0.5 * h + x
        >>> found = gradient_flow(step, torch.ones(3, 1), lambda y: y[-1].sum(), input_size=1, state_size=1)
        >>> found.mean.tolist()
        [0.125, 0.25, 0.5, 1.0]
    """
    check_name("of", of, ("state", "output"))
    layer = attentive_layer(network)
    with torch.enable_grad():
        if layer is None:
            points, outputs, shown = _run(dynamics(network, **sizes), inputs, state, of)
        elif state is not None:
            raise InputError(
                "`state` must be left out for a network with memory, which starts with an empty one; got a state. "
                "Put what leads to it in front of `inputs`."
            )
        else:
            points, outputs = run_attentive(layer, inputs)
            shown = lambda gradient: gradient[-1]  # noqa: E731  (of the last of several layers)
        value = loss(outputs)
        if value.dim() or not torch.isfinite(value):
            got = f"shape {tuple(value.shape)}" if value.dim() else float(value.detach())
            raise InputError(
                f"`loss` must return one finite number; got {got}. Reduce it with .mean(), or look for overflow."
            )
        gradients = torch.autograd.grad(value, points, allow_unused=True)
    parts = [torch.zeros_like(points[0]) if part is None else part for part in gradients]
    norms = torch.stack([shown(part).norm(dim=1) for part in parts]).detach()
    return GradientFlow(norms, _growth(norms.mean(1)))


def _run(
    system: Dynamics, inputs: Tensor, state: Tensor | None, of: str
) -> tuple[list[Tensor], Tensor, Callable[[Tensor], Tensor]]:
    """Flat states h_0 … h_T, the outputs, and the part of a state that is asked for."""
    if of == "output" and system.read is None:
        raise InputError(
            'the output must be part of the state for of="output"; got a network whose output is not. Pass of="state".'
        )
    x = system.inputs(inputs)
    h = system.initial(x.shape[1]) if state is None else state.detach().to(system.like)
    states, outputs = [h.requires_grad_()], []
    for now in x:
        output, h = system.run(now, states[-1])
        states.append(h)
        outputs.append(output if system.read is None else system.read(h))  # so that ∂L/∂h_t includes y_t
    # the output is a slice of the state, and so is the gradient
    shown = system.read if of == "output" and system.read is not None else lambda gradient: gradient
    return states, system.swapped(torch.stack(outputs)), shown


def recall_loss(read: Callable[[Tensor], Tensor], targets: Tensor, last: int = 10) -> Callable[[Tensor], Tensor]:
    """L₂ of the thesis' gradient curves: cross-entropy of the last steps, as a function of a layer's outputs.

    Summed over the last steps, divided by the number of all steps, mean over sequences.

    Args:
        read: maps outputs (…, H) of the layer to logits (…, classes): `network.readout`.
        targets: (T, B), classes.
        last: number of steps that count; 10 on copy and denoise.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.analysis import gradient_flow, recall_loss
        >>> from kreiss.tasks import Denoise
        >>> batch = Denoise(5).train(update=0, batch=3, seed=0)
        >>> layer, readout = kreiss.RelRNN(11, 16), torch.nn.Linear(16, 10)
        >>> gradient_flow(layer, batch.inputs, recall_loss(readout, batch.targets)).total.shape
        torch.Size([26])
    """
    if not 1 <= last <= len(targets):
        raise InputError(f"`last` must lie between 1 and the {len(targets)} steps; got last={last}. Pass fewer steps.")

    def loss(outputs: Tensor) -> Tensor:
        logits = read(outputs[-last:]).flatten(0, 1)
        total = F.cross_entropy(logits, targets[-last:].flatten(), reduction="sum")
        return total / (targets.shape[1] * len(targets))

    return loss


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
