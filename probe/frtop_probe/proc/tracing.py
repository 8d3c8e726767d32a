"""Finds out who holds a process, and ends a stop that a killed tool left behind.

A tool traces the process while it takes native stacks. If it is killed, the kernel lets
the threads run on. But if it was attaching with PTRACE_ATTACH, it has sent a SIGSTOP, which then
stops the process for good (seen with pystack; py-spy attaches with PTRACE_SEIZE, without a signal).
Only that stop is ended here. A stop from somebody else shows as pending while all threads are held;
the two look the same only while the tool attaches or detaches.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc import processes
from frtop_probe.proc.kernel_files import read_fields

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
    """A stop signal is pending for this thread alone: tracers send such signals."""
    common_stop: bool
    """A stop signal is pending for the process: `kill -STOP` sends such signals."""

    @property
    def runs(self) -> bool:
        return self.state not in "Tt" and not self.tracer


def _read_task(folder: str) -> Task | None:
    """A process's main thread, or another thread; None if it has ended."""
    fields = read_fields(f"{folder}/status")
    try:
        found = Task(
            tid=int(fields["Pid"]),
            state=fields["State"][:1],
            tracer=int(fields["TracerPid"]),
            own_stop=bool(int(fields["SigPnd"], 16) & _STOP_MASK),
            common_stop=bool(int(fields["ShdPnd"], 16) & _STOP_MASK),
        )
    except (KeyError, ValueError):
        return None
    return found if found.state not in "ZX" else None


def read_main(pid: int) -> Task | None:
    """The main thread; None if the process has ended."""
    return _read_task(f"/proc/{pid}")


def read_tasks(pid: int) -> tuple[Task, ...]:
    """All threads of a process; empty if it has ended."""
    tasks = (_read_task(f"/proc/{pid}/task/{tid}") for tid in processes.thread_ids(pid))
    return tuple(task for task in tasks if task is not None)


def stopped_by_others(tasks: tuple[Task, ...]) -> bool:
    """Whether somebody else has sent a stop, seen while a tool of ours is attached.

    A thread stopped by a tool is in state t, never in T.
    """
    return any(task.state == "T" or task.common_stop for task in tasks)


def is_ending(pid: int) -> bool:
    """Whether a process is dying or dead. A dying tracer detaches from its target before it ends.

    A death by signal begins with a SIGKILL to each thread, any other death with a flag.
    """
    found = processes.read_stat(pid)
    fields = read_fields(f"/proc/{pid}/status")
    pending = (fields[name] for name in ("SigPnd", "ShdPnd") if name in fields)
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
