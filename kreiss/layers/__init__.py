"""Recurrent layers with the contract of `torch.nn.RNN`, one architecture per file."""

from torch import nn

from kreiss.layers.base import RecurrentLayer
from kreiss.layers.enrnn import ENRNN
from kreiss.layers.exprnn import ExpRNN
from kreiss.layers.gatednnrnn import GatedNNRNN
from kreiss.layers.goru import GORU
from kreiss.layers.gru import GRU
from kreiss.layers.henaff import Henaff
from kreiss.layers.irnn import IRNN
from kreiss.layers.lstm import LSTM
from kreiss.layers.matching import match
from kreiss.layers.nnrnn import NNRNN
from kreiss.layers.ornn import ORNN
from kreiss.layers.orthrnn import OrthRNN
from kreiss.layers.rnn import RNN
from kreiss.layers.scornn import ScoRNN
from kreiss.layers.spectralrnn import SpectralRNN
from kreiss.layers.stream import Stream
from kreiss.layers.svdrnn import SVDRNN

REGISTRY: dict[str, type[nn.Module]] = {
    "rnn": RNN,
    "irnn": IRNN,
    "orthrnn": OrthRNN,
    "exprnn": ExpRNN,
    "scornn": ScoRNN,
    "ornn": ORNN,
    "nnrnn": NNRNN,
    "enrnn": ENRNN,
    "spectralrnn": SpectralRNN,
    "svdrnn": SVDRNN,
    "henaff": Henaff,
    "goru": GORU,
    "gatednnrnn": GatedNNRNN,
    "lstm": LSTM,
    "gru": GRU,
}

__all__ = [
    "ENRNN",
    "GORU",
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "ORNN",
    "REGISTRY",
    "RNN",
    "SVDRNN",
    "ExpRNN",
    "GatedNNRNN",
    "Henaff",
    "OrthRNN",
    "RecurrentLayer",
    "ScoRNN",
    "SpectralRNN",
    "Stream",
    "match",
]
