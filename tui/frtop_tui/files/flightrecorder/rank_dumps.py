"""The dumps of one rank: which of them show its last state, and which an earlier one.

A rank may have a recorder for each backend, and one state may be dumped twice (pickle and
JSON). An older dump is an earlier snapshot of the rank: if it issued and completed nothing in
between, the rank does not move.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.files.flightrecorder import fields
from frtop_tui.files.flightrecorder.dump import Dump
from frtop_tui.job.record import COMPARABLE_NS


@dataclass(frozen=True, slots=True)
class RankDump:
    """One dump, its rank and host, and when its file was last changed (0: unknown)."""

    rank: int
    host: str
    dump: Dump
    written_ns: int


@dataclass(frozen=True, slots=True)
class RankDumps:
    """The dumps of one rank: of its last state, one per recorder, and of an earlier state."""

    last: tuple[RankDump, ...]
    before: tuple[RankDump, ...] = ()
    undated: bool = False  # two dumps are equal, and their files do not show when


def op_ids(dump: Dump) -> frozenset[Hashable]:
    """What only dumps of one process share: number and issue time of an op."""
    return frozenset(
        (fields.record_id(entry), issued)
        for entry in (*dump.recent, *dump.last_entries.values())
        if (issued := fields.time_ns(entry, "created"))
    )


def sort_dumps(dumps: Sequence[RankDump]) -> RankDumps:
    """Sorts the dumps of one rank by age. Among those of the same state, the fullest counts."""
    recorders: dict[frozenset[str], list[RankDump]] = {}
    for one in dumps:
        entries = one.dump.last_entries.values()
        backends = frozenset(fields.profiling_name(entry).backend for entry in entries)
        recorders.setdefault(backends, []).append(one)
    last: list[RankDump] = []
    before: list[RankDump] = []
    undated = False
    for mine in recorders.values():
        ordered = sorted(mine, key=_age)
        newest = ordered[-1]
        older = [one for one in ordered[:-1] if _is_older(one, newest)]
        same = [one for one in ordered if one not in older]
        last.append(max(same, key=_fullness))
        before.append(older[-1] if older else newest)
        undated |= not older and len({one.dump.path.parent for one in same}) > 1
    is_compared = any(one not in last for one in before)
    return RankDumps(tuple(last), tuple(before) if is_compared else (), undated)


def status_of(dumps: Sequence[RankDump]) -> wire.RankStatus:
    """How far a rank has come: the ops that it issued, and, as steps, those that completed."""
    issued = completed = 0
    for one in dumps:
        here, done = _counts(one.dump)
        issued, completed = issued + here, completed + done
    return wire.RankStatus(0, 0, issued, completed)


def _counts(dump: Dump) -> tuple[int, int]:
    """Issued and completed ops: from the status, which also covers entries not dumped."""
    if dump.status:
        counts = dump.status.values()
        return sum(issued for issued, _ in counts), sum(done for _, done in counts)
    return dump.newest_id + 1, dump.newest_id + 1 - len(dump.pending)


def _age(one: RankDump) -> tuple[tuple[int, int], int]:
    return _counts(one.dump), one.written_ns


def _is_older(one: RankDump, newest: RankDump) -> bool:
    if _counts(one.dump) != _counts(newest.dump):
        return True
    known = one.written_ns and newest.written_ns
    return bool(known) and newest.written_ns - one.written_ns >= COMPARABLE_NS


def _fullness(one: RankDump) -> tuple[int, bool]:
    newest = one.dump.recent[-1] if one.dump.recent else {}
    return one.dump.newest_id, "frames" in newest
