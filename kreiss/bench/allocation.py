"""Peak memory of a workload, to the byte, from torch's record of its own allocations.

The resident size of a process says less: freed memory that the allocator keeps hides its next use, and small workloads
are lost in everything else. Memory that is allocated and never written to counts here, and what libraries allocate
outside torch does not; `benchmarks/long_sequences.py` measures the resident size of a fresh process too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from torch.autograd.profiler import profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its log lines would appear between our tables


def peak_bytes(work: Callable[[], None]) -> int:
    """The most memory allocated at one time while `work` ran, beyond what was there before."""
    with profile(profile_memory=True) as record:
        work()
    assert record.kineto_results is not None
    events = [event for event in record.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()  # negative where memory is freed
        peak = max(peak, live)
    return peak
