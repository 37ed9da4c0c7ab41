"""The spectrum of a network at a glance, and on the way: `spectra.jsonl` of a run holds the eigenvalues by update."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from kreiss.errors import RunError

SPECTRA = "spectra.jsonl"
DIGITS = 6  # behind the point; single precision has no more


def glance(model: nn.Module, values: Tensor | None = None) -> dict[str, float]:
    """Smallest, mean and largest |λ| and Henrici's departure √(‖V‖² − Σ|λ|²) of the first recurrent matrix.

    Empty for a network that has no single recurrent matrix, such as an LSTM.

    Args:
        model: the network.
        values: its eigenvalues, if they are known already.
    """
    values = eigenvalues(model) if values is None else values
    matrix = recurrent_matrix(model)
    if values is None or matrix is None:
        return {}
    moduli = values.abs()
    squares = matrix.to(values).abs().square().sum()
    departure = (squares - moduli.square().sum()).clamp(min=0).sqrt()
    return {
        "modulus_min": float(moduli.min()),
        "modulus_mean": float(moduli.mean()),
        "modulus_max": float(moduli.max()),
        "departure": float(departure),
    }


def eigenvalues(model: nn.Module) -> Tensor | None:
    """Those of the first recurrent matrix, in double precision; None where there is none, or none that is finite."""
    matrix = recurrent_matrix(model)
    if matrix is None or not torch.isfinite(matrix).all():
        return None
    return torch.linalg.eigvals(matrix.to(torch.complex128 if matrix.is_complex() else torch.float64))


def recurrent_matrix(model: nn.Module) -> Tensor | None:
    """V of the first layer that has one, or None."""
    with torch.no_grad():
        for module in model.modules():
            matrix = getattr(module, "weight_hh_l0", None)
            if isinstance(matrix, Tensor) and matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1]:
                return matrix.detach()
    return None


# ---------------------------------------------------------------- on the way


def keep_spectrum(folder: Path, update: int, values: Tensor) -> None:
    """Add the eigenvalues of one update to the folder of a run."""
    pairs = [[round(value.real, DIGITS), round(value.imag, DIGITS)] for value in values.tolist()]
    try:
        with open(folder / SPECTRA, "a") as file:
            # a line begins with its break, so that half a line of a killed process spoils no other
            file.write("\n" + json.dumps({"update": update, "eigenvalues": pairs}))
    except OSError as error:
        raise RunError(
            f"`{folder / SPECTRA}` could not be written: {error.strerror}. Make room and go on with "
            f"`kreiss resume {folder}`."
        ) from error


def read_spectra(folder: Path) -> dict[int, list[complex]]:
    """Eigenvalues by update as if the run had never been interrupted; lines that are not whole are left out."""
    found: dict[int, list[complex]] = {}
    try:
        lines = (folder / SPECTRA).read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        update = record["update"]
        found = {before: values for before, values in found.items() if before < update}
        found[update] = [complex(*pair) for pair in record["eigenvalues"]]
    return found
