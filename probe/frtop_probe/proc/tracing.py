"""Who holds a process: a tracer, a stop signal, or nobody; and letting one go that a tool held.

A tool that takes native stacks is the process's tracer meanwhile. When it is killed, the kernel
lets its threads run on. But one that was attaching with PTRACE_ATTACH has sent a SIGSTOP, which
then stops the process for good (seen with pystack; py-spy attaches with PTRACE_SEIZE, without a
signal). Only that stop is ended here. One that somebody else has sent shows as pending while all
threads are held; only while the tool attaches or detaches it cannot be told from the tool's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc import processes

_STOPS: Final = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_PF_EXITING: Final = 0x4
_STOP_MASK: Final = sum(1 << (number - 1) for number in _STOPS)


@dataclass(frozen=True, slots=True)
class Task:
    """One thread of a process. `tracer` is a pid, 0 for none."""

    tid: int
    state: str
    tracer: int
    own_stop: bool
    """A stop signal waits for this very thread: a tracer sends such ones."""
    common_stop: bool
    """A stop signal waits for the process: `kill -STOP` sends such ones."""

    @property
    def runs(self) -> bool:
        return self.state not in "Tt" and not self.tracer


def parse_status(text: str) -> Task | None:
    """Parses /proc/PID/status or /proc/PID/task/TID/status; None if it is something else."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return Task(
            tid=int(fields["Pid"]),
            state=fields["State"].strip()[:1],
            tracer=int(fields["TracerPid"]),
            own_stop=bool(int(fields["SigPnd"], 16) & _STOP_MASK),
            common_stop=bool(int(fields["ShdPnd"], 16) & _STOP_MASK),
        )
    except (KeyError, ValueError):
        return None


def read_main(pid: int, proc: Path = processes.PROC) -> Task | None:
    """The main thread; None when the process is gone or has ended."""
    found = parse_status(processes.read_file(f"{proc}/{pid}/status") or "")
    return found if found is not None and found.state not in "ZX" else None


def read_tasks(pid: int, proc: Path = processes.PROC) -> tuple[Task, ...]:
    """All threads of a process; empty when it is gone or has ended."""

    def found() -> Iterator[Task]:
        for tid in processes.thread_ids(pid, proc):
            task = parse_status(processes.read_file(f"{proc}/{pid}/task/{tid}/status") or "")
            if task is not None and task.state not in "ZX":
                yield task

    return tuple(found())


def stopped_by_others(tasks: tuple[Task, ...]) -> bool:
    """Whether somebody else has sent a stop, seen while a tool of ours is attached.

    A thread stopped by a tool is in state t, never in T.
    """
    return any(task.state == "T" or task.common_stop for task in tasks)


def is_ending(pid: int, proc: Path = processes.PROC) -> bool:
    """Whether a process is dying or dead. One that dies lets go of what it traced before its end.

    A death by signal begins with a SIGKILL to each of its threads, any other with a flag.
    """
    found = processes.read_stat(pid, proc)
    status = processes.read_file(f"{proc}/{pid}/status") or ""
    pending = [line.partition(":")[2] for line in status.splitlines() if line[3:7] == "Pnd:"]
    return (
        found is None
        or found.has_ended
        or bool(found.flags & _PF_EXITING)
        or any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)
    )


def resume_ours(pid: int) -> bool:
    """Ends a stop that a killed tool has left behind; false when there is none.

    Call it only if `stopped_by_others` was false just before the tool was killed.
    """
    tasks = read_tasks(pid)
    if any(task.tracer for task in tasks):
        return False  # somebody else traces it now
    if not any(task.state == "T" or task.own_stop for task in tasks):
        return False
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)
        return True
    return False
