"""Cross-entropy for classes: with few of them, loss and gradient of the logits are one native call."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss import derivatives, native

NO_TARGET = -100  # the class of a step without target, as NaN is its number; torch's cross-entropy ignores it
CLASSES = 15  # KREISS_CLASSES of recurrence/csrc/kernel.h
SHARE = 16384  # logits for which a further thread is worth its start


class Job(ctypes.Structure):
    """`struct kreiss_entropy` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "classes", "ignored")),
        *((name, ctypes.c_int32) for name in ("is_double", "mean")),
        *((name, ctypes.c_void_p) for name in ("logits", "targets", "loss", "grad")),
        ("weight", ctypes.c_double),
        ("sums", ctypes.c_void_p),
    )


def cross_entropy(output: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats of logits (…, classes) for classes (…); "mean" or "sum" over those that are targets."""
    if not _usable(output, targets):
        return reference(output, targets, reduction)
    differentiable = torch.is_grad_enabled() and output.requires_grad
    loss: Tensor = CrossEntropy.apply(output, targets, reduction, differentiable)
    return loss


def reference(output: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The same by torch."""
    return F.cross_entropy(output.flatten(0, -2), targets.flatten(), ignore_index=NO_TARGET, reduction=reduction)


def _usable(output: Tensor, targets: Tensor) -> bool:
    """Whether the kernel takes these, under ordinary autograd; what does not fit together is left to torch."""
    if not derivatives.ordinary() or torch.is_autocast_enabled("cpu") or not native.takes(output):
        return False
    plain = all(type(t) is Tensor and t.is_cpu and t.layout is torch.strided for t in (output, targets))
    fits = output.dim() > 1 and targets.shape == output.shape[:-1] and targets.dtype is torch.int64
    return plain and fits and output.numel() > 0 and output.shape[-1] <= CLASSES


class CrossEntropy(torch.autograd.Function):
    """The loss; the gradient of the logits is computed with it, and the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, targets: Tensor, reduction: str, differentiable: bool) -> Tensor:
        logits, classes = native.readable(output), native.readable(targets)
        loss = logits.new_empty(())
        grad = torch.empty_like(logits) if differentiable else None
        job = Job(
            classes.numel(), logits.shape[-1], NO_TARGET, logits.dtype is torch.float64, reduction == "mean",
            logits.data_ptr(), classes.data_ptr(), loss.data_ptr(), None if grad is None else grad.data_ptr(),
        )  # fmt: skip
        threads = min(torch.get_num_threads(), 1 + logits.numel() // SHARE)
        if native.loaded().kreiss_cross_entropy(ctypes.byref(job), threads):
            return reference(output, targets, reduction)  # raises: a target is no class
        ctx.save_for_backward(output, targets, grad)
        ctx.reduction = reduction
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        output, targets, grad = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return grad * grad_loss, None, None, None
        loss = reference(output, targets, ctx.reduction)  # differentiable gradients, for create_graph=True
        (again,) = torch.autograd.grad(loss, output, grad_loss, create_graph=True)
        return again, None, None, None
