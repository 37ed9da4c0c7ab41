"""Analysis of matrices and trained networks. The matrix part uses NumPy and SciPy only; the rest imports torch.

Names are imported on first use, so that importing this package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kreiss.analysis.attention import *  # noqa: F403
    from kreiss.analysis.departure import *  # noqa: F403
    from kreiss.analysis.field_of_values import *  # noqa: F403
    from kreiss.analysis.generators import *  # noqa: F403
    from kreiss.analysis.gramians import *  # noqa: F403
    from kreiss.analysis.hankel import *  # noqa: F403
    from kreiss.analysis.kreiss import *  # noqa: F403
    from kreiss.analysis.memory import *  # noqa: F403
    from kreiss.analysis.nearest import *  # noqa: F403
    from kreiss.analysis.network.dynamics import *  # noqa: F403
    from kreiss.analysis.network.fixed_points import *  # noqa: F403
    from kreiss.analysis.network.gradients import *  # noqa: F403
    from kreiss.analysis.network.jacobians import *  # noqa: F403
    from kreiss.analysis.network.lyapunov import *  # noqa: F403
    from kreiss.analysis.network.structure import *  # noqa: F403
    from kreiss.analysis.network.trajectories import *  # noqa: F403
    from kreiss.analysis.pseudospectra import *  # noqa: F403
    from kreiss.analysis.schur import *  # noqa: F403
    from kreiss.analysis.transients import *  # noqa: F403

# module → its public names
_NAMES = {
    "attention": [
        "DependencyDepth", "Sparsity", "dependency_depth", "sparse_bound", "sparsity", "uniform_exponent",
    ],
    "departure": ["EigenvalueConditions", "Normality", "eigenvalue_conditions", "henrici", "normality"],
    "field_of_values": ["NumericalRange", "numerical_abscissa", "numerical_radius", "numerical_range"],
    "generators": [
        "delay_line", "grcar", "jordan", "random_gaussian", "random_normal", "random_orthogonal", "random_schur",
        "triangular_ones",
    ],
    "gramians": ["Gramian", "controllability", "observability"],
    "hankel": ["HankelSingularValues", "hankel_singular_values"],
    "kreiss": ["KreissConstant", "kreiss_constant"],
    "memory": ["FisherMemory", "amplification_bound", "delay_line_memory", "fisher_memory", "memory_lower_bound"],
    "nearest": ["Nearest", "nearest_normal", "nearest_orthogonal"],
    "network.dynamics": ["Dynamics", "dynamics"],
    "network.fixed_points": ["FixedPoints", "fixed_points"],
    "network.gradients": ["GradientFlow", "GradientHistory", "gradient_flow", "recall_loss"],
    "network.jacobians": [
        "Jacobians", "Sensitivity", "SingularSpectra", "input_output_jacobian", "input_sensitivity", "memory_horizon",
        "singular_spectra", "step_jacobians",
    ],
    "network.lyapunov": ["LyapunovSpectrum", "lyapunov_spectrum"],
    "network.structure": ["LearnedStructure", "learned_structure"],
    "network.trajectories": [
        "Dimensionality", "HiddenTransients", "PerturbationGrowth", "dimensionality", "hidden_transients",
        "perturbation_growth",
    ],
    "pseudospectra": [
        "Pseudospectrum", "Reach", "pseudospectral_abscissa", "pseudospectral_radius", "pseudospectrum",
        "resolvent_norm",
    ],
    "schur": ["SchurForm", "real_schur"],
    "transients": [
        "PowerGrowth", "SphereTransients", "TransientGrowth", "power_growth", "power_polynomial", "sphere_transients",
        "transient_growth",
    ],
}  # fmt: skip
_HOME = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers see the imports above
    __all__ = sorted(_HOME)

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'kreiss.analysis' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"kreiss.analysis.{_HOME[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return __all__
