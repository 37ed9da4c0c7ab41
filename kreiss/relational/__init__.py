"""Networks over whole sequences of objects that answer from the relations between them."""

from kreiss.contracts import Network
from kreiss.relational.base import RelationalNetwork as RelationalNetwork
from kreiss.relational.corelnet import CoRelNet as CoRelNet

RELATIONAL: dict[str, type[Network]] = {
    "corelnet": CoRelNet,
}
