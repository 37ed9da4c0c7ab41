"""Recurrent layers with the interface of `torch.nn.RNN`, one architecture per file."""

from typing import TYPE_CHECKING

from torch import nn

from kreiss.layers.complexnnrnn import ComplexNNRNN as ComplexNNRNN
from kreiss.layers.contract.base import RecurrentLayer as RecurrentLayer
from kreiss.layers.contract.stream import Stream as Stream
from kreiss.layers.enrnn import ENRNN as ENRNN
from kreiss.layers.eurnn import EURNN as EURNN
from kreiss.layers.exprnn import ExpRNN as ExpRNN
from kreiss.layers.fullurnn import FullURNN as FullURNN
from kreiss.layers.gatednnrnn import GatedNNRNN as GatedNNRNN
from kreiss.layers.goru import GORU as GORU
from kreiss.layers.gru import GRU as GRU
from kreiss.layers.henaff import Henaff as Henaff
from kreiss.layers.irnn import IRNN as IRNN
from kreiss.layers.lstm import LSTM as LSTM
from kreiss.layers.nnrnn import NNRNN as NNRNN
from kreiss.layers.ornn import ORNN as ORNN
from kreiss.layers.orthrnn import OrthRNN as OrthRNN
from kreiss.layers.rnn import RNN as RNN
from kreiss.layers.scornn import ScoRNN as ScoRNN
from kreiss.layers.scurnn import ScuRNN as ScuRNN
from kreiss.layers.spectralrnn import SpectralRNN as SpectralRNN
from kreiss.layers.svdrnn import SVDRNN as SVDRNN
from kreiss.layers.urnn import URNN as URNN

LAYERS: dict[str, type[nn.Module]] = {
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

if not TYPE_CHECKING:  # type checkers see the imports above
    __all__ = ["LAYERS", "RecurrentLayer", "Stream", *(layer.__name__ for layer in LAYERS.values())]
