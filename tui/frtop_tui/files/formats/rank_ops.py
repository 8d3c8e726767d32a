"""All ops that a frame knows of a rank, on one clock, with what is known about their ends.

Times are on the operator's wall clock: a host's own times plus its measured offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import Rank

OpEnd = Literal[
    "exact",
    "at most",  # found over at that time; it may have ended before
    "failed",
    "pending",
    "unknown",  # it is over, but frtop cannot see since when
]
_Key = tuple[int, int, bool, int]


class RankOp(Struct, frozen=True, gc=False):
    """One op of one rank.

    `begin_ns` and `end_ns` are Unix times; `end_ns` is 0 if unknown. Unless `op.dated`, it began at
    `begin_ns` or before.
    """

    view: JudgedRank
    op: wire.Op
    group: wire.Group | None
    begin_ns: int
    end_ns: int
    end: OpEnd

    @property
    def kind(self) -> str:
        return self.op.signature.kind if self.op.signature is not None else "unknown op"


def unix_offset_ns(frame: Frame, view: JudgedRank) -> int:
    """A time of the rank's host plus this is Unix time on the operator's clock."""
    return view.clock_ns - frame.now_ns + frame.wall_ns


def rank_ops(frame: Frame, view: JudgedRank) -> Iterator[RankOp]:
    """The ops of one rank, in the order of issue."""
    shift = unix_offset_ns(frame, view)
    waits = {_key(view, op) for op in view.pending}
    if view.blocked_on is not None:
        waits.add(_key(view, view.blocked_on))
    for op in known_ops(view):
        end = _end(view, op, in_question=bool(waits) and _key(view, op) in waits)
        has_end = end in ("exact", "at most", "failed")
        yield RankOp(
            view,
            op,
            view.groups.get(op.group),
            op.issued_ns + shift,
            abs(op.done_ns) + shift if has_end else 0,
            end,
        )


def _key(view: Rank, op: wire.Op) -> _Key:
    """What identifies one op across sources. Sources read from outside have their own counters."""
    numbered = op.number > 0 and not (op.p2p or op.pseudo)
    sequence = 0 if numbered and not view.evidence.has_one_naming else op.sequence
    return (op.group, op.number, op.p2p, sequence)


def known_ops(view: Rank) -> list[wire.Op]:
    """Every op that any source knows, from the source that knows most about it, by time."""
    known: dict[_Key, wire.Op] = {}
    lasts = [one.last for one in view.group_progress.values() if one.last is not None]
    looked = view.snapshot.ops if view.snapshot is not None else ()
    blocked = (view.blocked_on,) if view.blocked_on is not None else ()
    for op in (*looked, *lasts, *view.pending, *blocked):
        key = _key(view, op)
        before = known.get(key)
        if before is None or _tells_more(op, before):
            known[key] = op
    return sorted(known.values(), key=lambda op: (op.issued_ns, op.sequence))


def _tells_more(op: wire.Op, before: wire.Op) -> bool:
    if (op.signature is None) != (before.signature is None):
        return before.signature is None
    return before.pending and not op.pending


def _end(view: JudgedRank, op: wire.Op, *, in_question: bool) -> OpEnd:
    if op.done_ns < 0:
        return "failed"
    if op.done_ns > 0:
        if not (op.tracked and op.timed):
            return "unknown"
        # Readers from outside, and torch's own watchdog, notice the end some time later.
        found = op.late or is_dumped(view) or not view.identity.prepared
        return "at most" if found else "exact"
    if in_question:
        return "pending"
    return "unknown" if is_dumped(view) or not op.tracked else "pending"


def is_dumped(view: JudgedRank) -> bool:
    """Whether the ops come from a dump: it lists unfinished ops, so all others are over."""
    return not view.evidence.has_process
