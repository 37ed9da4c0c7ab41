"""The two formats of traced models, ONNX and programs of `torch.export`: writing, opening, what a file says of itself.

A file says what its state is: ONNX in its metadata, `metadata_props`, and a program in `extra_files`, where the
entry `kreiss.state` is a JSON list with name, shape, dtype and initial value of every part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from kreiss.errors import InputError
from kreiss.networks.export.states import Part
from kreiss.networks.export.tracing import Draw, Flat, tensors_of
from kreiss.version import __version__

TRACED_AT = (6, 7)  # (T, B) of the example; distinct and not 1, or tracing would take them for constants
STORED = 5  # stored states in the example of a memory that grows; not 0 or 1, or tracing would take it for a constant


def traced(flat: Flat, draw: Draw, to: str) -> Any:
    """The program of a model, with dynamic time and batch; an error where torch cannot trace it."""
    example, batch = draw(*TRACED_AT), TRACED_AT[1 - flat.time]
    example = example.select(flat.time, 0).contiguous() if flat.step else example
    named = {name: Dim.DYNAMIC if to == "torch" else name for name in ("time", "batch", "memory")}
    order = ("batch",) if flat.step else ("batch", "time") if flat.time else ("time", "batch")
    parts = () if flat.form is None else flat.form.parts
    shapes: list[Any] = [{place: named[name] for place, name in enumerate(order)}]
    if parts:
        shapes.append(tuple(_dynamic(part, named) for part in parts))
    args = (example, *(_example(part, batch) for part in parts))
    try:
        if to == "torch":
            return torch.export.export(flat, args, dynamic_shapes=tuple(shapes))
        names = [part.name for part in parts]
        outputs = ["output", *(f"next_{name}" for name in names)] if parts else None
        return torch.onnx.export(
            flat, args, dynamic_shapes=tuple(shapes), input_names=["input", *names], output_names=outputs, dynamo=True,
            verbose=False,
        )  # fmt: skip
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds; the cause stays in the chain
        raise InputError(
            f"`model` must be exportable with dynamic time and batch; got {type(flat.model).__name__}, which torch "
            f"could not trace with an input of shape {tuple(example.shape)} and {example.dtype}. Pass an `example` "
            "if it takes another input; a loop of its own over time cannot be traced."
        ) from error


def _dynamic(part: Part, named: dict[str, Any]) -> dict[int, Any]:
    return {place: named[size] for place, size in enumerate(part.shape) if isinstance(size, str)}


def _example(part: Part, batch: int) -> Tensor:
    """A tensor of the sizes of a part; its numbers do not matter."""
    sizes = {"batch": batch, "memory": STORED}
    shape = [sizes[size] if isinstance(size, str) else size for size in part.shape]
    return torch.zeros(shape, dtype=getattr(torch, part.dtype))


def described(parts: tuple[Part, ...], given: dict[str, str]) -> dict[str, str]:
    """What a file says of itself: its state, the version, and what the caller gave."""
    own = {"kreiss.state": json.dumps([part.described() for part in parts]), "kreiss.version": __version__}
    return own | given


def save(program: Any, path: Path, to: str, metadata: dict[str, str]) -> None:
    """Write a traced model with its metadata."""
    if to == "torch":
        torch.export.save(program, path, extra_files=dict(metadata))
    else:
        for part in (*program.model.graph.all_nodes(), program.model.graph, *program.model.graph.subgraphs()):
            part.metadata_props.clear()  # stack traces of this machine
        program.model.metadata_props.update(metadata)
        program.save(path, external_data=False)


def opened(path: Path, to: str) -> Callable[..., list[Tensor]]:
    """The file, as a function of its inputs."""
    if to == "torch":
        module = torch.export.load(path).module()
        return lambda *inputs: tensors_of(module(*inputs))
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        arrays = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.as_tensor(array) for array in session.run(None, arrays)]

    return run
