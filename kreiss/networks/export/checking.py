"""Whether a file computes what its model does: at several lengths and batch sizes, in chunks, and step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kreiss.errors import InputError
from kreiss.networks.export.states import initial
from kreiss.networks.export.tracing import Draw, Flat, tensors_of

CHECKED_AT = ((1, 1), (2, 3), (9, 1), (33, 4))
ROUNDING = 1e3  # allowed difference in units in the last place of the largest output

Run = Callable[..., list[Tensor]]


def largest_difference(run: Run, model: nn.Module, flat: Flat, draw: Draw) -> float:
    """The largest difference between a file and its model over several sizes; raises beyond rounding error."""
    whole = Flat(model, flat.form)
    largest = 0.0
    for sizes in CHECKED_AT:
        state = initial(flat.model, sizes[1 - flat.time]) if flat.form else []
        for _ in range(2 if flat.form else 1):  # the second chunk starts from the state of the first
            x = draw(*sizes)
            found, wanted = in_steps(run, flat, x, state) if flat.step else run(x, *state), tensors_of(whole(x, *state))
            largest = max(largest, *(difference(*pair, sizes) for pair in zip(found, wanted, strict=True)))
            state = found[1:]
    return largest


def in_steps(run: Run, flat: Flat, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Outputs and the last state of a file that computes one step, over a sequence."""
    outs = []
    for x_t in x.unbind(flat.time):
        out, *state = run(x_t, *state)
        outs.append(out)
    return [outs[-1] if flat.answers_at_end else torch.stack(outs, flat.time), *state]


def difference(output: Tensor, expected: Tensor, sizes: tuple[int, int]) -> float:
    """The largest difference between an output of the file and that of the model; raises beyond rounding error."""
    if output.shape != expected.shape:
        raise InputError(
            f"the exported file must compute what the model does; got an output of shape {tuple(output.shape)} instead "
            f"of {tuple(expected.shape)} in an input of sizes {sizes}. Leave `state` and `step` out."
        )
    apart = torch.where(output == expected, 0.0, (output.double() - expected.double()).abs())  # −inf equals −inf
    largest = float(apart.max()) if apart.numel() else 0.0
    scale = 1 + float(expected[expected.isfinite()].abs().amax()) if expected.isfinite().any() else 1.0
    allowed = ROUNDING * torch.finfo(expected.dtype).eps * scale if expected.is_floating_point() else 0.0
    if not largest <= allowed:
        raise InputError(
            f"the exported file must compute what the model does; got a difference of {largest:.1e} in an "
            f"input of sizes {sizes}, beyond {allowed:.1e}. Export the model in float64 to see whether "
            "rounding grows in it."
        )
    return largest
