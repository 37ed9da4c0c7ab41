"""Optimisers for matrices that must stay orthogonal or unitary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from kreiss import linalg
from kreiss.errors import InputError


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
        eps: float = 1e-8,
        polish_every: int = 100,
    ) -> None:
        if not lr > 0:
            raise InputError(f"`lr` must be positive; got lr={lr}. Pass a learning rate such as 0.01.")
        if alpha is not None and not 0 <= alpha < 1:
            raise InputError(f"`alpha` must be in [0, 1); got alpha={alpha}. Pass, for example, 0.9, or None.")
        self._owners = _owners(params) if isinstance(params, nn.Module) else []
        if isinstance(params, nn.Module):
            params = [parameter for _, owned in self._owners for parameter in owned]
            if not params:
                raise InputError(
                    "a module must have recurrent matrices around a base point; got one without. Pass a FullURNN, "
                    "an ExpRNN, or the matrices themselves."
                )
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "polish_every": polish_every})
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
                grad = self._scaled(parameter, group)
                if self._owners:  # numbers of a base point: at A = 0 a step of A is the Cayley step of the matrix
                    parameter.sub_(group["lr"] * grad)
                else:
                    parameter.copy_(cayley_step(parameter, grad, group["lr"]))
                    self._polish(parameter, group["polish_every"])
        for layer, owned in self._owners:
            if any(parameter.grad is not None for parameter in owned):
                layer.rebase()
        return loss

    def _scaled(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        grad: Tensor = parameter.grad  # type: ignore[assignment]
        if group["alpha"] is None:
            return grad
        state = self.state[parameter]
        if "mean_square" not in state:
            state["mean_square"] = torch.zeros_like(grad.abs())
        mean = state["mean_square"].lerp_(grad.abs() ** 2, 1 - group["alpha"])
        return grad / (mean.sqrt() + group["eps"])

    def _polish(self, parameter: Tensor, period: int) -> None:
        count = self.state[parameter].get("steps", 0) + 1
        self.state[parameter]["steps"] = count
        if period and count % period == 0:
            parameter.copy_(linalg.newton_schulz(parameter))


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


def _owners(model: nn.Module) -> list[tuple[Any, list[nn.Parameter]]]:
    """Layers with matrices around base points, moved there so that A = 0, and the parameters that hold A."""
    found: list[tuple[Any, list[nn.Parameter]]] = []
    for module in model.modules():
        declare: Any = getattr(module, "free_roles", None)
        if callable(declare) and any(name.endswith(".base") for name, _ in module.named_buffers()):
            layer: Any = module
            layer.rebase()
            found.append((layer, [getattr(layer, name) for name, role in declare().items() if role == "orthogonal"]))
    return found
