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
    from kreiss.networks.saving import load
    from kreiss.relational import RelationalNetwork
    from kreiss.report.analyses import described, of_network
    from kreiss.report.findings import MATRIX_PARTS

    _check_there(path)
    network = load(path)
    if isinstance(network, RelationalNetwork):
        return _of_relations(network, path, name, part)
    drive, why_not = drive_of(network, path)
    driven = f"driven by {drive.said}" if drive else GAUSSIAN
    about = f"{described(network, driven)} {why_not}".rstrip()
    note = "" if drive or part in MATRIX_PARTS else f"{GAUSSIAN}: {why_not}"
    return Source(name, about, _chained(_run_of(path), part, of_network(network, part, drive)), note)


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
    from kreiss.training.planning import make_task
    from kreiss.training.record import read_config, read_records
    from kreiss.training.spectrum import read_spectra

    try:
        without = make_task(read_config(folder)).baseline().get("loss")
    except (ValueError, OSError, RunError):  # missing data, or an unregistered task
        without = None
    return run_findings(read_records(folder), read_spectra(folder), without)


def held_out_inputs(path: Path) -> Any:
    """Validation inputs (T, B, …) of a run's task; None for a saved model, and where the data are not there."""
    folder = _run_of(path)
    if folder is None:
        return None
    try:
        inputs = next(iter(_task_of(folder).held_out("valid", SEQUENCES))).inputs
    except (ValueError, OSError, RunError):
        return None
    return inputs.expanded() if hasattr(inputs, "expanded") else inputs  # of images


def drive_of(network: Any, path: Path) -> tuple[Any, str]:
    """Held-out sequences of a run's task with its loss; or None, and the reason."""
    from kreiss.report.network_findings import Drive

    folder = _run_of(path)
    if folder is None:
        return None, "A saved model has no data of its own."
    config = _config_of(folder)
    try:
        task = _task_of(folder)
        batch = next(iter(task.held_out("valid", SEQUENCES)))
    except (ValueError, OSError, RunError) as error:
        return None, f"The run's own data were unavailable: {error}"
    enter = getattr(network, "front", None) or getattr(network, "embedding", None)  # of images, of symbols
    inputs = batch.inputs if enter is None else enter(batch.inputs).detach()
    if len(inputs) > LONGEST:
        return None, f"The sequences of {config.task.name} are longer than {LONGEST} steps."
    network.eval()

    def loss(hidden: Any) -> Any:
        """Summed over sequences, so that the gradient of each is its own."""
        return task.loss(network.read(hidden, batch.lengths), batch) * hidden.shape[1]

    symbols = None if batch.inputs.is_floating_point() else batch.inputs
    said = f"sequences of {config.task.name}"
    return Drive(inputs, said, loss, symbols, alphabet_of(task)), ""


def alphabet_of(task: Any) -> list[str] | None:
    """Names of the task's symbols, if they are characters."""
    alphabet = getattr(task, "alphabet", None)
    return None if alphabet is None else [repr(chr(code))[1:-1].replace(" ", "␣") for code in alphabet]
