"""`kreiss export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from kreiss.commands.words import Flag, Trust, may_import


def export(
    source: str,
    /,
    *,
    to: Literal["onnx", "torch", "c"] = "onnx",
    step: Flag = False,
    int8: Flag = False,
    c: Flag = False,
    state: bool | None = None,
    verify: Flag = False,
    symbols: Flag = False,
    trust: Trust = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Export a trained run or a saved model to one file for inference that runs without kreiss.

    kreiss export RUN --verify: RUN/model.onnx, with its state, compared with the model

    kreiss export RUN --step: RUN/model-step.onnx, one step of products and element-wise operations

    kreiss export RUN --int8: RUN/model-int8.onnx, weights as 8-bit integers, and the error that makes

    kreiss export RUN --to torch --step: RUN/model-step.pt2, a program of torch.export

    kreiss export RUN --c -o filter.c: one C99 file with filter_init and filter_step

    The file takes a state and returns the next one, so that a stream can be fed in chunks of any length: inputs `input`
    and `state`, or `state_h`, `state_c`, …; outputs `output` and `next_state`, …. Time and batch are dynamic. What the
    state holds before the first step is printed, and is in the metadata of the file under `kreiss.state`. A memory that
    grows (MemRNN, MemLSTM, SAB) starts empty, or with one vector of zeros, and is longer in each `next_state`.

    A C file holds weights, a struct, NAME_init and NAME_step, called after the file, for layers with a plain, gated or
    screened step. It allocates nothing and needs no library but expf and tanhf.

    Parameters
    ----------
    source
        Folder of a run, or file of a saved model.
    to
        Format: ONNX, a torch.export program (.pt2), or C.
    step
        One step for each call, inputs (batch, features): products and element-wise operations, no loop.
    int8
        Weights of an ONNX file as 8-bit integers; the error is measured on the run's validation inputs or, for a
        saved model, on random ones.
    c
        The same as --to c.
    state
        Whether the file has a state; by default if the model can run step by step.
    verify
        Run the file, in chunks or step by step, and print the largest difference from the model; a file that differs
        is discarded.
    symbols
        The model is a bare layer that takes integer symbols.
    trust
        Module of your own that the model is from.
    output
        File to write; by default next to the source.
    """
    from kreiss.commands.sources import held_out_inputs
    from kreiss.networks.export import export_saved

    may_import(trust)
    to = "c" if c else to
    example = held_out_inputs(Path(source)) if int8 else None
    done = export_saved(
        source, output, to=to, verify=verify, symbols=symbols, state=state, step=step, int8=int8, example=example,
    )  # fmt: skip
    print(done)
    if example is not None:
        print(f"  the given inputs are {example.shape[1]} validation sequences of the run's task")
    return 0
