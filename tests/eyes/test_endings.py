"""How processes ended, also those that are not our children."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.eyes import endings, proc
from frtop_probe.eyes.endings import Exit


@given(st.integers(0, 255))
def test_an_exit_code_is_no_signal(code: int) -> None:
    assert endings.parse_status(code << 8) == Exit(code=code)


@pytest.mark.parametrize(("status", "number"), [(9, 9), (134, 6), (139, 11), (15, 15)])
def test_a_signal_is_no_exit_code(status: int, number: int) -> None:
    assert endings.parse_status(status) == Exit(signal=number)


class Grandchild:
    """A process whose parent is not this one, and reaps it at once or never."""

    def __init__(self, command: str, *, reaped: bool) -> None:
        then = "wait" if reaped else "exec sleep 600"
        self.parent = subprocess.Popen(
            ["sh", "-c", f"{command} & echo $!; {then}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.parent.stdout is not None
        self.pid = int(self.parent.stdout.readline())
        found = proc.stat(self.pid)
        assert found is not None
        self.start_ticks = found.start_ticks

    def close(self) -> None:
        os.killpg(self.parent.pid, signal.SIGKILL)
        self.parent.communicate()


@pytest.mark.parametrize("reaped", [True, False])
@pytest.mark.parametrize("kill", [0, signal.SIGKILL, signal.SIGABRT])
def test_an_ending_is_learnt_from_outside(reaped: bool, kill: int) -> None:
    grandchild = Grandchild("sh -c 'sleep 0.3; exit 5'", reaped=reaped)
    pidfd = endings.open_pidfd(grandchild.pid)
    try:
        assert pidfd is not None
        assert endings.lives(grandchild.pid, grandchild.start_ticks)
        assert not endings.lives(grandchild.pid, grandchild.start_ticks + 1)
        assert endings.learn(pidfd, grandchild.pid, grandchild.start_ticks) is None
        if kill:
            os.kill(grandchild.pid, kill)
        assert select.select([pidfd], [], [], 10)[0]
        while reaped and proc.stat(grandchild.pid) is not None:
            pass  # its parent is about to
        seen = endings.learn(pidfd, grandchild.pid, grandchild.start_ticks)
        assert seen == (Exit(signal=kill) if kill else Exit(code=5))
        assert not endings.lives(grandchild.pid, grandchild.start_ticks)
        zombie = endings.of_zombie(grandchild.pid, grandchild.start_ticks)
        assert zombie == (None if reaped else seen)
        if not reaped:
            assert endings.learn(None, grandchild.pid, grandchild.start_ticks) == seen
    finally:
        if pidfd is not None:
            os.close(pidfd)
        grandchild.close()


def test_a_process_that_is_gone_has_no_pidfd() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert endings.open_pidfd(child.pid) is None
    assert endings.learn(None, child.pid, 1) is None


def test_out_of_memory_kills_are_counted(tmp_path: Path) -> None:
    assert endings.parse_oom("low 0\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
    assert endings.parse_oom("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7
    assert endings.parse_oom("") == 0
    (tmp_path / "proc" / "7").mkdir(parents=True)
    cgroup = tmp_path / "proc" / "7" / "cgroup"
    v2 = tmp_path / "sys/fs/cgroup/user.slice/memory.events"
    v1 = tmp_path / "sys/fs/cgroup/memory/job/memory.oom_control"
    for counter in (v1, v2):
        counter.parent.mkdir(parents=True)
        counter.write_text("oom_kill 1\n")
    cgroup.write_text("0::/user.slice\n")
    assert endings.oom_file(7, tmp_path) == v2
    cgroup.write_text("9:cpu,memory:/job\n3:pids:/job\n0::/\n")
    assert endings.oom_file(7, tmp_path) == v1
    cgroup.write_text("0::/elsewhere\n")
    assert endings.oom_file(7, tmp_path) is None
    assert endings.oom_file(8, tmp_path) is None
