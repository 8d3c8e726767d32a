"""Starts real ranks, and waits for what their c10d state show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from frtop_probe.proc.memory import NotReadable
from frtop_probe.unprepared.model import Backend, C10dState, GroupState
from frtop_probe.unprepared.reader import UnpreparedReader
from recorder.warm_ranks import WarmRank
from waiting import wait_for

PROGRAM = Path(__file__).parent / "rank_program.py"
START_S = 90.0
"""Importing torch takes seconds, and tests run side by side."""


@contextmanager
def job(what: str, folder: Path, size: int = 3, **environment: str) -> Iterator[list[int]]:
    """Runs ranks until the block ends; gives their pids once all of them are ready.

    They are forked from a process that has loaded torch: quicker, but their command lines and
    environments, as the kernel shows them, are those of that process.
    """
    store = folder / "store"
    count = 1 if what == "without_groups" else size
    processes: list[WarmRank] = []
    try:
        for rank in range(count):
            of_rank = {"RANK": str(rank), "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
            processes.append(_started(what, store, {**os.environ, **of_rank, **environment}))
        yield [_pid_of(store, rank, processes) for rank in range(count)]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def _started(what: str, store: Path, environment: Mapping[str, str]) -> WarmRank:
    with Path(os.devnull).open("r+b") as null:
        return WarmRank(PROGRAM, [what, str(store)], environment, (null.fileno(),) * 3)


def _pid_of(store: Path, rank: int, processes: list[WarmRank]) -> int:
    path = Path(f"{store}.{rank}")

    def is_ready() -> bool:
        ended = [process.poll() for process in processes]
        assert not any(ended), f"exit statuses before rank {rank} was ready: {ended}"
        return path.exists()

    wait_for(is_ready, f"rank {rank} ready", START_S)
    return int(path.read_text())


@contextmanager
def program(code: str, *, until: str = "started") -> Iterator[subprocess.Popen[bytes]]:
    """Runs a Python program without torch, which prints a line when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline().strip() == until.encode()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def wait_for_c10d(
    reader: UnpreparedReader, condition: Callable[[C10dState], bool], what: str
) -> C10dState:
    """Reads until a condition holds."""
    last: list[object] = [None]

    def look() -> C10dState | None:
        try:
            last[0] = c10d = reader.read()
        except NotReadable as error:
            last[0] = error
            return None
        return c10d if condition(c10d) else None

    return wait_for(look, lambda: f"{what}; last seen: {last[0]}")


def default_group(c10d: C10dState) -> GroupState:
    return next(group for group in c10d.groups if group.description == "default_pg")


def only_backend(group: GroupState) -> Backend:
    (backend,) = group.backends
    return backend


def pending_kinds(c10d: C10dState) -> list[str]:
    """Returns the kinds of ops in progress of the default group; [] before it is there."""
    groups = [group for group in c10d.groups if group.description == "default_pg"]
    return [work.op for group in groups for work in only_backend(group).pending]
