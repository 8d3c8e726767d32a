"""Whether a rank in no op stays where it is, from look to look.

The acting thread is the working one, or the one that it waits for in the end. What other threads
and processes of a rank do now and then is no progress. CPU time is, of its children, too, and so
are reads and growing memory of the process that is waited for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import StackPath, path_of, paths_differ
from frtop_tui.diagnosis.evidence.dataloader_worker import worker_of
from frtop_tui.diagnosis.evidence.progress import polled_ns
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.evidence.thread_chain import (
    acting_stack,
    by_acting_thread,
    program_threads,
)
from frtop_tui.diagnosis.thresholds import CPU_SHARE
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import user_frame_index

IO_PER_S: Final = 4096
MEMORY_PER_S: Final = 2 << 20
MEMORY_LEAST: Final = 16 << 20
"""A long read shows in nothing else; the kernel's own housekeeping makes a process grow less."""


class Sighting(NamedTuple):
    """One look at a rank; `at_ns` is of the operator's clock."""

    at_ns: int
    process: wire.Process | None  # the rank's, or the worker's that it fetches from
    cpu_ns: int  # of all its processes, but for threads that poll all the time
    runs: bool  # its acting thread runs
    path: StackPath  # of its acting thread as far as its own code goes, () if it was not seen
    beside: tuple[StackPath, ...] = ()  # the same of the program's other threads, of a server


def look_of(view: Rank, cause: str) -> Sighting | None:
    """The last look at a rank; None if the rank has done anything since, or there is none.

    A rank that is stopped needs none: its agent's updates tell.
    """
    if view.state == "stopped" and view.process is not None:
        return Sighting(view.reported_ns, view.process, view.process.cpu_ns, runs=False, path=())
    snapshot, active_ns = view.snapshot, last_activity_ns(view)
    if snapshot is None or snapshot.at_ns <= active_ns:
        return None
    own = next((one for one in snapshot.processes if one.pid == view.identity.pid), None)
    process = worker_of(view) if cause == "dataloader" else None
    if process is None and own is not None:
        process = by_acting_thread(view, own)
    stack = acting_stack(view) if view.stacks_taken_ns > active_ns else None
    path = _own_path(stack) if stack is not None else ()
    # One of these may be the one that works, where nothing tells that.
    threads = program_threads(view) if path and cause == "idle" else ()
    beside = tuple(sorted(map(_own_path, threads)))
    cpu_ns = sum(one.cpu_ns for one in snapshot.processes) - polled_ns(snapshot)
    awake = stack is not None and stack.active
    runs = awake or (process is not None and process.state == "R")
    return Sighting(snapshot.at_ns + view.clock_ns, process, cpu_ns, runs, path, beside)


def _own_path(stack: wire.ThreadStack) -> StackPath:
    """Libraries poll: only a line of the program's own tells that it went on."""
    return path_of(stack.frames[user_frame_index(stack.frames) or 0 :])


def has_moved(first: Sighting, last: Sighting) -> bool:
    """Whether a rank made progress between two looks."""
    seconds = (last.at_ns - first.at_ns) / 1e9
    busy = last.cpu_ns - first.cpu_ns > CPU_SHARE * 1e9 * (1 + seconds)
    if busy or (first.runs and last.runs) or paths_differ(first.path, last.path):
        return True
    old, new = first.process, last.process
    if old is None or new is None:
        return old is not new
    if (old.pid, old.syscall, old.file) != (new.pid, new.syscall, new.file):
        return True
    return (
        new.io_bytes - old.io_bytes > IO_PER_S * (4 + seconds)
        or new.rss - old.rss > MEMORY_LEAST + MEMORY_PER_S * seconds
    )
