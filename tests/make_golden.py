"""Write tests/golden/*.json: what every set and every layer makes of a fixed seed.

Run `python tests/make_golden.py` after a change that is meant to change results, and read the diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kreiss
from catalogue import SETS, VARIANTS
from kreiss.sets.initial import INITIALISERS

FOLDER = Path(__file__).parent / "golden"
DIGITS = 10


def generator() -> torch.Generator:
    """The one seed behind every golden number."""
    return torch.Generator().manual_seed(20191104)


def noise(shape: Any, generator: torch.Generator) -> Tensor:
    """Small numbers that move a start away from its zeros, where a wrong order of packing would not show."""
    return 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)


def rounded(tensor: Tensor) -> Any:
    """Nested lists of numbers with ten significant digits."""
    if tensor.dim():
        return [rounded(row) for row in tensor]
    return float(f"{float(tensor):.{DIGITS - 1}e}") + 0.0  # never −0.0


def golden_initialisers() -> dict[str, Any]:
    """The dense matrix of every named initialiser."""
    return {name: rounded(make(5, generator=generator())) for name, make in INITIALISERS.items()}


def golden_set(constraint: kreiss.Set) -> Any:
    """The matrix of the first initialiser with every free number moved."""
    source = generator()
    free = constraint.initial(generator=source, dtype=torch.float64)
    return rounded(constraint(*(tensor + noise(tensor.shape, source) for tensor in free)))


@torch.no_grad()
def golden_layer(make: Any) -> dict[str, Any]:
    """Names and shapes in the state_dict, which saved files rely on, and the output for a random input."""
    source = generator()
    layer = make(3, 4, generator=source, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter += noise(parameter.shape, source)
    x = torch.randn(6, 2, 3, generator=source, dtype=torch.float64)
    state = {name: list(tensor.shape) for name, tensor in layer.state_dict().items()}
    return {"state": state, "output": rounded(layer(x)[0])}


def everything() -> dict[str, dict[str, Any]]:
    """File name → entry → value."""
    return {
        "initialisers": golden_initialisers(),
        "sets": {name: golden_set(make(5)) for name, make in SETS.items()},
        "layers": {name: golden_layer(make) for name, make in VARIANTS.items()},
    }


def main() -> None:
    """Write one file per kind, one line per entry so that a diff names what changed."""
    FOLDER.mkdir(exist_ok=True)
    for name, entries in everything().items():
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(entries.items()))
        (FOLDER / f"{name}.json").write_text("{\n" + lines + "\n}\n")
        print(f"wrote {len(entries)} entries to tests/golden/{name}.json")


if __name__ == "__main__":
    main()
