"""Findings about a network over sequences of objects: right and wrong answers, and the relations behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from kreiss.errors import InputError
from kreiss.report.findings import Finding, counted, percent
from kreiss.report.plots.objects import drawn, is_signed, relation_matrix
from kreiss.report.style import canvas

SHOWN = 3  # sequences of right answers, and as many of wrong ones
PARTS = ("answers", "relations")


def relational_findings(network: Any, task: Any, part: str = "all") -> Iterator[Finding]:
    """Findings about a network on the validation set of its task.

    Args:
        network: one of `kreiss.relational`.
        task: that it was trained on.
        part: "answers", "relations" or "all".
    """
    has = PARTS if hasattr(network, "relations") else PARTS[:1]
    if part not in (*has, "all"):
        raise InputError(
            f"{part} must be asked of another network; got {type(network).__name__}, a network over whole sequences. "
            f"Choose one of: {', '.join(has)}, all."
        )
    for name in has if part == "all" else (part,):
        yield from {"answers": _answers, "relations": _relations}[name](network, task)


@torch.no_grad()
def _answered(network: Any, task: Any) -> dict[str, tuple[Any, Any]]:
    """Part of the validation set → its batch and the answers of the network."""
    network.eval()
    found = {}
    for batch in task.held_out("valid", task.valid_sequences):
        output, _ = network(batch.inputs.to(next(network.parameters()).dtype), None, None)
        found[batch.part] = (batch, output.argmax(-1))
    return found


def _answers(network: Any, task: Any) -> Iterator[Finding]:
    found = _answered(network, task)
    accuracy = {part: float((answers == batch.targets).float().mean()) for part, (batch, answers) in found.items()}
    chance = task.baseline()["accuracy"]
    said = ", ".join(f"{percent(value)} {_named(part, task)}" for part, value in accuracy.items())
    sentence = f"Right answers on the validation set: {said}. A guess is right {percent(chance)} of the time."
    numbers: dict[str, Any] = {
        "accuracy": {_named(part, task): value for part, value in accuracy.items()},
        "chance": chance,
    }
    part = list(found)[-1]
    batch, answers = found[part]
    chosen = [*_some(answers == batch.targets), *_some(answers != batch.targets)]
    images = batch.inputs[:, chosen].expanded().transpose(0, 1).numpy()
    titles = [
        f"{int(answers[i])} ({'right' if answers[i] == batch.targets[i] else f'not {int(batch.targets[i])}'})"
        for i in chosen
    ]
    yield Finding(
        "answers", f"Answers {_named(part, task)}", sentence, numbers, lambda: drawn(images, titles, task.across)
    )


def _relations(network: Any, task: Any) -> Iterator[Finding]:
    part, (batch, answers) = list(_answered(network, task).items())[-1]
    right, wrong = _some(answers == batch.targets), _some(answers != batch.targets)
    chosen = [*right, *wrong]
    inputs = batch.inputs[:, chosen]
    matrices = network.relations(inputs.to(next(network.parameters()).dtype)).float().numpy()
    images = inputs.expanded().transpose(0, 1).numpy()
    same, other = _equal_pairs(matrices, batch.inputs[:, chosen].index.T.numpy())
    numbers = {"mean_of_equal_pairs": same, "mean_of_other_pairs": other}
    shown = " and in the next row ".join(
        f"{counted(len(some), f'{kind} answer')}" for some, kind in ((right, "right"), (wrong, "wrong")) if some
    )
    sentence = (
        f"What the decision is made from, {_named(part, task)}: {shown}. Entries of pairs of equal images have a size "
        f"of {_number(same)} on average, those of other pairs {_number(other)}."
    )
    titles = [f"answers {int(answers[i])}, right is {int(batch.targets[i])}" for i in chosen]
    yield Finding("relations", "Relations", sentence, numbers, lambda: _matrices(matrices, images, titles, len(right)))


def _equal_pairs(matrices: Any, index: Any) -> tuple[float | None, float | None]:
    """Mean size of entries below the diagonal of pairs of equal images and of others; None where there are none."""
    below = np.tril(np.ones(matrices.shape[1:], bool), -1)
    equal = index[:, :, None] == index[:, None, :]
    picked = [np.abs(matrices)[(equal == same) & below] for same in (True, False)]
    return tuple(float(values.mean()) if values.size else None for values in picked)  # type: ignore[return-value]


def _matrices(matrices: Any, images: Any, titles: list[str], right: int) -> Any:
    rows = [list(range(right)), list(range(right, len(matrices)))]
    rows = [row for row in rows if row]
    columns = max(len(row) for row in rows)
    limit = float(np.abs(matrices).max()) if is_signed(matrices) else None  # one scale for all
    figure, axes = canvas(len(rows), columns, size=(3.6 * columns, 3.6 * len(rows)), squeeze=False)
    for panel in axes.flat:
        panel.axis("off")
    for line, row in zip(axes, rows, strict=True):
        for panel, i in zip(line, row, strict=False):
            panel.axis("on")
            relation_matrix(matrices[i], images[i], panel, title=titles[i], bar=i == row[-1], limit=limit)
    return figure


def _some(mask: Any) -> list[int]:
    """The first few places where it is true."""
    return [int(i) for i in torch.nonzero(mask).flatten()[:SHOWN]]


def _named(part: str, task: Any) -> str:
    if part == "@unseen" and getattr(task, "unseen", None) == 0:
        return "on the sequences held out"  # of the same objects
    return {"": "on objects seen in training", "@unseen": "on unseen objects"}.get(part, f"on {part.removeprefix('@')}")


def _number(value: float | None) -> str:
    return "not there" if value is None else f"{value:.3g}"
