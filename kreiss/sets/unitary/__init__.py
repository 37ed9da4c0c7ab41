"""Unitary matrices: the set, and the methods that parametrize it."""

from kreiss.sets.unitary.set import UNITARY_METHODS as UNITARY_METHODS
from kreiss.sets.unitary.set import Unitary as Unitary
from kreiss.sets.unitary.set import checked_image as checked_image
