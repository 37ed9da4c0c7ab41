"""`kreiss figure` for the thesis' chapter on memory: train or load its networks, and measure them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kreiss.errors import InputError

if TYPE_CHECKING:
    from kreiss.report.memory_figures import Measured, Reading

HIDDEN, STEPS, DELAY, BATCH = 32, 200, 20, 16  # of the short runs: they show the kind of thing, not published values
NU = 15  # ν and ρ of Fig. B.1 where they are not varied
LENGTHS = (1.0, 1.5, 2.0)  # of the delay, in the trade-off of Fig. 4.2
LAST = 10  # steps in the loss whose gradient is drawn
GROUP = 2  # pixels per step; 7 of MNIST in the thesis, here of 8 × 8 digits


class Short(NamedTuple):
    """A network that is trained briefly for a figure."""

    layer: str
    task: str
    options: dict[str, Any] | None = None  # of the layer


READ: dict[str, dict[str, Short]] = {
    "thesis/fig4.1": {"copy": Short("MemRNN", "copy"), "denoise": Short("MemRNN", "denoise")},
    "thesis/figB.5": {"characters": Short("MemRNN", "characters")},
    "thesis/figB.7": {"pixels": Short("MemRNN", "pixels")},
    "thesis/figB.8": {"copy": Short("RelRNN", "copy", {"short": 10, "screening": "none"})},
    "thesis/figB.9": {"denoise": Short("RelRNN", "denoise", {"short": 10, "screening": "none"})},
}
COMPARED, BY_SIZE = "thesis/fig4.2", "thesis/figB.1"
NAMES = (*READ, COMPARED, BY_SIZE)


class Trained(NamedTuple):
    """A network with the task it was trained on."""

    network: Any
    task: Any


def filled(name: str, paths: dict[str, str], train: bool, steps: int = 0, delay: int = 0) -> tuple[dict[str, Any], str]:
    """What a figure draws, by role, and a note if networks were trained for it.

    Args:
        name: of the figure.
        paths: role → run folder.
        train: train a short network for every role without a path.
        steps: updates of such a network; 0 for the default.
        delay: T of copy and denoise; 0 for the default.
    """
    count, delay = steps or STEPS, delay or DELAY
    short = {role: kind for role, kind in _shorts(name).items() if train and role not in paths}
    of = {role: _opened(path) for role, path in paths.items()}
    of |= {role: made for role, kind in short.items() if (made := _trained(kind, count, delay)) is not None}
    note = f"{HIDDEN} units, {count} updates, T = {delay}, scaled down" if short else ""
    if name in READ:
        return {role: reading(one) for role, one in of.items()}, note
    if name == BY_SIZE:
        return {role: gradients(one) for role, one in of.items()}, note
    return {role: measured(one) for role, one in of.items()}, note


def _shorts(name: str) -> dict[str, Short]:
    """The networks of a figure, by role."""
    from kreiss.report.memory_figures import COMPARED as NETWORKS
    from kreiss.report.memory_figures import SIZES

    if name in READ:
        return READ[name]
    if name == COMPARED:
        return {layer: Short(layer, "denoise") for layer in NETWORKS}
    by_rho = {f"rho{size}": Short("RelLSTM", "denoise", {"short": NU, "relevant": size}) for size in SIZES}
    return by_rho | {f"nu{size}": Short("RelLSTM", "denoise", {"short": size, "relevant": NU}) for size in SIZES}


# ---------------------------------------------------------------- networks


def _opened(path: str) -> Trained:
    """The network of a run, with the run's task."""
    from kreiss.networks import load
    from kreiss.training.planning import make_task
    from kreiss.training.record import is_run, read_config

    folder = Path(path)
    if not is_run(folder):
        raise InputError(f"`{path}` must be the folder of a run, whose task is needed; got another. Pass a run folder.")
    return Trained(load(folder).eval(), make_task(read_config(folder)))


