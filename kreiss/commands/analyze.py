"""The verbs that look: `analyze` and `figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Part = Literal["spectrum", "memory", "transients", "gradients", "fixed-points", "all"]


def analyze(
    source: str,
    part: Part = "all",
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Take a matrix or a trained network apart: numbers as JSON, pictures, and one HTML page to read.

    Parameters
    ----------
    source
        A matrix in a .npy file, a saved model, a checkpoint, or the folder of a run.
    part
        What to look at; for a matrix alone there are no gradients and no fixed points.
    out
        Folder for the results; by default a new one beside the source, named after it.
    """
    from kreiss.commands.sources import source as opened
    from kreiss.report import page

    path = Path(source)
    found = opened(path, part)
    if found.note:
        print(found.note)
    folder = out or path.with_name((path.stem if path.is_file() else path.name) + "-analysis")
    made = page.write(found.title, found.about, list(found.findings), folder)
    print(f"{made.parent}: {made.name}, analysis.json and pictures")
    return 0


def figure(
    name: str = "",
    /,
    *networks: str,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("."),
    train: bool = False,
    list: Annotated[bool, Parameter(name="--list", negative=())] = False,
) -> int:
    """Make a figure of a paper by its name, such as 001/fig1c, as SVG and PNG.

    Parameters
    ----------
    name
        Paper and figure; `--list` shows all.
    networks
        For figures of trained networks, what each is: ROLE=PATH, with a saved model or a run folder.
    out
        Folder for the files.
    train
        Train short, small networks for the roles that were not given. The figure says so.
    list
        Show all figures and the networks they need.
    """
    from kreiss.commands import figures

    return figures.show_list() if list or not name else figures.make(name, networks, out, train=train)
