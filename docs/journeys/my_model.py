"""A model of one's own: any torch module with forward(inputs, state, lengths) -> (outputs, state)."""

import torch
from torch import nn
from torch.nn import functional as F


class Leaky(nn.Module):
    """h_t = a h_{t−1} + (1 − a) tanh(V h_{t−1} + U x_t), read linearly at every step.

    The constructor names the sizes of the task that it needs; everything else is an option: --model.leak 0.9.
    """

    def __init__(self, input_size: int, hidden_size: int, output_size: int, leak: float = 0.5) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.output_size, self.leak = input_size, hidden_size, output_size, leak
        self.enter = nn.Linear(input_size, hidden_size)
        self.again = nn.Linear(hidden_size, hidden_size, bias=False)
        self.readout = nn.Linear(hidden_size, output_size)

    def forward(self, inputs, state=None, lengths=None):
        if not inputs.is_floating_point():  # symbols
            inputs = F.one_hot(inputs, self.input_size).to(self.readout.weight.dtype)
        h = inputs.new_zeros(1, inputs.shape[1], self.hidden_size) if state is None else state
        outputs = []
        for x in self.enter(inputs):
            h = self.leak * h + (1 - self.leak) * torch.tanh(x + self.again(h))
            outputs.append(self.readout(h[0]))
        return torch.stack(outputs), h
