"""What a rank does, in a few words: for a table's cell or one line under the grid.

A rank that others wait for is in no op, so its op says nothing: what the verdict found,
its own line of code and its system call do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_tui.diagnosis.judged import Frame, JudgedRank, Why
from frtop_tui.job.stack_frames import basename, user_frame
from frtop_tui.widgets.wording import age, calm, ending, group_of, kind, number, site

CAUSES: Final = {
    "sleeping": "sleeps",
    "lock": "waits for a lock",
    "file_io": "file",
    "gil": "holds the GIL",
    "stopped": "stopped",
    "socket": "network",
    "device": "waits for its device",
    "rendezvous": "waits for the store",
    "computing": "computes",
    "compiling": "compiles",
    "dataloader": "loads data",
    "other_group": "in another collective",
    "out_of_loop": "out of the loop",
    "never_joined": "never joined",
    "unknown": "",
}
"""Causes of verdicts in as little room as a table's cell has."""
SUSPECTS: Final = ("late", "silent", "stopped")


def causes(frame: Frame) -> dict[int, Why]:
    """Why each blamed rank is blamed; of several verdicts the first says it."""
    found: dict[int, Why] = {}
    for verdict in frame.verdicts:
        for rank in verdict.culprits:
            found.setdefault(rank, verdict.why)
    return found


def blamed(frame: Frame) -> dict[int, int]:
    """Place of the verdict that names a rank as its culprit, root causes first."""
    found: dict[int, int] = {}
    for place, verdict in enumerate(frame.verdicts):
        for rank in verdict.culprits:
            found.setdefault(rank, place)
    return found


def line_of(rank: JudgedRank) -> str:
    """`train.py:59`: of the op it waits in, else of its main thread, if it is a suspect."""
    if rank.exit_info is not None:
        return ""
    if rank.blocked_on is not None:
        return site(rank.blocked_on.site)
    stack = rank.main_stack
    if rank.state not in SUSPECTS or stack is None or not stack.frames:
        return ""
    return basename(user_frame(stack.frames))


def doing(rank: JudgedRank, now_ns: int, causes: Mapping[int, Why]) -> str:
    """The op it waits in, its DataLoader, its system call, or why it is blamed."""
    if rank.exit_info is not None:
        return ending(rank.exit_info)
    op = rank.blocked_on
    if op is not None:
        return f"{kind(op)} {number(op)} {group_of(rank, op)}".strip()
    fetch = None if rank.status is None else rank.status.fetch
    if fetch is not None and fetch.end_ns < fetch.begin_ns:
        since = age(rank.age_s(fetch.begin_ns, now_ns))
        who = f"DataLoader worker {fetch.worker}" if fetch.worker >= 0 else "DataLoader"
        return f"{who} {since}"
    if rank.state in SUSPECTS or rank.rank in causes:
        return _absence(rank, now_ns, causes.get(rank.rank))
    if rank.pending:
        return f"{_pending(rank)}, not blocked"
    return ""


def _absence(rank: JudgedRank, now_ns: int, why: Why | None) -> str:
    call = _call(rank)
    if why is not None and why.cause == "file_io" and call:
        return call
    words = CAUSES.get(why.cause, why.cause.replace("_", " ")) if why is not None else ""
    if rank.state == "stopped":
        words = "stopped"
    elif rank.state == "silent" and not words and rank.status is not None:
        words = f"no beat for {calm(rank.age_s(rank.status.beat_ns, now_ns))}"
    if words:
        return words
    return call or _function(rank) or (_pending(rank) if rank.pending else "")


def _pending(rank: JudgedRank) -> str:
    count = len(rank.pending) + rank.pending_more
    return f"{count} op{'s' * (count > 1)} pending"


def _call(rank: JudgedRank) -> str:
    """`read /data/shard-0412`, when its main thread is in a call on a file."""
    look = rank.snapshot
    processes = look.processes if look is not None else ()
    own = next((p for p in processes if p.pid == rank.identity.pid), rank.process)
    if own is None or not own.syscall or not own.file:
        return ""
    return f"{own.syscall} {own.file}"


def _function(rank: JudgedRank) -> str:
    stack = rank.main_stack
    return f"in {stack.frames[0].function}" if stack is not None and stack.frames else ""


def doing_at(rank: JudgedRank, now_ns: int, causes: Mapping[int, Why]) -> str:
    """The same with its line, for where no column of its own has it."""
    op = rank.blocked_on
    where = "" if op is not None else line_of(rank)
    return "  ".join(filter(None, (doing(rank, now_ns, causes), where)))
