"""Products of matrices in the fast paths: by the kernel on processors where it is faster than torch, else by torch."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from kreiss import native


class Product(ctypes.Structure):
    """`struct kreiss_product` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "columns", "depth", "a_row", "a_k", "b_k", "b_column")),
        *((name, ctypes.c_int32) for name in ("is_double", "add")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "out", "room")),
        ("room_bytes", ctypes.c_int64),
    )


def write(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out = a·b."""
    if not _by_kernel(out, a, b, add=False):
        torch.mm(a, b, out=out)


def add(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out += a·b."""
    if not _by_kernel(out, a, b, add=True):
        out.addmm_(a, b)


def _by_kernel(out: Tensor, a: Tensor, b: Tensor, *, add: bool) -> bool:
    if not (native.is_fast() and out.is_contiguous() and all(_plain(tensor, out.dtype) for tensor in (out, a, b))):
        return False
    multiply(out, a, b, add=add)
    return True


def multiply(out: Tensor, a: Tensor, b: Tensor, *, add: bool) -> None:
    """The same in the kernel, for plain tensors and contiguous `out`."""
    job = Product(
        *out.shape, a.shape[1], *a.stride(), *b.stride(), out.dtype is torch.float64, add, a.data_ptr(), b.data_ptr(),
        out.data_ptr(),
    )  # fmt: skip
    native.loaded().kreiss_multiply(ctypes.byref(job), torch.get_num_threads())


def _plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether its numbers are in memory as they are; strides may be any."""
    return (
        tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
        and tensor.data_ptr() % tensor.element_size() == 0
    )
