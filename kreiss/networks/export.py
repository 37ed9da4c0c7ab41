"""Export of a layer or a whole network to one file with dynamic time and batch, checked against the model."""

from __future__ import annotations

import copy
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from kreiss.errors import InputError, MissingExtra, check_name, check_tensor
from kreiss.networks.saving import load
from kreiss.networks.scanned import Scanned

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
TRACED_AT = (6, 7)  # (T, B) of the example; distinct and not 1, or tracing would take them for constants
CHECKED_AT = ((1, 1), (2, 3), (9, 1), (33, 4))
ROUNDING = 1e3  # allowed difference in units in the last place of the largest output


@dataclass(frozen=True)
class Exported:
    """The written file; `largest_difference` from the model is absolute, or None if not verified."""

    path: Path
    to: str
    checked_at: tuple[tuple[int, int], ...] = ()
    largest_difference: float | None = None

    def __str__(self) -> str:
        if self.largest_difference is None:
            return f"wrote {self.path}"
        sizes = ", ".join(f"{first}×{second}" for first, second in self.checked_at)
        return f"wrote {self.path}; largest difference from the model {self.largest_difference:.1e} (at {sizes})"


def export(
    model: nn.Module,
    path: str | Path,
    *,
    to: str = "onnx",
    verify: bool = False,
    symbols: bool = False,
    state: bool = False,
    example: Tensor | None = None,
) -> Exported:
    """Write a layer, or a network that contains layers, to one file that needs neither kreiss nor its parameters.

    Every recurrent matrix is computed once, time becomes a scan, and both time and batch stay dynamic. The model itself
    does not change. The file takes one input, a batch of sequences, and returns the model's outputs, flattened.

    Args:
        model: a layer of kreiss or torch, or any module that contains some and takes one tensor.
        path: of the file; overwritten if it exists.
        to: "onnx", or "torch" for a program of `torch.export` (.pt2).
        verify: run the file at several lengths and batch sizes and compare; a file that differs is discarded.
        symbols: whether a layer takes integer symbols; known for a network.
        state: whether the file also takes a state and returns the next one. The inputs of an ONNX file are then
            `input`, `state` or `state.h`, `state.c`, …, its outputs `output`, `next_state.h`, …
        example: an input to trace with, if the model's sizes do not determine it.

    Returns:
        The path, and the largest difference from the model where `verify` is set.

    Example:
        >>> import kreiss, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = kreiss.export(kreiss.NNRNN(3, 8), pathlib.Path(folder) / "layer.pt2", to="torch", verify=True)
        >>> done.largest_difference < 1e-5
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}. Pass the layer or network.")
    check_name("format", to, SUFFIXES)
    path = _checked_path(Path(path), to)
    _check_installed(to, verify)
    with torch.no_grad(), _quiet():
        model = _copied(model).cpu().eval()
        plain = _plain(model)
        draw = _inputs_of(plain, symbols, example)
        flat = _Flat(plain, _first_state(model, draw) if state else None).eval()
        program = _traced(flat, draw(*TRACED_AT), to)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # a file that fails never gets this name
            written = Path(folder) / path.name
            _save(program, written, to)
            difference = _largest_difference(written, to, model, draw, flat) if verify else None
            written.replace(path)
    return Exported(path, to, CHECKED_AT if verify else (), difference)


def export_saved(
    source: str, path: str | Path | None = None, *, to: str = "onnx", verify: bool = False, symbols: bool = False
) -> Exported:
    """Export what `kreiss.load` finds at `source`, a run folder or a model's file; by default to a file next to it."""
    check_name("format", to, SUFFIXES)
    beside, remote = Path(source), source.startswith("hf://")
    if not remote and not beside.exists():
        raise InputError(f"`source` must be a run folder or a model's file; got {source!r}. Check its name.")
    if remote or beside.is_dir():
        beside = (Path() if remote else beside) / "model"
    model = load(source)
    return export(model, path or beside.with_suffix(SUFFIXES[to]), to=to, verify=verify, symbols=symbols)


# ---------------------------------------------------------------- the model to trace


