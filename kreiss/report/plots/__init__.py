"""Pictures of matrices and networks; each takes what `kreiss.analysis` found, and an axes to draw into."""

from kreiss.report.plots.matrices import (
    angle_rose,
    fisher_curves,
    norms,
    spectrum,
    spectrum_frames,
    subdiagonal_profile,
    theta_map,
    transients,
)
from kreiss.report.plots.networks import (
    INFLUENCE,
    fixed_points,
    gradient_flow,
    gradient_history,
    heat_map,
    lyapunov,
    sensitivity_by_lag,
)
from kreiss.report.plots.runs import comparison, losses, moduli

__all__ = [
    "INFLUENCE",
    "angle_rose",
    "comparison",
    "fisher_curves",
    "fixed_points",
    "gradient_flow",
    "gradient_history",
    "heat_map",
    "losses",
    "lyapunov",
    "moduli",
    "norms",
    "sensitivity_by_lag",
    "spectrum",
    "spectrum_frames",
    "subdiagonal_profile",
    "theta_map",
    "transients",
]
