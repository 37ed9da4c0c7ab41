"""Derivatives of states and outputs with respect to earlier states and inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kreiss.analysis.network.dynamics import Dynamics, dynamics
from kreiss.errors import InputError


@dataclass(frozen=True)
class Jacobians:
    """One-step derivatives along trajectories.

    Attributes:
        states: h_t, (T + 1, B, S).
        state: ∂h_t/∂h_{t−1}, (T, B, S, S).
        input: ∂h_t/∂x_t, (T, B, S, I).
    """

    states: Tensor
    state: Tensor
    input: Tensor


def one_step(system: Dynamics, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F(x, h), ∂F/∂h (B, S, S) and ∂F/∂x (B, S, I), by one backward pass over one copy of the batch per unit."""
    batch, size = h.shape
    xs = x.detach().repeat_interleave(size, 0).requires_grad_()
    hs = h.detach().repeat_interleave(size, 0).requires_grad_()
    with torch.enable_grad():
        new = system.step(xs, hs)
        rows = torch.eye(size, dtype=new.dtype, device=new.device).repeat(batch, 1)
        by_state, by_input = torch.autograd.grad(new, (hs, xs), rows, allow_unused=True)
    by_state = torch.zeros_like(hs) if by_state is None else by_state
    by_input = torch.zeros_like(xs) if by_input is None else by_input
    return new.detach()[::size], by_state.view(batch, size, -1), by_input.view(batch, size, -1)


def step_jacobians(network: Any, inputs: Tensor, state: Tensor | None = None, **sizes: int) -> Jacobians:
    """∂h_t/∂h_{t−1} and ∂h_t/∂x_t at every step of trajectories.

    Args:
        network: see `dynamics`; `sizes` are for a step function.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols.
        state: flat initial state (B, S); zero by default.

    Example:
        >>> import torch
        >>> from kreiss.analysis import step_jacobians
        >>> step_jacobians(torch.nn.GRU(2, 3), torch.randn(4, 2)).state.shape
        torch.Size([4, 1, 3, 3])
    """
    system = dynamics(network, **sizes)
    x = system.inputs(inputs)
    h = system.initial(x.shape[1]) if state is None else state.to(system.like)
    states, by_state, by_input = [h], [], []
    for now in x:
        h, a, b = one_step(system, now, h)
        states.append(h)
        by_state.append(a)
        by_input.append(b)
    return Jacobians(torch.stack(states), torch.stack(by_state), torch.stack(by_input))


@dataclass(frozen=True)
class Sensitivity:
    """Dependence of states on small changes of inputs: derivatives along the given trajectories, so a local measure.

    A network that stores a bit in one of two stable states has small derivatives there but still remembers it.

    Attributes:
        norms: ‖∂h_τ/∂x_t‖₂, (T, T), rows τ, columns t, zero for t > τ; mean over the batch.
        by_lag: its mean along τ − t = 0, 1, ….
    """

    norms: Tensor
    by_lag: Tensor

    def first_below(self, share: float = 0.1) -> int | None:
        """The first lag after the maximum with a dependence below `share` of the maximum; None if there is none."""
        top = int(self.by_lag.argmax())
        below = torch.nonzero(self.by_lag[top:] < share * self.by_lag[top])
        return top + int(below[0]) if len(below) else None

    def horizon(self, share: float = 0.1) -> int | None:
        """The first lag from which the dependence stays below `share` of its maximum; None if there is none."""
        above = torch.nonzero(self.by_lag >= share * self.by_lag.max())
        last = int(above[-1]) if len(above) else -1
        return last + 1 if last + 1 < len(self.by_lag) else None


