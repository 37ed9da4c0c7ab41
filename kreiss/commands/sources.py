"""What `kreiss analyze` reads: a matrix, a network, or a run with its task and its history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kreiss.errors import InputError, RunError

if TYPE_CHECKING:
    from kreiss.report.findings import Finding

SEQUENCES = 4  # of the task, as input of a network
LONGEST = 2500  # steps of such a sequence
EPISODES = 16  # that an agent plays to choose from
GAUSSIAN = "driven by Gaussian input of variance 1"


class Source(NamedTuple):
    """What is analysed.

    Attributes:
        title: its name.
        about: one paragraph: what it is, and how it is driven.
        findings: computed as they are consumed.
        note: a line for the terminal, if the input is not the run's own.
    """

    title: str
    about: str
    findings: Iterator[Finding]
    note: str = ""


def source(path: Path, part: str) -> Source:
    """What `path` holds, with the findings of one part of the analysis or of all."""
    from kreiss.report.analyses import of_matrix, read_matrix

    name = path.resolve().name
    if path.suffix != ".npy":
        return _of_network(path, name, part)
    matrix = read_matrix(path)
    about = f"A matrix of {len(matrix)} × {len(matrix)} numbers, read as h ← Vh."
    return Source(name, about, of_matrix(matrix, part))


def _of_network(path: Path, name: str, part: str) -> Source:
    from kreiss.analysis.network.dynamics import holds_layer
    from kreiss.networks.saving import load
    from kreiss.relational import RelationalNetwork
    from kreiss.report.analyses import described, of_network
    from kreiss.report.findings import MATRIX_PARTS

    _check_there(path)
    network = load(path)
    if isinstance(network, RelationalNetwork):
        return _of_relations(network, path, name, part)
    drive, remark = drive_of(network, path)
    driven = f"driven by {drive.said}" if drive else GAUSSIAN
    if not holds_layer(network):
        network, said = _own_system(network, driven)
    else:
        said = described(network, driven)
    about = f"{said} {remark}".rstrip()
    note = "" if drive or part in MATRIX_PARTS else f"{GAUSSIAN}: {remark}"
    return Source(name, about, _chained(_run_of(path), part, of_network(network, part, drive)), note)


def _own_system(network: Any, driven: str) -> tuple[Any, str]:
    """A network with a recurrence of its own as a map of states, and what it is."""
    from kreiss.analysis import dynamics
    from kreiss.networks.own import arguments_of

    name, size = type(network).__name__, arguments_of(network).get("input_size")
    if size is None:
        raise InputError(
            f"a network must take input_size in its constructor to be analysed; got {name}, which does not. Add it."
        )
    system = dynamics(network, input_size=size)
    return system, (
        f"{name} with {size} inputs and a state of {system.state_size} numbers. Its recurrence is its own: gradients "
        f"and fixed points are those of the whole network, {driven}."
    )


def _of_relations(network: Any, path: Path, name: str, part: str) -> Source:
    """A network over whole sequences of objects, with the task of its run."""
    from kreiss.report.relational_findings import relational_findings

    folder = _run_of(path)
    if folder is None:
        raise InputError(
            f"`{path}` must be in the folder of a run, whose objects the network is shown; got a saved "
            f"{type(network).__name__} alone. Pass a run."
        )
    task = _task_of(folder)
    count = sum(parameter.numel() for parameter in network.parameters())
    about = (
        f"{type(network).__name__} with {count:,} parameters over sequences of {network.length} images, trained on "
        f"{_config_of(folder).task.name}."
    )
    return Source(name, about, _chained(folder, part, relational_findings(network, task, part)))


def _config_of(folder: Path) -> Any:
    from kreiss.training.record import read_config

    return read_config(folder)


def _task_of(folder: Path) -> Any:
    """The task of a run; an error if its data are missing or have changed."""
    from kreiss.storage.identity import ABOUT, read_document
    from kreiss.training.planning import make_task
    from kreiss.training.provenance import check_same, check_there

    config = _config_of(folder)
    check_there(folder, config)
    task = make_task(config)
    check_same(folder, task, read_document(folder / ABOUT))
    return task


def _run_of(path: Path) -> Path | None:
    """The run folder that `path` is, or is in."""
    from kreiss.training.record import is_run

    return next((place for place in (path, path.parent) if is_run(place)), None)


def _check_there(path: Path) -> None:
    if not path.exists() and not str(path).startswith("hf:"):
        raise InputError(
            f"`{path}` must be a matrix in a .npy file, a saved model, a checkpoint or a run; got no such file. "
            "`kreiss runs ls` lists runs."
        )


def _chained(folder: Path | None, part: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The history of a run comes first."""
    if folder is not None and part in ("spectrum", "all"):
        yield from _history(folder)
    yield from findings


