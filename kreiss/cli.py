"""The command line: `kreiss <verb>`. Help is shown without importing torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter, validators

from kreiss.commands import analyze
from kreiss.version import __version__

app = cyclopts.App(
    name="kreiss",
    version=__version__,
    help="Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.",
)

app.command(analyze.analyze)
app.command(analyze.figure)

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


@app.command
def demo(*, delay: Positive = 100, hidden: Positive = 64, steps: Positive = 2000, seed: int = 0) -> int:
    """Train NNRNN, ExpRNN, RNN and LSTM on the copy task and compare them; about a minute on two cores.

    Each network sees ten symbols, waits `delay` steps and must repeat them. A closing table shows the
    loss against that of a network without memory, the accuracy, and the moduli of the eigenvalues of
    the recurrent matrix.

    Parameters
    ----------
    delay
        Steps between the symbols and their recall.
    hidden
        Size of the hidden state.
    steps
        Optimiser steps per network.
    seed
        Seed of initial values and training data; the test data are always the same.
    """
    from kreiss.training.demo import run

    return run(delay=delay, hidden=hidden, steps=steps, seed=seed)


@app.command
def bench(
    *,
    quick: bool = False,
    work: list[Literal["copy", "psMNIST", "PTB", "streaming"]] | None = None,
    json: Path | None = None,
) -> int:
    """Measure speed on this machine: kreiss against nn.LSTM, nn.GRU, nn.RNN, the plain loop and the products alone.

    All contenders take turns in one process; a table shows medians, quartiles and the ratio of our time to theirs.

    Parameters
    ----------
    quick
        Fewer rounds and shorter sequences, under a minute.
    work
        Only these works; all four by default.
    json
        Write all numbers to this file.
    """
    from json import dumps

    from kreiss.training.bench import run

    found = run(quick=quick, names=list(work) if work else None)
    if json is not None:
        json.write_text(dumps(found, indent=1) + "\n")
    return 0


@app.command
def doctor() -> int:
    """Say in a few lines what is installed and whether the fast kernel runs."""
    import torch

    from kreiss.recurrence import kernel

    print(f"kreiss {__version__}, Python {sys.version.split()[0]}, torch {torch.__version__}")
    print(kernel.status())
    return 0


def main() -> None:
    """Run the command line; bad input is one line and exit code 2 (3 for a missing extra), Ctrl-C is 130."""
    try:
        sys.exit(app())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))  # 3 for a missing extra


if __name__ == "__main__":
    main()
