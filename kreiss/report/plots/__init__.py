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
    fixed_points,
    gradient_flow,
    gradient_history,
    heat_map,
    lyapunov,
    sensitivity_by_lag,
)

__all__ = [
    "angle_rose",
    "fisher_curves",
    "fixed_points",
    "gradient_flow",
    "gradient_history",
    "heat_map",
    "lyapunov",
    "norms",
    "sensitivity_by_lag",
    "spectrum",
    "spectrum_frames",
    "subdiagonal_profile",
    "theta_map",
    "transients",
]
