"""`kreiss doctor`."""

from __future__ import annotations

import platform
import re
from importlib import metadata


def doctor() -> int:
    """Report versions, extras, kernel, threads and data: what works here, and what a missing part needs."""
    import torch

    from kreiss.bench.run import machine
    from kreiss.commands.words import print_table
    from kreiss.tasks.sources.data import listed
    from kreiss.version import __version__

    here = machine()
    others = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "scipy", "safetensors"))
    print(f"kreiss {__version__}, Python {platform.python_version()}, torch {torch.__version__}")
    print(here["kernel"])
    print(f"packages: {others}")
    print(f"threads: {here['threads']} on {here['cores']} cores of {here['processor']}")
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] or ["none"]
    print(f"GPU: {', '.join(devices)}")
    print()
    print_table(("extra", "installed", "to install"), [_extra(name, needs) for name, needs in extras().items()])
    print()
    print_table(("data", "where"), [(name, where) for name, _, _, where in listed()])
    return 0


def extras() -> dict[str, list[str]]:
    """The packages that each extra of this installation needs, those for its development left out."""
    found: dict[str, list[str]] = {}
    for requirement in metadata.requires("kreiss") or []:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if extra and extra[1] not in ("test", "lint", "docs", "wheel"):
            found.setdefault(extra[1], []).append(re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0])
    return found


def _extra(name: str, needs: list[str]) -> tuple[str, str, str]:
    versions = {package: _version(package) for package in needs}
    there = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    return name, there or "–", "" if all(versions.values()) else f"pip install 'kreiss[{name}]'"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
