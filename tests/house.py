"""Which rooms of the package import which, read from the source; `python tests/house.py` draws it into docs/design.md.

A room is a package or a file in kreiss/. Counted are imports at the top and inside functions, `import_module`, and any
string that names a module of the package; imports under `if TYPE_CHECKING:` never run and do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kreiss

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kreiss"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- imports: written by tests/house.py -->", "<!-- end of imports -->"
NAMED = re.compile(r"kreiss\.(\w+)(?:\.\w+)*(?::\w+)?")


def typing_only(node: ast.AST) -> bool:
    """Whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def running(tree: ast.AST, deep: bool = True) -> Iterator[ast.AST]:
    """Nodes that run on import, and those inside functions too if `deep`; docstrings are left out."""
    for node in ast.iter_child_nodes(tree):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if typing_only(node) or _is_docstring(node) or (function and not deep):
            continue
        yield node
        yield from running(node, deep)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def imported(source: str, deep: bool = True) -> Iterator[str]:
    """Full names of all that a source text imports, by statement or by a string that is a module's name."""
    for node in running(ast.parse(source), deep):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports inside the package are absolute, so that they can be read"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_a_module(node.value):
            yield node.value.partition(":")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node).endswith("import_module('kreiss')"):
            yield "kreiss"


def _names_a_module(text: str) -> bool:
    """Whether a string is the dotted name of a module of the package, perhaps with `:name` behind it."""
    match = NAMED.fullmatch(text)
    return match is not None and ((PACKAGE / match[1]).is_dir() or (PACKAGE / f"{match[1]}.py").exists())


def rooms_imported(source: str) -> set[str]:
    """The rooms that a source text imports; a public name counts for its home."""
    rooms = set()
    for name in imported(source):
        if name.split(".")[0] == "kreiss":
            first = [*name.split("."), "__init__"][1]
            rooms.add(kreiss._HOME.get(first, "version" if first == "__version__" else first))
    return rooms


def room_of(path: Path) -> str:
    """The room that a file is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def files() -> list[Path]:
    """All files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def graph() -> dict[str, set[str]]:
    """Room → the rooms that it imports."""
    arrows: dict[str, set[str]] = {}
    for path in files():
        room = room_of(path)
        if not room.startswith("__"):
            arrows.setdefault(room, set()).update(rooms_imported(path.read_text()) - {room, "__init__"})
    return arrows


def levels(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Rooms from the ground up: each imports rooms of lower levels alone; a circle is an error."""
    placed: dict[str, int] = {}
    while len(placed) < len(arrows):
        free = [room for room in arrows if room not in placed and arrows[room] <= placed.keys()]
        if not free:
            raise ValueError(f"{sorted(arrows.keys() - placed.keys())} import one another in a circle")
        placed.update({room: 1 + max((placed[other] for other in arrows[room]), default=-1) for room in free})
    height = max(placed.values()) + 1
    return [sorted(room for room, level in placed.items() if level == number) for number in range(height)]


def reduced(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without arrows that follow from others."""

    def reach(room: str) -> set[str]:
        return arrows[room].union(*(reach(other) for other in arrows[room])) if arrows[room] else set()

    return {room: {one for one in to if not any(one in reach(other) for other in to)} for room, to in arrows.items()}


def drawing() -> str:
    """The levels from the top down, each room with the arrows that do not follow from others."""
    arrows = graph()
    direct, width = reduced(arrows), max(map(len, arrows))
    lines = []
    for number, rooms in reversed(list(enumerate(levels(arrows)))):
        for room in rooms:
            to = ", ".join(sorted(direct[room]))
            lines.append(f"{number:2}  {room:{width}}" + (f"  →  {to}" if to else ""))
    return "\n".join(lines)


def written_page(page: str) -> str:
    """The page with the present drawing between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n```text\n{drawing()}\n```\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written_page(PAGE.read_text()))
    print(drawing())
