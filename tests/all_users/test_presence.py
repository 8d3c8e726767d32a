"""Which users may have ranks here, by what everybody may see of their processes."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from frtop_probe.all_users import presence
from frtop_probe.all_users.presence import PresenceScanner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to start others' processes")


def test_a_user_with_a_python_process_is_there_until_it_ends(
    users: tuple[str, str], python: str
) -> None:
    uid = pwd.getpwnam(users[0]).pw_uid
    scanner = PresenceScanner(parents=())
    assert uid not in scanner.scan(0.0).users
    process = subprocess.Popen(
        [python, "-c", "print(flush=True); input()"], user=uid, group=uid, extra_groups=[],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    assert uid in scanner.scan(1.0).users
    assert uid not in PresenceScanner(parents=()).scan(1.0, {process.pid}).users  # it is ours
    assert uid not in PresenceScanner(parents=()).scan(1.0, {os.getpid()}).users  # or a child
    process.communicate(b"\n")
    assert uid not in scanner.scan(2.0).users


def test_rings_count_only_in_a_folder_that_is_the_users_own(
    users: tuple[str, str], tmp_path: Path
) -> None:
    uid = pwd.getpwnam(users[0]).pw_uid
    folder = tmp_path / f"frtop-{uid}"
    folder.mkdir(mode=0o700)
    scanner = PresenceScanner(proc="/proc/sys", parents=(tmp_path,))
    (folder / "x.ring").touch()
    assert uid not in scanner.scan(0.0).folders  # root's, made for somebody else
    os.chown(folder, uid, uid)
    assert scanner.scan(0.0) == presence.Present(frozenset({uid}), frozenset({uid}))
    folder.chmod(0o755)
    assert uid not in scanner.scan(0.0).folders
    folder.chmod(0o700)
    (folder / "x.ring").unlink()
    assert uid not in scanner.scan(0.0).folders
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert uid not in scanner.scan(0.0).folders
