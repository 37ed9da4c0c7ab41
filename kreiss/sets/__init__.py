"""Sets of matrices: which matrices are allowed, and how free numbers become one of them."""

from kreiss.sets.base import Set
from kreiss.sets.complexschur import ComplexSchur
from kreiss.sets.constraining import constrain
from kreiss.sets.free import Free
from kreiss.sets.orthogonal import Orthogonal
from kreiss.sets.schur import Schur
from kreiss.sets.stacked import Stacked
from kreiss.sets.unitary import Unitary

__all__ = ["ComplexSchur", "Free", "Orthogonal", "Schur", "Set", "Stacked", "Unitary", "constrain"]
