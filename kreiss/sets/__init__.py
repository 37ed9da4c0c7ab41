"""Sets of matrices, each with its parametrization by free parameters."""

from typing import TYPE_CHECKING

from kreiss.sets.band import Band as Band
from kreiss.sets.base import Set as Set
from kreiss.sets.complexschur import ComplexSchur as ComplexSchur
from kreiss.sets.constraining import constrain as constrain
from kreiss.sets.disc import UnitDisc as UnitDisc
from kreiss.sets.free import Free as Free
from kreiss.sets.longshort import LongShort as LongShort
from kreiss.sets.orthogonal import Orthogonal as Orthogonal
from kreiss.sets.schur import Schur as Schur
from kreiss.sets.stacked import Stacked as Stacked
from kreiss.sets.unitary import Unitary as Unitary

SETS: dict[str, type[Set]] = {
    cls.__name__: cls for cls in (Band, ComplexSchur, Free, LongShort, Orthogonal, Schur, Stacked, UnitDisc, Unitary)
}

if not TYPE_CHECKING:  # type checkers see the imports above
    __all__ = ["SETS", "Set", "constrain", *SETS]
