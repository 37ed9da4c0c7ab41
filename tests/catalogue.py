"""The one list that enrols every set and every layer in every test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import kreiss
from kreiss.layers.contract.complex import ComplexLayer
from kreiss.layers.contract.lstm import LSTMLayer
from kreiss.memory import MEMORY_LAYERS
from kreiss.networks import LAYERS
from kreiss.sets.orthogonal import METHODS
from kreiss.sets.unitary import UNITARY_METHODS


def half(n: int) -> int:
    """Complex units that make a real matrix of size n, or of n + 1 where n is odd."""
    return (n + 1) // 2


# name → the set of a given size, of the next even one where units are complex
SETS: dict[str, Callable[[int], kreiss.Set]] = {
    "free": kreiss.Free,
    **{f"orthogonal-{method}": (lambda n, method=method: kreiss.Orthogonal(n, method)) for method in METHODS},
    "orthogonal-exp-retraction": lambda n: kreiss.Orthogonal(n, "trivialization", retraction="exp"),
    "orthogonal-few-reflections": lambda n: kreiss.Orthogonal(n, "householder", reflections=max(n // 2, 1)),
    "orthogonal-few-layers": lambda n: kreiss.Orthogonal(n, "givens", layers=max(n // 2, 1)),
    "schur-exact": lambda n: kreiss.Schur(n, "exact"),
    "schur-rotation": lambda n: kreiss.Schur(n, "rotation"),
    "schur-paper": lambda n: kreiss.Schur(n, "paper"),
    "schur-clamped": lambda n: kreiss.Schur(n, radius=0.9),
    "schur-expm": lambda n: kreiss.Schur(n, orthogonal="expm"),
    "orthogonal-butterfly": lambda n: kreiss.Orthogonal(n, "butterfly"),
    "band": kreiss.Band,
    "band-trivialization": lambda n: kreiss.Band(n, 0.5, "trivialization"),
    "band-orthogonal": lambda n: kreiss.Band(n, 0.0, "expm"),
    "disc": kreiss.UnitDisc,
    "disc-epsilon-0": lambda n: kreiss.UnitDisc(n, epsilon=0.0),
    "longshort": kreiss.LongShort,
    "longshort-uncoupled": lambda n: kreiss.LongShort(n, n // 2, coupled=False, orthogonal="trivialization"),
    "longshort-only-short": lambda n: kreiss.LongShort(n, n),
    **{f"unitary-{method}": (lambda n, method=method: kreiss.Unitary(half(n), method)) for method in UNITARY_METHODS},
    "unitary-few-layers": lambda n: kreiss.Unitary(half(n), "mesh", capacity=1),
    "complexschur": lambda n: kreiss.ComplexSchur(half(n)),
    "complexschur-clamped": lambda n: kreiss.ComplexSchur(half(n), radius=0.9),
    "schur-real": lambda n: kreiss.Schur(n, real=((n + 1) // 2, n // 2)),
}

# a set that is not there in some variant is there as it is
_ENROLLED = {type(make(4)) for make in SETS.values()}
SETS |= {
    name.lower(): cls
    for name, cls in kreiss.SETS.items()
    if cls not in _ENROLLED and next(iter(inspect.signature(cls).parameters)) == "n"
}

# name → the layer, with (input_size, hidden_size, num_layers, **options) as torch.nn.RNN
VARIANTS: dict[str, Callable[..., Any]] = {
    **LAYERS,
    "nnrnn-paper": lambda *sizes, **options: kreiss.NNRNN(*sizes, blocks="paper", **options),
    "nnrnn-clamped": lambda *sizes, **options: kreiss.NNRNN(*sizes, radius=0.95, **options),
    "enrnn-uncoupled": lambda *sizes, **options: kreiss.ENRNN(*sizes, coupled=False, epsilon=0.0, **options),
    "henaff-orthogonal": lambda *sizes, **options: kreiss.Henaff(*sizes, orthogonal="expm", **options),
    "goru-trivialization": lambda *sizes, **options: kreiss.GORU(*sizes, orthogonal="trivialization", **options),
    "urnn-structured": lambda *sizes, **options: kreiss.URNN(*sizes, structured=True, **options),
    "eurnn-structured": lambda *sizes, **options: kreiss.EURNN(*sizes, structured=True, **options),
    "eurnn-fft": lambda *sizes, **options: kreiss.EURNN(*sizes, fft=True, **options),
    "eurnn-fft-structured": lambda *sizes, **options: kreiss.EURNN(*sizes, fft=True, structured=True, **options),
    "complexnnrnn-clamped": lambda *sizes, **options: kreiss.ComplexNNRNN(*sizes, radius=0.95, **options),
    # with so little memory that states are screened in the short sequences of tests
    "relrnn": lambda *sizes, **options: kreiss.RelRNN(*sizes, **{"short": 2, "relevant": 2, **options}),
    "rellstm": lambda *sizes, **options: kreiss.RelLSTM(*sizes, **{"short": 3, "relevant": 1, **options}),
    "relrnn-schur": lambda *sizes, **options: kreiss.RelRNN(*sizes, short=2, relevant=2, recurrent="schur", **options),
    "relrnn-learned": lambda *sizes, **options: kreiss.RelRNN(
        *sizes, short=2, relevant=1, screening="learned", **options
    ),
    "rellstm-surprise": lambda *sizes, **options: kreiss.RelLSTM(
        *sizes, short=2, relevant=1, screening="surprise", **options
    ),
    "exprnn-expm": lambda *sizes, **options: kreiss.ExpRNN(*sizes, orthogonal="expm", **options),
}

# those built on our own recurrences, and not on torch's gated layers
OURS = {name: make for name, make in VARIANTS.items() if name not in ("lstm", "gru")}

# those that run in one direction only, LSTMs with another gradient, and those that run in both if asked to
ONE_WAY = {name: make for name, make in OURS.items() if isinstance(make(1, 1), LSTMLayer)}
TWO_WAY = {name: make for name, make in VARIANTS.items() if name not in ONE_WAY}

# those of them with gates, which have a kernel of their own
GATED = {name: make for name, make in OURS.items() if name.startswith(("goru", "gatednnrnn"))}

# those with long memory, whose state is not one tensor
MEMORY = {name: make for name, make in OURS.items() if name.split("-")[0] in MEMORY_LAYERS}

# those whose state is one tensor, as that of torch.nn.RNN
PLAIN_STATE = {name: make for name, make in OURS.items() if name not in MEMORY}

# those whose recurrence is that of torch.nn.RNN
ELMAN = {name: make for name, make in PLAIN_STATE.items() if name not in GATED and not name.startswith("henaff")}

# those whose recurrent matrix is its own parameter
FREE = {"rnn", "irnn", "orthrnn", "henaff"} | {name for name in MEMORY if not name.endswith("schur")}

# those whose units are complex: two real features per unit of hidden_size
COMPLEX = {name: make for name, make in OURS.items() if issubclass(type(make(1, 1)), ComplexLayer)}

# those that apply their recurrent matrix as a product of sparse ones, which the kernel does not
STRUCTURED = {name: make for name, make in COMPLEX.items() if name.endswith("structured")}


# without `init`: their gates have one initialiser
ONE_START = {name for name in OURS if "lstm" in name} | set(ONE_WAY)


def width(name: str, hidden: int) -> int:
    """Features of states and outputs of a layer of hidden_size=hidden."""
    return 2 * hidden if name in COMPLEX else hidden


def units(name: str, features: int) -> int:
    """The hidden_size at which states of a layer have so many features."""
    return features // 2 if name in COMPLEX else features


def mostly_slow(names: Iterable[Any], *quick: Any) -> list[Any]:
    """All names as parameters of a test, those outside of `quick` under the marker `slow`."""
    names = list(names)
    assert not set(quick) - set(names), "what is to be quick must be there"
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def in_shapes(names: Iterable[str]) -> Any:
    """(name, num_layers, bidirectional): one layer, and two in both directions, which have every kind of cell."""
    shapes = [(name, *shape) for name in names for shape in ((1, False), (2, name in TWO_WAY))]
    return pytest.mark.parametrize(("name", "num_layers", "bidirectional"), shapes)


# a short form of a drift, and the long one
many_steps = pytest.mark.parametrize("steps", [500, pytest.param(10_000, marks=pytest.mark.slow)])


def state_of(layer: nn.Module, state: Any) -> list[Any]:
    """The tensors of a state: one, the pair of an LSTM, or the parts of a layer with memory."""
    return tree_leaves(state)


def hidden_of(state: Any) -> list[Any]:
    """The tensors of a state that have the shape of torch's: h, and c of an LSTM."""
    return [getattr(state, name) for name in ("h", "c") if hasattr(state, name)] or tree_leaves(state)


def moved(model: nn.Module) -> nn.Module:
    """With every parameter off its start, where many are zero and would hide a fault."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def filled(state: Any) -> Any:
    """The state of one sequence, without the empty slots that a longer one in the batch leaves in a full memory."""
    if not hasattr(state, "memory"):
        return state
    there = state.times >= 0
    return state._replace(memory=state.memory[there], times=state.times[there])


def a_state(layer: Any, batch_size: int | None = None) -> Any:
    """A random state: any numbers will do, except in a memory, which must have come about."""
    if hasattr(layer, "attention"):
        lead = [] if batch_size is None else [batch_size]
        times = [*lead, 5] if layer.batch_first else [5, *lead]
        x = torch.randn(*times, layer.input_size, dtype=layer.weight_ih_l0.dtype)
        return tree_map(torch.detach, layer(x)[1])
    return tree_map(torch.randn_like, layer.init_state(batch_size))
