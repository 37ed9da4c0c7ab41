"""Findings about a network that attends to its past: what it reads, what it keeps, and its gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from kreiss import analysis
from kreiss.analysis.network.attentive import attentive_layer
from kreiss.report import plots
from kreiss.report.findings import Finding, counted, percent, steps
from kreiss.report.network_findings import BATCH, STEPS, Drive, _last_output, random_inputs
from kreiss.report.style import canvas

LONGEST = 300  # steps that are drawn and differentiated; memory grows with their square
MOST_NAMED = 6  # steps named in a sentence
BLANK = "·"


def attention_findings(network: Any, part: str, drive: Drive | None = None) -> Iterator[Finding]:
    """Findings of `part`, "attention" or "gradients", about a network with memory.

    Args:
        network: a layer that attends to its past, or a module with one inside.
        part: one of the two.
        drive: its input; random by default.
    """
    layer = attentive_layer(network)
    drive = drive or Drive(random_inputs(_Sized(layer)), "random input")
    x = drive.inputs[:, :BATCH]
    x = x.transpose(0, 1) if layer.batch_first else x
    if part == "attention":
        yield _attention(layer, x, drive)
    elif part == "gradients":
        yield _gradients(layer, drive)


class _Sized:
    """The sizes of a layer that random input needs."""

    def __init__(self, layer: Any) -> None:
        self.input_size, self.like = layer.input_size, layer.weight_ih_l0.detach()


# ---------------------------------------------------------------- what was read and kept


def _attention(layer: Any, x: Tensor, drive: Drive) -> Finding:
    record = layer.attention(x, layer=layer.num_layers - 1)
    found, depth = analysis.sparsity(record), analysis.dependency_depth(record)
    names = symbol_names(drive.symbols[:, 0], drive.alphabet) if drive.symbols is not None else None
    numbers = {
        "kappa": found.largest, "kappa_effective": found.effective, "effective_threshold": found.threshold,
        "depth": depth.largest, "depth_by_step": depth.depth[:, 0].tolist(), "symbols": names,
        "most_read": _most_read(record), "kept": [tuple(stay) for stay in record.stays() if stay.sequence == 0],
        "share_of_relevant": _share_of_relevant(record),
    }  # fmt: skip
    which = f"In the last of {layer.num_layers} layers, u" if layer.num_layers > 1 else "U"
    sentence = (
        f"{which}nder {drive.said}, a step reads at most {counted(found.largest, 'state')} (κ), at most "
        f"{found.effective} of them with a weight of {percent(found.threshold)} or more. From any of the "
        f"{len(depth.depth)} states to the end it takes at most {counted(depth.largest, 'link')} (d), each a recurrent "
        f"step or a read with at least the weight of uniform attention. {_reading(record, names)}"
        f"{_keeping(record, names)}"
    )
    return Finding("attention", "Attention", sentence, numbers, lambda: attention_figure(record, names))


def attention_figure(record: Any, names: Sequence[str] | None = None, title: str = "") -> Any:
    """The attention map of the first sequence and, of a network that screens, what it kept."""
    screens = record.relevant > 0
    figure, axes = canvas(1, 1 + screens, size=(5.8 * (1 + screens), 5.2), squeeze=False)
    plots.attention_map(record, axes[0, 0], symbols=names, title=title)
    if screens:
        plots.kept_strip(record, axes[0, 1], symbols=names)
    return figure


def symbol_names(symbols: Tensor, alphabet: Sequence[str] | None = None) -> list[str]:
    """A short name for the symbol of each step (T,); without an alphabet the most frequent one, a blank, is a dot."""
    values = [int(value) for value in symbols]
    if alphabet is not None:
        return [alphabet[value] for value in values]
    blank = Counter(values).most_common(1)[0][0]
    return [BLANK if value == blank else str(value) for value in values]


def _most_read(record: Any) -> list[int]:
    """The past steps of the first sequence that received most attention in the last tenth of the steps, in order."""
    dense = record.dense(0)
    received = dense[-max(1, len(dense) // 10) :].sum(0)
    top = received.topk(min(MOST_NAMED, len(received))).indices
    return sorted(int(i) for i in top if received[i] > 0)


def _share_of_relevant(record: Any) -> float | None:
    """The share of all attention that goes to screened states."""
    if not record.relevant:
        return None
    return float(record.weight[..., : record.relevant].sum() / record.weight.sum().clamp_min(1e-30))


def _named(places: Sequence[int], names: Sequence[str] | None) -> str:
    """Steps in words, with what they were given where that is known."""
    return ", ".join(f"{i}" if names is None else f"{i} ({names[i]})" for i in places)


def _reading(record: Any, names: Sequence[str] | None) -> str:
    most = _most_read(record)
    tail = max(1, len(record.past) // 10)
    return f"In the first sequence the last {steps(tail)} read most from steps {_named(most, names)}. " if most else ""


def _keeping(record: Any, names: Sequence[str] | None) -> str:
    """How many states were kept and replaced, and who is there at the end."""
    if not record.relevant:
        there, all_of_them = int((record.past[-1, 0] >= 0).sum()), int(record.start[0]) + len(record.past) - 1
        every = there == all_of_them
        return "It keeps every state." if every else f"At the end {there} of {all_of_them} past states are in memory."
    stays = [stay for stay in record.stays() if stay.sequence == 0]
    if not stays:
        return f"No state entered its relevant set, which has room for {record.relevant}."
    last = sorted(stay.past for stay in stays if stay.left is None)
    share = _share_of_relevant(record)
    assert share is not None
    text = (
        f"{counted(len(stays), 'state')} entered its relevant set, which has room for {record.relevant} and receives "
        f"{percent(share)} of all attention; at the end it holds {counted(len(last), 'state')}"
    )
    if names is not None and BLANK in names and last:
        told = [i for i in last if names[i] != BLANK]
        return f"{text}, {len(told)} of them from steps that were not blank: {_named(told, names) or 'none'}."
    return f"{text}: {_named(last[:MOST_NAMED], names)}{', …' if len(last) > MOST_NAMED else ''}."


# ---------------------------------------------------------------- gradients


def _gradients(layer: Any, drive: Drive) -> Finding:
    x, loss, of = drive.inputs, drive.loss, "the loss"
    if loss is None or len(x) > LONGEST:
        x, loss, of = x[:STEPS, :BATCH], _last_output, "the last output"
    if layer.batch_first:
        inner, given = loss, x.transpose(0, 1)
        loss = lambda outputs: inner(outputs.transpose(0, 1))  # noqa: E731
    else:
        given = x
    flow = analysis.gradient_flow(layer, given, loss)
    mean = flow.mean[1:]
    largest = int(mean.argmax())
    share = percent(float(mean[0] / mean[largest])) if mean[largest] > 0 else "0 %"
    first = f"{share} of that of step {largest}, the largest" if largest else "the largest of all"
    sentence = (
        f"Under {drive.said}, the gradient of {of} with respect to the state of step 0 is {first}; from step to step "
        f"backwards it changes by a factor of {flow.growth:.4g} on average, over {steps(len(mean))}. It counts all "
        "ways to the end, through the recurrence and through memory."
    )
    numbers = {"norms": flow.mean.tolist(), "total": flow.total.tolist(), "growth_per_step": flow.growth, "of": of}
    draw = lambda: plots.gradients_from_end({f"of {of}": flow}).figure  # noqa: E731
    return Finding("gradients", "Gradients through time", sentence, numbers, draw)
