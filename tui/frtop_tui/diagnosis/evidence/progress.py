"""Whether a rank gets anywhere: between two looks, its children included."""

from __future__ import annotations

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import last_activity_ns
from frtop_tui.diagnosis.model import Progress
from frtop_tui.job.model import Rank
from frtop_tui.job.record import LOOKS_APART_NS

CPU_SHARE = 0.05
"""A rank that only waits burns less: its recorder and a few timers, 0.4 % of a core.

A thread that could run all the time does not wait: the host, or its container's limit, gives
it no more, and the little it gets is progress.
"""
IO_BYTES = 4096
MEMORY_BYTES = 32 << 20
"""A file that is mapped is read without a call. The kernel's own tidying (khugepaged) makes a
process grow as well, by half of that in ten seconds."""
RECENT_NS = 2_000_000_000


def progress_of(view: Rank, now_ns: int) -> tuple[Progress, str]:
    """Progress, and what shows it (or what was missing)."""
    if view.exit_info is not None:
        return "none", "its process ended"
    if view.state == "stopped":
        return "none", "its process is stopped"
    if not view.evidence.has_process:
        return _between_dumps(view)
    active = last_activity_ns(view)
    if active and now_ns - view.clock_ns - active < RECENT_NS:
        return "active", "it still issues ops"
    if view.snapshot is None or view.prior_snapshot is None:
        return "unknown", "not looked at twice yet"
    return _between(view, view.prior_snapshot, view.snapshot)


def _between_dumps(view: Rank) -> tuple[Progress, str]:
    """What has changed from one dump of a rank to another."""
    new, old = view.snapshot, view.prior_snapshot
    if new is None or old is None:
        return "unknown", "a single dump does not tell whether it moves"
    if new.status is not None and old.status is not None and _moved(old.status, new.status):
        return "active", "it has issued or completed ops between two dumps"
    seconds = (new.at_ns - old.at_ns) / 1e9
    if seconds * 1e9 < LOOKS_APART_NS:
        return "unknown", "that its dumps are some seconds apart is not known"
    return "none", f"nothing issued, nothing completed in {seconds:.1f}s between two dumps"


def _between(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> tuple[Progress, str]:
    """What has changed from one look to another."""
    own = next((d for d in new.dumps if d.pid == view.identity.pid), None)
    before = next((d for d in old.dumps if d.pid == view.identity.pid), None)
    fresh = own is not None and view.stacks_taken_ns > old.at_ns
    grown = _grown(view, old, new)
    if view.status is not None and old.status is not None and _moved(old.status, view.status):
        grown = "its ops or steps advance"
    elif fresh and _has_changed(_path(before, view), _path(own, view)):
        grown = grown or "its stack changed"
    if grown:
        return "active", grown
    if not new.processes and not fresh:
        return "unknown", "neither /proc nor stacks could be read"
    seconds = (new.at_ns - old.at_ns) / 1e9
    if _ready(view, old, new) is not None:
        return "unknown", f"it could run, and got no processor in {seconds:.1f}s between two looks"
    return "none", f"no op, step, CPU time or I/O in {seconds:.1f}s between two looks"


def _moved(old: wire.RankStatus, new: wire.RankStatus) -> bool:
    if (old.ops, old.step) != (new.ops, new.step):
        return True
    return old.fetch is not None and new.fetch is not None and old.fetch != new.fetch


def _grown(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> str:
    """CPU time, I/O or memory of the same processes, "" if none of it grew."""
    before = {process.pid: process for process in old.processes}
    window = max(1, new.at_ns - old.at_ns)
    cpu = io = memory = 0
    for process in new.processes:
        past = before.get(process.pid)
        if past is None:
            # Born since: who compiles waits for one short-lived child after the other.
            cpu += min(process.cpu_ns, window)
            continue
        cpu += max(0, process.cpu_ns - past.cpu_ns)
        memory += max(0, process.rss - past.rss)
        if process.io_bytes >= 0 and past.io_bytes >= 0:
            io += max(0, process.io_bytes - past.io_bytes)
    if cpu > CPU_SHARE * window:
        return f"it uses {100 * cpu / window:.0f} % of a core"
    if got := _ready(view, old, new):
        return f"it could run in both looks, and got {100 * got / window:.1f} % of a core"
    if io >= IO_BYTES:
        return f"it reads or writes: {io:,} bytes in {window / 1e9:.1f}s"
    if memory >= MEMORY_BYTES:
        return f"its memory grows: {memory >> 20:,} MiB in {window / 1e9:.1f}s"
    return ""


def _ready(view: Rank, old: wire.Snapshot, new: wire.Snapshot) -> int | None:
    """CPU time of those of its threads that would run in both looks; None: there are none.

    The worker that it fetches from counts as well, not what else it has started.
    """
    fetch = view.status.fetch if view.status is not None else None
    asked = {view.identity.pid, fetch.worker_pid if fetch is not None else 0}
    window = new.at_ns - old.at_ns
    before, after = _tasks(old, asked), _tasks(new, asked)
    both = (before.keys() & after.keys()) - {view.identity.recorder_tid}
    ready = [task for task in both if _could_run(before[task], after[task], window)]
    return sum(max(0, after[t].cpu_ns - before[t].cpu_ns) for t in ready) if ready else None


def _tasks(look: wire.Snapshot, asked: set[int]) -> dict[int, wire.Process]:
    tasks = [process for process in look.processes if process.pid in asked]
    # A process is its main thread's state and everybody's time, so what its threads tell counts.
    return {task.pid: task for task in (*tasks, *look.threads)}


def _could_run(old: wire.Process, new: wire.Process, window: int) -> bool:
    """Whether a thread was about to run all the time, not just when it was looked at.

    One that wakes up a hundred times a second, as those of a transport do, waits for its turn
    a hundred times on a full host, and is asleep in between.
    """
    if old.state != "R" or new.state != "R":
        return False
    ready = new.ready_ns - old.ready_ns
    # One that has not had a turn since is in the same wait all along, which is not counted yet.
    return min(old.ready_ns, new.ready_ns) < 0 or ready == 0 or 2 * ready >= window


def _path(dump: wire.StackDump | None, view: Rank) -> list[tuple[str, int]]:
    """The main thread's lines, innermost first; none where they could not be read."""
    threads, main = dump.threads if dump is not None else (), view.identity.main_ident
    stack = next((thread for thread in threads if thread.ident == main or not main), None)
    return [(f.function, f.line) for f in stack.frames] if stack is not None else []


def _has_changed(old: list[tuple[str, int]], new: list[tuple[str, int]]) -> bool:
    """A line of 0 is not known: it differs from none."""
    if not old or not new or len(old) != len(new):
        return bool(old and new)
    pairs = zip(old, new, strict=True)
    return any(a[0] != b[0] or (a[1] != b[1] and a[1] and b[1]) for a, b in pairs)
