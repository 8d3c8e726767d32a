"""Several dumps of one rank: what is of one moment, and what it was before.

A rank may have a recorder for each backend, and one moment may be told twice (pickle and
JSON). What is older is an earlier look at the same rank: where nothing was issued and
nothing completed in between, it does not move.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.export.flightrecorder import entries as told
from frtop_tui.export.flightrecorder.entries import Dump
from frtop_tui.job.record import COMPARABLE_NS


@dataclass(frozen=True, slots=True)
class Told:
    """One dump, whose it is, and when its file was last changed (0: not known)."""

    rank: int
    host: str
    dump: Dump
    written_ns: int


@dataclass(frozen=True, slots=True)
class Moments:
    """The dumps of one rank: of the last moment, one for each recorder, and of one before."""

    last: tuple[Told, ...]
    before: tuple[Told, ...] = ()
    undated: bool = False  # there are two that tell the same, from nobody knows when


def signs_of(dump: Dump) -> frozenset[Hashable]:
    """What only dumps of one process share: an op, by its place and the nanosecond of its issue."""
    return frozenset(
        (told.whole(entry.get("record_id", entry.get("id"))), issued)
        for entry in (*dump.kept, *dump.lasts.values())
        if (issued := told.moment(entry, "created"))
    )


def moments_of(dumps: Sequence[Told]) -> Moments:
    """Sorts the dumps of one rank. Of one moment the one that tells more counts."""
    recorders: dict[frozenset[str], list[Told]] = {}
    for one in dumps:
        backends = frozenset(told.called(e).backend for e in one.dump.lasts.values())
        recorders.setdefault(backends, []).append(one)
    last: list[Told] = []
    before: list[Told] = []
    undated = False
    for mine in recorders.values():
        ordered = sorted(mine, key=_age)
        newest = ordered[-1]
        older = [one for one in ordered[:-1] if _is_older(one, newest)]
        same = [one for one in ordered if one not in older]
        last.append(max(same, key=_worth))
        before.append(older[-1] if older else newest)
        undated |= not older and len({one.dump.path.parent for one in same}) > 1
    is_compared = any(one not in last for one in before)
    return Moments(tuple(last), tuple(before) if is_compared else (), undated)


def present_of(dumps: Sequence[Told]) -> wire.RankStatus:
    """How far a rank was: ops that it has issued, and as steps those that are completed."""
    issued = completed = 0
    for one in dumps:
        here, done = _counts(one.dump)
        issued, completed = issued + here, completed + done
    return wire.RankStatus(0, 0, issued, completed)


def _counts(dump: Dump) -> tuple[int, int]:
    """By its status, which does not depend on which entries were dumped; else by these."""
    if dump.status:
        counts = dump.status.values()
        return sum(issued for issued, _ in counts), sum(done for _, done in counts)
    return dump.newest + 1, dump.newest + 1 - len(dump.pending)


def _age(one: Told) -> tuple[tuple[int, int], int]:
    return _counts(one.dump), one.written_ns


def _is_older(one: Told, newest: Told) -> bool:
    if _counts(one.dump) != _counts(newest.dump):
        return True
    known = one.written_ns and newest.written_ns
    return bool(known) and newest.written_ns - one.written_ns >= COMPARABLE_NS


def _worth(one: Told) -> tuple[int, bool]:
    newest = one.dump.kept[-1] if one.dump.kept else {}
    return one.dump.newest, "frames" in newest
