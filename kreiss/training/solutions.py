"""Networks that solve the copy task and the adding problem by construction, without training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kreiss.errors import check_size
from kreiss.layers.henaff import Henaff
from kreiss.linalg import rotation_blocks
from kreiss.networks.recurrent import RecurrentNetwork
from kreiss.tasks.copy import BLANK, CUE, Copy
from kreiss.tasks.recall import LENGTH, SYMBOLS


def copy_solution(
    task: Copy, *, clocks: int | None = None, gain: float = 100.0, generator: torch.Generator | None = None
) -> RecurrentNetwork:
    """The network of rotating clocks that solves the copy task: V^{T+S} = I.

    h_t = U x_t + V h_{t−1}, y_t = W h_t. V holds d rotations by 2πl_j/(T + S), and a 1. Each clock keeps a symbol as a
    phase. After T + S steps all clocks are back where they were when it was shown, and only then: its phases add up in
    W, those of other symbols cancel. The unit with the 1 counts symbols and cue, and so keeps the answer blank until
    the cue.

    Symbols: V `layer.weight_hh_l0`, U `layer.weight_ih_l0`, W `readout.weight`; S the ten symbols, T `task.delay`.

    Reference: Henaff et al. (2016); Kerg (2022), §D.2. There l_j is drawn from {1, …, T + S}, d times, so that what is
    not due cancels on average. Differs by default: each l is taken once, d = T + S, and it cancels exactly.

    Args:
        task: the copy task; its convention determines the number of steps between a symbol and its recall.
        clocks: d, to draw l_j as in the thesis; by default each l once.
        gain: scale of W; the loss falls exponentially with it.
        generator: of the drawn l_j.

    Example:
        >>> from kreiss.tasks import Copy
        >>> from kreiss.training import copy_solution, evaluate
        >>> evaluate(copy_solution(Copy(delay=20)), Copy(delay=20, test_sequences=50))["accuracy"]
        1.0
    """
    period = task.steps - LENGTH  # T + S, between a symbol and its recall
    turns = torch.arange(1, period + 1) if clocks is None else _drawn(period, clocks, generator)
    layer = Henaff(task.input_size, 2 * len(turns) + 1, nonlinearity="identity", bias=False)
    network = RecurrentNetwork(layer, task.output_size, symbols=task.input_size)
    phases = 2 * math.pi / SYMBOLS * torch.arange(SYMBOLS, dtype=torch.float64)
    codes = torch.stack([phases.cos(), phases.sin()]).repeat(len(turns), 1)  # the same phase in every clock
    with torch.no_grad():
        layer.weight_hh_l0.copy_(rotation_blocks(2 * math.pi / period * turns.double(), 2 * len(turns) + 1))  # §D.2
        layer.weight_ih_l0.zero_()
        layer.weight_ih_l0[:-1, :SYMBOLS] = codes.to(layer.weight_ih_l0)
        layer.weight_ih_l0[-1] = _counted(task).to(layer.weight_ih_l0)
        network.readout.weight.zero_()
        network.readout.weight[:SYMBOLS, :-1] = (gain / len(turns) * codes.T).to(layer.weight_ih_l0)
        network.readout.weight[BLANK, -1] = gain
    return network


def _drawn(period: int, clocks: int, generator: torch.Generator | None) -> Tensor:
    return torch.randint(1, period + 1, (check_size("clocks", clocks),), generator=generator)


def _counted(task: Copy) -> Tensor:
    """What each input adds to the counter: above 1, the readout of a symbol that is due, until the last cue."""
    cues = int((task.train(0, 1, 0).inputs == CUE).sum())
    row = torch.zeros(task.input_size)
    row[:SYMBOLS] = 1.5
    row[CUE] = (0.5 - 1.5 * LENGTH) / cues  # then one half, between a symbol that is due and nothing
    return row


def adding_solution() -> RecurrentNetwork:
    """The network of one unit that solves the adding problem: V = 1, h_t = relu(number + marker − 1) + h_{t−1}.

    Reference: Henaff et al. (2016); Kerg (2022), §D.2.

    Example:
        >>> from kreiss.tasks import Adding
        >>> from kreiss.training import adding_solution, evaluate
        >>> evaluate(adding_solution(), Adding(length=100, test_sequences=50))["loss"] < 1e-10
        True
    """
    layer = Henaff(2, 1, nonlinearity="relu", init="identity")  # §D.2: V = 1
    network = RecurrentNetwork(layer, 1, answers="last")
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1.0)
        layer.bias_l0.fill_(-1.0)
        network.readout.weight.fill_(1.0)
    return network
