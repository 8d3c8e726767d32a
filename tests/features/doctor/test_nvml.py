"""`frtop doctor` reads NVML once, where NVIDIA's driver is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gauges.conftest import gpus, library
from gauges.standin import Gpus, needs_standin

__all__ = ["gpus", "library"]

READ = """
import sys
from pathlib import Path
from frtop_probe.features.doctor.host_reader import read_nvml
from frtop_probe.gauges import nvml
nvml.MODULE = sys.argv[2]
found = read_nvml(Path(sys.argv[1]))
print("none" if found is None else f"{found.result} {found.detail}")
"""


def read(devices: Path, module: str = "pynvml") -> str:
    """In a process of its own: the loader looks for libraries where it was told at its start."""
    command = [sys.executable, "-c", READ, str(devices), module]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_driver_or_binding(tmp_path: Path) -> None:
    assert read(tmp_path) == "none"
    (tmp_path / "nvidiactl").touch()
    assert read(tmp_path, "no_such_binding").startswith("missing nvidia-ml-py is not installed")


@needs_standin
@pytest.mark.parametrize(("init", "said"), [(0, "ok 2"), ("!9", "failed NVML: Driver Not Loaded")])
def test_what_nvml_says_of_its_gpus(gpus: Gpus, tmp_path: Path, init: object, said: str) -> None:
    (tmp_path / "nvidiactl").touch()
    gpus.add()
    gpus.add()
    gpus.set(None, init=init)
    assert read(tmp_path) == said
