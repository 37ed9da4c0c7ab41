"""Builds the recurrence kernels with whatever C++ compiler there is; without one the package installs all the same."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = Path("kreiss/recurrence/csrc")
# one file each, compiled once per instruction set; an optimiser rounds as torch does, so nothing is contracted there
KERNELS: dict[str, list[str]] = {
    "plain": [], "gated": [], "memory": [], "entropy": [], "basepoint": [], "matmul": [],
    "optim": ["-ffp-contract=off"],
}  # fmt: skip
SANITIZE = ["-fsanitize=address,undefined"] if os.environ.get("KREISS_SANITIZE") else []  # see `make sanitize`
OPTIMISE = ["-O1", "-g", "-fno-sanitize-recover=undefined", *SANITIZE] if SANITIZE else ["-O3"]
COMMON = [*OPTIMISE, "-std=c++17", "-fvisibility=hidden", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi"]
X86 = platform.machine().lower() in ("x86_64", "amd64")

# name of the kernel → vector width in bytes, flags. The machine's best is chosen at run time, never at build time.
INSTRUCTION_SETS: dict[str, tuple[int, list[str]]] = {
    "generic": (16, []),
    **({"avx2": (32, ["-mavx2", "-mfma"]), "avx512": (64, ["-mavx512f", "-mfma"])} if X86 else {}),
}


class BuildKernel(build_ext):
    """Compile every kernel once per instruction set and link one plain shared library, loaded with ctypes."""

    def build_extension(self, ext: Extension) -> None:
        try:
            self._build(ext)
        except Exception as error:
            print(f"kreiss: no kernel built ({error}); the package works without it, more slowly.")

    def _build(self, ext: Extension) -> None:
        jobs = [
            (
                f"{kernel}.cpp",
                name,
                [("KREISS_ISA", f"kreiss_{name}"), ("KREISS_VECTOR_BYTES", str(width))],
                flags + own,
            )
            for name, (width, flags) in INSTRUCTION_SETS.items()
            for kernel, own in KERNELS.items()
        ]
        jobs.append(("dispatch.cpp", "any", [("KREISS_X86", "1")] if X86 else [], []))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(self._compiled, jobs) for name in names]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(
            objects, str(target), extra_postargs=["-pthread", *SANITIZE], target_lang="c++"
        )

    def _compiled(self, job: tuple[str, str, list[tuple[str, str]], list[str]]) -> list[str]:
        source, folder, macros, flags = job
        folder = str(Path(self.build_temp) / folder)
        return self.compiler.compile(
            [str(FOLDER / source)], output_dir=folder, macros=macros, extra_postargs=[*COMMON, *flags]
        )

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"  # no Python in it, so no tag of a Python version


class AnyPythonWheel(bdist_wheel):
    """One wheel per platform serves every Python 3: the library is plain C."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("kreiss.recurrence._kernel", [str(FOLDER / "plain.cpp")], optional=True)],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": AnyPythonWheel},
)
