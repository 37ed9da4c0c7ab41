"""The plain and the gated recurrence over time, each by the fastest path that applies."""

from kreiss.recurrence.gated import run_gated
from kreiss.recurrence.plain import NONLINEARITIES, REAL_NONLINEARITIES, last_state, recur, reference_only, run_plain
from kreiss.recurrence.unroll import unroll

__all__ = [
    "NONLINEARITIES",
    "REAL_NONLINEARITIES",
    "last_state",
    "recur",
    "reference_only",
    "run_gated",
    "run_plain",
    "unroll",
]
