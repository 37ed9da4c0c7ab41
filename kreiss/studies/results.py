"""Results of experiments: one small JSON file each, with every run under the key of its settings.

A file is rewritten under another name and moved into place, under a lock that several processes share, so that it is
complete at any time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kreiss.errors import RunError
from kreiss.storage.files import write_whole
from kreiss.studies.locks import alone

Record = dict[str, Any]
DIVERGED = " must be finite; got "  # in the message of a run that an earlier version recorded without its cause
FOLDER = Path("results") / "experiments"


def file_of(folder: Path, experiment: str) -> Path:
    """The file of an experiment: 001/table1 is in 001-table1.json."""
    return folder / f"{experiment.replace('/', '-')}.json"


def is_result(run: Record) -> bool:
    """Whether a status or record is that of a run with a result: it finished or diverged.

    Any other error, such as a full disk, says nothing about the settings; such a run is unfinished.
    """
    if run["state"] != "failed":
        return bool(run["state"] == "finished")
    return bool(run["cause"] == "diverged" if "cause" in run else DIVERGED in run.get("message", ""))


def read(path: Path) -> dict[str, Record]:
    """The results in a file by key; none if there is no file."""
    try:
        runs: dict[str, Record] = json.loads(path.read_text())["runs"]
        results = {key: run for key, run in runs.items() if is_result(run)}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"`{path}` must hold results of experiments; got {error!r}. Remove or repair it.") from error
    return results


def read_all(folder: Path) -> dict[str, Record]:
    """The runs of all experiments by key."""
    results: dict[str, Record] = {}
    for path in sorted(folder.glob("*.json")):
        results.update(read(path))
    return results


def add(folder: Path, experiment: str, runs: dict[str, Record]) -> None:
    """Add runs to the file of an experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(folder, experiment)
    with alone(folder / ".lock"):
        together = {**read(path), **runs}
        ordered = dict(sorted(together.items(), key=lambda item: (item[1]["row"], item[1]["scale"], item[1]["seed"])))
        write_whole(path, _json({"experiment": experiment, "runs": ordered}))


def _json(content: dict[str, Any]) -> bytes:
    """Indented down to the run, and one line for each point of a curve: small, and changes can be read."""
    lines = [f'{{"experiment": {json.dumps(content["experiment"])}, "runs": {{']
    runs = content["runs"].items()
    for number, (key, run) in enumerate(runs, 1):
        parts = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in run.items()]
        lines.append(f' "{key}": {{\n' + ",\n".join(parts) + "\n }" + ("," if number < len(runs) else ""))
    return ("\n".join([*lines, "}}"]) + "\n").encode()
