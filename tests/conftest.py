"""Settings and fixtures shared by all tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from kreiss import cli
from kreiss.networks import LAYERS, NETWORKS
from kreiss.tasks import TASKS
from small_tasks import write_files

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)  # the test processes share the cores already
settings.register_profile("kreiss", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("kreiss")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _notes_of_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))  # where `kreiss train --out` notes its runs


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a test registers, or an example of the documentation, is forgotten afterwards."""
    before = [(registry, dict(registry)) for registry in (LAYERS, NETWORKS, TASKS)]
    yield
    for registry, content in before:
        if registry != content:
            registry.clear()
            registry.update(content)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of every kind that tasks read."""
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def does(monkeypatch, capsys):
    """The command line in this process: (exit code, what it said, what it complained of)."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kreiss", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run
