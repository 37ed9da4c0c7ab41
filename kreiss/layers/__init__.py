"""Recurrent layers with the contract of `torch.nn.RNN`, one architecture per file."""

from torch import nn

from kreiss.layers.base import RecurrentLayer
from kreiss.layers.enrnn import ENRNN
from kreiss.layers.exprnn import ExpRNN
from kreiss.layers.gru import GRU
from kreiss.layers.irnn import IRNN
from kreiss.layers.lstm import LSTM
from kreiss.layers.nnrnn import NNRNN
from kreiss.layers.orthrnn import OrthRNN
from kreiss.layers.rnn import RNN
from kreiss.layers.scornn import ScoRNN

REGISTRY: dict[str, type[nn.Module]] = {
    "rnn": RNN,
    "irnn": IRNN,
    "orthrnn": OrthRNN,
    "exprnn": ExpRNN,
    "scornn": ScoRNN,
    "nnrnn": NNRNN,
    "enrnn": ENRNN,
    "lstm": LSTM,
    "gru": GRU,
}

__all__ = ["ENRNN", "GRU", "IRNN", "LSTM", "NNRNN", "REGISTRY", "RNN", "ExpRNN", "OrthRNN", "RecurrentLayer", "ScoRNN"]
