"""`frtop build-native` where it cannot build."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest


def _build(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "frtop_tui", "build-native", *options]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_python_that_does_not_exist(tmp_path: Path) -> None:
    done = _build("--python", str(tmp_path / "python"))
    assert done.returncode == 1
    assert f"{tmp_path}/python: no such command" in done.stderr
    assert "next: give the Python that runs the job" in done.stderr


def test_a_python_without_torch_needs_no_frtop_either(tmp_path: Path) -> None:
    venv.create(tmp_path / "plain", symlinks=True)
    done = _build("--python", str(tmp_path / "plain/bin/python"), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "cannot import torch" in done.stderr
    assert "next: frtop build-native --python PATH" in done.stderr


@pytest.mark.long
def test_a_host_without_a_compiler(tmp_path: Path) -> None:
    done = _build(PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no compiler gcc or cc: install one, or set CC" in done.stderr
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]