def _trained(kind: Short, steps: int, delay: int) -> Trained | None:
    """A network after a short training; None for a layer that the package does not have."""
    import torch

    from kreiss.networks import LAYERS
    from kreiss.training import fit

    make: Any = LAYERS.get(kind.layer.lower())
    if make is None:
        print(f"{kind.layer}: not run, as there is no such layer")
        return None
    task = _task(kind.task, delay)
    layer = make(task.input_size, HIDDEN, generator=torch.Generator().manual_seed(0), **(kind.options or {}))
    settings = {"optimiser": "adam", "lr": 2e-3, "steps": steps, "batch": BATCH, "optimiser.clip_norm": 1.0}
    run = fit(layer, task, {**settings, "eval_every": steps}, show="quiet")
    return Trained(run.model.eval(), task)


def _task(name: str, delay: int) -> Any:
    """A small task: few held-out sequences, because networks in plain torch take long to test."""
    from kreiss import tasks

    few = {"valid_sequences": BATCH, "test_sequences": BATCH}
    if name in ("copy", "denoise"):
        return {"copy": tasks.Copy, "denoise": tasks.Denoise}[name](delay, **few)
    return tasks.Characters(chunk=125, valid=0.002, test=0.002) if name == "characters" else _grouped()


def _grouped() -> Any:
    """Digits with several pixels per step, so that a map of all steps can be read."""
    from dataclasses import replace

    from kreiss.tasks import Pixels

    class Grouped(Pixels):
        """Pixels in groups."""

        input_size = GROUP

        def assemble(self, members: Any) -> Any:
            batch = super().assemble(members)
            inputs = batch.inputs.reshape(-1, GROUP, batch.inputs.shape[1]).transpose(1, 2)
            return replace(batch, inputs=inputs)

    return Grouped()


# ---------------------------------------------------------------- measurements


def reading(of: Trained) -> Reading:
    """What a network read in one held-out sequence."""
    from kreiss.analysis.network.attentive import attentive_layer
    from kreiss.commands.sources import alphabet_of
    from kreiss.report.attention_findings import symbol_names
    from kreiss.report.memory_figures import Reading

    layer = attentive_layer(of.network)
    if layer is None:
        kind = type(getattr(of.network, "layer", of.network)).__name__
        raise InputError(f"an attention map needs a network that attends to its past; got {kind}. Pass a MemRNN.")
    batch = next(iter(of.task.held_out("valid", 1)))
    embedding = getattr(of.network, "embedding", None)
    x = batch.inputs[:, :1] if embedding is None else embedding(batch.inputs[:, :1])
    symbols = None if batch.inputs.is_floating_point() else symbol_names(batch.inputs[:, 0], alphabet_of(of.task))
    return Reading(layer.attention(x), symbols)


def gradients(of: Trained, delay: int | None = None) -> Any:
    """Gradients of the last ten answers, as in the thesis' curves; `delay` to measure at another T."""
    from kreiss.analysis import gradient_flow, recall_loss
    from kreiss.analysis.network.dynamics import recurrent_layer

    if not hasattr(of.task, "delay"):
        kind = type(of.task).__name__
        raise InputError(f"gradient curves are those of copy or denoise; got {kind}. Pass runs of one of these.")
    task = of.task if delay is None else type(of.task)(delay)
    batch = task.train(update=0, batch=BATCH, seed=1)
    loss = recall_loss(of.network.readout, batch.targets, LAST)
    return gradient_flow(recurrent_layer(of.network), batch.inputs, loss, of="output")


def measured(of: Trained) -> Measured:
    """Gradients, memory against T, and the two together for a network trained on denoise."""
    from kreiss.analysis.network.dynamics import recurrent_layer
    from kreiss.bench.growth import memory_by_length
    from kreiss.report.memory_figures import Measured

    delays = [int(share * of.task.delay) for share in LENGTHS]
    flows = {delay: gradients(of, delay) for delay in delays}
    growth = memory_by_length(recurrent_layer(of.network), [delay + 2 * LAST for delay in delays], BATCH)
    logs = [float(flow.total[flow.total > 0].log10().mean()) for flow in flows.values()]  # a cut gradient is 0
    return Measured(flows[delays[0]], growth, list(zip(delays, growth.peaks, logs, strict=True)))