def _copied(model: nn.Module) -> nn.Module:
    """A deep copy, without gradients: torch's RNNs keep the last value of a constrained matrix, with its graph."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase) and parametrize.is_parametrized(module):
            module._init_flat_weights()
    return copy.deepcopy(model)


def _plain(model: nn.Module) -> nn.Module:
    """A copy for inference: parametrizations evaluated, layers frozen, torch's own layers as scans."""
    plain = copy.deepcopy(model)
    for module in list(plain.modules()):
        if parametrize.is_parametrized(module):
            _evaluate_parametrizations(module)
    return _rebuilt(_frozen(plain)).requires_grad_(False).eval()


def _evaluate_parametrizations(module: nn.Module) -> None:
    """As torch's remove_parametrizations, which would also change the class that a copy shares with its original."""
    values = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value))


def _rebuilt(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.RNNBase):
        return Scanned(module)
    for name, child in module.named_children():
        module.add_module(name, _rebuilt(_frozen(child)))
    return module


def _frozen(module: nn.Module) -> nn.Module:
    freeze: Any = getattr(module, "freeze", None)
    return freeze() if callable(freeze) else module


def _first(model: nn.Module, kind: Callable[[nn.Module], bool]) -> nn.Module | None:
    return next(filter(kind, model.modules()), None)


def _recurrent(module: nn.Module) -> bool:
    return isinstance(getattr(module, "input_size", None), int)


def _batch_first(model: nn.Module) -> bool:
    return bool(getattr(_first(model, _recurrent), "batch_first", False))


def _inputs_of(model: nn.Module, symbols: bool, example: Tensor | None) -> Callable[[int, int], Tensor]:
    """A function that draws inputs for the model from the sizes of time and batch, in the model's order."""
    generator = torch.Generator().manual_seed(0)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    draw_symbols = lambda count, tail=(): lambda *sizes: torch.randint(count, (*sizes, *tail), generator=generator)  # noqa: E731
    draw_numbers = lambda tail: lambda *sizes: torch.randn(*sizes, *tail, generator=generator, dtype=dtype)  # noqa: E731
    if example is not None:
        check_tensor("example", example)
        if example.dim() < 2 or not example.numel():
            raise InputError(
                f"`example` must be a batch of sequences; got shape {tuple(example.shape)}. Give it time and batch."
            )
        tail = tuple(example.shape[2:])
        return draw_numbers(tail) if example.is_floating_point() else draw_symbols(int(example.max()) + 1, tail)
    if count := int(getattr(model, "symbols", 0)):  # of a RecurrentNetwork
        return draw_symbols(count)
    first = _first(model, lambda module: isinstance(module, nn.Embedding) or _recurrent(module))
    if isinstance(first, nn.Embedding):
        return draw_symbols(first.num_embeddings)
    if first is None:
        raise InputError(
            f"`model` must contain a recurrent layer; got {type(model).__name__} without one. "
            "Pass an `example` of its input."
        )
    size = int(first.input_size)  # type: ignore[arg-type]
    return draw_symbols(size) if symbols else draw_numbers((size,))


def _first_state(model: nn.Module, draw: Callable[[int, int], Tensor]) -> Any:
    """The state before the first step of a batch like that of the example."""
    if not callable(init := getattr(model, "init_state", None)):
        raise InputError(
            f"`model` must have init_state, as layers and networks of kreiss do, to be exported with its state; got "
            f"{type(model).__name__}. Leave `state` out."
        )
    first = init(TRACED_AT[0 if _batch_first(model) else 1])
    if [part.shape for part in _tensors(model(draw(*TRACED_AT), first)[1])] != [p.shape for p in _tensors(first)]:
        raise InputError(
            f"a state must keep its size to be exported; got {type(model).__name__}, whose memory grows. "
            "Export RelRNN or RelLSTM, or leave `state` out."
        )
    return first


class _Flat(nn.Module):
    """A model with plain tensors as inputs and outputs, as a file has them: the input, and the parts of a state."""

    def __init__(self, model: nn.Module, state: Any) -> None:
        super().__init__()
        self.model = model
        self.leaves: list[Tensor] = [] if state is None else pytree.tree_leaves(state)
        self.form: Any = None if state is None else pytree.tree_structure(state)
        paths = [] if state is None else [path for path, _ in pytree.tree_flatten_with_path(state)[0]]
        self.parts = [".".join(["state", *(_key(key) for key in path)]) for path in paths]

    def forward(self, input: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, ...]:
        """All tensors that the model returns."""
        given = () if self.form is None else (pytree.tree_unflatten(state, self.form),)
        outputs = self.model(input, *given)
        return outputs if isinstance(outputs, Tensor) else tuple(_tensors(outputs))


