"""Children of a rank that are gone are remembered with their names and times."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe.agent.tracked_rank import LIVED_NS, EndedChildren
from frtop_probe.proc import processes
from frtop_probe.wire import EndedChild

S = 1_000_000_000
RENAME = "open('/proc/self/comm', 'w').write('pt_data_worker'); print(flush=True); input()"

Process = subprocess.Popen[bytes]


@pytest.fixture
def child() -> Iterator[Process]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def end(process: Process) -> None:
    process.kill()
    process.wait()


def test_a_child_that_was_reaped_is_told_with_its_time(child: Process) -> None:
    children = EndedChildren()
    _, pids = processes.read_with_children(os.getpid())
    assert child.pid in pids
    children.update((child.pid,), 0)
    children.update((child.pid,), LIVED_NS)
    end(child)
    assert child.pid not in processes.read_with_children(os.getpid())[1]
    children.update((), 9 * S)
    children.update((), 10 * S)
    assert children.newest() == (EndedChild(child.pid, "sleep", 9 * S),)


def test_a_short_command_is_no_worker(child: Process) -> None:
    children = EndedChildren()
    children.update((child.pid,), 0)
    end(child)
    children.update((), LIVED_NS - 1)
    assert children.newest() == ()


def test_a_child_that_only_left_the_list_has_not_ended(child: Process) -> None:
    children = EndedChildren()
    children.update((child.pid,), 0)
    children.update((), 9 * S)
    assert children.newest() == ()


def test_a_worker_has_the_name_that_it_gave_itself() -> None:
    children = EndedChildren()
    with subprocess.Popen(
        [sys.executable, "-c", f"input(); {RENAME}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        before = Path(f"/proc/{process.pid}/comm").read_text().strip()
        children.update((process.pid,), 0)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert before != "pt_data_worker"
        children.update((process.pid,), 2 * S)
        process.kill()
    children.update((), 9 * S)
    assert children.newest() == (EndedChild(process.pid, "pt_data_worker", 9 * S),)
