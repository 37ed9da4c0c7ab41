"""Recurrences over time: the plain one and the gated one, each by the fastest path that is right where it is called."""

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
