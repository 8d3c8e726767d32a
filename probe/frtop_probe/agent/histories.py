"""All ops and marks that a rank's ring still has, for captures and black boxes.

What many ops share is sent once. Rings are read many slots at a time and stay in columns: an object
per op would take ten times as long.
"""

from __future__ import annotations

import asyncio
from itertools import compress
from typing import Final, TypeVar

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_view import RingView
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.history_columns import FIELDS, pack_rows
from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import LONGEST, Event, StatusCell
from frtop_probe.ring.reader import OpKey

_ISSUED: Final = FIELDS.index("issued_ns")

Value = TypeVar("Value")
_Kind = tuple[int, int, int, int, int, int, int]
"""What many ops share: group, form, party, position of sizes, event, later flags, site."""
_Known = tuple[int, int, int, int, int]
"""The same as fields of a row: signature, site, flags, pseudo, issuer."""


async def history_response(
    host: str, request: wire.HistoryRequest, rank: TrackedRank
) -> wire.Response:
    """The history in a rank's ring, or in torch's Flight Recorder if there is no ring."""
    if isinstance(rank, RingRank):
        if request.group:
            found = await excerpt(rank.view, request.group, request.first, request.last)
        else:
            found = await history(rank, request.limit)
        return wire.HistoryResponse(request.id, host, request.key, found)
    if not isinstance(rank, UnpreparedRank):
        return no_recorder(request, rank)
    flight = rank.flight
    if request.group:
        # From the same read as the sums: the ring may have moved on since.
        found = flight.excerpt(request.group, request.first, request.last)
    else:
        await rank.read_first(request.limit)
        found = flight.history(request.limit)
    if found.columns is None and not request.group:
        why = flight.note or "the Flight Recorder has not been read yet"
        return wire.Error(request.id, why, "unprepared")
    return wire.HistoryResponse(request.id, host, request.key, found)


def no_recorder(request: wire.Request, rank: TrackedRank) -> wire.Error:
    """The answer for a rank without a recorder to a request that needs one."""
    text = f"process {rank.pid} has no recorder: nothing in it can answer"
    return wire.Error(request.id, rank.recorder_note or text, "unprepared")


async def history(rank: RingRank, limit: int = 0) -> wire.History:
    """The newest `limit` ops of a rank (0: all), even if the rank has ended.

    The marks start at the first of these ops; the ring bounds their number. Ops overwritten before
    the first one do not count as lost, only those in between.
    """
    ring = rank.ring
    ring.refresh()
    builder = HistoryBuilder(rank.view)
    head = ring.cell(StatusCell.HEAD)
    first = max(ring.oldest(head), head - limit + 1 if limit else 1)
    read, oldest = 0, head + 1
    for slots in bulk_read.slots(ring, first, head):
        builder.add(slots)
        read += len(slots.sequence)
        oldest = min(oldest, next(iter(slots.sequence), oldest))
        await asyncio.sleep(0)  # the tick and other requests get their turn
    marks = rank.view.marks(builder.since_ns)
    return builder.build(max(0, head - oldest + 1 - read), marks)


async def excerpt(view: RingView, group: int, first: int, last: int) -> wire.History:
    """The collectives of one group numbered `first` to `last` that the ring still has."""
    ring = view.ring
    ring.refresh()
    builder = HistoryBuilder(view)
    head = ring.cell(StatusCell.HEAD)
    for slots in bulk_read.slots(ring, ring.oldest(head), head):
        collectives = {what for what in set(slots.what) if bulk_read.is_collective_half(what)}
        wanted = [
            first <= number <= last and of == group and what in collectives
            for number, of, what in zip(slots.number, slots.group, slots.what, strict=True)
        ]
        builder.add(slots.only(wanted))
        await asyncio.sleep(0)
    return builder.build(0)


class HistoryBuilder:
    """Builds a `wire.History`, with tables of what many ops have in common."""

    def __init__(self, view: RingView) -> None:
        self._view = view
        self._known: dict[_Kind, _Known | None] = {}
        self._signatures: dict[wire.Signature, int] = {}
        self._sites: dict[wire.Site, int] = {}
        self._issuers: dict[wire.Issuer, int] = {}
        self._columns: tuple[list[int], ...] = tuple([] for _ in FIELDS)

    def add(self, slots: bulk_read.Slots) -> None:
        """Adds ops; ignores those of an unknown kind."""
        kinds = list(
            zip(slots.group, slots.form, slots.party, slots.record, slots.what, slots.later,
                slots.site, strict=True)
        )  # fmt: skip
        known = self._known
        for kind in set(kinds) - known.keys():
            known[kind] = self._look_up(kind)
        found = [known[kind] for kind in kinds]
        if None in known.values() or not _are_possible(slots):
            is_op = [
                one is not None and all(abs(value) < LONGEST for value in values)
                for one, *values in zip(
                    found, slots.issued, slots.number, slots.thread, strict=True
                )
            ]
            slots, found = slots.only(is_op), list(compress(found, is_op))
        if not found:
            return
        signatures, sites, flags, pseudo, issuers = zip(*found, strict=True)
        took = [
            done - issued or 1 if done >= issued > 0 else _took(issued, done)
            for issued, done in zip(slots.issued, slots.done, strict=True)
        ]
        waited = bulk_read.waited(slots)
        fields = (slots.sequence, slots.group, slots.number, signatures, sites, slots.issued, took,
                  slots.thread, flags, pseudo, slots.timeout, issuers, waited)  # fmt: skip
        for column, values in zip(self._columns, fields, strict=True):
            column.extend(values)

    @property
    def since_ns(self) -> int:
        """When the first op was issued; 0 if there is none."""
        issued = self._columns[_ISSUED]
        return max(0, issued[0]) if issued else 0

    def build(self, lost: int, marks: tuple[wire.Mark, ...] = ()) -> wire.History:
        """The history; `lost` ops in between could not be read."""
        return wire.History(
            tuple(self._signatures), tuple(self._sites), pack_rows(self._columns), lost,
            marks=marks, issuers=tuple(self._issuers),
        )  # fmt: skip

    def _look_up(self, kind: _Kind) -> _Known | None:
        """Returns what all ops of a kind share; None if these are not ops."""
        group, form, party, record, what, later, site = kind
        event, flags = bulk_read.event_and_flags(what)
        if event not in (Event.OP, Event.PSEUDO):
            return None
        later_flags, reduce = bulk_read.flags_and_reduce(later)
        signature = self._view.signature(OpKey(group, form, party, record), reduce)
        return (
            _place(self._signatures, signature),
            _place(self._sites, self._view.site(site)),
            flags | later_flags,
            int(event == Event.PSEUDO),
            _place(self._issuers, self._view.issuer(bulk_read.issuer_of(what))),
        )


def _are_possible(slots: bulk_read.Slots) -> bool:
    columns = slots.issued, slots.number, slots.thread
    return all(min(one, default=0) > -LONGEST and max(one, default=0) < LONGEST for one in columns)


def _place(table: dict[Value, int], value: Value | None) -> int:
    """Returns the place of a value from 1 on, adding it if new; 0 for None."""
    return 0 if value is None else table.setdefault(value, len(table) + 1)


def _took(issued: int, done: int) -> int:
    """How long an op took, in ns; negative if it failed, 0 while it is pending."""
    if not done or abs(done) < issued:  # an earlier time belongs to the slot's previous event
        return 0
    took = min(max(1, abs(done) - issued), LONGEST)
    return took if done > 0 else -took
