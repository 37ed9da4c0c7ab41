"""The learned Schur structure of a layer: Θ, its angles, sub-diagonals and delay line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kreiss.analysis.arrays import Array
from kreiss.analysis.departure import henrici
from kreiss.analysis.network.dynamics import recurrent_layer
from kreiss.analysis.schur import real_schur
from kreiss.errors import InputError


@dataclass(frozen=True)
class LearnedStructure:
    """The Schur form V = PΘPᵀ of one recurrent matrix and summary statistics.

    Attributes:
        matrix: V.
        theta: Θ = Λ + T, lower block-triangular; the layer's own where it has one, else the ordered Schur form.
        own: whether Θ is the layer's own.
        angles: θ of each complex pair, in [0, π].
        moduli: γ of each eigenvalue.
        profile: mean |Θ_{i+k,i}| along each sub-diagonal, k = 0, 1, ….
        delay_line: mean |T_{i+1,i}| between neighbouring blocks.
        triangle: mean |T_ij| over the rest of the triangle.
        normal_energy: Σ|λ|²/‖V‖²_F.
        angle_distance: Kolmogorov distance of the angles from the uniform distribution on [0, π]; 0 if uniform, 1 if
            all angles are 0 or all are π.
    """

    matrix: Array
    theta: Array
    own: bool
    angles: Array
    moduli: Array
    profile: Array
    delay_line: float
    triangle: float
    normal_energy: float
    angle_distance: float


def learned_structure(network: Any) -> dict[str, LearnedStructure]:
    """The Schur structure of every recurrent matrix of a network, by its name: `l0`, or `l0.reset` for one gate.

    Args:
        network: a recurrent layer, a module with one inside, or a square matrix.

    Reference: Kerg et al. (2019), §5.3 and Fig. 3.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.analysis import learned_structure
        >>> found = learned_structure(kreiss.NNRNN(3, 8))["l0"]
        >>> found.own, round(found.normal_energy, 6), found.delay_line
        (True, 1.0, 0.0)
        >>> sorted(learned_structure(torch.nn.GRU(3, 8)))
        ['l0.new', 'l0.reset', 'l0.update']
    """
    if not isinstance(network, nn.Module):
        return {"matrix": _structure(network, None)}
    layer = recurrent_layer(network)
    return {name: _structure(matrix, theta) for name, matrix, theta in recurrent_matrices(layer)}


GATES = {2: ("first", "second"), 3: ("reset", "update", "new"), 4: ("input", "forget", "cell", "output")}


def recurrent_matrices(layer: nn.Module) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """(name, V, own Θ or None) of every recurrent matrix of a layer, gate by gate."""
    any_matrix = False
    for k in range(int(getattr(layer, "num_layers", 1))):
        weight = getattr(layer, f"weight_hh_l{k}", None)
        if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.shape[0] % weight.shape[1]:
            continue
        any_matrix = True
        gates = weight.shape[0] // weight.shape[1]
        if gates == 1:
            yield f"l{k}", weight.detach(), _own_form(layer, f"l{k}", weight)
        else:
            names = GATES.get(gates, tuple(str(i) for i in range(gates)))
            parts = weight.detach().chunk(gates)
            yield from ((f"l{k}.{name}", part, None) for name, part in zip(names, parts, strict=True))
    if not any_matrix:
        raise InputError(
            f"`network` must have recurrent matrices named weight_hh_l0, …; got {type(layer).__name__} without. "
            "Pass the matrix itself."
        )


def _own_form(layer: Any, suffix: str, weight: Tensor) -> Tensor | None:
    """Θ in the layer's own basis, if its set is in Schur form."""
    sets: Any = getattr(layer, "sets", ())
    core = getattr(sets[suffix], "core", None) if suffix in sets else None
    if core is None:
        return None
    with torch.no_grad():
        theta: Tensor = core(*layer._wide_free(suffix))
    return theta if theta.shape == weight.shape else None


def _structure(matrix: Any, theta: Tensor | None) -> LearnedStructure:
    form = real_schur(matrix)
    v = form.vectors @ form.form @ form.vectors.T
    own = theta is not None
    lower = theta.detach().cpu().double().numpy() if theta is not None else form.form
    n = len(lower)
    if own:
        inside = np.zeros((n, n), dtype=bool)
        above = np.flatnonzero(np.diag(lower, 1))
        inside[above + 1, above] = True
    else:
        pairs = form.starts[form.sizes == 2]
        inside = np.zeros((n, n), dtype=bool)
        inside[pairs + 1, pairs] = True
    size = np.abs(lower)
    row, column = np.indices((n, n))
    chain = (row == column + 1) & ~inside
    rest = row > column + 1
    squares = float(np.sum(v**2))
    return LearnedStructure(
        matrix=v,
        theta=lower,
        own=own,
        angles=form.angles[form.sizes == 2],
        moduli=np.repeat(form.moduli, form.sizes),
        profile=np.array([np.diag(size, -k).mean() for k in range(n)]),
        delay_line=float(size[chain].mean()) if chain.any() else 0.0,
        triangle=float(size[rest].mean()) if rest.any() else 0.0,
        normal_energy=1 - henrici(v) ** 2 / squares if squares else 1.0,
        angle_distance=_distance_from_uniform(form.angles[form.sizes == 2]),
    )


def _distance_from_uniform(angles: Array) -> float:
    """Kolmogorov's distance from the uniform distribution on [0, π]."""
    if not len(angles):
        return float("nan")
    sorted_ = np.sort(angles) / np.pi
    steps = np.arange(len(angles) + 1) / len(angles)
    return float(max((steps[1:] - sorted_).max(), (sorted_ - steps[:-1]).max()))
