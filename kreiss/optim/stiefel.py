"""Optimisers for matrices that must stay orthogonal or unitary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from kreiss import linalg
from kreiss.errors import InputError, check_name
from kreiss.optim.roles import Owner, owners

SMOOTHED = ("gradient", "coordinates")
HELD = "orthogonal"  # the role of skew coordinates around a base point


class Stiefel(torch.optim.Optimizer):
    """Gradient descent along the Stiefel manifold by multiplicative Cayley steps.

    W ← (I + λ/2·S)⁻¹(I − λ/2·S)·W, S = GW* − WG*, for the gradient G of W, which keeps W*W = I.

    Symbols: λ `lr`; W a parameter with orthonormal columns, real or complex, n×p with p ≤ n; or the recurrent matrices
    of a layer. Each step costs O(n³), or O(np²) where 2p < n.

    Reference: Wisdom et al. (2016), after Tagare (2011); the low-rank form, Wen & Yin (2013).

    Differs: every `polish_every` steps a Newton–Schulz step removes the rounding errors that multiplication adds up.

    Args:
        params: matrices with orthonormal columns, or groups of them as for any optimiser; or a module, whose recurrent
            matrices around base points (`FullURNN`, the default `ExpRNN`, …) are stepped, and nothing else of it.
        lr: λ.
        alpha: if given, gradients are first divided by the root of their running mean square, decaying by alpha, as in
            RMSprop; W stays on the manifold all the same.
        smooth: what is divided for a module: "gradient", the entries of G (real and imaginary parts apart) before
            S is formed, as Wisdom et al. do; or "coordinates", the entries of the skew matrix, which is what
            torch.optim.RMSprop does with a base point that moves at every step.
        eps: added to that root.
        polish_every: steps between polishes of plain parameters; 0 for none.

    Example:
        >>> import kreiss, torch
        >>> w = torch.nn.Parameter(torch.eye(4))
        >>> target = torch.linalg.qr(torch.randn(4, 4))[0]
        >>> optimizer = kreiss.optim.Stiefel([w], lr=0.1)
        >>> ((w - target) ** 2).sum().backward()
        >>> optimizer.step()
        >>> bool((w.T @ w - torch.eye(4)).abs().max() < 1e-6)
        True
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Any],
        lr: float,
        *,
        alpha: float | None = None,
        smooth: str = "gradient",
        eps: float = 1e-8,
        polish_every: int = 100,
    ) -> None:
        if not lr > 0:
            raise InputError(f"`lr` must be positive; got lr={lr}. Pass a learning rate such as 0.01.")
        if alpha is not None and not 0 <= alpha < 1:
            raise InputError(f"`alpha` must be in [0, 1); got alpha={alpha}. Pass, for example, 0.9, or None.")
        check_name("kind of smoothing", smooth, SMOOTHED)
        self._owners = _around_base_points(params) if isinstance(params, nn.Module) else []
        self._watched: dict[Tensor, Watched] = {}
        if alpha is not None and smooth == "gradient":
            self._watched = {p: Watched(p, owner.module) for owner in self._owners for p in owner.parameters(HELD)}
        if isinstance(params, nn.Module):
            params = [parameter for owner in self._owners for parameter in owner.parameters(HELD)]
            if not params:
                raise InputError(
                    "a module must have recurrent matrices around a base point; got one without. Pass a FullURNN, "
                    "an ExpRNN, or the matrices themselves."
                )
        defaults = {"lr": lr, "alpha": alpha, "smooth": smooth, "eps": eps, "polish_every": polish_every}
        super().__init__(params, defaults)
        if not self._owners:
            for group in self.param_groups:
                for w in group["params"]:
                    _check(w)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if self._owners:  # coordinates A around a base point: at A = 0 a step of A is a Cayley step
                    parameter.sub_(group["lr"] * self._coordinates(parameter, group))
                else:
                    grad = self._scaled(parameter, parameter.grad, group)
                    parameter.copy_(cayley_step(parameter, grad, group["lr"]))
                    self._polish(parameter, group["polish_every"])
        for owner in self._owners:
            if any(parameter.grad is not None for parameter in owner.parameters(HELD)):
                owner.rebase(True)
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # states saved before `smooth` existed
            group.setdefault("smooth", "coordinates" if getattr(self, "_owners", []) else "gradient")
        for parameter, moments in self.state.items():  # in which real and imaginary parts shared one
            if parameter.is_complex() and "mean_square" in moments and moments["mean_square"].shape == parameter.shape:
                moments["mean_square"] = torch.stack([moments["mean_square"] / 2] * 2, -1)

    def _coordinates(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient of skew coordinates: their own, smoothed or not, or that of a smoothed G."""
        assert parameter.grad is not None
        if group["alpha"] is None or group["smooth"] == "coordinates":
            return self._scaled(parameter, parameter.grad, group)
        watched = self._watched[parameter]
        return watched.coordinates(self._scaled(parameter, watched.gradient(), group))

    def _scaled(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        if group["alpha"] is None:
            return grad
        numbers = torch.view_as_real(grad) if grad.is_complex() else grad
        state = self.state[parameter]
        if "mean_square" not in state:
            state["mean_square"] = torch.zeros_like(numbers)
        mean = state["mean_square"].lerp_(numbers.square(), 1 - group["alpha"])
        scaled = numbers / (mean.sqrt() + group["eps"])
        return torch.view_as_complex(scaled) if grad.is_complex() else scaled

    def _polish(self, parameter: Tensor, period: int) -> None:
        count = self.state[parameter].get("steps", 0) + 1
        self.state[parameter]["steps"] = count
        if period and count % period == 0:
            parameter.copy_(linalg.newton_schulz(parameter))


class Watched:
    """The gradient G of a matrix parametrized around a base point, which its skew coordinates do not keep.

    G is captured in the backward pass and accumulates until the gradient of the coordinates is cleared.
    """

    def __init__(self, parameter: nn.Parameter, layer: nn.Module) -> None:
        self.parameter = parameter
        self.map: Any = None  # from coordinates to the matrix
        self.passing: Tensor | None = None
        self.total: Tensor | None = None
        for module in layer.modules():
            if "base" in module._buffers:
                module.register_forward_hook(self._made)
        parameter.register_post_accumulate_grad_hook(self._arrived)

    def _made(self, module: nn.Module, free: tuple[Tensor, ...], matrix: Tensor) -> None:
        if free[0] is self.parameter and matrix.requires_grad:
            self.map = module
            matrix.register_hook(self._passed)

    def _passed(self, grad: Tensor) -> None:
        if self.parameter.grad is None or not self.parameter.grad.any():
            self.total = None
        self.passing = grad if self.passing is None else self.passing + grad

    def _arrived(self, parameter: Tensor) -> None:
        if self.passing is not None:
            self.total = self.passing if self.total is None else self.total + self.passing
        self.passing = None

    def gradient(self) -> Tensor:
        """G, rescaled as the gradient of the coordinates has been since (clipping, loss scale)."""
        grad = self.parameter.grad
        if self.total is not None and grad is not None:
            seen = self.coordinates(self.total)
            factor = (grad * seen).sum() / seen.square().sum().clamp(min=torch.finfo(seen.dtype).tiny)
            if (grad - factor * seen).norm() <= 1e-3 * grad.norm():
                return self.total * factor
        raise InputError(
            "the gradient of the coordinates must come from the matrix alone, by backward(), after they were cleared; "
            'got another one. Clear gradients before each backward pass, or use smooth="coordinates".'
        )

    @torch.enable_grad()
    def coordinates(self, gradient: Tensor) -> Tensor:
        """The gradient of the coordinates from that of the matrix."""
        free = self.parameter.detach().requires_grad_()
        return torch.autograd.grad(self.map.forward(free), free, gradient)[0]  # forward() runs no hooks


def cayley_step(w: Tensor, grad: Tensor, lr: float) -> Tensor:
    """(I + λ/2·S)⁻¹(I − λ/2·S)W with S = GW* − WG*; through 2p×2p matrices where those are smaller."""
    n, p = w.shape
    if 2 * p < n:
        left, right = torch.cat([grad, w], 1), torch.cat([w, -grad], 1)  # S = left·right*
        eye = torch.eye(2 * p, dtype=w.dtype, device=w.device)
        inner = torch.linalg.solve(eye + lr / 2 * right.mH @ left, right.mH @ w)
        return w - lr * left @ inner
    half = lr / 2 * (grad @ w.mH)
    return linalg.cayley(half - half.mH) @ w


def _check(w: Tensor) -> None:
    if w.dim() != 2 or w.shape[0] < w.shape[1]:
        raise InputError(
            f"a parameter on the Stiefel manifold must be n×p with p ≤ n; got shape {tuple(w.shape)}. "
            "Pass matrices alone, and other parameters to another optimiser."
        )
    wide = w.detach().to(torch.promote_types(w.dtype, torch.float64))
    off = float((wide.mH @ wide - torch.eye(w.shape[1], dtype=wide.dtype, device=w.device)).abs().max())
    if off > 1e-4:
        raise InputError(
            f"a parameter on the Stiefel manifold must have orthonormal columns; got max|W*W − I| = {off:.3g}. "
            "Orthogonalise it first, for example with torch.linalg.qr."
        )


def _around_base_points(model: nn.Module) -> list[Owner]:
    """Layers with matrices around base points, moved there so that A = 0."""
    layers = [owner for owner in owners(model) if not isinstance(owner.module, ParametrizationList)]
    based = [owner for owner in layers if any(name.endswith(".base") for name, _ in owner.module.named_buffers())]
    for owner in based:
        owner.rebase(True)
    return based
