"""What an export returns and the command prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kreiss.errors import in_bytes
from kreiss.networks.export.quantised import Int8
from kreiss.networks.export.states import Part


@dataclass(frozen=True)
class CFile:
    """Sizes of a C file; of its state and of a step where there is a compiler, which is named."""

    array_bytes: int
    state_bytes: int | None = None
    step_seconds: float | None = None
    compiler: str = ""

    def __str__(self) -> str:
        if self.state_bytes is None or self.step_seconds is None:
            return f"arrays {in_bytes(self.array_bytes)}; no C compiler here to measure a step"
        step = f"{self.step_seconds * 1e6:.3g} µs a step ({self.compiler})"
        return f"arrays {in_bytes(self.array_bytes)}, state {in_bytes(self.state_bytes)}, {step}"


@dataclass(frozen=True)
class Exported:
    """The written file; `largest_difference` from the model is absolute, or None if not verified.

    Attributes:
        path: of the file.
        to: its format.
        checked_at: sizes of time and batch at which it was compared with the model.
        largest_difference: found there.
        state: the parts of the state that the file takes and returns; none for a C file, which keeps it.
        int8: what quantisation did.
        c: sizes of a C file.
    """

    path: Path
    to: str
    checked_at: tuple[tuple[int, int], ...] = ()
    largest_difference: float | None = None
    state: tuple[Part, ...] = ()
    int8: Int8 | None = None
    c: CFile | None = None

    def __str__(self) -> str:
        said = f"wrote {self.path}"
        if self.largest_difference is not None:
            sizes = ", ".join(f"{first}×{second}" for first, second in self.checked_at)
            said += f"; largest difference from the model {self.largest_difference:.1e} (at {sizes})"
        return "\n".join([said, *(f"  {line}" for line in (*self.state, self.int8, self.c) if line is not None)])
