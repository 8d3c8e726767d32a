"""A real job that hangs, captured and exported: its files say what is said live."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop, wait_for_ranks
from waiting import wait_for


@pytest.mark.long
def test_a_live_hang_is_read_from_its_capture_and_by_those_who_know_nothing_of_us(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "shard")
    job = torchrun("told_to_hang.py", str(tmp_path), "1")
    try:
        wait_for_ranks(home, 2)
        wait_for(lambda: frtop("diagnose").returncode == 0, "training goes on", 60)
        (tmp_path / "hang").touch()
        captured(tmp_path / "hang.cap")
        exported(tmp_path)
    finally:
        job.terminate()  # the launcher takes its ranks with it
        job.communicate(timeout=60)


def captured(path: Path) -> None:
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


def exported(folder: Path) -> None:
    dumps = folder / "dumps"
    done = frtop("export", "--format", "flightrecorder", "-o", str(dumps))
    assert done.returncode == 0, done.stdout + done.stderr
    analyzer = "torch.distributed.flight_recorder.fr_trace"
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", analyzer, str(dumps)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "missing ranks: {1}" in said.stdout + said.stderr
    trace = json.loads(frtop("export", "--format", "chrome", "-o", "-").stdout)
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert any(name.startswith("NOT ENTERED: rank 1 (") for name in names)
    assert any(name.startswith("PENDING all_reduce #") for name in names)
    assert trace["otherData"]["clock_error_at_most_ns"] is not None
    report = frtop("export", "--format", "markdown", "-o", "-").stdout
    assert "has not entered all_reduce" in report
    for form in ("json", "markdown", "csv"):
        told = frtop("export", "--format", form, "-o", "-").stdout
        redacted = frtop("export", "--format", form, "--redact", "-o", "-").stdout
        assert folder.name not in redacted
        assert socket.gethostname() in told
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", redacted)
