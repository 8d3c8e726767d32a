"""Whether a rank, with its children, makes progress between two snapshots, or is only slow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import StackPath, path_of, paths_differ
from frtop_tui.diagnosis.evidence.dataloader_worker import worker_of
from frtop_tui.diagnosis.evidence.rank_activity import (
    current_fetch,
    last_activity_ns,
    working_location,
)
from frtop_tui.diagnosis.evidence.working_thread import (
    acting_stack,
    by_acting_thread,
    program_threads,
    working_stack,
)
from frtop_tui.diagnosis.model import Progress
from frtop_tui.diagnosis.thresholds import (
    CPU_SHARE,
    IO_BYTES,
    MAX_SLOW_STEP_NS,
    MEMORY_BYTES,
    MIN_PACE_OPS,
    READY_SHARE,
    RECENT_OP_NS,
    SLOW_STEP,
    UPDATE_DELAY_NS,
)
from frtop_tui.job.model import Rank
from frtop_tui.job.record import COMPARABLE_NS
from frtop_tui.job.stack_frames import user_frame_index

_POLLS: Final = "TP_SHM_reactor"
"""Prefix of the names of threads that always poll: TensorPipe's, in jobs with RPC."""
WORKS_ELSEWHERE: Final = frozenset({"compiling", "child"})
"""Places where a rank waits for processes that it started, which a file of stacks does not show."""

ProgressSign = Literal[
    # By updates alone.
    "ended", "stopped", "recent_op", "never_reported",
    # Between two snapshots; `amount` is given in brackets.
    "one_snapshot", "unchanged", "stack_changed",
    "unreadable",  # neither /proc nor stacks
    "advanced",  # ops, steps or fetches
    "cpu",  # [share of a core]
    "ready_cpu",  # could run in both snapshots, and ran a little [share of a core]
    "io", "memory",  # [bytes]
    "no_processor",  # could run in both snapshots, and never ran
    # Between two Flight Recorder dumps.
    "one_dump", "dump_advanced", "dumps_too_close", "dump_unchanged",
    # Between two stack dumps, where there is nothing else (`stack_state`).
    "stacks_once", "stack_lines_unknown", "stack_moved", "stacks_too_close", "stack_runs",
    "stack_same", "stack_same_child",
    # A rank that waits for something outside the job always looks the same.
    "nothing_to_do", "input_open",
    "spins",  # at a device, where a wait uses a core [share of it]
]  # fmt: skip


class ProgressSeen(Struct, frozen=True):
    """Whether a rank makes progress, and what shows it or is missing.

    `seconds` is the time between the observations; `amount` is in the unit of the sign.
    """

    progress: Progress
    sign: ProgressSign
    seconds: float = 0.0
    amount: float = 0.0


def progress_of(view: Rank, now_ns: int) -> ProgressSeen:
    """Whether the rank makes progress, by its updates and its last two snapshots."""
    if view.exit_info is not None:
        return ProgressSeen("none", "ended")
    if view.state == "stopped":
        return ProgressSeen("none", "stopped")
    if not view.evidence.has_process:
        return _between_dumps(view)
    active = last_activity_ns(view)
    recent = active and now_ns - view.clock_ns - active < RECENT_OP_NS
    if recent and view.evidence.has_ages:
        return ProgressSeen("active", "recent_op")
    if view.snapshot is None or view.prior_snapshot is None:
        return ProgressSeen("unknown", "one_snapshot")
    return _between(view, view.prior_snapshot, view.snapshot)


def may_be_slow_step(view: Rank, now_ns: int) -> bool:
    """Whether a rank without progress may still be in a slow step, by the ops of its snapshot."""
    # The age of a dump is unknown, and so is the age of its last op.
    if not view.evidence.has_ages or view.snapshot is None or len(view.snapshot.ops) < MIN_PACE_OPS:
        return False
    # The second longest pause: the longest one may have been a checkpoint, or the start.
    usual = _pauses_ns(view.snapshot.ops)[-2]
    newest = max(view.snapshot.ops, key=lambda op: op.issued_ns)
    last = max(_left_ns(newest, now_ns - view.clock_ns), last_activity_ns(view))
    limit_ns = min(MAX_SLOW_STEP_NS, SLOW_STEP * usual + UPDATE_DELAY_NS)
    return now_ns - view.clock_ns - last < limit_ns