def _key(key: Any) -> str:
    """The name of a field, or the index in a tuple."""
    return str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key))))


# ---------------------------------------------------------------- the two formats


def _traced(flat: _Flat, example: Tensor, to: str) -> Any:
    time, batch = (1, 0) if _batch_first(flat.model) else (0, 1)
    names = {"time": Dim.DYNAMIC, "batch": Dim.DYNAMIC} if to == "torch" else {"time": "time", "batch": "batch"}
    shapes: list[Any] = [{time: names["time"], batch: names["batch"]}]
    if flat.leaves:
        shapes.append(tuple({1: names["batch"]} for _ in flat.leaves))
    given: Any = {"args": (example, *flat.leaves), "dynamic_shapes": tuple(shapes)}
    try:
        if to == "torch":
            return torch.export.export(flat, **given)
        if flat.leaves:
            given["output_names"] = ["output", *(f"next_{part}" for part in flat.parts)]
        return torch.onnx.export(flat, dynamo=True, verbose=False, input_names=["input", *flat.parts], **given)
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds; the cause stays in the chain
        raise InputError(
            f"`model` must be exportable with dynamic time and batch; got {type(flat.model).__name__}, which torch "
            f"could not trace with an input of shape {tuple(example.shape)} and {example.dtype}. Pass an `example` "
            "if it takes another input."
        ) from error


def _save(program: Any, path: Path, to: str) -> None:
    if to == "torch":
        torch.export.save(program, path)
    else:
        program.save(path, external_data=False)


def _opened(path: Path, to: str) -> Callable[..., list[Tensor]]:
    """The file, as a function of its inputs."""
    if to == "torch":
        module = torch.export.load(path).module()
        return lambda *inputs: _tensors(module(*inputs))
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        arrays = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.as_tensor(array) for array in session.run(None, arrays)]

    return run


def _tensors(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _largest_difference(
    path: Path, to: str, model: nn.Module, draw: Callable[[int, int], Tensor], flat: _Flat
) -> float:
    """The largest difference between file and model over several sizes; raises beyond rounding error."""
    run, whole = _opened(path, to), _Flat(model, None)
    whole.form = flat.form
    largest = 0.0
    for sizes in CHECKED_AT:
        batch = sizes[0 if _batch_first(model) else 1]
        state = _tensors(model.init_state(batch)) if flat.leaves else []  # type: ignore[operator]
        for _ in range(2 if flat.leaves else 1):  # the second chunk starts from the state of the first
            x = draw(*sizes)
            found, wanted = run(x, *state), _tensors(whole(x, *state))
            largest = max(largest, *(_difference(*pair, sizes) for pair in zip(found, wanted, strict=True)))
            state = found[1:]
    return largest


def _difference(output: Tensor, expected: Tensor, sizes: tuple[int, int]) -> float:
    """The largest difference between an output of the file and that of the model; raises beyond rounding error."""
    apart = torch.where(output == expected, 0.0, (output.double() - expected.double()).abs())  # −inf equals −inf
    difference = float(apart.max()) if apart.numel() else 0.0
    scale = 1 + float(expected[expected.isfinite()].abs().amax()) if expected.isfinite().any() else 1.0
    allowed = ROUNDING * torch.finfo(expected.dtype).eps * scale if expected.is_floating_point() else 0.0
    if not (output.shape == expected.shape and difference <= allowed):
        raise InputError(
            f"the exported file must compute what the model does; got a difference of {difference:.1e} in an "
            f"input of sizes {sizes}, beyond {allowed:.1e}. Export the model in float64 to see whether "
            "rounding grows in it."
        )
    return difference


# ---------------------------------------------------------------- checks


def _checked_path(path: Path, to: str) -> Path:
    if not path.parent.is_dir():
        raise InputError(f"the folder of `path` must exist; got {str(path)!r}. Make {str(path.parent)!r} first.")
    if path.suffix != SUFFIXES[to]:
        raise InputError(f"`path` must end in {SUFFIXES[to]!r} for to={to!r}; got {str(path)!r}. Rename it.")
    return path


def _check_installed(to: str, verify: bool) -> None:
    needed = () if to == "torch" else ("onnx", "onnxscript", *(("onnxruntime",) if verify else ()))
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
