"""The house is in order: imports point one way, names and documents are true, starting is quick."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import kreiss
from kreiss.layers import REGISTRY

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kreiss"

# room → the rooms it may import; every room may import itself
GROUND = {"errors", "recorded", "version"}
ARROWS = {
    "errors": set(),
    "recorded": set(),
    "version": set(),
    "derivatives": set(),
    "catalogue": set(),
    "linalg": GROUND | {"derivatives"},
    "optim": GROUND | {"linalg"},
    "sets": GROUND | {"derivatives", "linalg"},
    "recurrence": GROUND | {"derivatives", "linalg", "sets"},
    "layers": GROUND | {"linalg", "sets", "recurrence"},
    "memory": GROUND | {"linalg", "sets", "recurrence", "layers"},
    "relational": GROUND | {"linalg", "sets", "recurrence", "layers"},
    "tasks": GROUND,
    "experiments": GROUND,
    "analysis": GROUND | {"linalg", "sets", "recurrence", "layers"},
    "training": GROUND | {"linalg", "sets", "recurrence", "layers", "memory", "relational", "tasks", "experiments"},
    "studies": GROUND | {"experiments", "layers", "tasks", "training"},
    "report": GROUND | {"analysis", "catalogue", "experiments", "studies", "tasks", "training"},
    "commands": GROUND | {"analysis", "catalogue", "experiments", "layers", "report", "studies", "tasks", "training"},
    "cli": {"version", "errors", "catalogue", "commands", "recurrence", "training"},
    "__main__": {"cli"},
    "__init__": {"version"},
}


# ---------------------------------------------------------------- arrows


def typing_only(node: ast.AST) -> bool:
    """Whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def running(tree: ast.AST, deep: bool = True) -> Iterator[ast.AST]:
    """Nodes that run on import, and those inside functions too if `deep`."""
    for node in ast.iter_child_nodes(tree):
        if typing_only(node) or (not deep and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            continue
        yield node
        yield from running(node, deep)


def imported(source: str, deep: bool = True) -> Iterator[str]:
    """Full names of all that a source text imports."""
    for node in running(ast.parse(source), deep):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports inside the house are absolute, so that they can be read"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(source: str) -> set[str]:
    """The rooms of the house that a source text imports; a public name counts for its home."""
    rooms = set()
    for name in imported(source):
        if name.split(".")[0] == "kreiss":
            first = [*name.split("."), "__init__"][1]
            rooms.add(kreiss._HOME.get(first, "version" if first == "__version__" else first))
    return rooms


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))
by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


@by_file
def test_imports_point_one_way(path):
    room = room_of(path)
    assert room in ARROWS, f"kreiss/{room} is a new room: say in ARROWS which rooms it may import."
    wrong = rooms_imported(path.read_text()) - ARROWS[room] - {room}
    assert not wrong, f"{path.relative_to(ROOT)} must not import {sorted(wrong)}: {room} may import {ARROWS[room]}."


def test_the_arrows_have_an_order_without_circles():
    placed: list[str] = []
    while len(placed) < len(ARROWS):
        free = [room for room in ARROWS if room not in placed and ARROWS[room] <= set(placed)]
        assert free, f"{set(ARROWS) - set(placed)} import one another"
        placed += free
    order = ["linalg", "sets", "recurrence", "layers", "memory"]
    assert [room for room in placed if room in order] == order


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("from kreiss.training import train", {"training"}),
        ("import kreiss.layers.base as base", {"layers"}),
        ("from kreiss import linalg, Schur", {"linalg", "sets"}),
        ("def f():\n    from kreiss.sets.schur import Schur", {"sets"}),
        ("import kreiss", {"__init__"}),
        ("if TYPE_CHECKING:\n    from kreiss.training import train", set()),
        ("import torch\nfrom torch import nn", set()),
    ],
)
def test_a_wrong_arrow_would_be_seen(source, rooms):
    assert rooms_imported(source) == rooms