def longest_pause_ns(view: Rank) -> int:
    """The longest pause between two ops in its last snapshot."""
    ops = view.snapshot.ops if view.snapshot is not None else ()
    return max(_pauses_ns(ops), default=0)


def _pauses_ns(ops: Iterable[wire.Op]) -> list[int]:
    """The rank's own pauses between ops, the shortest first."""
    ordered = sorted(ops, key=lambda op: op.issued_ns)
    return sorted(
        after.issued_ns - _left_ns(before, after.issued_ns) for before, after in pairwise(ordered)
    )


def _left_ns(op: wire.Op, next_ns: int) -> int:
    """When the rank went on after `op`. Time spent waiting for others is not its own pause.

    It issued the next op at `next_ns`. If it did not wait in `op`, it went on at once.
    """
    waited = op.sync and not op.on_device and op.timed and not op.late
    return op.done_ns if waited and op.issued_ns < op.done_ns <= next_ns else op.issued_ns


def _between_dumps(view: Rank) -> ProgressSeen:
    new, old = view.snapshot, view.prior_snapshot
    if new is None or old is None:
        return ProgressSeen("unknown", "one_dump")
    if new.status is not None and old.status is not None and _advanced(old.status, new.status):
        return ProgressSeen("active", "dump_advanced")
    seconds = (new.at_ns - old.at_ns) / 1e9
    if seconds * 1e9 < COMPARABLE_NS:
        return ProgressSeen("unknown", "dumps_too_close", seconds)
    return ProgressSeen("none", "dump_unchanged", seconds)


