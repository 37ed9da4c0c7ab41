"""Trainable networks by name; building, saving and exporting them."""

from kreiss.contracts import Network as Network
from kreiss.networks.agent import Agent as Agent
from kreiss.networks.building import NETWORKS as NETWORKS
from kreiss.networks.export import export as export
from kreiss.networks.recurrent import RecurrentNetwork as RecurrentNetwork
from kreiss.networks.registry import LAYERS as LAYERS
from kreiss.networks.saving import load as load
from kreiss.networks.saving import save as save
from kreiss.networks.sizing import hidden_size_for as hidden_size_for

__all__ = ["LAYERS", "NETWORKS", "Agent", "Network", "RecurrentNetwork", "export", "hidden_size_for", "load", "save"]
