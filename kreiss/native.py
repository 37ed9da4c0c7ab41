"""The compiled kernels: loading the shared library, and tensors in the form it reads."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kreiss.errors import InputError

LIBRARY = Path(os.environ.get("KREISS_KERNEL") or Path(__file__).parent / "recurrence" / "_kernel.so")
INTERFACE = 10  # KREISS_INTERFACE of recurrence/csrc/kernel.h
WIDEST_PANEL = 128  # bytes of a row of a packed panel, with the widest vectors there are
LONG = 1 << 23  # bytes; smaller buffers come from memory already mapped


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernel with its signatures declared, or None if it was not built for this version of the package."""
    kernel = ctypes.CDLL(str(LIBRARY)) if LIBRARY.exists() else None
    if kernel is None or not _is_current(kernel):
        return None
    number, flag, pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p
    signatures = {
        "kreiss_isa": (ctypes.c_char_p, ()),
        "kreiss_use_isa": (flag, (flag,)),
        "kreiss_use_team": (None, (pointer,) * 3),
        "kreiss_expect": (None, (pointer, number)),
        "kreiss_run": (flag, (pointer, number)),
        "kreiss_step": (flag, (pointer,) * 3),
        "kreiss_run_memory": (None, (pointer, number)),
        "kreiss_run_gated": (flag, (pointer, number)),
        "kreiss_cross_entropy": (flag, (pointer, number)),
        "kreiss_base_room": (number, (flag, number, number)),
        "kreiss_base": (flag, (pointer, number)),
        "kreiss_move": (ctypes.c_double, (pointer, number)),
        "kreiss_multiply": (None, (pointer, number)),
        "kreiss_is_fast": (flag, ()),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(kernel, name)
        function.restype, function.argtypes = result, arguments
    _share_threads_of_torch(kernel)
    return kernel


def _is_current(kernel: ctypes.CDLL) -> bool:
    """Whether the library has the interface of this file: an update may leave an older library behind."""
    return hasattr(kernel, "kreiss_interface") and kernel.kreiss_interface() == INTERFACE


def _share_threads_of_torch(kernel: ctypes.CDLL) -> None:
    """Pass the kernel the functions that start a thread team in the OpenMP runtime loaded by torch, if there is one.

    The kernel then uses torch's threads and starts none of its own. Otherwise it starts plain threads at each call.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
        path = re.search(r"(/\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*\.so\S*)", maps)
        if path:
            runtime = ctypes.CDLL(path.group(1))
            functions = (runtime.GOMP_parallel, runtime.omp_get_thread_num, runtime.omp_get_num_threads)
            kernel.kreiss_use_team(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
    except (OSError, AttributeError):
        pass


def status() -> str:
    """One line: which kernel is used, or why none is and what to do."""
    kernel = library()
    if kernel is None:
        state = "built for another version" if LIBRARY.exists() else "not built"
        return (
            f"kernel: {state}, the slower reference path runs; install a C++ compiler (g++ or clang++) and reinstall "
            "kreiss"
        )
    return f"kernel: built, using {kernel.kreiss_isa().decode()}, {torch.get_num_threads()} threads"


def takes(matrix: Tensor) -> bool:
    """Whether the kernel supports matrices of this dtype and device."""
    return matrix.dtype in (torch.float32, torch.float64) and matrix.is_cpu and library() is not None


def is_fast() -> bool:
    """Whether large products of the kernel are faster than those of torch on this processor."""
    kernel = library()
    return kernel is not None and bool(kernel.kreiss_is_fast())


def loaded() -> ctypes.CDLL:
    kernel = library()
    assert kernel is not None
    return kernel


def expect(tensor: Tensor) -> Tensor:
    """The tensor, about to be filled for the first time: in large pages if it is long and the system has them."""
    if tensor.nbytes >= LONG:
        loaded().kreiss_expect(tensor.data_ptr(), tensor.nbytes)
    return tensor


def room(matrix: Tensor, *shapes: tuple[int, int]) -> Tensor:
    """The buffer into which a kernel packs (depth, columns) matrices, one behind the other."""
    wide = WIDEST_PANEL // matrix.element_size()
    return matrix.new_empty(sum(depth * -(-columns // wide) * wide for depth, columns in shapes))


def readable(tensor: Tensor) -> Tensor:
    """The tensor as contiguous, aligned numbers in memory.

    A tensor may represent the negative of what is in memory, or zeros that are not in memory at all; one made from
    bytes may start at any address. The kernel needs aligned numbers.
    """
    tensor = tensor.resolve_neg().contiguous()
    in_place = not tensor._is_zerotensor() and tensor.data_ptr() % tensor.element_size() == 0
    return tensor if in_place else tensor.clone(memory_format=torch.contiguous_format)


def readable_or_none(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else readable(tensor)


def call(function: Any, job: Any, threads: int, tensors: dict[str, Tensor | None]) -> None:
    """Run a pass by a function of the library; tensors are contiguous, and this frame keeps them until it returns."""
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(job, name, tensor.data_ptr())
    if function(ctypes.byref(job), threads):
        raise unknown_symbol(job.inputs)


def unknown_symbol(inputs: int) -> InputError:
    return InputError(
        f"symbols must be in [0, {inputs}), the columns of the input weights; got one outside. "
        "Make input_size the number of symbols."
    )
