"""Sets of matrices: which matrices are allowed, and how free numbers become one of them."""

from kreiss.sets.band import Band
from kreiss.sets.base import Set
from kreiss.sets.complexschur import ComplexSchur
from kreiss.sets.constraining import constrain
from kreiss.sets.disc import UnitDisc
from kreiss.sets.free import Free
from kreiss.sets.longshort import LongShort
from kreiss.sets.orthogonal import Orthogonal
from kreiss.sets.schur import Schur
from kreiss.sets.stacked import Stacked
from kreiss.sets.unitary import Unitary

__all__ = [
    "Band",
    "ComplexSchur",
    "Free",
    "LongShort",
    "Orthogonal",
    "Schur",
    "Set",
    "Stacked",
    "UnitDisc",
    "Unitary",
    "constrain",
]
