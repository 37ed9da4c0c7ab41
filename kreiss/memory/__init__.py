"""Layers with long memory: by attention to their own past, or by what their gradient passes through."""

from typing import TYPE_CHECKING

from torch import nn

from kreiss.memory.hdetach import HDetach as HDetach
from kreiss.memory.memlstm import MemLSTM as MemLSTM
from kreiss.memory.memrnn import MemRNN as MemRNN
from kreiss.memory.record import AttentionRecord as AttentionRecord
from kreiss.memory.rellstm import RelLSTM as RelLSTM
from kreiss.memory.relrnn import RelRNN as RelRNN
from kreiss.memory.sab import SAB as SAB
from kreiss.memory.screening import Screening as Screening
from kreiss.recurrence.memory import Candidate as Candidate

MEMORY_LAYERS: dict[str, type[nn.Module]] = {
    "memrnn": MemRNN,
    "memlstm": MemLSTM,
    "relrnn": RelRNN,
    "rellstm": RelLSTM,
    "sab": SAB,
    "hdetach": HDetach,
}

if not TYPE_CHECKING:  # type checkers see the imports above
    __all__ = [
        "MEMORY_LAYERS", "AttentionRecord", "Candidate", "Screening",
        *(layer.__name__ for layer in MEMORY_LAYERS.values()),
    ]  # fmt: skip
