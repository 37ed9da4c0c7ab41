"""Orthogonal matrices: the set, and the methods that parametrize it."""

from kreiss.sets.orthogonal.set import DEFAULT_METHOD as DEFAULT_METHOD
from kreiss.sets.orthogonal.set import METHODS as METHODS
from kreiss.sets.orthogonal.set import Orthogonal as Orthogonal
