"""Export of a layer or a whole network to one file, checked against the model.

`tracing` makes the model to trace, `states` names its state, `formats` writes and opens ONNX and programs of
`torch.export`, `checking` compares them with the model, `quantised` makes integers of weights. `ccells` has the steps
of layers in C, `ccode` makes a file of them, `compiled` runs it.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import InputError, MissingExtra, RunError, check_name
from kreiss.networks.export import ccode, compiled, formats, quantised
from kreiss.networks.export.checking import CHECKED_AT, largest_difference
from kreiss.networks.export.result import CFile, Exported
from kreiss.networks.export.states import state_form
from kreiss.networks.export.tracing import Flat, copied, inputs_of, plain
from kreiss.networks.saving import load
from kreiss.storage.files import write_whole

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "c": ".c"}
MEASURED_AT = (64, 8)  # (T, B) of random inputs on which files with integers and with floats are compared


def export(
    model: nn.Module,
    path: str | Path,
    *,
    to: str = "onnx",
    verify: bool = False,
    symbols: bool = False,
    state: bool | None = None,
    step: bool = False,
    int8: bool = False,
    example: Tensor | None = None,
    metadata: dict[str, str] | None = None,
) -> Exported:
    """Write a layer, or a network that contains layers, to one file that needs neither kreiss nor its parameters.

    Every recurrent matrix is computed once, and both time and batch stay dynamic. The model itself does not change. The
    file takes a batch of sequences and a state, and returns outputs and the next state, so that a stream can be fed in
    chunks of any length. In ONNX they are called `input`, `state` or `state_h`, `state_c`, …, and `output`,
    `next_state`, …; what a state holds before the first step is in the metadata of the file, under `kreiss.state`. The
    memory of MemRNN, MemLSTM and SAB grows along the third dimension of `state_memory` and `state_times`.

    Args:
        model: a layer of kreiss or torch, or any module that contains some and takes one tensor.
        path: of the file; overwritten if it exists.
        to: "onnx", "torch" for a program of `torch.export` (.pt2), or "c" for C99 without dependencies: a state,
            `<name>_init` and `<name>_step`, called after the file. C has the plain, gated and screened steps.
        verify: run the file at several lengths and batch sizes and compare; a file that differs is discarded.
        symbols: whether a layer takes integer symbols; known for a network.
        state: whether the file takes and returns a state; by default if the model has one. A backward direction, for
            example, needs the whole sequence; such a file returns the model's outputs, flattened.
        step: whether the file computes one step, with inputs (batch, features), from products and element-wise
            operations alone, for runtimes that have no loops.
        int8: whether the weights of an ONNX file become 8-bit integers; how far outputs are from those with floats is
            measured on `example`, or on random inputs.
        example: an input to trace with, if the model's sizes do not determine it.
        metadata: further entries of the metadata, besides how a network's inputs are prepared; in C, of the comment at
            the top.

    Returns:
        The path, the parts of the state, and what was measured.

    Example:
        >>> import kreiss, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = kreiss.export(kreiss.NNRNN(3, 8), pathlib.Path(folder) / "layer.pt2", to="torch", verify=True)
        >>> done.largest_difference < 1e-5
        True
        >>> print(*done.state)
        state [1, batch, 8] starts 0
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}. Pass the layer or network.")
    path = _checked_path(Path(path), to)
    _check_installed(to, verify or int8)
    _check_int8(to, int8)
    prepared = getattr(model, "preprocessing", None)
    entries = {f"kreiss.{name}": value for name, value in prepared.strings().items()} if prepared is not None else {}
    entries |= metadata or {}
    with torch.no_grad(), _quiet():
        model = copied(model).cpu().eval()
        simple = plain(model)
        if to == "c":
            if state is False:
                raise InputError("a step must take and return a state; got to='c' with state=False. Leave `state` out.")
            return _write_c(model, simple, path, symbols, verify, entries)
        draw = inputs_of(simple, symbols, example)
        flat = Flat(simple, state_form(simple, state, step), step).eval()
        program = formats.traced(flat, draw, to)
        parts = () if flat.form is None else flat.form.parts
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # a file that fails never gets this name
            written = Path(folder) / path.name
            formats.save(program, written, to, formats.described(parts, entries))
            difference = largest_difference(formats.opened(written, to), model, flat, draw) if verify else None
            integers = None
            if int8:
                drawn = draw(*MEASURED_AT)
                inputs = ("random inputs", drawn) if example is None else ("the given inputs", example.to(drawn.dtype))
                written, integers = quantised.quantised(written, flat, *inputs)
            written.replace(path)
    return Exported(path, to, CHECKED_AT if verify else (), difference, parts, integers)


def export_saved(source: str, path: str | Path | None = None, **options: Any) -> Exported:
    """Export what `kreiss.load` finds at `source`, a run folder or a model's file; by default to a file next to it.

    Args:
        source, path: as said; the name of a file says what is special about it, such as model-step-int8.onnx.
        **options: those of `export`.
    """
    to = options.get("to", "onnx")
    check_name("format", to, SUFFIXES)
    beside, remote = Path(source), source.startswith("hf://")
    if not remote and not beside.exists():
        raise InputError(f"`source` must be a run folder or a model's file; got {source!r}. Check its name.")
    if remote or beside.is_dir():
        beside = (Path() if remote else beside) / "model"
    special = "".join(f"-{name}" for name in ("step", "int8") if options.get(name) and to != "c")
    return export(load(source), path or beside.with_name(f"{beside.stem}{special}{SUFFIXES[to]}"), **options)


def _write_c(
    model: nn.Module, simple: nn.Module, path: Path, symbols: bool, verify: bool, metadata: dict[str, str]
) -> Exported:
    source = ccode.source(simple, ccode.prefix(path.stem), symbols, metadata)
    difference, sizes = None, CFile(source.array_bytes)
    if verify:
        difference = compiled.largest_difference(compiled.Compiled(source), model, inputs_of(simple, symbols, None))
    write_whole(path, source.text.encode())
    with suppress(InputError, RunError):  # where there is no compiler that works
        sizes = compiled.Compiled(source).sizes()
    return Exported(path, "c", compiled.CHECKED_AT if verify else (), difference, c=sizes)


# ---------------------------------------------------------------- checks


def _checked_path(path: Path, to: str) -> Path:
    check_name("format", to, SUFFIXES)
    if not path.parent.is_dir():
        raise InputError(f"the folder of `path` must exist; got {str(path)!r}. Make {str(path.parent)!r} first.")
    if path.suffix != SUFFIXES[to]:
        raise InputError(f"`path` must end in {SUFFIXES[to]!r} for to={to!r}; got {str(path)!r}. Rename it.")
    return path


def _check_int8(to: str, int8: bool) -> None:
    if int8 and to != "onnx":
        raise InputError(f"`int8` must be used with to='onnx'; got to={to!r}. Leave one of them out.")


def _check_installed(to: str, runs: bool) -> None:
    needed = () if to != "onnx" else ("onnx", "onnxscript", *(("onnxruntime",) if runs else ()))
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra("export to ONNX", "onnx", package)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's own messages about tracing: deprecations, and optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\.|copyreg|onnxscript|onnx_ir")
            warnings.filterwarnings("ignore", message="torch.compile is ignored when called inside torch.export")
            yield
    finally:
        logger.setLevel(level)
