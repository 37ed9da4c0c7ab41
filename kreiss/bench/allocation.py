"""Peak memory of a piece of work, to the byte, from the record torch keeps of its own allocations.

The resident size of a process would say less: freed memory that the allocator keeps hides the next use of it, and small
works drown in everything else. Memory that is allocated and never written to counts here, and what libraries allocate
for themselves, past torch, does not; `benchmarks/long_sequences.py` measures the resident size of a fresh process too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from torch.autograd.profiler import profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its lines on starting and stopping would stand between our tables


def peak_bytes(work: Callable[[], None]) -> int:
    """The most that was allocated at one time while `work` ran, over what was there before."""
    with profile(profile_memory=True) as record:
        work()
    assert record.kineto_results is not None
    events = [event for event in record.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()  # negative where memory is given back
        peak = max(peak, live)
    return peak
