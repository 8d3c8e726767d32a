"""A host with GPUs for tests: NVIDIA's library is a stand-in, its Python binding the real one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_standin.c")
LIBRARY = "libnvidia-ml.so.1"
NOT_SUPPORTED = "!3"
LOST = "!15"
HANG = "hang"
H200 = {
    "name": "NVIDIA H200", "utilization": 100, "power": 96_000, "limit": 700_000,
    "total": 139 << 30, "used": 31 << 30, "sm": 1980, "throttle": 0, "mig": 0,
    "sm_max": 1980, "temperature": 61, "listen": 1,
}  # fmt: skip

needs_standin = pytest.mark.skipif(
    shutil.which("gcc") is None or importlib.util.find_spec("pynvml") is None,
    reason="needs gcc for the stand-in of NVIDIA's library, and nvidia-ml-py",
)


class Gpus:
    """What the stand-in says, which a test may change at any time."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "figures"
        self.folder = folder
        self.values: dict[str, object] = {"count": 0}
        self.write()

    def add(self, **changes: object) -> int:
        """One more GPU; returns its index."""
        index = int(str(self.values["count"]))
        self.values["count"] = index + 1
        self.set(index, **{"uuid": f"GPU-{index}", **H200, **changes})
        return index

    def set(self, index: int | None, **values: object) -> None:
        head = "" if index is None else f"{index}."
        self.values |= {f"{head}{name}": value for name, value in values.items()}
        self.write()

    def write(self) -> None:
        text = "".join(f"{name} {value}\n" for name, value in self.values.items())
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.file)  # the stand-in never reads half of it

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to see these GPUs."""
        libraries = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "NVML_STANDIN": str(self.file),
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        }


def build(folder: Path) -> Path:
    """Compiles the stand-in into a folder."""
    library = folder / LIBRARY
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)],
        check=True,
    )
    return library


@contextmanager
def rank_with(devices: Path, *names: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has such files open, as one with a CUDA context has."""
    for name in names:
        (devices / name).touch()
    program = "import sys; f = [open(p) for p in sys.argv[1:]]; print(1, flush=True); input()"
    paths = [str(devices / name) for name in names]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
