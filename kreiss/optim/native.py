"""RMSprop, Adam and AdamW of torch with the whole step in one call of the compiled kernel."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn.utils import clip_grad_norm_, get_total_norm

from kreiss import native
from kreiss.errors import InputError

CHUNK = 16384  # KREISS_CHUNK of csrc/kernel.h
WORTH_A_THREAD = 2 * CHUNK  # numbers below which another thread costs more than it saves


# `struct kreiss_leaf` of csrc/kernel.h: param, three moments, grad, step; count; is_double, group
LEAF = struct.Struct("6Pq2i")


class Group(ctypes.Structure):
    """`struct kreiss_group`."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("lr", "decay", "eps", "first_rate", "second_rate")),
        *((name, ctypes.c_int32) for name in ("kind", "maximize", "decoupled", "unused")),
    )


class Moves(ctypes.Structure):
    """`struct kreiss_moves`."""

    _fields_ = (
        ("leaves", ctypes.c_char_p),
        ("groups", ctypes.c_void_p),
        ("leaf_count", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("most", "scale")),
        ("squares", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("wants_norm", "updates")),
    )


class Job(NamedTuple):
    """Leaves as bytes, groups, and how many numbers each leaf has."""

    leaves: bytes
    groups: ctypes.Array[Group]
    counts: list[int]


NO_MOMENTS = (0, 0, 0, 0)
SIZES = {torch.float32: 4, torch.float64: 8}  # bytes of a number


