"""Numbers about matrices and trained networks. The matrix part is NumPy and SciPy; torch is imported by the rest alone.

Names are imported on first use, so that this costs nothing until something is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kreiss.analysis.departure import EigenvalueConditions, Normality, eigenvalue_conditions, henrici, normality
    from kreiss.analysis.field_of_values import NumericalRange, numerical_abscissa, numerical_radius, numerical_range
    from kreiss.analysis.generators import (
        delay_line,
        grcar,
        jordan,
        random_gaussian,
        random_normal,
        random_orthogonal,
        random_schur,
        triangular_ones,
    )
    from kreiss.analysis.gramians import Gramian, controllability, observability
    from kreiss.analysis.kreiss import KreissConstant, kreiss_constant
    from kreiss.analysis.memory import (
        FisherMemory,
        amplification_bound,
        delay_line_memory,
        fisher_memory,
        memory_lower_bound,
    )
    from kreiss.analysis.nearest import Nearest, nearest_normal, nearest_orthogonal
    from kreiss.analysis.pseudospectra import (
        Pseudospectrum,
        Reach,
        pseudospectral_abscissa,
        pseudospectral_radius,
        pseudospectrum,
        resolvent_norm,
    )
    from kreiss.analysis.schur import SchurForm, real_schur
    from kreiss.analysis.transients import (
        PowerGrowth,
        SphereTransients,
        TransientGrowth,
        power_growth,
        power_polynomial,
        sphere_transients,
        transient_growth,
    )

# name → the file it lives in
_HOME = {
    "EigenvalueConditions": "departure",
    "FisherMemory": "memory",
    "Gramian": "gramians",
    "KreissConstant": "kreiss",
    "Nearest": "nearest",
    "Normality": "departure",
    "NumericalRange": "field_of_values",
    "PowerGrowth": "transients",
    "Pseudospectrum": "pseudospectra",
    "Reach": "pseudospectra",
    "SchurForm": "schur",
    "SphereTransients": "transients",
    "TransientGrowth": "transients",
    "amplification_bound": "memory",
    "controllability": "gramians",
    "delay_line": "generators",
    "delay_line_memory": "memory",
    "eigenvalue_conditions": "departure",
    "fisher_memory": "memory",
    "grcar": "generators",
    "henrici": "departure",
    "jordan": "generators",
    "kreiss_constant": "kreiss",
    "memory_lower_bound": "memory",
    "nearest_normal": "nearest",
    "nearest_orthogonal": "nearest",
    "normality": "departure",
    "numerical_abscissa": "field_of_values",
    "numerical_radius": "field_of_values",
    "numerical_range": "field_of_values",
    "observability": "gramians",
    "power_growth": "transients",
    "power_polynomial": "transients",
    "pseudospectral_abscissa": "pseudospectra",
    "pseudospectral_radius": "pseudospectra",
    "pseudospectrum": "pseudospectra",
    "random_gaussian": "generators",
    "random_normal": "generators",
    "random_orthogonal": "generators",
    "random_schur": "generators",
    "real_schur": "schur",
    "resolvent_norm": "pseudospectra",
    "sphere_transients": "transients",
    "transient_growth": "transients",
    "triangular_ones": "generators",
}

__all__ = [
    "EigenvalueConditions",
    "FisherMemory",
    "Gramian",
    "KreissConstant",
    "Nearest",
    "Normality",
    "NumericalRange",
    "PowerGrowth",
    "Pseudospectrum",
    "Reach",
    "SchurForm",
    "SphereTransients",
    "TransientGrowth",
    "amplification_bound",
    "controllability",
    "delay_line",
    "delay_line_memory",
    "eigenvalue_conditions",
    "fisher_memory",
    "grcar",
    "henrici",
    "jordan",
    "kreiss_constant",
    "memory_lower_bound",
    "nearest_normal",
    "nearest_orthogonal",
    "normality",
    "numerical_abscissa",
    "numerical_radius",
    "numerical_range",
    "observability",
    "power_growth",
    "power_polynomial",
    "pseudospectral_abscissa",
    "pseudospectral_radius",
    "pseudospectrum",
    "random_gaussian",
    "random_normal",
    "random_orthogonal",
    "random_schur",
    "real_schur",
    "resolvent_norm",
    "sphere_transients",
    "transient_growth",
    "triangular_ones",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kreiss.analysis' has no attribute {name!r}")
    value = getattr(import_module(f"kreiss.analysis.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
