"""The commands as a user types them, on real jobs."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import venv
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop
from frtop_probe.ring.box_lock import under_way
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring
from waiting import wait_for

IMPATIENT = f"""#!{sys.executable}
import os, sys
if sys.argv[1] != "-m":  # the stub that starts it
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
from frtop_probe.agent import snapshots
from frtop_probe.agent import black_boxes
black_boxes.QUIET_NS, black_boxes.PAIR_NS = 1_500_000_000, 2_100_000_000
take = snapshots.SnapshotTaker.take
async def count(*arguments):
    found = await take(*arguments)
    with open(os.environ["FRTOP_RECORD"] + "-taken", "a") as file:
        file.write("x")
    return found
snapshots.SnapshotTaker.take = count
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent that takes a job for stalled after 1.5 s, and tells how often it has looked."""


def heads(home: Path) -> list[int]:
    """Number of events the ranks have recorded."""
    found = []
    for path in home.glob("*.ring"):
        with suppress(RingError):  # one that is just being made
            ring = Ring(path)
            found.append(ring.cell(StatusCell.HEAD))
            ring.close()
    return found


def python_without_frtop(folder: Path) -> Path:
    venv.create(folder, symlinks=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    # torch by path: this does not include the editable install of frtop beside it.
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    (packages / "torch.pth").write_text(str(Path(torch.origin).parents[1]) + "\n")
    python = folder / "bin" / "python"
    without = subprocess.run([python, "-c", "import frtop_probe"], capture_output=True, check=False)
    assert b"No module named 'frtop_probe'" in without.stderr
    return python


def test_a_job_without_frtop_is_diagnosed_and_leaves_black_boxes_that_say_why_it_hung(
    home: Path, torchrun: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, agent = tmp_path / "record", tmp_path / "agent"
    agent.write_text(IMPATIENT)
    agent.chmod(0o700)
    os.mkfifo(tmp_path / "shard")
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", str(agent))
    monkeypatch.setenv("FRTOP_RECORD", str(record))
    python = python_without_frtop(tmp_path / "other")
    job = torchrun("told_to_hang.py", str(tmp_path), "1", python=str(python))
    wait_for(lambda: any(home.glob("*.ring")), "the first ring")
    said = frtop("diagnose", "--json", "--wait", "60")  # it waits for the other rank
    assert said.returncode == 0, said.stdout + said.stderr
    document = json.loads(said.stdout)
    assert document["verdicts"] == []
    assert sorted(document["ranks"]) == ["0", "1"]
    assert document["coverage"]["reporting"] == document["coverage"]["expected"] == 2
    assert document["job"]["world_size"] == 2

    def taken() -> int:
        path = tmp_path / "record-taken"
        return path.stat().st_size if path.exists() else 0

    wait_for(lambda: len(heads(home)) == 2 and min(heads(home)) > 12, "it trains", 60)
    (tmp_path / "hang").touch()
    wait_for(lambda: len(set(heads(home))) == 2, "it hangs")
    before = taken()
    wait_for(lambda: taken() > before + 1, "the agent looks twice")
    time.sleep(3)  # the first of these may have been the second look at the slow start
    assert under_way([home], 0)
    assert not list(record.iterdir())
    job.send_signal(signal.SIGTERM)  # as a batch system does, to `frtop run` alone
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 1, output  # torchrun's own
    assert f"frtop: black box in {record}; to look at it: frtop open {record}" in output
    assert not under_way([home], 0)
    said = frtop("diagnose", "--json", str(record))
    assert said.returncode == 3, said.stdout + said.stderr
    first = json.loads(said.stdout)["verdicts"][0]
    assert (first["kind"], first["culprits"]) == ("not_entered", [1])
    assert "openat at told_to_hang.py" in first["why"]["text"]


def test_without_a_job_the_next_step_is_named(home: Path) -> None:
    said = frtop("diagnose", "--wait", "5")
    assert said.returncode == 1
    assert "no distributed PyTorch job of this user was found" in said.stderr
    assert "frtop run -- torchrun" in said.stderr
