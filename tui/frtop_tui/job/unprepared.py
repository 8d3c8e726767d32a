"""Sentences about ranks without a recorder, which frtop only sees from outside."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_tui.job.model import BaseFrame, Coverage, Rank
from frtop_tui.job.naming import folded
from frtop_tui.job.units import duration

NOT_PREPARED: Final = "not prepared: seen from outside"
UNREADABLE: Final = "ring not readable: seen from outside"
NEXT_TIME: Final = "`frtop run -- ...` records it next time"
_SAME_NS: Final = 500_000_000
"""Agents look at ranks one after the other: first looks this close belong together."""


def all_prepared(ranks: int, unprepared: int) -> bool | None:
    """Whether all of a job's `ranks` have a recorder; None without ranks."""
    return not unprepared if ranks else None


def recorder_text(ranks: int, unprepared: int) -> str:
    """`yes`, `no`, or `2 of 4`: how many of the ranks have a recorder; "" without ranks."""
    if not ranks:
        return ""
    some = f"{ranks - unprepared} of {ranks}"
    return "yes" if not unprepared else "no" if unprepared >= ranks else some


def preparation(coverage: Coverage, ranks: int) -> str:
    """`not prepared: seen from outside`, with the ranks unless it is all; "" for none."""
    if not coverage.unprepared:
        return ""
    unprepared, why = set(coverage.unprepared).difference(coverage.unreadable), NOT_PREPARED
    if not unprepared:
        unprepared, why = set(coverage.unreadable), UNREADABLE
    return why if len(unprepared) >= ranks else f"{folded(unprepared)} {why}"


def recorder_note(rank: Rank) -> str:
    """Why the recorder of a rank cannot be read; "" if it can, or if there is none."""
    if rank.identity.prepared:
        return ""
    return next((note for note in rank.notes if note.startswith(wire.OF_RECORDER)), "")


def without_recorder(rank: Rank) -> str:
    """Why a rank keeps no history and cannot be asked; "" if it can."""
    if rank.identity.prepared:
        return ""
    if note := recorder_note(rank):
        return f"process {rank.identity.pid} (rank {rank.rank}): {note}"
    return (
        f"process {rank.identity.pid} (rank {rank.rank}) has no recorder: nothing in it can answer;"
        " start the job with `frtop run -- ...` next time"
    )


def is_least(rank: Rank) -> bool:
    """Whether the op that the rank waits in predates the first look."""
    return rank.blocked_on is not None and not rank.blocked_on.dated


def is_least_since(frame: BaseFrame, since_ns: int) -> bool:
    """Whether what began at `since_ns` (operator's clock) may have begun earlier.

    It may if that was the first look at a rank: the op that the rank waits in, or its last op if it
    waits in none, was already there.
    """
    for number in frame.coverage.unprepared:
        rank = frame.ranks.get(number)
        op = rank.blocked_on or _last_op(rank) if rank is not None else None
        if rank is None or op is None or op.dated:
            continue
        if abs(op.issued_ns + rank.clock_ns - since_ns) <= _SAME_NS:
            return True
    return False


def last_issue_is_least(rank: Rank) -> bool:
    """Whether the last op that the rank issued predates the first look."""
    last = _last_op(rank)
    return last is not None and not last.dated


def _last_op(rank: Rank) -> wire.Op | None:
    newest = max(rank.group_progress.values(), key=lambda one: one.issued_ns, default=None)
    return newest.last if newest is not None else None


def age_words(seconds: float, *, least: bool) -> str:
    """`12s`, or `at least 12s`, for sentences."""
    return f"at least {duration(seconds)}" if least else duration(seconds)


def age_text(seconds: float, *, least: bool) -> str:
    """`12s`, or `>= 12s` for a lower bound."""
    return f">= {duration(seconds)}" if least else duration(seconds)
