"""The findings of `kreiss analyze` for a matrix or a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kreiss.analysis.arrays import Array, as_square
from kreiss.errors import InputError
from kreiss.report.findings import MATRIX_PARTS, MEMORY_PARTS, NETWORK_PARTS, PARTS, Finding, matrix_findings
from kreiss.tasks.sources.arrays import DAMAGED


def read_matrix(path: Path) -> Array:
    """The square matrix in a .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"`{path}` must be a .npy file with a matrix; got {reason}. Write one with numpy.save."
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"`{path}` must be a .npy file with a matrix; got an archive. Write one with numpy.save.")
    return as_square(array, real=True)


def of_matrix(matrix: Array, part: str) -> Iterator[Finding]:
    """Findings about a matrix alone."""
    if part in (*NETWORK_PARTS, *MEMORY_PARTS):
        raise InputError(
            f"{part} need a network, with its inputs and nonlinearity; got a matrix alone. "
            f"Choose one of: {', '.join((*MATRIX_PARTS, 'all'))}; or pass a saved model."
        )
    for name in MATRIX_PARTS if part == "all" else (part,):
        yield from matrix_findings(matrix, name)


def of_network(network: Any, part: str, drive: Any = None) -> Iterator[Finding]:
    """Findings about a network: about its first recurrent matrix, and about the network itself.

    Args:
        network: see `kreiss.analysis.dynamics`.
        part: one of the parts, or "all".
        drive: its input, a `Drive`; random input by default.
    """
    from kreiss.analysis.network.attentive import attentive_layer
    from kreiss.analysis.network.dynamics import Dynamics
    from kreiss.analysis.network.structure import learned_structure
    from kreiss.report.attention_findings import attention_findings
    from kreiss.report.network_findings import input_source, network_findings

    if isinstance(network, Dynamics):
        for name in _own_parts(part):
            yield from network_findings(network, name, drive)
        return
    attends = attentive_layer(network) is not None
    parts = _parts(part, attends)
    if set(parts) & set(MATRIX_PARTS):
        structure = learned_structure(network)[shown_matrix(network)]
        for name in parts:
            if name in MATRIX_PARTS:
                yield from matrix_findings(structure.matrix, name, input_source(network), structure)
            if name == "transients" and not attends:
                yield from network_findings(network, name, drive)
    for name in parts:
        if name not in MATRIX_PARTS:
            yield from (attention_findings if attends else network_findings)(network, name, drive)


def _own_parts(part: str) -> tuple[str, ...]:
    """The parts of an analysis that a network with a recurrence of its own has: it has no recurrent matrix."""
    if part != "all" and part not in NETWORK_PARTS:
        raise InputError(
            f"{part} must be asked of a network with one recurrent layer; got one whose recurrence is its own. Choose "
            f"one of: {', '.join((*NETWORK_PARTS, 'all'))}."
        )
    return NETWORK_PARTS if part == "all" else (part,)


def _parts(part: str, attends: bool) -> tuple[str, ...]:
    """The parts of an analysis that a network has: those with memory have no fixed points, others no attention."""
    has = tuple(name for name in PARTS if name not in (("fixed-points",) if attends else MEMORY_PARTS))
    if part != "all" and part not in has:
        kind = "without memory" if attends else "that attends to its past"
        raise InputError(
            f"{part} must be asked of a network {kind}; got another. Choose one of: {', '.join(has)}, all."
        )
    return has if part == "all" else (part,)


def shown_matrix(network: Any) -> str:
    """The matrix of the first layer that plays the role of V: in a gated layer, that of the candidate state."""
    from kreiss.analysis.network.dynamics import recurrent_layer
    from kreiss.analysis.network.structure import recurrent_matrices

    names = [name for name, _, _ in recurrent_matrices(recurrent_layer(network))]
    return next((name for name in names if name in ("l0.cell", "l0.new")), names[0])


def described(network: Any, driven: str = "driven by Gaussian input of variance 1") -> str:
    """A description of a network and of its analysis."""
    from kreiss.analysis.network.attentive import attentive_layer
    from kreiss.analysis.network.dynamics import recurrent_layer
    from kreiss.analysis.network.structure import recurrent_matrices

    layer: Any = recurrent_layer(network)
    names = [name for name, _, _ in recurrent_matrices(layer)]
    others = f" (of {', '.join(names)}), as if it acted alone" if len(names) > 1 else ""
    attends = attentive_layer(network) is not None
    others += ", without attention" if attends else ""
    whole = "attention and gradients" if attends else "gradients and fixed points"
    return (
        f"{type(layer).__name__} with {layer.input_size} inputs and {layer.hidden_size} units. Spectrum, memory and "
        f"transients are those of its recurrent matrix {shown_matrix(network)}{others}; {whole} are "
        f"those of the whole nonlinear layer, {driven}."
    )