def _history(folder: Path) -> Iterator[Finding]:
    from kreiss.report.run_findings import run_findings
    from kreiss.tasks import TASKS, Task, World
    from kreiss.training.planning import make_task
    from kreiss.training.record import read_config, read_records
    from kreiss.training.spectrum import read_spectra

    config = read_config(folder)
    kind = TASKS.get(config.task.name, Task)
    metric = kind.metric if issubclass(kind, World) else "loss"  # a world has no loss of its own
    try:
        without = make_task(config).baseline().get(metric)
    except (ValueError, OSError, RunError):  # missing data, or an unregistered task
        without = None
    return run_findings(read_records(folder), read_spectra(folder), without, metric, kind.naive)


def held_out_inputs(path: Path) -> Any:
    """Validation inputs (T, B, …) of a run's task; None for a saved model, a world, and where the data are missing."""
    from kreiss.tasks import World

    folder = _run_of(path)
    if folder is None:
        return None
    try:
        task = _task_of(folder)
        if isinstance(task, World):
            return None
        inputs = next(iter(task.held_out("valid", SEQUENCES))).inputs
    except (ValueError, OSError, RunError):
        return None
    return inputs.expanded() if hasattr(inputs, "expanded") else inputs  # of images


def drive_of(network: Any, path: Path) -> tuple[Any, str]:
    """Held-out sequences of a run's task with its loss, or episodes in its world, and a remark; or None and why."""
    from kreiss.analysis.network.dynamics import holds_layer
    from kreiss.networks import Agent, RecurrentNetwork
    from kreiss.report.network_findings import Drive
    from kreiss.tasks import World

    folder = _run_of(path)
    if folder is None:
        return None, "A saved model has no data of its own."
    if not isinstance(network, (RecurrentNetwork, Agent)) and holds_layer(network):
        return None, "The inputs of the layer inside it are not those of the run's task."
    try:
        config = _config_of(folder)
        task = _task_of(folder)
        if isinstance(task, World):
            return _played(network, task, config.task.name)
        batch = next(iter(task.held_out("valid", SEQUENCES)))
    except (ValueError, OSError, RunError) as error:
        return None, f"The run's own data were unavailable: {error}"
    around = isinstance(network, RecurrentNetwork)
    enter = (network.front or network.embedding) if around else None  # of images, of symbols
    inputs = batch.inputs if enter is None else enter(batch.inputs).detach()
    if len(inputs) > LONGEST:
        return None, f"The sequences of {config.task.name} are longer than {LONGEST} steps."
    network.eval()

    def loss(hidden: Any) -> Any:
        """Summed over sequences, so that the gradient of each is its own."""
        outputs = network.read(hidden, batch.lengths) if isinstance(network, RecurrentNetwork) else answers(hidden)
        return task.loss(outputs, batch) * hidden.shape[1]

    def answers(outputs: Any) -> Any:
        """Outputs of a network with a recurrence of its own, as the task takes them."""
        return outputs if task.answers == "every" else outputs[-1]

    symbols = None if batch.inputs.is_floating_point() else batch.inputs
    said = f"sequences of {config.task.name}"
    return Drive(inputs, said, loss, symbols, alphabet_of(task)), ""


def _played(agent: Any, world: Any, name: str) -> tuple[Any, str]:
    """What the layer of an agent is given in real episodes; a world has no targets, so there is no loss.

    Episodes differ in length. The window is their median, so that half of them fill it.
    """
    import numpy as np
    import torch

    from kreiss import rl
    from kreiss.report.network_findings import Drive
    from kreiss.tasks.worlds.base import VALID

    environments = world.environments(EPISODES, (VALID,))
    try:
        episodes = rl.play(rl.checked_agent(agent).freeze(), environments)
    finally:
        environments.close()
    lengths = sorted(len(episode.actions) for episode in episodes)
    window = min(lengths[EPISODES // 2], LONGEST)
    long = [episode.observations[:window] for episode in episodes if len(episode.actions) >= window][:SEQUENCES]
    seen = torch.from_numpy(np.array(long)).transpose(0, 1)  # (T, B, D)
    with torch.no_grad():
        inputs = agent.encode(seen.to(next(agent.parameters())))
    remark = (
        f"Of {EPISODES} episodes the first {len(long)} with at least {window} steps, as half of them have, were cut to "
        "this length."
    )
    return Drive(inputs, f"episodes of {name}"), remark


def alphabet_of(task: Any) -> list[str] | None:
    """Names of the task's symbols, if they are characters."""
    alphabet = getattr(task, "alphabet", None)
    return None if alphabet is None else [repr(chr(code))[1:-1].replace(" ", "␣") for code in alphabet]
