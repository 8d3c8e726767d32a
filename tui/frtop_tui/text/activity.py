"""What a rank is doing, in a few words: for a table cell or the line below the grid.

A rank that others wait for is in no op. Instead, its cause in the verdict, its line of code and its
system call describe it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.causes import CAUSES
from frtop_tui.diagnosis.evidence.working_thread import by_acting_thread, working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank, Why
from frtop_tui.job.stack_frames import basename, shown_frames, site_name, user_frame
from frtop_tui.job.units import counted, duration, live_duration
from frtop_tui.text.rank_words import format_exit, op_name

SUSPECTS: Final = ("late", "silent", "stopped")


def blame_reasons(frame: Frame) -> dict[int, Why]:
    """Why each culprit is blamed, by the first verdict that names it."""
    found: dict[int, Why] = {}
    for verdict in frame.verdicts:
        for rank in verdict.culprits:
            found.setdefault(rank, verdict.why)
    return found


def verdict_order(frame: Frame) -> dict[int, int]:
    """Index of the first verdict about each of its ranks; root causes come first."""
    found: dict[int, int] = {}
    for index, verdict in enumerate(frame.verdicts):
        for rank in verdict.first_ranks:
            found.setdefault(rank, index)
    return found


def source_line(rank: JudgedRank) -> str:
    """`train.py:59`: where the rank issued its op, or where a suspect's working thread is."""
    if rank.exit_info is not None:
        return ""
    if rank.blocked_on is not None:
        return site_name(rank.blocked_on.site)
    stack = working_stack(rank)
    if rank.state not in SUSPECTS or stack is None or not stack.frames:
        return ""
    return basename(user_frame(stack.frames))


def describe_activity(rank: JudgedRank, now_ns: int, reasons: Mapping[int, Why]) -> str:
    """How it ended, the op it waits in, its DataLoader fetch, or why it is blamed."""
    if rank.exit_info is not None:
        return format_exit(rank.exit_info)
    if rank.blocked_on is not None:
        return op_name(rank, rank.blocked_on)
    fetch = None if rank.status is None else rank.status.fetch
    if fetch is not None and fetch.end_ns < fetch.begin_ns:
        since = duration(rank.age_s(fetch.begin_ns, now_ns))
        who = f"DataLoader worker {fetch.worker}" if fetch.worker >= 0 else "DataLoader"
        return f"{who} {since}"
    if rank.state in SUSPECTS or rank.rank in reasons:
        return _suspect_activity(rank, now_ns, reasons.get(rank.rank))
    return _unblocked(rank, now_ns) if rank.pending else ""


def _unblocked(rank: JudgedRank, now_ns: int) -> str:
    """The op that its device is in, or how many are pending."""
    on_device = next((op for op in rank.pending if op.enqueued and op.tracked), None)
    if on_device is None:
        return f"{_pending(rank)}, not blocked"
    age = duration(rank.age_s(on_device.issued_ns, now_ns))
    return f"{op_name(rank, on_device)} on its device {age}"


def _suspect_activity(rank: JudgedRank, now_ns: int, why: Why | None) -> str:
    call = _file_call(rank)
    if why is not None and why.cause == "file_io" and call:
        return call
    words = CAUSES[why.cause].cell if why is not None else ""
    if rank.state == "stopped":
        traced = rank.process is not None and rank.process.state == "t"
        words = "by a tracer" if traced else "by a signal"
    elif (
        rank.state == "silent" and not words and (age_s := rank.heartbeat_age_s(now_ns)) is not None
    ):
        words = f"no heartbeat for {live_duration(age_s)}"
    if words:
        return words
    return call or _function(rank) or (_pending(rank) if rank.pending else "")


def _pending(rank: JudgedRank) -> str:
    count = len(rank.pending) + rank.pending_more
    return f"{counted(count, 'op')} pending"


def _file_call(rank: JudgedRank) -> str:
    """`read /data/shard-0412`, while its working thread is in a system call on a file."""
    processes = rank.snapshot.processes if rank.snapshot is not None else ()
    own = next((p for p in processes if p.pid == rank.identity.pid), rank.process)
    own = by_acting_thread(rank, own) if own is not None else None
    if own is None or not own.syscall or not own.file:
        return ""
    return f"{own.syscall} {own.file}"


def _function(rank: JudgedRank) -> str:
    stack = working_stack(rank)
    frames = shown_frames(stack.frames) if stack is not None else ()
    return f"in {frames[0].function}" if frames else ""


def describe_activity_and_line(rank: JudgedRank, now_ns: int, reasons: Mapping[int, Why]) -> str:
    """`describe_activity` with the line of code, for places without a column for it."""
    line = "" if rank.blocked_on is not None else source_line(rank)
    return "  ".join(filter(None, (describe_activity(rank, now_ns, reasons), line)))


def cpu_share(
    snapshot: wire.Snapshot | None, prior: wire.Snapshot | None, pid: int
) -> float | None:
    """CPUs used between two snapshots (1.0: one core busy), None when not in both."""
    if snapshot is None or prior is None or snapshot.at_ns <= prior.at_ns:
        return None
    after = next((process for process in snapshot.processes if process.pid == pid), None)
    before = next((process for process in prior.processes if process.pid == pid), None)
    if after is None or before is None:
        return None
    return max(0, after.cpu_ns - before.cpu_ns) / (snapshot.at_ns - prior.at_ns)
