"""Plots of matrices and networks; each takes a result of `kreiss.analysis` and optional axes."""

from kreiss.report.plots.attention import (
    attention_map,
    gradients_from_end,
    kept_strip,
    memory_growth,
    trade_off,
)
from kreiss.report.plots.matrices import (
    angle_rose,
    bands,
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
    jacobian_growth,
    lyapunov,
    recorded_gradients,
    sensitivity_by_lag,
)
from kreiss.report.plots.runs import comparison, losses, moduli

__all__ = [
    "INFLUENCE",
    "angle_rose",
    "attention_map",
    "bands",
    "comparison",
    "fisher_curves",
    "fixed_points",
    "gradient_flow",
    "gradient_history",
    "gradients_from_end",
    "heat_map",
    "jacobian_growth",
    "kept_strip",
    "losses",
    "lyapunov",
    "memory_growth",
    "moduli",
    "norms",
    "recorded_gradients",
    "sensitivity_by_lag",
    "spectrum",
    "spectrum_frames",
    "subdiagonal_profile",
    "theta_map",
    "trade_off",
    "transients",
]
