"""The package where little else is installed: layers without the command line's tools, a wheel without a compiler."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "numpy", "safetensors")
SPARED = ("cyclopts", "matplotlib", "pooch", "pydantic", "requests", "rich", "scipy", "yaml")
TRIAL = """
import torch, kreiss
from kreiss.layers import LAYERS
from kreiss.recurrence import library
for name, layer in LAYERS.items():
    if name != "enrnn":  # the exact spectral radius of its short-term part is an eigenproblem of SciPy
        output = layer(3, 8)(torch.randn(5, 2, 3))[0]
        (output.abs() if output.is_complex() else output).sum().backward()
print(library.status())
"""


def test_layers_need_torch_numpy_and_safetensors_alone():
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({SPARED}))\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", blocked + TRIAL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_wheel_runs_its_kernel_in_an_empty_environment_without_a_compiler(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("kreiss-*-py3-none-*.whl")
    python = empty_environment(tmp_path / "empty")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may name this tree
    subprocess.run(install, check=True, capture_output=True, timeout=300, env=outside, cwd=tmp_path)
    alone = {"PATH": str(python.parent), "HOME": str(tmp_path)}
    look = f"import importlib.util\nassert not any(map(importlib.util.find_spec, {SPARED}))\n"
    done = subprocess.run(
        [str(python), "-c", look + TRIAL], capture_output=True, text=True, timeout=300, env=alone, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kernel: built, using ")
    assert subprocess.run(["/bin/sh", "-c", "command -v gcc g++ cc c++"], env=alone, check=False).returncode != 0


def empty_environment(folder: Path) -> Path:
    """The interpreter of a new environment that holds torch, numpy and safetensors with what they need, and no more."""
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    waiting, seen = list(NEEDED), set()
    while waiting:
        found = importlib.metadata.distribution(waiting.pop())
        if found.name in seen:
            continue
        seen.add(found.name)
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / name).symlink_to(found.locate_file(name))
        waiting += [re.split(r"[\s<>=!~;\[(]", need, maxsplit=1)[0] for need in found.requires or () if ";" not in need]
    return folder / "bin" / "python"


def test_the_release_makes_wheels_tries_one_without_a_compiler_and_builds_the_docs():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert {"wheels", "try", "docs", "publish"} <= jobs.keys()
    assert all(need in jobs for job in jobs.values() for need in _listed(job.get("needs", ())))
    assert "try" in jobs["publish"]["needs"]  # nothing is published that was not tried


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
