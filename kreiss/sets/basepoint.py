"""Orthogonal matrices at their base point in the compiled kernel: the Schur map, gradients, and the move of the base.

At A = 0 the matrix P = B·r(A) is the base point B itself, and its gradient needs no inverse. Each function returns None
or False, with nothing done, where A is not 0 (for a move: not small) or the tensors are not what the kernel reads; the
plain functions that it stands for then run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from kreiss import native

LARGEST = 256  # units; above, the products of torch are as fast
FASTEST = 1024  # the same where those of the kernel are faster
WORK = 1 << 21  # multiplications of one product that are worth a thread
PARAMETERS = ("radius", "angle", "shear", "coupling")


class Pass(ctypes.Structure):
    """`struct kreiss_base_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "pairs", "positive")),
        ("fixed_radius", ctypes.c_double),
        *((name, ctypes.c_int32) for name in ("is_double", "job", "printed", "project")),
        *((name, ctypes.c_void_p) for name in ("base", "free", *PARAMETERS, "core", "matrix", "grad", "grad_free")),
        *((f"grad_{name}", ctypes.c_void_p) for name in PARAMETERS),
        ("room", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("phase", "pair")),
        *((name, ctypes.c_void_p) for name in ("sums", "probed", "probe")),
    )


SCHUR, SCHUR_BACK, TURN, TURN_BACK, REBASE = range(5)


class Form(Protocol):
    """The blocks of Λ, and which parameters of Λ and T there are."""

    roles: tuple[str, ...]
    pairs: int
    positive: int
    radius: str | float
    blocks: str


def schur(form: Form, base: Tensor, free: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
    """V = P(Λ + T)Pᵀ at A = 0, and Λ + T."""
    if not usable(base, *free):
        return None
    matrix, core = torch.empty_like(base), torch.empty_like(base)
    job = _schur_job(SCHUR, form, base, core, free)
    job.matrix = matrix.data_ptr()
    return (matrix, core) if _run(job, base) else None


def schur_gradients(
    form: Form, base: Tensor, core: Tensor, free: Sequence[Tensor], grad: Tensor, *, turns: bool
) -> list[Tensor] | None:
    """Gradients of the free tensors at A = 0 from that of V; without `turns` that of A is left out."""
    if not usable(base, core, *free) or not _plain(grad, base):
        return None
    grad = native.readable(grad)
    gradients = [torch.empty_like(tensor) for tensor in (free if turns else free[1:])]
    job = _schur_job(SCHUR_BACK, form, base, core, free)
    job.grad, job.grad_free = grad.data_ptr(), gradients[0].data_ptr() if turns else None
    for role, gradient in zip(form.roles[1:], gradients[-len(form.roles) + 1 :], strict=True):
        setattr(job, f"grad_{role}", gradient.data_ptr())
    _run(job, base)
    return gradients


def turn(base: Tensor, free: Tensor) -> Tensor | None:
    """P at A = 0: a copy of the base."""
    if not usable(base, free):
        return None
    matrix = torch.empty_like(base)
    job = _job(TURN, base, base=base.data_ptr(), free=free.data_ptr(), matrix=matrix.data_ptr())
    return matrix if _run(job, base, room=False) else None


def turn_gradient(base: Tensor, free: Tensor, grad: Tensor) -> Tensor | None:
    """The gradient of A at A = 0 from that of P."""
    if not usable(base, free) or not _plain(grad, base):
        return None
    grad, gradient = native.readable(grad), torch.empty_like(free)
    job = _job(TURN_BACK, base, base=base.data_ptr(), grad=grad.data_ptr(), grad_free=gradient.data_ptr())
    _run(job, base)
    return gradient


def move(base: Tensor, free: Tensor, project: bool) -> bool:
    """Move the base to B·(I − A/2)⁻¹(I + A/2), corrected for rounding with `project`, and A to 0, in place."""
    if not usable(base, free) or base.is_inference() or free.is_inference():
        return False
    if not _run(_job(REBASE, base, base=base.data_ptr(), free=free.data_ptr(), project=project), base):
        return False
    increment_version((base, free))  # a backward pass that needs their former values must fail
    return True


def _job(job: int, like: Tensor, **fields: Any) -> Pass:
    return Pass(n=like.shape[0], is_double=like.dtype is torch.float64, job=job, **fields)


def _schur_job(job: int, form: Form, base: Tensor, core: Tensor, free: Sequence[Tensor]) -> Pass:
    addresses = {role: tensor.data_ptr() for role, tensor in zip(form.roles[1:], free[1:], strict=True)}
    return _job(
        job, base, pairs=form.pairs, positive=form.positive, printed=form.blocks == "paper", base=base.data_ptr(),
        fixed_radius=0.0 if isinstance(form.radius, str) else form.radius, free=free[0].data_ptr(),
        core=core.data_ptr(), **addresses,
    )  # fmt: skip


def _run(job: Pass, base: Tensor, *, room: bool = True) -> bool:
    """Whether the job was done."""
    kernel, n = native.loaded(), base.shape[0]
    threads = min(torch.get_num_threads(), 1 + n**3 // WORK)
    if room:
        buffer = base.new_empty(kernel.kreiss_base_room(job.is_double, n, threads))
        job.room = buffer.data_ptr()
    return not kernel.kreiss_base(ctypes.byref(job), threads)


def usable(base: Tensor, *tensors: Tensor) -> bool:
    """Whether the kernel reads these tensors where they are: dense ones of one dtype, in contiguous CPU memory."""
    dtype = base.dtype
    return (
        native.takes(base)
        and base.shape[0] <= (FASTEST if native.is_fast() else LARGEST)
        and not torch.is_autocast_enabled("cpu")
        and all(_readable(tensor, dtype) for tensor in (base, *tensors))
    )


def _plain(tensor: Tensor, like: Tensor) -> bool:
    """Whether this is a dense CPU tensor, wherever its numbers are."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_cpu and tensor.layout is torch.strided
    return plain and tensor.dtype is like.dtype and tensor.shape == like.shape


def _readable(tensor: Tensor, dtype: torch.dtype) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
        and tensor.data_ptr() % tensor.element_size() == 0
    )
