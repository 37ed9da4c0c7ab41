"""Recurrent layers with the contract of `torch.nn.RNN`, one architecture per file."""

from torch import nn

from kreiss.layers.base import RecurrentLayer
from kreiss.layers.complexnnrnn import ComplexNNRNN
from kreiss.layers.enrnn import ENRNN
from kreiss.layers.eurnn import EURNN
from kreiss.layers.exprnn import ExpRNN
from kreiss.layers.fullurnn import FullURNN
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
from kreiss.layers.scurnn import ScuRNN
from kreiss.layers.spectralrnn import SpectralRNN
from kreiss.layers.stream import Stream
from kreiss.layers.svdrnn import SVDRNN
from kreiss.layers.urnn import URNN

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
    "scurnn": ScuRNN,
    "urnn": URNN,
    "eurnn": EURNN,
    "fullurnn": FullURNN,
    "complexnnrnn": ComplexNNRNN,
    "lstm": LSTM,
    "gru": GRU,
}

__all__ = [
    "ENRNN",
    "EURNN",
    "GORU",
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "ORNN",
    "REGISTRY",
    "RNN",
    "SVDRNN",
    "URNN",
    "ComplexNNRNN",
    "ExpRNN",
    "FullURNN",
    "GatedNNRNN",
    "Henaff",
    "OrthRNN",
    "RecurrentLayer",
    "ScoRNN",
    "ScuRNN",
    "SpectralRNN",
    "Stream",
    "match",
]
