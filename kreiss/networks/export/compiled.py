"""A C file run by the compiler of this machine: to compare it with its model, and to say how long a step takes."""

from __future__ import annotations

import copy
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, RunError
from kreiss.networks.export.ccode import Source
from kreiss.networks.export.checking import difference
from kreiss.networks.export.result import CFile
from kreiss.networks.export.tracing import Draw, batch_first

CHECKED_AT = ((1, 1), (33, 1), (100, 1))
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Werror", "-fPIC", "-shared")

WRAPPER = """\
#include "{path}"
#include <time.h>
unsigned long state_bytes(void) {{ return sizeof({name}_state); }}
double step_seconds({name}_state *state, {parameter}, float *output) {{
    for (long steps = 64;; steps *= 2) {{
        const clock_t start = clock();
        for (long t = 0; t < steps; ++t) {name}_step(state, input, output);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (seconds > 0.05) return seconds / (double)steps;
    }}
}}
"""


def compiler() -> str | None:
    """A C compiler for this machine, if one is installed; not `CC`, which may be one for another."""
    return next((name for name in COMPILERS if shutil.which(name)), None)


class Compiled:
    """A compiled C file with a state of its own."""

    def __init__(self, source: Source) -> None:
        command = compiler()
        if command is None:
            raise InputError("a C compiler must be installed to check a C file; got none. Install gcc or clang.")
        self.source, self.command = source, command
        self._library: Any = _library(source, command)
        self._library.step_seconds.restype = ctypes.c_double
        self._library.state_bytes.restype = ctypes.c_ulong
        self.state_bytes = int(self._library.state_bytes())
        self._state = ctypes.create_string_buffer(self.state_bytes)
        self._output = torch.zeros(source.outputs)
        self.reset()

    def reset(self) -> None:
        """Back to the state before the first step."""
        getattr(self._library, f"{self.source.name}_init")(self._state)

    def step(self, x: Tensor) -> Tensor:
        """Outputs for one input, a vector or a symbol."""
        self._call(getattr(self._library, f"{self.source.name}_step"), x)
        return self._output.clone()

    def seconds(self) -> float:
        """Processor time of one step."""
        first = torch.tensor(0) if self.source.symbols else torch.ones(self.source.inputs)
        taken = float(self._call(self._library.step_seconds, first))
        self.reset()
        return taken

    def sizes(self) -> CFile:
        """What the file takes in memory and time."""
        return CFile(self.source.array_bytes, self.state_bytes, self.seconds(), f"{self.command} -O2")

    def _call(self, function: Callable[..., Any], x: Tensor) -> Any:
        values = x.to(torch.float32).contiguous()
        given = ctypes.c_int(int(x)) if self.source.symbols else ctypes.c_void_p(values.data_ptr())
        return function(self._state, given, ctypes.c_void_p(self._output.data_ptr()))


def largest_difference(built: Compiled, model: nn.Module, draw: Draw) -> float:
    """The largest difference from the model in single precision, step by step; raises beyond rounding error."""
    model, time, largest = copy.deepcopy(model).float(), 1 if batch_first(model) else 0, 0.0
    if hasattr(model, "answers"):
        model.answers = "every"  # type: ignore[assignment]
    for sizes in CHECKED_AT:
        x = draw(*sizes[:: -1 if time else 1])
        built.reset()
        x = x.float() if x.is_floating_point() else x
        found = torch.stack([built.step(x_t[0]) for x_t in x.unbind(time)])
        largest = max(largest, difference(found, model(x)[0].select(1 - time, 0), sizes))
    built.reset()
    return largest


def _library(source: Source, command: str) -> ctypes.CDLL:
    parameter = "int input" if source.symbols else "const float *input"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.c").write_text(source.text)
        (place / "wrapper.c").write_text(WRAPPER.format(path="model.c", name=source.name, parameter=parameter))
        words = [command, *FLAGS, str(place / "wrapper.c"), "-lm", "-o", str(place / "model.so")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit code {done.returncode}"]
            raise RunError(f"the C file must compile; got from {command}: {lines[0]}. Install gcc or clang.")
        return ctypes.CDLL(str(place / "model.so"))
