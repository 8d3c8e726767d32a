"""What a rank did last, and where its working thread is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.causes import LocationKind
from frtop_tui.diagnosis.evidence.stack_location import StackLocation, locate
from frtop_tui.diagnosis.evidence.working_thread import WorkingThread, working_thread
from frtop_tui.diagnosis.thresholds import UPDATE_DELAY_NS
from frtop_tui.job.model import Rank

_NATIVE: Final = attrgetter("native")
_NATIVE_KINDS: Final[tuple[tuple[re.Pattern[str], LocationKind], ...]] = (
    (re.compile(r"^(time_sleep|_*(clock_)?nanosleep|usleep)$"), "sleeping"),
    (re.compile(r"^(c10d|gloo)::|^ncclx?::|Work::wait"), "collective"),
    (re.compile(r"SimpleQueue_get|^lock_PyThread_acquire|PyThread_acquire_lock"), "lock"),
)
"""What C frames show of a call without a Python frame, the innermost frame first."""
_EVERY_OP: Final = attrgetter("evidence.has_every_op")


def current_fetch(view: Rank) -> wire.DataLoaderFetch | None:
    """The DataLoader fetch that the rank is in, None if it is in none."""
    fetch = view.status.fetch if view.status is not None else None
    return fetch if fetch is not None and fetch.begin_ns > fetch.end_ns else None


def last_issued_ns(view: Rank) -> int:
    """Host time, in ns, of the last op in any group; 0 if there is none."""
    return max((progress.issued_ns for progress in view.group_progress.values()), default=0)


def last_activity_ns(view: Rank) -> int:
    """Host time, in ns, of the rank's last known op, step or fetch."""
    newest = last_issued_ns(view)
    if view.pending:
        newest = max(newest, view.pending[-1].issued_ns)
    status = view.status
    if status is not None:
        newest = max(newest, status.step_ns)
        if status.fetch is not None:
            newest = max(newest, status.fetch.begin_ns, status.fetch.end_ns)
    return newest


def every_op_is_known(ranks: Mapping[int, Rank]) -> bool:
    """Whether every op of every rank is known when it is issued."""
    return all(map(_EVERY_OP, ranks.values()))


def has_newer_op(view: Rank, now_ns: int) -> bool:
    """Whether a recent snapshot shows an op that no update has reported yet."""
    snapshot = view.snapshot
    if snapshot is None or now_ns - view.clock_ns - snapshot.at_ns > UPDATE_DELAY_NS:
        return False
    # Updates have reported all older ops, or never will.
    oldest = max(last_issued_ns(view), snapshot.at_ns - UPDATE_DELAY_NS)
    return any(op.issued_ns > oldest and op.group in view.group_progress for op in snapshot.ops)


def working_location(view: Rank) -> StackLocation | None:
    """Where the working thread is, by the last stacks; None if the rank did anything since."""
    if view.snapshot is None or last_activity_ns(view) > view.stacks_taken_ns:
        return None
    working = working_thread(view)
    return located(view, working) if working is not None else None


def located(view: Rank, working: WorkingThread) -> StackLocation:
    """Where a working thread is; in a C call that its line does not show, by its C frames."""
    location = locate(working.stack, working.process)
    if location.kind == "unknown":
        for frame in native_leaf(view, working.stack):
            for name, kind in _NATIVE_KINDS:
                if name.search(frame.function):
                    return replace(location, kind=kind, sure=True)
    return location


def native_leaf(view: Rank, stack: wire.ThreadStack) -> list[wire.TraceFrame]:
    """The C frames that a thread's innermost line has called."""
    thread = next((one for one in native_threads(view) if one.ident == stack.ident), None)
    return [*takewhile(_NATIVE, thread.frames)] if thread is not None else []


def native_threads(view: Rank) -> tuple[wire.ThreadStack, ...]:
    """Threads with their C frames, if taken with the last stacks."""
    native, look = view.native, view.snapshot
    if native is None or look is None or native.at_ns != look.at_ns:
        return ()
    return native.dump.threads


def gil_holder(view: Rank) -> wire.ThreadStack | None:
    """The thread that holds the GIL in the last stack dump, if any does."""
    return next((thread for thread in view.threads if thread.owns_gil), None)


def stacks_due(view: Rank) -> bool:
    """Whether current stacks are still due, because py-spy was too slow so far.

    False if they cannot be had, and for a process in state D: the kernel shows enough of it.
    """
    process, snapshot = view.process, view.snapshot
    if snapshot is None or process is None or process.state == "D":
        return False
    if working_location(view) is not None:
        return False
    own = next((dump for dump in snapshot.dumps if dump.pid == view.identity.pid), None)
    return own is None or own.error in ("", "deadline")


NOW: Final = 1 << 62
"""Later than any time: what is known is current."""


def is_stale(view: Rank) -> bool:
    """Whether what is known about any of its groups is not current."""
    return any(one.as_of_ns for one in view.group_progress.values())


def known_until_ns(view: Rank, group: int | None = None) -> int:
    """When a rank's position in a group was last known, on the operator's clock; or `NOW`.

    Ops that no group counts (None) are known as long as anything about the rank is.
    """
    counted = view.group_progress.get(group) if group is not None else None
    if counted is not None:
        return _until(view, counted)
    return max((_until(view, one) for one in view.group_progress.values()), default=NOW)


def _until(view: Rank, progress: wire.GroupProgress) -> int:
    return progress.as_of_ns + view.clock_ns if progress.as_of_ns else NOW
