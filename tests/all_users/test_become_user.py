"""Giving up root: what a process is left with, and who can get at it then."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frtop_probe.all_users import become_user
from waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give it up")


@contextmanager
def became(uid: int, keep: str) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """A program that was run after root was given up: its pid, and its status in /proc."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", become_user.__file__, str(uid), keep, "/bin/sleep", "60"]
    )
    try:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_for(lambda: comm.read_text() == "sleep\n", "the program")
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        yield (
            process.pid,
            {name: text.split() for name, _, text in (line.partition(":") for line in lines)},
        )
    finally:
        process.kill()
        process.wait()


def capabilities(status: dict[str, list[str]]) -> set[int]:
    return {int(status[name][0], 16) for name in ("CapPrm", "CapEff", "CapAmb", "CapInh")}


def read_memory_as(uid: int, pid: int) -> int:
    """Exit status of a user's program that opens the memory of a process."""
    return subprocess.run(
        ["/bin/sh", "-c", f"exec 3< /proc/{pid}/mem"], user=uid, group=uid, extra_groups=[],
        stderr=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip


def test_nothing_of_root_is_left(users: tuple[str, str]) -> None:
    entry = pwd.getpwnam(users[0])
    with became(entry.pw_uid, "0") as (_, status):
        assert status["Uid"] == [str(entry.pw_uid)] * 4
        assert status["Gid"] == [str(entry.pw_gid)] * 4
        assert status["Groups"] == [str(entry.pw_gid)]
        assert capabilities(status) == {0}
        assert status["NoNewPrivs"] == ["1"]


def test_where_yama_asks_for_it_one_capability_stays_and_the_user_cannot_take_it(
    users: tuple[str, str],
) -> None:
    uid = pwd.getpwnam(users[0]).pw_uid
    with became(uid, "1") as (pid, status):
        assert capabilities(status) == {1 << become_user.SYS_PTRACE}
        assert status["Uid"] == [str(uid)] * 4
        assert read_memory_as(uid, pid) != 0
    if not become_user.yama_forbids():
        with became(uid, "0") as (pid, _):
            assert (
                read_memory_as(uid, pid) == 0
            )  # the same user may, where there is nothing to take


def test_a_uid_without_a_name_has_no_group_of_roots() -> None:
    with became(654_321, "0") as (_, status):
        assert status["Uid"] == ["654321"] * 4
        assert status["Groups"] == ["654321"]


def test_a_program_that_the_user_may_not_run_is_an_error(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("#!/bin/sh\n")
    closed.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-I", "-S", become_user.__file__, "65534", "0", str(closed)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot be run as user 65534: Permission denied" in done.stderr
