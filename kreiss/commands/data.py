"""`kreiss data`."""

from __future__ import annotations

import cyclopts

app = cyclopts.App(name="data", help="Find, fetch and check data sets.")


@app.command(name="list")
def list_() -> int:
    """List the known data sets, their licences and where they are."""
    from kreiss.commands.words import print_table
    from kreiss.tasks.sources.data import listed

    print_table(("name", "what it is", "licence", "where"), listed())
    return 0


@app.command
def fetch(names: list[str], /) -> int:
    """Download data sets into the cache and check them; files already on disk are kept.

    Parameters
    ----------
    names
        Names of data sets, from `kreiss data list`.
    """
    from kreiss.tasks.sources import data

    for name in names:
        print(f"{name}: {data.fetch(name)}")
    return 0


@app.command
def verify(names: list[str] | None = None, /) -> int:
    """Compare every file with its checksum; exit code 1 if one differs.

    Parameters
    ----------
    names
        Names of data sets; by default all on disk.
    """
    from kreiss.tasks.sources.data import verified

    lines = list(verified(names))
    for line, _ in lines:
        print(line)
    return int(not all(right for _, right in lines))


@app.command
def path(name: str, /) -> int:
    """Print the folder that holds a data set.

    Parameters
    ----------
    name
        Name of a data set, from `kreiss data list`.
    """
    from kreiss.tasks.sources.data import located, missing

    folder = located(name)
    if folder is None:
        raise missing(name)
    print(folder)
    return 0
