"""A real job of another user, which nobody prepared, as the person on call sees it through root."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from all_users.conftest import PATH, TESTS, AllUsersHost
from frtop_probe import keys
from frtop_probe.agent import public_card
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.long]
PROGRAM = TESTS / "jobs" / "unprepared.py"


def test_who_is_waited_for_is_named_to_a_user_who_may_read(
    all_users: AllUsersHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, _ = all_users.users
    uid = pwd.getpwnam(ann).pw_uid
    folder = Path(f"/tmp/{ann}")
    folder.mkdir(mode=0o700)
    os.chown(folder, uid, uid)
    all_users.stack.callback(subprocess.run, ["rm", "-rf", str(folder)], check=True)
    packages = str(Path(msgspec.__file__).parents[1])
    job = subprocess.Popen(
        [all_users.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(PROGRAM), str(folder), "sleeps"],
        user=uid, group=uid, extra_groups=[], cwd=folder, start_new_session=True,
        env={"PYTHONPATH": packages, "OMP_NUM_THREADS": "1", "PATH": os.defpath,
             "HOME": str(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for undo in (job.wait, lambda: os.killpg(job.pid, 15)):
        all_users.stack.callback(undo)
    wait_for(lambda: len(list(folder.glob("rank*"))) == 2, "both ranks train", seconds=90)
    monkeypatch.setenv(keys.FILE_VARIABLE, str(all_users.folder / "bob" / "key"))
    all_users.admit(f"{keys.load(create=True).shown} read {ann} bob")
    all_users.start_agent(outside=True)
    card = public_card.read()
    assert card is not None
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--json", *card.connect.split()],
        capture_output=True, text=True, timeout=90, check=False,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", PATH)},
    )  # fmt: skip
    report = json.loads(done.stdout)
    (verdict,) = report["verdicts"]
    assert (verdict["kind"], verdict["culprits"]) == ("not_entered", [1])
    looks = [line for line in all_users.audited() if line["request"] == "stacks"]
    assert {rank["user"] for line in looks for rank in line["ranks"]} == {ann}
    assert all(line["who"] == "bob" and line["allowed"] for line in looks)
