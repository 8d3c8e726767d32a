"""systemd reads the unit that docs/ has for `frtop watch`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[3] / "docs" / "frtop-watch.service"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd")
def test_systemd_accepts_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/frtop/bin/frtop", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", here], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
