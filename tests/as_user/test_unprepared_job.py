"""A real job of another user, which nobody prepared, as root sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from as_user.conftest import TESTS, UsersHost
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.long]
PROGRAM = TESTS / "jobs" / "unprepared.py"


def test_who_is_waited_for_is_named(host: UsersHost) -> None:
    ann, uid = host.ann, host.uid
    folder = Path(f"/tmp/{ann}")
    folder.mkdir(mode=0o700)
    os.chown(folder, uid, uid)
    host.stack.callback(subprocess.run, ["rm", "-rf", str(folder)], check=True)
    packages = str(Path(msgspec.__file__).parents[1])
    job = subprocess.Popen(
        [host.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(PROGRAM), str(folder), "sleeps"],
        user=uid, group=uid, extra_groups=[], cwd=folder, start_new_session=True,
        env={"PYTHONPATH": packages, "OMP_NUM_THREADS": "1", "PATH": os.defpath,
             "HOME": str(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for undo in (job.wait, lambda: os.killpg(job.pid, 15)):
        host.stack.callback(undo)
    wait_for(lambda: len(list(folder.glob("rank*"))) == 2, "both ranks train", seconds=90)
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--json", "--wait", "30", "--user", ann],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "FRTOP_UNPREPARED": "1"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    (verdict,) = report["verdicts"]
    assert (verdict["kind"], verdict["culprits"]) == ("not_entered", [1])
