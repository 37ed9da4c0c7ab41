"""The spectrum of a network in a few numbers, and during training: `spectra.jsonl` holds eigenvalues by update."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from kreiss.storage.files import damaged
from kreiss.training.journal import Record
from kreiss.training.record import SPECTRA, checked

DIGITS = 6  # after the decimal point; single precision has no more


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
    """Eigenvalues of the first recurrent matrix, in double precision; None if there is none or it is not finite."""
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


# ---------------------------------------------------------------- during training


def spectrum_record(update: int, values: Tensor) -> Record:
    """The eigenvalues of one update, as recorded in the folder of a run."""
    pairs = [[round(value.real, DIGITS), round(value.imag, DIGITS)] for value in values.tolist()]
    return {"update": update, "eigenvalues": pairs}


def read_spectra(folder: Path) -> dict[int, list[complex]]:
    """Eigenvalues by update as if the run had never been interrupted; an error if any of them is damaged."""
    spectra: dict[int, list[complex]] = {}
    for record in checked(folder, SPECTRA).records:
        update = record["update"]
        spectra = {before: values for before, values in spectra.items() if before < update}
        try:
            spectra[update] = [complex(*pair) for pair in record["eigenvalues"]]
        except (KeyError, TypeError, ValueError) as error:  # of an earlier version, without a checksum
            raise damaged(folder / SPECTRA, f"a line without eigenvalues at update {update}") from error
    return spectra
