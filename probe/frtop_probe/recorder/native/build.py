"""Compiles the native kernels for the torch and the Python that run this.

`python -m frtop_probe.recorder.native.build` does it once for each pair; recorders find the result
in the cache. Never called in a rank.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from frtop_probe.recorder.native import library

HERE: Final = Path(__file__).parent
COMMON: Final = ("-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden")
LIMIT_S: Final = 600
_OWNERSHIP: Final = ("c10/util/intrusive_ptr.h", "kHasPyObject")
"""A header and a name in it, where a tensor and its Python object count references together (torch
2.10). Before, ops of many threads at once lost tensors while the kernels held weak references."""
LIBRARIES: Final = ("torch_python", "torch_cpu", "torch", "c10")


class BuildError(Exception):
    """The kernels could not be compiled; the text says why, and what to do."""


def build(torch: Any, more: tuple[str, ...] = ()) -> Path:
    """Compiles the kernels into the cache, for this torch and Python.

    Args:
        torch: the module.
        more: options for the compilers, for example of a sanitizer.

    Raises:
        BuildError: a compiler or headers are missing, or it failed.
    """
    folder = library.cache()
    for one in (folder.parent, folder):  # with `parents=True` the umask would decide
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = Path(str(torch.__file__)).parent
    return compile_kernels(
        library.built_for(torch), folder, root / "include", root / "lib",
        new_abi=bool(torch._C._GLIBCXX_USE_CXX11_ABI), more=more,  # noqa: SLF001
    )  # fmt: skip


def compile_kernels(
    built_for: str, folder: Path, include: Path, libraries: Path, *,
    new_abi: bool = True, more: tuple[str, ...] = (),
) -> Path:  # fmt: skip
    """Compiles the kernels for this Python and a torch, and returns the file.

    Args:
        built_for: the torch and the Python, as `library.built_for` says it.
        folder: where the file goes.
        include: torch's headers.
        libraries: a folder with `LIBRARIES`, which only need their names.
        new_abi: whether torch was compiled with the C++11 ABI of libstdc++.
        more: options for the compilers.

    Raises:
        BuildError: a compiler or headers are missing, or it failed.
    """
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").exists():
        raise BuildError(f"no Python.h in {python}: install Python's headers (python3-dev)")
    header, name = _OWNERSHIP
    try:
        text = (include / header).read_text(encoding="utf-8")
    except OSError as error:
        raise BuildError(f"this torch has no headers: {error}") from error
    if name not in text:
        raise BuildError("native kernels need torch 2.10 or newer; those in Python go on with 2.8")
    target = folder / library.name(built_for)
    with tempfile.TemporaryDirectory(dir=folder) as at:
        headers = [f"-I{python}", f"-isystem{include}"]
        headers.append(f"-isystem{include}/torch/csrc/api/include")
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(new_abi)}"
        cc, cxx = compiler("CC", "gcc", "cc"), compiler("CXX", "g++", "c++")
        run([cc, *COMMON, *more, *headers, "-c", str(HERE / "frames.c"), "-o", f"{at}/frames.o"])
        kernel = [str(HERE / "kernel.cpp"), "-o", f"{at}/kernel.o"]
        marked = f'-DFRTOP_BUILT_FOR="{built_for}"'
        options = ("-std=c++20", "-fvisibility-inlines-hidden", abi, marked)
        run([cxx, *COMMON, *more, *options, *headers, "-c", *kernel])
        linked = [f"-L{libraries}", "-Wl,--no-as-needed", *(f"-l{one}" for one in LIBRARIES)]
        objects = [f"{at}/kernel.o", f"{at}/frames.o"]
        run([cxx, "-shared", *more, *objects, *linked, "-o", f"{at}/built.so"])
        if not more and (strip := shutil.which("strip")):
            run([strip, f"{at}/built.so"])
        Path(f"{at}/built.so").chmod(0o700)
        Path(f"{at}/built.so").replace(target)
    return target


def compiler(variable: str, *names: str) -> str:
    """Returns the path of a compiler.

    Raises:
        BuildError: there is none.
    """
    for name in (os.environ.get(variable), *names):
        if name and (found := shutil.which(name)):
            return found
    raise BuildError(f"no compiler {' or '.join(names)}: install one, or set {variable}")


def run(command: list[str]) -> None:
    """Runs a compiler.

    Raises:
        BuildError: it failed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        raise BuildError(f"{command[0]} failed: {lines[0][:300]}")


def main() -> int:
    """Builds, and prints where the result is."""
    try:
        import torch  # noqa: PLC0415 - only here
    except ImportError as error:
        sys.stderr.write(f"frtop: {sys.executable} cannot import torch: {error}\n")
        sys.stderr.write("next: frtop build-native --python PATH, with the job's Python\n")
        return 1
    try:
        path = build(torch)
    except BuildError as error:
        sys.stderr.write(f"frtop: {error}\n")
        return 1
    sys.stdout.write(f"native kernels for torch {torch.__version__}: {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
