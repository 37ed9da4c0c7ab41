"""The command line: `kreiss <verb>`. Help is shown without importing torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import cyclopts
from cyclopts import Parameter

from kreiss.commands import (
    analyze,
    compare,
    data,
    doctor,
    experiments,
    export,
    listing,
    predict,
    record,
    resume,
    runs,
)
from kreiss.commands.words import COMMON, Flag, Positive, new_folder
from kreiss.errors import InputError, in_bytes
from kreiss.version import __version__

app = cyclopts.App(
    name="kreiss",
    version=__version__,
    help="Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.",
    default_parameter=Parameter(negative=()),  # neither --no-names nor --empty-names
)

TRAIN = """Train a network on a task and test its best checkpoint once.

kreiss train copy --model nnrnn --hidden 128 --model.blocks exact --task.delay 200 --steps 1500 --out RUN

Every other setting has a dotted name: --optimiser.radius-penalty 1e-4, --schedule.factor 0.5. `kreiss show config`
lists them; `kreiss show nnrnn` and `kreiss show copy` list those of a model and of a task. `kreiss resume RUN`
resumes a run that was interrupted or killed. With `torchrun --nproc-per-node 2 -m kreiss train ...` several
processes share each batch.
"""

app.command(  # imported when called: its flags are the settings
    "kreiss.commands.train:train", name="train", help=TRAIN, group_parameters=COMMON
)
app.command(resume.resume)
app.command(resume.evaluate, name="eval")
app.command(compare.compare)
app.command(record.record)
app.command(predict.predict)
app.command(predict.generate)
app.command(experiments.reproduce)
app.command(experiments.report)
app.command(experiments.sweep)
app.command(doctor.doctor)
app.command(listing.app)
app.command(listing.show)
app.command(runs.app)
app.command(data.app)
app.command(analyze.analyze)
app.command(analyze.figure)
app.command(export.export)
app.register_install_completion_command(help="Install completion for your shell.")


@app.command
def demo(
    *,
    delay: Positive = 100,
    hidden: Positive = 64,
    steps: Positive = 2000,
    seed: int = 0,
    out: Path | None = None,
) -> int:
    """Train NNRNN, ExpRNN, RNN and LSTM on the copy task and compare them; about a minute on two cores.

    Each network sees ten symbols, waits `delay` steps and must repeat them. A final table shows the
    loss, that of a network without memory, the accuracy, and the moduli of the eigenvalues of the
    recurrent matrix; a plot shows loss and moduli during training. Each is a run like those of `kreiss train`.

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
    out
        Folder of the runs and the plot; by default a new one in runs/.
    """
    from kreiss.commands.demo import run

    return run(delay=delay, hidden=hidden, steps=steps, seed=seed, out=out or new_folder("demo"))


@app.command
def bench(
    *,
    quick: Flag = False,
    work: list[Literal["copy", "psMNIST", "PTB", "streaming", "memory"]] | None = None,
    json: Path | None = None,
    plot: Path | None = None,
) -> int:
    """Measure speed and memory on this machine: kreiss against nn.LSTM, nn.GRU, nn.RNN, geotorch, bare products.

    All contenders take turns in one process; a table shows medians, quartiles, the ratio of our time to theirs, and the
    peak memory as a multiple of the states of the sequence.

    Parameters
    ----------
    quick
        Fewer rounds and shorter sequences, under a minute.
    work
        Workloads to run; all by default.
    json
        Write all numbers to this file.
    plot
        Write a roofline plot to this file (extra `plots`).
    """
    from json import dumps

    from kreiss.bench.run import run

    results = run(quick=quick, names=list(work) if work else None, plot=plot)
    if json is not None:
        json.write_text(dumps(results, indent=1) + "\n")
    return 0


@app.command
def cite(model: str) -> int:
    """Print the BibTeX entry of a model's paper.

    Parameters
    ----------
    model
        Name of the model, from `kreiss list models`.
    """
    import difflib

    from kreiss.catalogue import MODELS, RELATIONAL_MODELS, bibtex

    known = MODELS | RELATIONAL_MODELS
    if model not in known:
        close = difflib.get_close_matches(model, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"unknown model {model!r}.{hint} `kreiss list models` shows all.")
    print(bibtex(known[model].reference))
    return 0


def main() -> None:
    """Run the command line; exit code 0 success, 1 failure, 2 usage error, 3 missing package, 130 interrupted."""
    try:
        try:
            sys.exit(app(sys.argv[1:]))
        finally:
            sys.stdout.flush()  # here, where a closed pipe can be answered
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        amount = _unallocated(error)
        code = getattr(error, "exit_code", 2 if isinstance(error, ValueError) else 1)
        if not amount and not isinstance(error, (ValueError, OSError)) and not hasattr(error, "exit_code"):
            raise  # a bug: its report needs the traceback
        message = f"memory must be free; got too little for {amount}. Choose smaller sizes." if amount else str(error)
        print("error:", " ".join(message.splitlines()), file=sys.stderr)
        sys.exit(code)


def _unallocated(error: Exception) -> str:
    """The amount that could not be allocated, if Python, NumPy or torch ran out of memory; else empty."""
    import re

    if match := re.search(r"can't allocate memory: you tried to allocate (\d+) bytes", str(error)):
        return in_bytes(int(match[1]))
    return (str(error).removeprefix("Unable to allocate ") or "an object") if isinstance(error, MemoryError) else ""


if __name__ == "__main__":
    main()