class OneCall(torch.optim.Optimizer):
    """What the optimisers share: a step in one native call, or torch's own step where that does not apply.

    Torch's own runs for parameters that are not float32 or float64 in contiguous memory of the CPU, with a closure, a
    rate in a tensor, or any of `foreach`, `fused`, `capturable` and `differentiable`.
    """

    own_step: Callable[..., Any]  # torch's
    clip_norm: float | None = None

    def __init__(
        self, params: Any, lr: float | Tensor | None = None, *, clip_norm: float | None = None, **options: Any
    ):
        rate: dict[str, Any] = {} if lr is None else {"lr": lr}
        super().__init__(params, **rate, **options)
        if clip_norm is not None and not clip_norm > 0:
            raise InputError(
                f"`clip_norm` must be positive; got clip_norm={clip_norm}. Pass a norm such as 1.0, or None."
            )
        self.clip_norm = clip_norm

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles have; torch knows nothing of clipping."""
        return {**super().__getstate__(), "clip_norm": self.clip_norm}

    def _numbers(self, group: dict[str, Any]) -> Group | None:
        """The group as the kernel reads it; None if it has options that the kernel does not."""
        raise NotImplementedError

    def _moments(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        """Names of the moments in the state of a parameter, in torch's order; None for those that are not kept."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or with `set_to_none=False` fill them with zeros."""
        if not set_to_none:
            return super().zero_grad(set_to_none=False)
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None
        return None

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Clip the gradients and move the parameters.

        Args:
            closure: computes the loss again and returns it; torch's own step then runs, without clipping.
        """
        job = None if closure is not None else self._job()
        if job is not None:
            _run(job, self.clip_norm, updates=True)
            increment_version(self._moved())  # a backward pass that needs their former values must fail
            return None
        if self.clip_norm is not None:
            if closure is not None:
                raise InputError(
                    "`clip_norm` needs the gradients before the step; got a closure, which computes them in it. "
                    "Clip in the closure."
                )
            clip_grad_norm_([p for group in self.param_groups for p in group["params"]], self.clip_norm)
        return type(self).own_step(self, closure)

    @torch.no_grad()
    def gradient_norm(self) -> float:
        """The Euclidean norm of all gradients, before clipping."""
        job = self._job(norm_only=True)
        if job is not None:
            return _run(job, None, updates=False)
        return float(get_total_norm([p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]))

    def _moved(self) -> list[Tensor]:
        """What a step changes in place."""
        params = [param for group in self.param_groups for param in group["params"] if param.grad is not None]
        return [*params, *(tensor for param in params for tensor in self.state[param].values())]

    @property
    def is_native(self) -> bool:
        """Whether the next step is a native call, as far as the parameters tell."""
        params = [param for group in self.param_groups for param in group["params"]]
        usual = all(self._numbers(group) is not None for group in self.param_groups)
        return native.library() is not None and usual and all(_address(param) >= 0 for param in params)

    def _job(self, norm_only: bool = False) -> Job | None:
        """The next step as the kernel reads it; None where torch's own step is to run."""
        if native.library() is None or torch.compiler.is_compiling():
            return None
        groups = [number for group in self.param_groups if (number := self._numbers(group)) is not None]
        if not norm_only and len(groups) < len(self.param_groups):
            return None
        leaves, counts = [], []
        for index, group in enumerate(self.param_groups):
            names = self._moments(group)
            for param in group["params"]:
                grad, dtype = param.grad, param.dtype
                if grad is None:
                    continue
                at, at_grad = _address(param), _address(grad)
                if grad.dtype is not dtype or at < 0 or at_grad < 0:
                    return None
                moments = NO_MOMENTS if norm_only else self._state_of(param, names)
                if moments is None:
                    return None
                first, second, third, step = moments
                count, is_double = param.numel(), dtype is torch.float64
                leaves.append(LEAF.pack(at, first, second, third, at_grad, step, count, is_double, index))
                counts.append(count)
        return Job(b"".join(leaves), (Group * len(groups))(*groups), counts)

    def _state_of(self, param: Tensor, names: tuple[str | None, ...]) -> tuple[int, ...] | None:
        """Addresses of the moments and of the number of steps, made as torch makes them; None if they do not fit."""
        state = self.state[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
            for name in names:
                if name is not None:
                    state[name] = torch.zeros_like(param, memory_format=torch.preserve_format)
        step = state["step"]
        if not (isinstance(step, Tensor) and step.dtype is torch.float32 and step.is_cpu):
            return None
        addresses: list[int] = []
        for name in names:
            moment = None if name is None else state.get(name)
            at = 0 if moment is None else _address(moment)
            if at < 0 or (moment is None and name is not None):
                return None
            if moment is not None and (moment.dtype is not param.dtype or moment.shape != param.shape):
                return None
            addresses.append(at)
        return (*addresses, step.data_ptr())


def _address(tensor: Tensor) -> int:
    """Where the kernel reads a tensor: what its memory holds, in order; −1 if it cannot."""
    if (
        tensor.dtype not in SIZES
        or tensor.layout is not torch.strided
        or not (tensor.is_contiguous() and tensor.is_cpu)
        or tensor.is_neg()
        or tensor._is_zerotensor()
    ):
        return -1
    address = tensor.data_ptr()
    return -1 if address % SIZES[tensor.dtype] else address


def _run(job: Job, clip_norm: float | None, *, updates: bool) -> float:
    """Run the kernel; returns the gradient norm if it was computed."""
    wants_norm = clip_norm is not None or not updates
    chunks = sum(-(-count // CHUNK) for count in job.counts)
    squares = (ctypes.c_double * chunks)() if wants_norm else None
    address = ctypes.addressof
    moves = Moves(
        job.leaves, address(job.groups), len(job.counts), clip_norm or 0.0, 1.0,
        None if squares is None else address(squares), wants_norm, updates,
    )  # fmt: skip
    threads = min(torch.get_num_threads(), 1 + sum(job.counts) // WORTH_A_THREAD)
    norm: float = native.loaded().kreiss_move(ctypes.byref(moves), threads)
    return norm


def _usual(group: dict[str, Any]) -> bool:
    """Whether a group asks for nothing but plain numbers."""
    special = any(group.get(name) for name in ("foreach", "fused", "capturable", "differentiable"))
    return not special and not isinstance(group["lr"], Tensor)


def _without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step of torch as it is written: hooks and profiling belong to the step that calls it."""
    while getattr(step, "hooked", False):
        step = step.__wrapped__  # type: ignore[attr-defined]
    return step


class RMSprop(OneCall, torch.optim.RMSprop):
    """`torch.optim.RMSprop` with the whole step in one native call.

    Options, mathematics and state_dict are torch's.

    Args:
        params: parameters or groups, see `kreiss.param_groups`.
        lr: learning rate; 0.01 by default, as torch's.
        clip_norm: the largest norm of all gradients together, above which they are scaled down in the step; None for
            any. The gradients themselves stay as they are where the native step runs.
        options: of `torch.optim.RMSprop`.

    Example:
        >>> import kreiss, torch
        >>> layer = kreiss.NNRNN(3, 8)
        >>> optimizer = kreiss.optim.RMSprop(layer.parameters(), lr=1e-3, clip_norm=1.0)
        >>> layer(torch.randn(5, 2, 3))[0].sum().backward()
        >>> optimizer.step()
    """

    def _numbers(self, group: dict[str, Any]) -> Group | None:
        rates = (group["alpha"], group["momentum"])
        if not _usual(group) or any(isinstance(rate, Tensor) for rate in rates):
            return None
        return Group(group["lr"], group["weight_decay"], group["eps"], *rates, 0, group["maximize"], False)

    def _moments(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        buffer = "momentum_buffer" if group["momentum"] > 0 else None
        return "square_avg", buffer, "grad_avg" if group["centered"] else None

    own_step = staticmethod(_without_hooks(torch.optim.RMSprop.step))


class Adam(OneCall, torch.optim.Adam):
    """`torch.optim.Adam` with the whole step in one native call; see `RMSprop` for `clip_norm`.

    Args:
        params: parameters or groups, see `kreiss.param_groups`.
        lr: learning rate; 0.001 by default, as torch's.
        clip_norm: the largest norm of all gradients together; None for any.
        options: of `torch.optim.Adam`.
    """

    def _numbers(self, group: dict[str, Any]) -> Group | None:
        betas, decoupled = group["betas"], group["decoupled_weight_decay"]
        if not _usual(group) or any(isinstance(beta, Tensor) for beta in betas):
            return None
        return Group(group["lr"], group["weight_decay"], group["eps"], *betas, 1, group["maximize"], decoupled)

    def _moments(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else None

    own_step = staticmethod(_without_hooks(torch.optim.Adam.step))


class AdamW(Adam, torch.optim.AdamW):
    """`torch.optim.AdamW` with the whole step in one native call; see `RMSprop` for `clip_norm`.

    Args:
        params: parameters or groups, see `kreiss.param_groups`.
        lr: learning rate; 0.001 by default, as torch's.
        clip_norm: the largest norm of all gradients together; None for any.
        options: of `torch.optim.AdamW`.
    """
