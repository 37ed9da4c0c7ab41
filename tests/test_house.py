"""The house is in order: imports point one way, names and documents are true, starting is quick."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys

import pytest
import torch

import kreiss
from house import PACKAGE, PAGE, ROOT, files, imported, levels, room_of, rooms_imported, written_page
from kreiss.networks import LAYERS

# room → the rooms it may import; every room may import itself
GROUND = {"errors", "own", "recorded", "version"}
SETTINGS = GROUND | {"options", "settings"}
LAYERED = GROUND | {"derivatives", "linalg", "native", "sets", "recurrence", "layers"}
SHOWN = SETTINGS | {"analysis", "experiments", "networks", "storage", "studies", "tasks", "training"}
ARROWS = {
    "errors": set(),
    "own": {"errors"},
    "recorded": set(),
    "version": set(),
    "derivatives": set(),
    "native": {"errors"},
    "catalogue": set(),
    "settings": {"errors"},
    "pooled": {"errors"},
    "options": {"errors", "recorded"},
    "storage": {"errors"},
    "linalg": GROUND | {"derivatives"},
    "sets": GROUND | {"derivatives", "linalg", "native"},
    "recurrence": GROUND | {"derivatives", "linalg", "native", "sets"},
    "layers": GROUND | {"derivatives", "linalg", "native", "sets", "recurrence"},
    "optim": GROUND | {"linalg", "native", "sets"},
    "preprocessing": GROUND | {"options"},
    "tasks": GROUND | {"derivatives", "native", "pooled", "preprocessing"},
    "prediction": LAYERED | {"preprocessing", "tasks"},
    "experiments": GROUND,
    "memory": LAYERED,
    "contracts": LAYERED | SETTINGS | {"prediction", "preprocessing"},
    "relational": LAYERED | SETTINGS | {"memory", "contracts", "pooled"},
    "networks": LAYERED | SETTINGS | {"memory", "contracts", "pooled", "preprocessing", "relational", "storage"},
    "analysis": LAYERED,
    "bench": LAYERED | {"memory", "optim"},
    "rl": SETTINGS | {"recurrence", "contracts", "networks", "tasks"},
    "training": SETTINGS
    | {"linalg", "layers", "contracts", "networks", "optim", "storage", "tasks", "experiments", "rl"},
    "studies": SETTINGS | {"experiments", "layers", "networks", "storage", "tasks", "training"},
    "report": SETTINGS
    | {"analysis", "catalogue", "experiments", "networks", "rl", "storage", "studies", "tasks", "training"},
    "commands": SETTINGS
    | {
        "analysis",
        "bench",
        "catalogue",
        "experiments",
        "layers",
        "networks",
        "prediction",
        "relational",
        "report",
        "rl",
        "storage",
        "studies",
        "tasks",
        "training",
    },
    "cli": {"bench", "version", "errors", "catalogue", "commands", "networks", "recurrence"},
}


# ---------------------------------------------------------------- arrows

by_file = pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))


def test_imports_point_one_way():
    for path in files():
        room = room_of(path)
        if room not in ("__init__", "__main__"):
            assert room in ARROWS, f"kreiss/{room} is a new room: say in ARROWS which rooms it may import."
            wrong = rooms_imported(path.read_text()) - ARROWS[room] - {room}
            assert not wrong, f"{path.relative_to(ROOT)} must not import {sorted(wrong)}; it may import {ARROWS[room]}."


def test_the_allowed_arrows_have_an_order_without_circles():
    placed = [room for level in levels(ARROWS) for room in level]
    order = ["linalg", "sets", "recurrence", "layers", "memory", "relational", "networks", "rl", "training"]
    assert [room for room in placed if room in order] == order


def test_a_circle_of_arrows_would_be_seen():
    with pytest.raises(ValueError, match="in a circle"):
        levels({"sets": {"layers"}, "layers": {"sets"}, "errors": set()})


def test_the_graph_of_imports_in_the_design_notes_is_that_of_the_source():
    page = PAGE.read_text()
    assert written_page(page) == page, "Run `python tests/house.py`, which draws it again."


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("from kreiss.training import train", {"training"}),
        ("import kreiss.layers.base as base", {"layers"}),
        ("from kreiss import linalg, Schur", {"linalg", "sets"}),
        ("def f():\n    from kreiss.sets.schur import Schur", {"sets"}),
        ("import kreiss", {"__init__"}),
        ("import_module('kreiss.report.page')", {"report"}),
        ("import_module('kreiss').load", {"__init__"}),
        ("app.command('kreiss.commands.train:train')", {"commands"}),
        ("lookup('kreiss.tasks', 'Adding')", {"tasks"}),
        ("key = 'kreiss.nothing_of_ours'", set()),
        ("def f():\n    'kreiss.training'", set()),
        ("if TYPE_CHECKING:\n    from kreiss.training import train", set()),
        ("import torch\nfrom torch import nn", set()),
    ],
)
def test_a_wrong_arrow_would_be_seen(source, rooms):
    assert rooms_imported(source) == rooms


def test_there_is_one_loop_over_time_and_one_scan():
    loop = re.compile(r"for t in (reversed\()?range\(|higher_order_ops\.scan")
    places = {path.relative_to(PACKAGE).as_posix() for path in files() if loop.search(path.read_text())}
    assert places == {"recurrence/unroll.py"}


@pytest.mark.parametrize("name", LAYERS)
def test_no_layer_is_more_than_four_classes_deep(name):
    def depth(cls):
        ours = [depth(base) for base in cls.__bases__ if base.__module__.startswith("kreiss")]
        return 1 + max(ours, default=0)

    assert depth(LAYERS[name]) <= 4


# `kreiss train` is imported when it is called: its flags are made from all settings, which takes pydantic
VERBS = [PACKAGE / "cli.py", *(path for path in sorted((PACKAGE / "commands").glob("*.py")) if path.stem != "train")]


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.stem)
def test_the_command_line_imports_nothing_heavy_to_show_help(path):
    at_start = set(imported(path.read_text(), deep=False))
    standard = {
        "__future__",
        "collections",
        "contextlib",
        "importlib",
        "inspect",
        "os",
        "pathlib",
        "platform",
        "re",
        "sys",
    }
    light = standard | {"time", "typing", "cyclopts", "kreiss"}
    assert {name.split(".")[0] for name in at_start} <= light
    ours = {".".join(name.split(".")[:2]) for name in at_start if name.startswith("kreiss")}
    assert ours <= {"kreiss.version", "kreiss.commands", "kreiss.errors"}


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
        assert getattr(importlib.import_module(f"kreiss.{kreiss._HOME[name]}"), name) is found


def test_the_public_names_are_those_that_have_a_home():
    assert set(kreiss.__all__) == {*kreiss._HOME, "__version__"}
    assert len(kreiss.__all__) == len(set(kreiss.__all__))


@pytest.mark.parametrize("room", ["layers", "networks", "optim", "sets"])
def test_a_room_opens_the_names_that_type_checkers_see_in_the_package(room):
    public = re.findall(r"^from kreiss\.\S+ import .+$", (PACKAGE / room / "__init__.py").read_text(), re.MULTILINE)
    names = {name for line in public for name in re.findall(r"(\w+) as \1\b", line)}
    registries = {name for name in kreiss._NAMES[room] if name.isupper() and isinstance(getattr(kreiss, name), dict)}
    assert names | registries == set(kreiss._NAMES[room])


@pytest.mark.parametrize("room", kreiss._ROOMS)
def test_every_room_opens_by_its_name(room):
    assert getattr(kreiss, room).__name__ == f"kreiss.{room}"
    assert room in dir(kreiss)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kreiss' has no attribute 'NNRNNN'"):
        _ = kreiss.NNRNNN


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_says_what_it_computes_where_it_is_from_and_how_it_is_used(name):
    text = LAYERS[name].__doc__
    assert "Reference" in text
    assert "h_t = " in text or "torch.nn." in text
    assert "Example:" in text
    assert ">>> " in text


@pytest.mark.parametrize("name", LAYERS)
def test_the_name_in_the_registry_is_that_of_the_class_and_of_its_file(name):
    made = LAYERS[name]
    assert made.__name__.lower() == name
    assert made.__module__ in (f"kreiss.layers.{name}", f"kreiss.memory.{name}")
    assert getattr(kreiss, made.__name__) is made


def test_the_version_is_the_installed_one():
    assert kreiss.__version__ == importlib.metadata.version("kreiss")


# ---------------------------------------------------------------- the docs


@pytest.mark.parametrize("cls", [kreiss.Schur, kreiss.NNRNN, kreiss.relational.CoRelNet])
def test_a_class_that_records_its_arguments_shows_those_of_its_constructor(cls):
    _, *own = inspect.signature(cls.__init__).parameters
    assert list(inspect.signature(cls).parameters) == own


def test_the_gallery_has_every_figure_with_its_command():
    from kreiss.report.figures import FIGURES

    text = (ROOT / "docs" / "gallery.md").read_text()
    assert [name for name in FIGURES if f"kreiss figure {name}" not in text] == []
    shown = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert shown
    assert [name for name in shown if not (ROOT / "docs" / name).exists()] == []


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