VERBS = [PACKAGE / "cli.py", *sorted((PACKAGE / "commands").glob("*.py"))]


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.stem)
def test_the_command_line_imports_nothing_heavy_to_show_help(path):
    at_start = set(imported(path.read_text(), deep=False))
    light = {"__future__", "collections", "inspect", "os", "pathlib", "sys", "time", "typing", "cyclopts", "kreiss"}
    assert {name.split(".")[0] for name in at_start} <= light
    ours = {".".join(name.split(".")[:2]) for name in at_start if name.startswith("kreiss")}
    assert ours <= {"kreiss.version", "kreiss.commands"}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_the_python_of_every_docs_page_runs(page):
    namespace = {"torch": torch, "kreiss": kreiss}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.parametrize("statement", ["import kreiss", "import kreiss; dir(kreiss); kreiss.__version__"])
def test_importing_the_package_does_not_import_torch(statement):
    program = f"import sys; {statement}; sys.exit(int('torch' in sys.modules or 'numpy' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


# ---------------------------------------------------------------- names


@by_file
def test_no_file_is_a_drawer_for_everything(path):
    assert path.stem not in ("utils", "util", "helpers", "helper", "manager", "misc", "common")


@by_file
def test_every_file_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(ROOT)} has no docstring."


@pytest.mark.parametrize("name", kreiss.__all__)
def test_every_public_name_resolves_is_listed_and_is_documented(name):
    found = getattr(kreiss, name)
    assert name in dir(kreiss)
    if name == "__version__":
        assert re.fullmatch(r"\d+\.\d+\.\d+([a-z.]\w*)?", found)
    else:
        assert (inspect.getdoc(found) if not inspect.isclass(found) else found.__doc__).strip()
        assert found.__module__.split(".")[:2] == ["kreiss", kreiss._HOME[name]]


def test_the_public_names_are_those_that_have_a_home():
    assert set(kreiss.__all__) == {*kreiss._HOME, "__version__"}
    assert len(kreiss.__all__) == len(set(kreiss.__all__))


@pytest.mark.parametrize("room", kreiss._ROOMS)
def test_every_room_opens_by_its_name(room):
    assert getattr(kreiss, room).__name__ == f"kreiss.{room}"
    assert room in dir(kreiss)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kreiss' has no attribute 'NNRNNN'"):
        _ = kreiss.NNRNNN


@pytest.mark.parametrize("name", REGISTRY)
def test_every_layer_says_what_it_computes_where_it_is_from_and_how_it_is_used(name):
    text = REGISTRY[name].__doc__
    assert "Reference" in text
    assert "h_t = " in text or "torch.nn." in text
    assert "Example:" in text
    assert ">>> " in text


@pytest.mark.parametrize("name", REGISTRY)
def test_the_name_in_the_registry_is_that_of_the_class_and_of_its_file(name):
    made = REGISTRY[name]
    assert made.__name__.lower() == name
    assert made.__module__ == f"kreiss.layers.{name}"
    assert getattr(kreiss, made.__name__) is made


def test_the_version_is_the_installed_one():
    assert kreiss.__version__ == importlib.metadata.version("kreiss")


# ---------------------------------------------------------------- the README


def readme() -> str:
    return (ROOT / "README.md").read_text()


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme(), re.DOTALL | re.MULTILINE)


def test_the_readme_is_short():
    assert len(readme().splitlines()) <= 150


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whatever it saves stays out of the repository
    blocks = code_blocks("python")
    assert blocks
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def test_the_readme_names_targets_that_the_makefile_has():
    code = [*code_blocks(r"\w*"), *re.findall(r"`([^`\n]+)`", readme())]
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(code)))
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"run", "test"} <= named <= targets


def test_the_readme_links_to_files_that_are_there():
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", readme()) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_and_the_makefile_use_verbs_that_the_command_line_has():
    from kreiss.cli import app

    code = [*code_blocks("sh"), *re.findall(r"`([^`\n]+)`", readme()), (ROOT / "Makefile").read_text()]
    verbs = set(re.findall(r"(?:^|/|\s)kreiss ([a-z]+)", "\n".join(code), re.MULTILINE))
    assert {"demo", "train", "resume"} <= verbs
    assert verbs <= set(app)
