"""From raw data to the inputs of a network, and from its outputs to answers; recorded with the network."""

from kreiss.preprocessing.answers import Answers as Answers
from kreiss.preprocessing.record import Preprocessing as Preprocessing

__all__ = ["Answers", "Preprocessing"]
