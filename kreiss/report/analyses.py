"""From a file to findings to a page: what `kreiss analyze` does."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array, as_square
from kreiss.errors import InputError, check_name
from kreiss.report import page
from kreiss.report.findings import MATRIX_PARTS, NETWORK_PARTS, PARTS, Finding, matrix_findings


def analysed(source: str, part: str, out: Path | None = None) -> Path:
    """Analyse the matrix or network in `source` and write a page; returns its path.

    Args:
        source: a .npy file, or whatever `kreiss.load` takes: a saved model, a checkpoint, a run folder.
        part: one of the parts, or "all".
        out: folder; by default `<source>-analysis`.
    """
    check_name("part of the analysis", part, (*PARTS, "all"))
    path = Path(source)
    folder = path.with_name(path.stem + "-analysis") if out is None else out
    if path.suffix == ".npy":
        matrix = read_matrix(path)
        found = list(of_matrix(matrix, part))
        about = f"A matrix of {len(matrix)} × {len(matrix)} numbers, read as h ← Vh."
    else:
        network = import_module("kreiss").load(source)
        found = list(of_network(network, part))
        about = described(network)
    return page.write(path.name or source, about, found, folder)


def read_matrix(path: Path) -> Array:
    """The square matrix in a .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"`{path}` must be a .npy file with a matrix; got {getattr(error, 'strerror', None) or error}. "
            "Write one with numpy.save."
        ) from error
    return as_square(array, real=True)


def of_matrix(matrix: Array, part: str) -> Iterator[Finding]:
    """Findings of a matrix alone."""
    if part in NETWORK_PARTS:
        raise InputError(
            f"{part} need a network, with its inputs and nonlinearity; got a matrix alone. "
            f"Choose one of: {', '.join((*MATRIX_PARTS, 'all'))}; or pass a saved model."
        )
    for one in MATRIX_PARTS if part == "all" else (part,):
        yield from matrix_findings(matrix, one)


def of_network(network: Any, part: str) -> Iterator[Finding]:
    """Findings of a network: of its first recurrent matrix where it has one, and of the network itself."""
    from kreiss.analysis.network.structure import learned_structure
    from kreiss.report.network_findings import input_source, network_findings

    parts = PARTS if part == "all" else (part,)
    if set(parts) & set(MATRIX_PARTS):
        structure = next(iter(learned_structure(network).values()))
        for one in parts:
            if one in MATRIX_PARTS:
                yield from matrix_findings(structure.matrix, one, input_source(network), structure)
    for one in parts:
        if one in NETWORK_PARTS:
            yield from network_findings(network, one)


def described(network: Any) -> str:
    """One sentence about what a network is."""
    from kreiss.analysis.network.dynamics import recurrent_layer
    from kreiss.analysis.network.structure import recurrent_matrices

    layer: Any = recurrent_layer(network)
    names = [name for name, _, _ in recurrent_matrices(layer)]
    others = f" of {len(names)} ({', '.join(names)})" if len(names) > 1 else ""
    return (
        f"{type(layer).__name__} with {layer.input_size} inputs and {layer.hidden_size} units. Spectrum, memory and "
        f"transients are those of its recurrent matrix {names[0]}{others}; gradients and fixed points are those of the "
        "whole nonlinear layer, driven by Gaussian input of variance 1."
    )
