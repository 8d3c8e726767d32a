"""The exit status of processes that are not our children."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.proc import exit_status, processes
from frtop_probe.proc.exit_status import ExitStatus
from waiting import wait_for


@given(st.integers(0, 255))
def test_an_exit_code_is_not_a_signal(code: int) -> None:
    assert exit_status.parse_status(code << 8) == ExitStatus(code=code)


@pytest.mark.parametrize(("status", "number"), [(9, 9), (134, 6), (139, 11), (15, 15)])
def test_a_signal_is_not_an_exit_code(status: int, number: int) -> None:
    assert exit_status.parse_status(status) == ExitStatus(signal=number)


class Grandchild:
    """A process whose parent is another process, which reaps it at once or never."""

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
        found = processes.read_stat(self.pid)
        assert found is not None
        self.start_ticks = found.start_ticks
        if not reaped:  # a shell that still runs may reap it
            comm = Path(f"/proc/{self.parent.pid}/comm")
            wait_for(lambda: comm.read_text() == "sleep\n", "the parent is no shell any more")

    def close(self) -> None:
        os.killpg(self.parent.pid, signal.SIGKILL)
        self.parent.communicate()


@pytest.mark.parametrize("reaped", [True, False])
@pytest.mark.parametrize("kill", [0, signal.SIGKILL, signal.SIGABRT])
def test_the_exit_status_of_a_foreign_process_is_read(
    reaped: bool, kill: int, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    grandchild = Grandchild(
        f"sh -c 'until [ -e {ended} ]; do sleep 0.05; done; exit 5'", reaped=reaped
    )
    pidfd = exit_status.open_pidfd(grandchild.pid)
    try:
        assert pidfd is not None
        assert exit_status.is_alive(grandchild.pid, grandchild.start_ticks)
        assert not exit_status.is_alive(grandchild.pid, grandchild.start_ticks + 1)
        assert exit_status.read_exit_status(pidfd, grandchild.pid, grandchild.start_ticks) is None
        if kill:
            os.kill(grandchild.pid, kill)
        else:
            ended.touch()
        assert select.select([pidfd], [], [], 10)[0]
        if reaped:
            wait_for(lambda: processes.read_stat(grandchild.pid) is None, "the parent reaps it")
        seen = exit_status.read_exit_status(pidfd, grandchild.pid, grandchild.start_ticks)
        assert seen == (ExitStatus(signal=kill) if kill else ExitStatus(code=5))
        assert not exit_status.is_alive(grandchild.pid, grandchild.start_ticks)
        zombie = exit_status.read_zombie(grandchild.pid, grandchild.start_ticks)
        if reaped:
            assert zombie is None
        else:
            wait_for(
                lambda: exit_status.read_zombie(grandchild.pid, grandchild.start_ticks) == seen,
                "the zombie tells the same",
            )
            assert (
                exit_status.read_exit_status(None, grandchild.pid, grandchild.start_ticks) == seen
            )
    finally:
        if pidfd is not None:
            os.close(pidfd)
        grandchild.close()


def test_an_ended_process_has_no_pidfd() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert exit_status.open_pidfd(child.pid) is None
    assert exit_status.read_exit_status(None, child.pid, 1) is None


def test_the_counter_of_out_of_memory_kills_is_found(tmp_path: Path) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    cgroup = tmp_path / "proc" / "7" / "cgroup"
    v2 = tmp_path / "sys/fs/cgroup/user.slice/memory.events"
    v1 = tmp_path / "sys/fs/cgroup/memory/job/memory.oom_control"
    for counter in (v1, v2):
        counter.parent.mkdir(parents=True)
        counter.write_text("oom_kill 1\n")
    cgroup.write_text("0::/user.slice\n")
    assert exit_status.oom_counter_file(7, tmp_path) == v2
    cgroup.write_text("9:cpu,memory:/job\n3:pids:/job\n0::/\n")
    assert exit_status.oom_counter_file(7, tmp_path) == v1
    cgroup.write_text("0::/elsewhere\n")
    assert exit_status.oom_counter_file(7, tmp_path) is None
    assert exit_status.oom_counter_file(8, tmp_path) is None
