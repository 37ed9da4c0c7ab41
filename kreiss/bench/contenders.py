"""The workloads of `kreiss bench`, and what is compared: our layers, torch's, geotorch's, and bare matrix products."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from kreiss.layers import GORU, NNRNN, ExpRNN, GatedNNRNN
from kreiss.memory import MemLSTM, MemRNN, RelLSTM, RelRNN
from kreiss.optim import RMSprop, param_groups, radius_penalty, rebase
from kreiss.recurrence import reference_only
from kreiss.recurrence.nonlinearity import modrelu


@dataclass(frozen=True)
class Work:
    """One size of problem: batch, time steps, hidden units, input features or symbols.

    A turn of a contender is `repeats` passes, after an untimed one if there are several: in training, a pass of
    milliseconds follows one like it, and finds the caches as that left them.
    """

    name: str
    batch: int
    steps: int
    hidden: int
    inputs: int
    symbols: bool = False
    rounds: int = 8
    repeats: int = 1
    memory: bool = False  # whether layers with memory run, and not the others

    @property
    def state_bytes(self) -> int:
        """The states h_1 … h_T in single precision, the least that a backward pass needs."""
        return 4 * self.steps * self.batch * self.hidden


WORKS = (
    Work("copy", 10, 220, 128, 10, rounds=20, repeats=4),
    Work("psMNIST", 100, 784, 512, 1, rounds=4),
    Work("PTB", 128, 150, 1024, 50, symbols=True, rounds=5),
    Work("streaming", 1, 1000, 64, 1, rounds=20, repeats=4),
    Work("memory", 10, 220, 128, 10, rounds=20, repeats=2, memory=True),
)

LAYER, CONSTRAINED = "kreiss, V given", "kreiss ExpRNN"
UPDATE, EXP_UPDATE = "NNRNN update", "ExpRNN update"
GEOTORCH = "geotorch cell loop"
MEMORY = {"RelRNN": RelRNN, "RelLSTM": RelLSTM, "MemRNN": MemRNN, "MemLSTM": MemLSTM}
MEMORY_LOOP = "RelRNN plain loop"
GATED = {"GORU": GORU, "GatedNNRNN": GatedNNRNN}  # with their constraints, which nn.LSTM and nn.GRU do not have

# contender → which of ours it is compared with; by default the layer with V given
COUNTERPART = {
    UPDATE: UPDATE,
    EXP_UPDATE: UPDATE,
    "nn.LSTM update": UPDATE,
    CONSTRAINED: CONSTRAINED,
    GEOTORCH: CONSTRAINED,
    **{name: name for name in (*GATED, *MEMORY)},
    MEMORY_LOOP: "RelRNN",
}


def contenders(work: Work) -> dict[str, Callable[[], None]]:
    """Forward and backward of one batch of sequences by each layer; and whole updates of NNRNN, ExpRNN and LSTM."""
    g = torch.Generator().manual_seed(0)
    symbols = torch.randint(work.inputs, (work.steps, work.batch), generator=g)
    x = nn.functional.one_hot(symbols, work.inputs).float() if work.symbols else torch.randn(
        work.steps, work.batch, work.inputs, generator=g
    )  # fmt: skip
    ours = symbols if work.symbols else x
    grad = torch.randn(work.steps, work.batch, work.hidden, generator=g)
    size = (work.inputs, work.hidden)
    if work.memory:
        layers = {name: layer(*size, generator=g) for name, layer in MEMORY.items()}
        return {
            "nn.LSTM": _pass(nn.LSTM(*size), x, grad),
            **{name: _pass(layer, x, grad) for name, layer in layers.items()},
            MEMORY_LOOP: _plain(layers["RelRNN"], x, grad),
        }
    frozen = NNRNN(*size, generator=g).freeze().requires_grad_(True)
    passes = {
        LAYER: _pass(frozen, ours, grad),
        "nn.LSTM": _pass(nn.LSTM(*size), x, grad),
        "nn.GRU": _pass(nn.GRU(*size), x, grad),
        "nn.RNN relu": _pass(nn.RNN(*size, nonlinearity="relu"), x, grad),
        "plain loop": _plain(frozen, ours, grad),
        "loop of products": _products(frozen.weight_hh_l0.detach(), work),
        **{name: _pass(layer(*size, generator=g), ours, grad) for name, layer in GATED.items()},
        CONSTRAINED: _pass(ExpRNN(*size, generator=g), ours, grad),
        UPDATE: _update(NNRNN(*size, generator=g), ours, grad),
        EXP_UPDATE: _update(ExpRNN(*size, generator=g), ours, grad),
        "nn.LSTM update": _update(nn.LSTM(*size), x, grad, torch.optim.RMSprop),
    }
    if importlib.util.find_spec("geotorch") is not None:
        passes[GEOTORCH] = _pass(GeotorchLoop(*size), x, grad)
    return passes


class GeotorchLoop(nn.Module):
    """Typical geotorch code: an orthogonal cell with modReLU, called step by step, its matrix computed once."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        import geotorch

        self.bias = nn.Parameter(torch.zeros(hidden))
        self.drive = nn.Linear(inputs, hidden, bias=False)
        self.recurrent = nn.Linear(hidden, hidden, bias=False)
        geotorch.orthogonal(self.recurrent, "weight")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """States (T, B, N) and the last one."""
        h, states = x.new_zeros(x.shape[1], len(self.bias)), []
        with parametrize.cached():
            for x_t in x.unbind(0):
                h = modrelu(self.drive(x_t) + self.recurrent(h), self.bias)
                states.append(h)
        return torch.stack(states), h


def _pass(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    def work() -> None:
        layer(x)[0].backward(grad)

    return work


def _plain(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    def work() -> None:
        with reference_only():
            layer(x)[0].backward(grad)

    return work


def _products(matrix: Tensor, work: Work) -> Callable[[], None]:
    """The matrix products alone: one per step each way, one for the gradient of V."""
    states = torch.empty(work.steps, work.batch, work.hidden)

    def products() -> None:
        for _ in range(2):
            h = states[-1].zero_()
            for room in states:
                h = torch.mm(h, matrix, out=room)
        torch.mm(states.flatten(0, 1).mT, states.flatten(0, 1))

    return products


def _update(layer: nn.Module, x: Tensor, grad: Tensor, kind: type[torch.optim.RMSprop] = RMSprop) -> Callable[[], None]:
    """Everything of one training step: constraint, penalty, gradients, optimiser, base point moved along."""
    optimizer = kind(param_groups(layer, 1e-4, 1e-5, 1e-6), lr=1e-4)

    def work() -> None:
        optimizer.zero_grad(set_to_none=True)
        output = layer(x)[0]
        torch.autograd.backward([output, radius_penalty(layer, 1e-4).requires_grad_()], [grad, None])
        optimizer.step()
        rebase(layer)  # nothing to do for nn.LSTM

    return work
