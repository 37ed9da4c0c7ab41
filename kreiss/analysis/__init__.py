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
    from kreiss.analysis.hankel import HankelSingularValues, hankel_singular_values
    from kreiss.analysis.kreiss import KreissConstant, kreiss_constant
    from kreiss.analysis.memory import (
        FisherMemory,
        amplification_bound,
        delay_line_memory,
        fisher_memory,
        memory_lower_bound,
    )
    from kreiss.analysis.nearest import Nearest, nearest_normal, nearest_orthogonal
    from kreiss.analysis.network.dynamics import Dynamics, dynamics
    from kreiss.analysis.network.fixed_points import FixedPoints, fixed_points
    from kreiss.analysis.network.gradients import GradientFlow, GradientHistory, gradient_flow
    from kreiss.analysis.network.jacobians import (
        Jacobians,
        Sensitivity,
        SingularSpectra,
        input_output_jacobian,
        input_sensitivity,
        memory_horizon,
        singular_spectra,
        step_jacobians,
    )
    from kreiss.analysis.network.lyapunov import LyapunovSpectrum, lyapunov_spectrum
    from kreiss.analysis.network.structure import LearnedStructure, learned_structure
    from kreiss.analysis.network.trajectories import (
        Dimensionality,
        HiddenTransients,
        PerturbationGrowth,
        dimensionality,
        hidden_transients,
        perturbation_growth,
    )
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
    "Dimensionality": "network.trajectories",
    "Dynamics": "network.dynamics",
    "EigenvalueConditions": "departure",
    "FisherMemory": "memory",
    "FixedPoints": "network.fixed_points",
    "GradientFlow": "network.gradients",
    "GradientHistory": "network.gradients",
    "Gramian": "gramians",
    "HankelSingularValues": "hankel",
    "HiddenTransients": "network.trajectories",
    "Jacobians": "network.jacobians",
    "KreissConstant": "kreiss",
    "LearnedStructure": "network.structure",
    "LyapunovSpectrum": "network.lyapunov",
    "Nearest": "nearest",
    "Normality": "departure",
    "NumericalRange": "field_of_values",
    "PerturbationGrowth": "network.trajectories",
    "PowerGrowth": "transients",
    "Pseudospectrum": "pseudospectra",
    "Reach": "pseudospectra",
    "SchurForm": "schur",
    "Sensitivity": "network.jacobians",
    "SingularSpectra": "network.jacobians",
    "SphereTransients": "transients",
    "TransientGrowth": "transients",
    "amplification_bound": "memory",
    "controllability": "gramians",
    "delay_line": "generators",
    "delay_line_memory": "memory",
    "dimensionality": "network.trajectories",
    "dynamics": "network.dynamics",
    "eigenvalue_conditions": "departure",
    "fisher_memory": "memory",
    "fixed_points": "network.fixed_points",
    "gradient_flow": "network.gradients",
    "grcar": "generators",
    "hankel_singular_values": "hankel",
    "henrici": "departure",
    "hidden_transients": "network.trajectories",
    "input_output_jacobian": "network.jacobians",
    "input_sensitivity": "network.jacobians",
    "jordan": "generators",
    "kreiss_constant": "kreiss",
    "learned_structure": "network.structure",
    "lyapunov_spectrum": "network.lyapunov",
    "memory_horizon": "network.jacobians",
    "memory_lower_bound": "memory",
    "nearest_normal": "nearest",
    "nearest_orthogonal": "nearest",
    "normality": "departure",
    "numerical_abscissa": "field_of_values",
    "numerical_radius": "field_of_values",
    "numerical_range": "field_of_values",
    "observability": "gramians",
    "perturbation_growth": "network.trajectories",
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
    "singular_spectra": "network.jacobians",
    "sphere_transients": "transients",
    "step_jacobians": "network.jacobians",
    "transient_growth": "transients",
    "triangular_ones": "generators",
}

__all__ = [
    "Dimensionality",
    "Dynamics",
    "EigenvalueConditions",
    "FisherMemory",
    "FixedPoints",
    "GradientFlow",
    "GradientHistory",
    "Gramian",
    "HankelSingularValues",
    "HiddenTransients",
    "Jacobians",
    "KreissConstant",
    "LearnedStructure",
    "LyapunovSpectrum",
    "Nearest",
    "Normality",
    "NumericalRange",
    "PerturbationGrowth",
    "PowerGrowth",
    "Pseudospectrum",
    "Reach",
    "SchurForm",
    "Sensitivity",
    "SingularSpectra",
    "SphereTransients",
    "TransientGrowth",
    "amplification_bound",
    "controllability",
    "delay_line",
    "delay_line_memory",
    "dimensionality",
    "dynamics",
    "eigenvalue_conditions",
    "fisher_memory",
    "fixed_points",
    "gradient_flow",
    "grcar",
    "hankel_singular_values",
    "henrici",
    "hidden_transients",
    "input_output_jacobian",
    "input_sensitivity",
    "jordan",
    "kreiss_constant",
    "learned_structure",
    "lyapunov_spectrum",
    "memory_horizon",
    "memory_lower_bound",
    "nearest_normal",
    "nearest_orthogonal",
    "normality",
    "numerical_abscissa",
    "numerical_radius",
    "numerical_range",
    "observability",
    "perturbation_growth",
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
    "singular_spectra",
    "sphere_transients",
    "step_jacobians",
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
