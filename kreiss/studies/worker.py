"""One run in a process of its own: started, or resumed where an earlier process left it.

    python -m kreiss.studies.worker FOLDER SETTINGS [CLASSES]

CLASSES are those of the user's own that the settings name, in JSON. Ends when its standard input does: the process that
started it is then gone. What it has done is in its last checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from kreiss.errors import Diverged
from kreiss.settings import Config
from kreiss.storage.identity import ABOUT, read_document
from kreiss.studies.locks import alone
from kreiss.studies.results import Record, is_result
from kreiss.tasks import TASKS, Task
from kreiss.training import fitting
from kreiss.training.checkpoint import LAST
from kreiss.training.config import dotted, read_settings, resolved
from kreiss.training.planning import make_network, make_task
from kreiss.training.record import METRICS, checked, read_status, remove, settings_of
from kreiss.training.registering import take_over

ENDED = ("finished", "failed")
WAIT = 0.2  # seconds between looks at a run that was resumed by hand
FACTS = "facts.json"  # of a run of an earlier version; today they are in run.json
SPECTRUM = ("modulus_min", "modulus_mean", "modulus_max", "departure")
LEFT_OUT = ("update", "split", "seconds", *SPECTRUM)


def work(folder: Path, config: Config) -> str:
    """Execute or resume the run in `folder`; returns its state.

    A run that diverged is a result too, and stays as it is. If another process works in the folder, wait for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_name(f"{folder.name}.lock")):
        while (status := read_status(folder))["state"] == "running":
            time.sleep(WAIT)
        return str(status["state"]) if is_result(status) else _work(folder, config)


def _work(folder: Path, config: Config) -> str:
    resumed = (folder / LAST).exists()
    if not resumed and folder.exists():
        remove(folder)  # ended before its first checkpoint
    task = make_task(config)
    network = make_network(config, task)
    try:
        return fitting.run(config, folder, network, task, show="quiet", resume=resumed).state
    except Diverged:
        if not is_result(read_status(folder)):
            raise  # on a full disk, the status could not be written
        return "failed"


def record_of(folder: Path) -> Record:
    """The result of a run that finished or diverged, small enough to keep; needs none of its classes."""
    journal, status, facts = checked(folder, METRICS), read_status(folder), facts_of(folder)
    records = journal.records
    curve = [_numbers(record) for record in records if record.get("split") == "valid"]
    tested = [record for record in records if record.get("split") == "test"]
    result: dict[str, Any] = {
        "state": status["state"], **{name: facts[name] for name in ("parameters", "baseline") if name in facts},
        "updates": status["update"], "seconds": records[-1]["seconds"] if records else 0.0, "torch": facts["torch"],
    }  # fmt: skip
    if facts.get("threads", 1) > 1:
        result["threads"] = facts["threads"]
    if journal.resumed:
        result["resumed"] = journal.resumed
    if status.get("cause") == "solved":
        result["solved"] = status["update"]
    if status["message"]:
        result["message"], result["cause"] = status["message"], "diverged"
    if tested:
        result["test"] = {name: value for name, value in tested[-1].items() if name not in LEFT_OUT}
        result["spectrum"] = {name: tested[-1][name] for name in SPECTRUM if name in tested[-1]}
    if curve:
        result["valid"] = _best(curve, facts)
        result["curve"] = curve
    return result


def _numbers(record: Record) -> Record:
    return {
        "update": record["update"], **{name: value for name, value in record.items() if name not in LEFT_OUT},
    }  # fmt: skip


def _best(curve: list[Record], facts: Record) -> Record:
    best = (max if facts["higher"] else min)(curve, key=lambda record: record[facts["metric"]])
    return {name: value for name, value in best.items() if name != "update"}


def facts_of(folder: Path) -> Record:
    """Parameters, baseline, metric and its direction, and the version of torch, of a run of any version."""
    about = read_document(folder / ABOUT)
    if (folder / FACTS).exists():
        about |= json.loads((folder / FACTS).read_text())
    if "metric" not in about:
        task = TASKS.get(str(dotted(settings_of(folder)).get("task.name")), Task)
        about |= {"metric": task.metric, "higher": task.higher_is_better, "naive": task.naive}
    return about


def end_with_the_parent() -> None:
    """End this process when the one that started it is gone."""
    os.read(sys.stdin.fileno(), 1)  # not through `sys.stdin`, whose lock the end of this process would wait for
    os._exit(1)


def main() -> None:
    """One run, in as many threads as the environment says."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    folder, settings = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        take_over(json.loads(sys.argv[3]) if sys.argv[3:] else {})
        state = work(folder, resolved(read_settings(settings)))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))
    sys.exit(0 if state in ENDED else 130)


if __name__ == "__main__":
    main()
