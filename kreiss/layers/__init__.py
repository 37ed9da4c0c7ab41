"""Recurrent layers with the contract of `torch.nn.RNN`, one architecture per file."""

from torch import nn

from kreiss.layers.base import RecurrentLayer
from kreiss.layers.complexnnrnn import ComplexNNRNN
from kreiss.layers.eurnn import EURNN
from kreiss.layers.exprnn import ExpRNN
from kreiss.layers.fullurnn import FullURNN
from kreiss.layers.gru import GRU
from kreiss.layers.irnn import IRNN
from kreiss.layers.lstm import LSTM
from kreiss.layers.nnrnn import NNRNN
from kreiss.layers.orthrnn import OrthRNN
from kreiss.layers.rnn import RNN
from kreiss.layers.scornn import ScoRNN
from kreiss.layers.scurnn import ScuRNN
from kreiss.layers.stream import Stream
from kreiss.layers.urnn import URNN

REGISTRY: dict[str, type[nn.Module]] = {
    "rnn": RNN,
    "irnn": IRNN,
    "orthrnn": OrthRNN,
    "exprnn": ExpRNN,
    "scornn": ScoRNN,
    "nnrnn": NNRNN,
    "scurnn": ScuRNN,
    "urnn": URNN,
    "eurnn": EURNN,
    "fullurnn": FullURNN,
    "complexnnrnn": ComplexNNRNN,
    "lstm": LSTM,
    "gru": GRU,
}

__all__ = [
    "EURNN",
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "REGISTRY",
    "RNN",
    "URNN",
    "ComplexNNRNN",
    "ExpRNN",
    "FullURNN",
    "OrthRNN",
    "RecurrentLayer",
    "ScoRNN",
    "ScuRNN",
    "Stream",
]
