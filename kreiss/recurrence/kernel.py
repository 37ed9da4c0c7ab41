"""The compiled kernel: finding it, and calling it on tensors."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path

import torch
from torch import Tensor

LIBRARY = Path(os.environ.get("KREISS_KERNEL") or Path(__file__).with_name("_kernel.so"))
CODES = {"identity": 0, "tanh": 1, "relu": 2, "modrelu": 3}
POINTERS = (
    "packed", "packed_inputs", "states", "h0", "bias", "lengths", "x", "symbols", "table", "grad", "inner", "carry",
    "grad_inputs", "grad_bias",
)  # fmt: skip


class Pass(ctypes.Structure):
    """`struct kreiss_pass` of csrc/kernel.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "n", "inputs", "first_step")),
        *((name, ctypes.c_int32) for name in ("is_double", "nonlinearity", "reverse", "backward")),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernel with its signatures declared, or None where it was not built."""
    if not LIBRARY.exists():
        return None
    found = ctypes.CDLL(str(LIBRARY))
    number, flag, pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p
    signatures = {
        "kreiss_isa": (ctypes.c_char_p, ()),
        "kreiss_use_isa": (flag, (flag,)),
        "kreiss_use_team": (None, (pointer,) * 3),
        "kreiss_packed_size": (number, (flag, number, number)),
        "kreiss_pack": (None, (flag, pointer, number, number, number, number, pointer)),
        "kreiss_run": (None, (pointer, number)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    _share_threads_of_torch(found)
    return found


def _share_threads_of_torch(kernel: ctypes.CDLL) -> None:
    """Hand the kernel the functions that start a team in the OpenMP runtime torch has loaded, if there is one.

    So the kernel uses torch's own threads and starts none beside them. Without it, plain threads start per call.
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
    """One line for people: which kernel runs, or why none does and what to do."""
    kernel = library()
    if kernel is None:
        return (
            "kernel: not built, the slower reference path runs; install a C++ compiler (g++ or clang++) "
            "and reinstall kreiss"
        )
    return f"kernel: built, using {kernel.kreiss_isa().decode()}, {torch.get_num_threads()} threads"


def _loaded() -> ctypes.CDLL:
    kernel = library()
    assert kernel is not None
    return kernel


def _packed(matrix: Tensor, *, transpose: bool) -> Tensor:
    """A matrix (or its transpose) in the panels the kernel reads."""
    matrix = matrix.contiguous()
    kernel, is_double = _loaded(), int(matrix.dtype == torch.float64)
    rows, columns = matrix.shape
    depth, n, k_stride, n_stride = (columns, rows, 1, columns) if transpose else (rows, columns, columns, 1)
    out = torch.empty(kernel.kreiss_packed_size(is_double, depth, n), dtype=matrix.dtype)
    kernel.kreiss_pack(is_double, matrix.data_ptr(), depth, n, k_stride, n_stride, out.data_ptr())
    return out


def _run(shape: tuple[int, ...], numbers: tuple[int, ...], threads: int, **tensors: Tensor | None) -> None:
    """Call the kernel; tensors are contiguous and live until it returns, because this frame holds them."""
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    job = Pass(*shape, *numbers, **pointers)
    _loaded().kreiss_run(ctypes.byref(job), threads)


def _inputs(x: Tensor | None) -> dict[str, Tensor | None]:
    """Contiguous inputs under the name the kernel takes them by: vectors `x` or integer `symbols`."""
    if x is None:
        return {}
    if x.is_floating_point():
        return {"x": x.contiguous()}
    return {"symbols": x.to(torch.int64).contiguous()}


def forward_(
    states: Tensor,
    matrix: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
    reverse: bool,
    x: Tensor | None = None,
    weight: Tensor | None = None,
) -> None:
    """Fill `states` (T, B, N). Inputs are U x with x (T, B, I) or symbols (T, B), else what `states` holds."""
    tensors = _inputs(x)
    if weight is not None and x is not None:
        symbols = "symbols" in tensors
        tensors["table" if symbols else "packed_inputs"] = (
            weight.mT.contiguous() if symbols else _packed(weight, transpose=True)
        )
    _run(
        tuple(states.shape),
        (0 if weight is None else weight.shape[1], 0, int(states.dtype == torch.float64), CODES[nonlinearity],
         int(reverse), 0),
        torch.get_num_threads(),
        packed=_packed(matrix, transpose=True),
        states=states,
        h0=h0.contiguous(),
        bias=None if bias is None else bias.contiguous(),
        lengths=None if lengths is None else lengths.contiguous(),
        **tensors,
    )  # fmt: skip


class Backward:
    """The backward pass over one sequence, a piece of time at a time.

    Adds up the gradients of U (where x is given) and of the bias itself, one sum per thread, because those products are
    too thin for a matrix library.
    """

    def __init__(
        self,
        matrix: Tensor,
        states: Tensor,
        lengths: Tensor | None,
        nonlinearity: str,
        reverse: bool,
        *,
        x: Tensor | None = None,
        inputs: int = 0,
        bias: bool = False,
    ) -> None:
        self.states = states
        self.panels = _packed(matrix, transpose=False)
        self.lengths = None if lengths is None else lengths.contiguous()
        self.codes = (int(states.dtype == torch.float64), CODES[nonlinearity], int(reverse), 1)
        self.threads = min(torch.get_num_threads(), states.shape[1])
        self.inputs, self.width = _inputs(x), inputs
        n = states.shape[2]
        self.grad_inputs = states.new_zeros(self.threads, inputs, n) if x is not None else None
        self.grad_bias = states.new_zeros(self.threads, n) if bias else None

    def piece(self, first: int, last: int, grad: Tensor | None, carry: Tensor, inner: Tensor) -> None:
        """Steps [first, last): writes the gradient of u to `inner` and of the state before to `carry`."""
        _run(
            (last - first, *self.states.shape[1:]),
            (self.width, first, *self.codes),
            self.threads,
            packed=self.panels,
            states=self.states[first:last],
            lengths=self.lengths,
            grad=None if grad is None else grad[first:last].contiguous(),
            inner=inner,
            carry=carry,
            grad_inputs=self.grad_inputs,
            grad_bias=self.grad_bias,
            **{name: None if tensor is None else tensor[first:last] for name, tensor in self.inputs.items()},
        )

    def weight_gradient(self) -> Tensor:
        """∂L/∂U (N, I), summed over threads in their order."""
        assert self.grad_inputs is not None
        return self.grad_inputs.sum(0).mT.contiguous()

    def bias_gradient(self) -> Tensor:
        """∂L/∂b (N,)."""
        assert self.grad_bias is not None
        return self.grad_bias.sum(0)