def _between(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> ProgressSeen:
    if view.status is not None and old.status is not None and _advanced(old.status, view.status):
        return ProgressSeen("active", "advanced")
    if used := _resources_used(view, old, new):
        return used
    has_new_stack = working_stack(view) is not None and view.stacks_taken_ns > old.at_ns
    if has_new_stack and _has_moved(view):
        return ProgressSeen("active", "stack_changed")
    if not new.processes and not has_new_stack:
        return ProgressSeen("unknown", "unreadable")
    seconds = (new.at_ns - old.at_ns) / 1e9
    if _ready_cpu_ns(view, old, new) is not None:
        return ProgressSeen("unknown", "no_processor", seconds)
    return ProgressSeen("none", "unchanged", seconds)


def _has_moved(view: Rank) -> bool:
    """Whether the working thread moved, or the thread that it ultimately waits for."""
    before = {one.ident: path_of(one.frames) for one in view.prior_threads}
    stacks = (working_stack(view), acting_stack(view))
    return any(
        paths_differ(before.get(stack.ident, ()), path_of(stack.frames))
        for stack in stacks
        if stack is not None
    )


def _advanced(old: wire.RankStatus, new: wire.RankStatus) -> bool:
    if (old.ops, old.step) != (new.ops, new.step):
        return True
    return old.fetch is not None and new.fetch is not None and old.fetch != new.fetch


def _resources_used(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> ProgressSeen | None:
    """CPU time, I/O or memory that the rank and its children used; None if too little."""
    before = {process.pid: process for process in old.processes}
    window_ns = max(1, new.at_ns - old.at_ns)
    cpu = io = memory = 0
    for process in new.processes:
        earlier = before.get(process.pid)
        if earlier is None:
            # Started since: compilation runs one short-lived child after another.
            cpu += min(process.cpu_ns, window_ns)
            continue
        polled = polled_ns(new) - polled_ns(old) if process.pid == view.identity.pid else 0
        cpu += max(0, process.cpu_ns - earlier.cpu_ns - polled)
        memory += max(0, process.rss - earlier.rss)
        if process.io_bytes >= 0 and earlier.io_bytes >= 0:
            io += max(0, process.io_bytes - earlier.io_bytes)
    seconds = window_ns / 1e9
    if cpu > CPU_SHARE * window_ns:
        return ProgressSeen("active", "cpu", seconds, cpu / window_ns)
    # A full host or a container's limit may give a ready thread hardly any time.
    if ready := _ready_cpu_ns(view, old, new):
        return ProgressSeen("active", "ready_cpu", seconds, ready / window_ns)
    if io >= IO_BYTES:
        return ProgressSeen("active", "io", seconds, io)
    if memory >= MEMORY_BYTES:
        return ProgressSeen("active", "memory", seconds, memory)
    return None


def polled_ns(snapshot: wire.Snapshot) -> int:
    """CPU time, in ns, of the rank's threads that always poll."""
    return sum(task.cpu_ns for task in snapshot.threads if task.name.startswith(_POLLS))


def _ready_cpu_ns(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> int | None:
    """CPU time, in ns, of the threads that were always ready; None if there are none.

    Its children count if the rank fetches from them, or waits for them, as for a compiler.
    """
    fetch, place = current_fetch(view), working_location(view)
    pids = {view.identity.pid, fetch.worker_pid if fetch is not None else 0}
    if place is not None and place.kind in WORKS_ELSEWHERE:
        pids.update(process.pid for process in new.processes)
    window_ns = new.at_ns - old.at_ns
    before, after = _tasks(old, pids), _tasks(new, pids)
    both = (before.keys() & after.keys()) - {view.identity.recorder_tid}
    ready = [task for task in both if _could_run(before[task], after[task], window_ns)]
    return sum(max(0, after[t].cpu_ns - before[t].cpu_ns) for t in ready) if ready else None


def _tasks(snapshot: wire.Snapshot, pids: set[int]) -> dict[int, wire.Process]:
    tasks = [process for process in snapshot.processes if process.pid in pids]
    # A process has its main thread's state and the time of all threads: its threads replace it.
    found = {task.pid: task for task in (*tasks, *snapshot.threads)}
    return {pid: task for pid, task in found.items() if not task.name.startswith(_POLLS)}


def _could_run(old: wire.Process, new: wire.Process, window_ns: int) -> bool:
    """Whether a thread was always ready, not only when the snapshots were taken."""
    if old.state != "R" or new.state != "R":
        return False
    ready_ns = new.ready_ns - old.ready_ns
    # The kernel counts a wait for a processor when it ends: an unchanged value is one long wait.
    unchanged = min(old.ready_ns, new.ready_ns) < 0 or ready_ns == 0
    return unchanged or ready_ns >= READY_SHARE * window_ns


IO_PER_S: Final = 4096
MEMORY_PER_S: Final = 2 << 20
MEMORY_LEAST: Final = 16 << 20
"""A long read shows in nothing else; the kernel's housekeeping makes a process grow less."""


class Sighting(NamedTuple):
    """One look at a rank; `at_ns` is on the operator's clock."""

    at_ns: int
    process: wire.Process | None  # the rank's, or that of the worker it fetches from
    cpu_ns: int  # of all its processes, without threads that always poll
    runs: bool  # its acting thread runs
    path: StackPath  # its acting thread, down to its own code; () if not seen
    beside: tuple[StackPath, ...] = ()  # the same for a server's other threads


def look_of(view: Rank, cause: str) -> Sighting | None:
    """The last look at a rank; None if the rank has done anything since, or there is none.

    A stopped rank needs none: updates show that.
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
    # One of these may be the one that works.
    threads = program_threads(view) if path and cause == "idle" else ()
    beside = tuple(sorted(map(_own_path, threads)))
    cpu_ns = sum(one.cpu_ns for one in snapshot.processes) - polled_ns(snapshot)
    awake = stack is not None and stack.active
    runs = awake or (process is not None and process.state == "R")
    return Sighting(snapshot.at_ns + view.clock_ns, process, cpu_ns, runs, path, beside)


def _own_path(stack: wire.ThreadStack) -> StackPath:
    """The path down to the program's own code: libraries poll below it."""
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
