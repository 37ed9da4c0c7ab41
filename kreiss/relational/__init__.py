"""Networks over whole sequences of objects that answer from the relations between them."""

from kreiss.contracts import Network
from kreiss.relational.base import RelationalNetwork as RelationalNetwork
from kreiss.relational.corelnet import CoRelNet as CoRelNet
from kreiss.relational.corelnet_t import CoRelNetT as CoRelNetT
from kreiss.relational.esbn import ESBN as ESBN
from kreiss.relational.mnm import MNM as MNM
from kreiss.relational.ntm import NTM as NTM
from kreiss.relational.predinet import PrediNet as PrediNet
from kreiss.relational.relconvnet import RelConvNet as RelConvNet
from kreiss.relational.rn import RN as RN
from kreiss.relational.transformer import Transformer as Transformer

RELATIONAL: dict[str, type[Network]] = {
    "corelnet": CoRelNet,
    "corelnet-t": CoRelNetT,
    "esbn": ESBN,
    "transformer": Transformer,
    "predinet": PrediNet,
    "rn": RN,
    "ntm": NTM,
    "mnm": MNM,
    "relconvnet": RelConvNet,
}
