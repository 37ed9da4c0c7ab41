"""Conversion and checks of input: arrays, lists or tensors to float64 or complex128 NumPy arrays. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, check_size

Array = NDArray[Any]

ROUNDING = float(np.finfo(np.float64).eps)


def as_array(name: str, value: Any) -> Array:
    """`value` as a finite float64 or complex128 array; a tensor is detached and moved to the CPU."""
    if callable(getattr(value, "detach", None)):  # a tensor, recognised by its methods so that torch is not imported
        value = value.detach().cpu().resolve_conj()
        value = value.numpy() if value.is_complex() else value.double().numpy()
    try:
        array = np.asarray(value)
        array = array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`{name}` must hold numbers; got {type(value).__name__}. Pass an array, a tensor or nested lists."
        ) from error
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise InputError(f"`{name}` must be finite; got {bad} NaN or Inf entries. Remove them first.")
    return array


def as_square(matrix: Any, *, what: str = "matrix", real: bool = False) -> Array:
    """`matrix` as a square array; real if `real`."""
    array = as_array(what, matrix)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise InputError(
            f"`{what}` must be a square matrix of at least one row; got shape {array.shape}. "
            "Pass a matrix of shape (n, n)."
        )
    if real and np.iscomplexobj(array):
        if array.imag.any():
            raise InputError(
                f"`{what}` must be real; got complex entries with imaginary parts up to {abs(array.imag).max():.3g}. "
                "Pass its real part, or the real matrix of twice the size."
            )
        array = array.real.copy()
    return array


def as_vector(vector: Any, n: int, *, what: str = "source") -> Array:
    """`vector` as a non-zero array of length n."""
    array = as_array(what, vector)
    if array.shape == (n, 1):
        array = array[:, 0]
    if array.shape != (n,):
        raise InputError(
            f"`{what}` must be a vector of length {n}, as the matrix is {n}×{n}; got shape {array.shape}. "
            "Pass one number per unit."
        )
    if not array.any():
        raise InputError(f"`{what}` must not be zero; got {n} zeros. Pass a direction.")
    return array


def as_columns(value: Any, n: int, *, what: str) -> Array:
    """`value` as an (n, m) array; a vector is one column."""
    array = as_array(what, value)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[0] != n or not array.shape[1]:
        raise InputError(
            f"`{what}` must have {n} rows, as the matrix is {n}×{n}; got shape {np.shape(value)}. "
            "Pass a vector or a matrix with that many rows."
        )
    return array


def check_horizon(horizon: Any) -> int:
    """`horizon` if it is a whole number of at least one step."""
    return check_size("horizon", horizon)


def check_positive(name: str, value: Any) -> float:
    """`value` as a positive finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"`{name}` must be positive and finite; got {name}={value!r}. Pass a positive number.")
    return number


def spectral_radius(matrix: Array) -> float:
    """The largest modulus of the eigenvalues."""
    return float(abs(np.linalg.eigvals(matrix)).max())
