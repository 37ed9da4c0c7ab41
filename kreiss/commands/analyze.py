"""`kreiss analyze` and `kreiss figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from kreiss.commands.words import Flag, TrustAny, may_import

Part = Literal[
    "spectrum", "memory", "transients", "attention", "gradients", "fixed-points", "answers", "relations", "all"
]


def analyze(
    source: str,
    part: Part = "all",
    /,
    *,
    trust: TrustAny = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Analyse a matrix or a trained network: numbers as JSON, plots, and one HTML report.

    Parameters
    ----------
    source
        A matrix in a .npy file, a saved model, a checkpoint, or the folder of a run.
    part
        Part of the analysis; a matrix alone has no gradients and no fixed points, only a network that attends to its
        past has attention, and only one over whole sequences of objects has answers and relations.
    trust
        Module of your own that the model or task is from.
    out
        Folder for the results; by default a new one beside the source, named after it.
    """
    from kreiss.commands.sources import source as opened
    from kreiss.report import page

    may_import(trust)
    path = Path(source)
    subject = opened(path, part)
    if subject.note:
        print(subject.note)
    folder = out or path.with_name((path.stem if path.is_file() else path.name) + "-analysis")
    written = page.write(subject.title, subject.about, list(subject.findings), folder)
    print(f"{written.parent}: {written.name}, analysis.json and plots")
    return 0


def figure(
    name: str = "",
    /,
    *networks: str,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("."),
    train: Flag = False,
    steps: int = 0,
    delay: int = 0,
    list: Flag = False,
) -> int:
    """Draw a figure of a paper, such as 001/fig1c, as SVG and PNG.

    Parameters
    ----------
    name
        Name of the figure; `--list` shows all.
    networks
        For figures of trained networks: ROLE=PATH for each, with a saved model or a run folder.
    out
        Folder for the files.
    train
        Train small networks briefly for the roles without a path; the figure says so.
    steps
        With --train, updates of each network with memory in a figure of the thesis; by default 200.
    delay
        With --train, T of copy and denoise in such a figure; by default 20.
    list
        List all figures and the networks they need.
    """
    from kreiss.commands import figures

    return (
        figures.show_list()
        if list or not name
        else figures.make(name, networks, out, train=train, steps=steps, delay=delay)
    )