def input_sensitivity(
    network: Any, inputs: Tensor, *, units: slice | None = None, state: Tensor | None = None, **sizes: int
) -> Sensitivity:
    """The heat map ‖∂h_τ/∂x_t‖₂ for all t ≤ τ: how long a small change of an input persists along these trajectories.

    Args:
        network: see `dynamics`.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols.
        units: a slice of the flat state, such as the long-term or the short-term half.
        state: flat initial state (B, S).

    Reference: the gradient maps of the ENRNN paper, §6.1 and Figs. 4 and 5.
    """
    jacobians = step_jacobians(network, inputs, state, **sizes)
    length, batch, size, features = jacobians.input.shape
    chain = jacobians.input.new_zeros(batch, size, 0)  # ∂h_τ/∂x_t side by side for t ≤ τ
    norms = jacobians.input.new_zeros(length, length)
    for tau in range(length):
        chain = torch.cat([jacobians.state[tau] @ chain, jacobians.input[tau]], -1)
        part = chain[:, units or slice(None)].unflatten(-1, (tau + 1, features)).movedim(2, 1)
        norms[tau, : tau + 1] = torch.linalg.matrix_norm(part, 2).mean(0)
    lags = torch.stack([norms.diagonal(-lag).mean() for lag in range(length)])
    return Sensitivity(norms, lags)


def memory_horizon(network: Any, inputs: Tensor, share: float = 0.1, **sizes: int) -> int | None:
    """Steps after which ‖∂h_τ/∂x_t‖, averaged, stays below `share` of its maximum; None if it never does.

    The derivative is local, see `Sensitivity`: it measures the memory of a linear network, and for others that of small
    changes.

    Example:
        >>> import torch
        >>> from kreiss.analysis import memory_horizon
        >>> memory_horizon(lambda x, h: 0.5 * h + x, torch.zeros(20, 1), input_size=1, state_size=1)
        4
    """
    if not 0 < share < 1:
        raise InputError(f"`share` must lie between 0 and 1; got share={share}. Pass, for example, 0.1.")
    return input_sensitivity(dynamics(network, **sizes), inputs).horizon(share)


def input_output_jacobian(network: Any, inputs: Tensor, readout: Any = None, **sizes: int) -> Tensor:
    """∂y_T/∂x_t for every t, (T, B, outputs, I), with y the readout of the last output of the network.

    Args:
        network: see `dynamics`.
        inputs: (T, B, I), or (B, T, I) if the network is batch-first; (T, I); or symbols.
        readout: a function of the output (B, H), such as a linear layer; the output itself by default.
    """
    system = dynamics(network, **sizes)
    x = system.inputs(inputs)
    with torch.no_grad():
        outputs = _last_output(system, x, readout).shape[-1]
    repeated = x.repeat_interleave(outputs, 1).requires_grad_()
    y = _last_output(system, repeated, readout)
    rows = torch.eye(outputs, dtype=y.dtype, device=y.device).repeat(x.shape[1], 1)
    (jacobian,) = torch.autograd.grad(y, repeated, rows)
    return jacobian.view(len(x), x.shape[1], outputs, -1)


def _last_output(system: Dynamics, x: Tensor, readout: Any) -> Tensor:
    h = system.initial(x.shape[1])
    output = h
    for now in x:
        output, h = system.run(now, h)
    output = torch.view_as_real(output).flatten(1) if output.is_complex() else output
    return output if readout is None else readout(output)


@dataclass(frozen=True)
class SingularSpectra:
    """Singular values along a trajectory, largest first.

    Attributes:
        step: of ∂h_t/∂h_{t−1}, (T, B, S).
        product: of ∂h_t/∂h_0, (T, B, S); accurate for the values within 1e-16 of the largest.
    """

    step: Tensor
    product: Tensor


def singular_spectra(network: Any, inputs: Tensor, state: Tensor | None = None, **sizes: int) -> SingularSpectra:
    """Singular values of every one-step Jacobian and of their products from the start."""
    jacobians = step_jacobians(network, inputs, state, **sizes)
    product = torch.eye(jacobians.state.shape[-1]).to(jacobians.state).expand_as(jacobians.state[0])
    products = []
    for jacobian in jacobians.state:
        product = jacobian @ product
        products.append(torch.linalg.svdvals(product))
    return SingularSpectra(torch.linalg.svdvals(jacobians.state), torch.stack(products))
