"""How much of the machine each contender of `kreiss bench` uses: its rate against the measured roof, as a plot."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from kreiss.bench.contenders import GEOTORCH, LAYER, Work
from kreiss.errors import InputError, MissingExtra

# contender → products with an N×N matrix per step; contenders that also do other work have no rate
GATES = {
    LAYER: 1,
    "loop of products": 1,
    "plain loop": 1,
    "nn.RNN relu": 1,
    "nn.GRU": 3,
    "nn.LSTM": 4,
    GEOTORCH: 1,
}

# The palette of Okabe and Ito, distinguishable with any colour vision; markers serve without colour.
LOOKS = dict(
    zip(
        GATES,
        (("#000000", "o"), ("#56B4E9", "s"), ("#009E73", "^"), ("#E69F00", "D"), ("#CC79A7", "v"), ("#D55E00", "P"),
         ("#0072B2", "X")),
        strict=True,
    )
)  # fmt: skip


def reached(work: Work, name: str, ms: float) -> float | None:
    """GFLOP/s of a contender, counting 6·T·B·N² per gate: forward, backward, and the gradient of V."""
    gates = GATES.get(name)
    return None if gates is None else 1e-6 * 6 * gates * work.steps * work.batch * work.hidden**2 / ms


def check_plot(path: Path) -> None:
    """Raise unless a plot can be written to `path`."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("the picture", "plots", "matplotlib")
    if not path.parent.is_dir():
        raise InputError(f"the folder of `plot` must exist; got {str(path)!r}. Make {str(path.parent)!r} first.")
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:] not in known:
        raise InputError(
            f"`plot` must end in the name of a picture format; got {str(path)!r}. Choose one of: {', '.join(known)}."
        )


def draw(found: dict[str, Any], path: Path) -> None:
    """Plot the numbers of `kreiss.bench.run.run`: workloads side by side, rates on a logarithmic axis."""
    from matplotlib.figure import Figure  # not pyplot, which would choose a screen

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    works = {name: Work(**entry["shape"]) for name, entry in found["works"].items() if LAYER in entry["contenders"]}
    for i, (name, (colour, marker)) in enumerate(LOOKS.items()):
        places, rates = [], []
        for place, (key, work) in enumerate(works.items()):
            entry = found["works"][key]["contenders"].get(name)
            rate = reached(work, name, entry["ms"]) if entry else None
            if rate is not None:
                places.append(place + 0.08 * (i - len(LOOKS) // 2))  # side by side, so that equals do not hide
                rates.append(rate)
        if rates:
            axes.plot(places, rates, marker, color=colour, markersize=8, label=name)
    axes.axhline(found["gflops"], color="black", linestyle="--", label="a product of 2048²")
    axes.set_yscale("log")
    axes.set_xticks(range(len(works)), [_label(work) for work in works.values()])
    axes.set_ylabel("GFLOP/s in products with the recurrent matrix")
    axes.set_title(f"{found['machine']['processor']}, {found['machine']['threads']} threads")
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)


def _label(work: Work) -> str:
    return f"{work.name}\nB {work.batch}, T {work.steps}\nN {work.hidden}"
