"""A captured hang gives the same verdict from its file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop
from waiting import wait_for


@pytest.mark.long
def test_a_captured_hang_is_diagnosed_from_its_file_as_live(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "shard")
    job = torchrun("told_to_hang.py", str(tmp_path), "1")
    try:
        diagnosed_twice(home, tmp_path)
    finally:
        job.terminate()  # the launcher takes its ranks with it
        job.communicate(timeout=60)


def diagnosed_twice(home: Path, tmp_path: Path) -> None:
    wait_for(lambda: len(list(home.glob("*.ring"))) == 2, "two rings", 60)
    wait_for(lambda: frtop("diagnose").returncode == 0, "training goes on", 60)
    (tmp_path / "hang").touch()
    path = tmp_path / "hang.cap"
    taken = frtop("capture", "-o", str(path))
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert "rank 1 (" in taken.stdout
    assert "has not entered all_reduce" in taken.stdout
    live = json.loads(frtop("diagnose", "--json").stdout)
    said = frtop("diagnose", "--json", str(path))
    assert said.returncode == 3, said.stdout + said.stderr
    recorded = json.loads(said.stdout)
    assert recorded["recorded"]["kind"] == "capture"
    assert recorded["job"] == live["job"]
    (then,), (now,) = recorded["verdicts"], live["verdicts"]
    for field in ("kind", "confidence", "culprits", "victims", "headline", "group", "op"):
        assert then[field] == now[field]
    assert then["why"]["cause"] == now["why"]["cause"] == "file_io"
