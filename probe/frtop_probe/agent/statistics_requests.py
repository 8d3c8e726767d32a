"""Answers requests for statistics: rank by rank, a few hundred ops at a time.

Slots of a ring stay in columns. Line and size are looked up only for rows of calls and for sampled
ops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar, cast

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_view import RingView
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.ring import bulk_read, marks
from frtop_probe.ring.layout import LONGEST, Event, Flag, MarkKind, StatusCell
from frtop_probe.ring.rank_ranges import unfold
from frtop_probe.ring.reader import OpKey, Ring
from frtop_probe.statistics.calls import CallKey, OpClass, OpFields, RankCalls, SiteTable
from frtop_probe.statistics.op_bytes import op_bytes
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_probe.statistics.samples import MAX_SAMPLES
from frtop_probe.statistics.steps import MAX_STEPS, StepEnd

MAX_BYTES: Final = wire.MAX_MESSAGE // 4
"""Approximate limit of an answer. Ranks that do not fit can be requested again."""
LIMIT: Final = 4096
"""Most ops of a rank without a recorder: all that are kept."""
UNREAD: Final = "its Flight Recorder has not been read yet"
NO_ENDS: Final = "end times of ops are unknown"
Result = TypeVar("Result")
_SPANS: Final = {
    MarkKind.FETCH: "fetch",
    MarkKind.FORWARD: "forward",
    MarkKind.BACKWARD: "backward",
    MarkKind.OPTIMIZER: "optimizer",
}
_Kind = tuple[int, ...]
"""Group, event and flags, later flags; with calls also form, position of sizes, site."""


async def statistics_response(
    host: str, request: wire.StatisticsRequest, ranks: Sequence[TrackedRank]
) -> wire.StatisticsResponse:
    """Returns the statistics of these ranks, in this order."""
    now = time.monotonic_ns()
    until = min(request.until_ns or now, now)
    window = Window(
        max(0, request.since_ns),
        until,
        request.calls,
        max(0, min(request.samples, MAX_SAMPLES)),
        max(0, min(request.steps, MAX_STEPS)),
    )
    sites = SiteTable()
    found: list[wire.RankStatistics] = []
    spent = size = 0
    unprepared = [rank for rank in ranks if isinstance(rank, UnpreparedRank)]
    await asyncio.gather(*(rank.read_first(LIMIT) for rank in unprepared))
    for rank in ranks:
        if isinstance(rank, RingRank):
            one, took = await _in_turns(ring_statistics(rank, window, sites, now))
        elif isinstance(rank, UnpreparedRank):
            one, took = await _in_turns(_unprepared_statistics(rank, window, sites, now))
        else:
            continue
        found.append(one)
        spent += took
        size += size_of(one)
        if size > MAX_BYTES:
            break
    return wire.StatisticsResponse(
        request.id, host, window.since_ns, until, tuple(found), tuple(sites.places), spent,
        tuple(sites.issuers),
    )  # fmt: skip


async def _in_turns(work: Generator[None, None, Result]) -> tuple[Result, int]:
    """Does the work in turns with ticks and other requests; also returns the ns it took."""
    spent = 0
    while True:
        begin = time.thread_time_ns()
        try:
            next(work)
        except StopIteration as end:
            return end.value, spent + time.thread_time_ns() - begin
        spent += time.thread_time_ns() - begin
        await asyncio.sleep(0)


def _unprepared_statistics(
    rank: UnpreparedRank, window: Window, sites: SiteTable, now_ns: int
) -> Generator[None, None, wire.RankStatistics]:
    """Returns what torch's Flight Recorder has on a rank: issue times, few end times, no steps."""
    flight = rank.flight
    if not flight.read_ns:
        return wire.RankStatistics(rank.key, now_ns, note=flight.note or UNREAD)
    sizes = {group.id: _members(group) for group in rank.full().groups}
    summary = RankSummary(window, now_ns)
    ops = flight.ops
    yield
    fields = fields_of(ops, summary.table, sites, lambda group: sizes.get(group, 0))
    summary.add(fields)
    from_ns = fields.issued[0] if fields.issued else now_ns
    note = flight.note if flight.note.startswith("not recorded") else f"{flight.note}; {NO_ENDS}"
    return summary.build(rank.key, from_ns, flight.lost, note)


def _members(group: wire.Group) -> int:
    try:
        return len(unfold(group.ranks))
    except ValueError:
        return 0


def size_of(one: wire.RankStatistics) -> int:
    """Returns roughly how many bytes a rank takes in an answer."""
    calls = 80 * len(one.rows.kind) + len(one.rows.durations) if one.rows is not None else 0
    columns = [
        column
        for sampled in one.samples
        for column in (sampled.number, sampled.issued_ns, sampled.took_ns, sampled.bytes,
                       sampled.call)
    ]  # fmt: skip
    if one.steps is not None:
        columns += [
            getattr(one.steps, name)
            for name in one.steps.__struct_fields__
            if isinstance(getattr(one.steps, name), wire.HistoryColumn)
        ]
    packed = sum(len(column.differences) + 16 for column in columns)
    return 100 + 40 * len(one.modules) + calls + packed


def ring_statistics(
    rank: RingRank, window: Window, sites: SiteTable, now_ns: int
) -> Generator[None, None, wire.RankStatistics]:
    """Returns the statistics of a rank, even one that has ended; yields to let others run."""
    ring = rank.ring
    ring.refresh()
    head = ring.cell(StatusCell.HEAD)
    oldest = ring.oldest(head)
    first = bulk_read.first_since(ring, oldest, head, window.since_ns)
    summary = RankSummary(window, now_ns)
    begin, steps_ns = first, 0
    if window.steps:
        steps_ns = _add_steps(ring, summary, window) or LONGEST
        begin = min(first, bulk_read.first_since(ring, oldest, head, steps_ns))
    reader = _FieldReader(rank.view, summary.table, sites, calls=window.calls)
    read = oldest_read = 0
    from_ns = max(window.since_ns, ring.header.monotonic_ns)
    for slots in bulk_read.slots(ring, begin, head):
        if not read and slots.issued and first == oldest > 1:
            from_ns = slots.issued[0]
        read += len(slots.sequence)
        oldest_read = oldest_read or next(iter(slots.sequence), 0)
        _add(summary, reader, slots, window, steps_ns)
        yield
    lost = max(0, head - (oldest_read or begin) + 1 - read)
    return summary.build(rank.key, from_ns, lost, "")


def _add(
    summary: RankSummary,
    reader: _FieldReader,
    slots: bulk_read.Slots,
    window: Window,
    steps_ns: int,
) -> None:
    """Adds slots; those before `steps_ns` do not matter for the steps."""
    slots, fields = reader.fields(slots)
    if not slots.issued:
        return
    if slots.issued[-1] >= steps_ns:
        summary.add_to_steps(fields)
    since, until = window.since_ns, window.until_ns
    if min(slots.issued) < since or max(slots.issued) >= until:
        slots, fields = reader.fields(slots.only([since <= at < until for at in slots.issued]))
    if slots.issued:
        summary.add_inside(fields, reader.resolver(slots))


def _add_steps(ring: Ring, summary: RankSummary, window: Window) -> int | None:
    """Adds ends and spans of the window's steps; returns the time in ns from which ops matter."""
    found = _marks(ring, window)
    ends = [row for row in found if row.kind is MarkKind.STEP and row.begin_ns < window.until_ns]
    inside = [place for place, row in enumerate(ends) if row.begin_ns >= window.since_ns]
    if not inside:
        return None
    # The step before the first one begins earlier: ops that it left pending may last into the
    # window.
    first = max(0, max(inside[0], len(ends) - window.steps) - 2)
    splitter, watched = summary.splitter, marks.watched(ring)
    for row in ends[first:]:
        splitter.add_end(StepEnd(row.number, row.begin_ns, row.thread, row.samples))
    since_ns = ends[first].begin_ns
    for row in found:
        name = _SPANS.get(row.kind)
        if name is not None and row.end_ns > since_ns:
            splitter.add_span(name, row.begin_ns, row.end_ns)
    splitter.fetches = MarkKind.FETCH in watched
    splitter.phases = MarkKind.BACKWARD in watched
    return since_ns


def _marks(ring: Ring, window: Window) -> list[marks.MarkRow]:
    """Returns the marks of the window and of the step before it, by start time."""
    since = window.since_ns
    for back in (window.until_ns - since, since):  # reads all marks only if no step is near
        found = marks.read_marks(ring, max(0, since - back))
        before = sum(row.kind is MarkKind.STEP and row.begin_ns < since for row in found)
        if before > 1 or not any(row.kind is MarkKind.STEP for row in found):
            break
    return found


class _FieldReader:
    """Turns slots into fields to sum up; looks up what many ops share only once."""

    def __init__(self, view: RingView, table: RankCalls, sites: SiteTable, *, calls: bool) -> None:
        self._view = view
        self._table = table
        self._sites = sites
        self._calls = calls
        self._known: dict[_Kind, OpClass | None] = {}
        self._full: dict[_Kind, OpClass | None] = {}

    def fields(self, slots: bulk_read.Slots) -> tuple[bulk_read.Slots, OpFields]:
        """Returns the slots that are ops, and their fields."""
        if self._calls:
            kinds: list[_Kind] = list(
                zip(slots.group, slots.what, slots.later, slots.form, slots.record, slots.site,
                    strict=True)
            )  # fmt: skip
        else:
            kinds = list(zip(slots.group, slots.what, slots.later, strict=True))
        known = self._known
        try:
            classes = [known[kind] for kind in kinds]
        except KeyError:  # few chunks have anything new
            for kind in dict.fromkeys(kinds):
                if kind not in known:
                    known[kind] = self._look_up(kind)
            classes = [known[kind] for kind in kinds]
        if None in classes or not _are_possible(slots):
            is_op = [
                one is not None and 0 <= issued < LONGEST and 0 <= number < LONGEST
                for one, issued, number in zip(classes, slots.issued, slots.number, strict=True)
            ]
            slots = slots.only(is_op)
            classes = [one for one, right in zip(classes, is_op, strict=True) if right]
        took = [
            done - issued or 1 if done >= issued > 0 else 0 if done > -issued else -1
            for issued, done in zip(slots.issued, slots.done, strict=True)
        ]
        ops = cast("list[OpClass]", classes)
        waited = bulk_read.waited(slots)
        return slots, OpFields(ops, slots.number, slots.issued, took, slots.thread, waited)

    def resolver(self, slots: bulk_read.Slots) -> Callable[[int], OpClass] | None:
        """Returns a function from a place to the full class of its op; None if all are full."""
        if self._calls:
            return None

        def resolve(place: int) -> OpClass:
            kind = (slots.group[place], slots.what[place], slots.later[place], slots.form[place],
                    slots.record[place], slots.site[place])  # fmt: skip
            if kind not in self._full:
                self._full[kind] = self._look_up(kind)
            found = self._full[kind]
            assert found is not None
            return found

        return resolve

    def _look_up(self, kind: _Kind) -> OpClass | None:
        """Returns what all ops of a kind share; None if these are not ops."""
        group, what, later, *rest = kind
        event, flags = bulk_read.event_and_flags(what)
        if event != Event.OP:
            return None
        flags |= bulk_read.flags_and_reduce(later)[0]
        call = size = 0
        module = None
        p2p, late = bool(flags & Flag.P2P), bool(flags & Flag.LATE)
        if rest:
            form, record, site = rest
            view = self._view
            signature = view.signature(OpKey(group, form, 0, record), None)
            found = op_bytes(signature, len(view.members(group))) if signature is not None else 0
            size = min(found or 0, LONGEST)
            name = signature.kind if signature is not None else ""
            device = bool(flags & Flag.DEVICE)
            place = self._sites.place(view.site(site))
            module = self._sites.module(view.issuer(bulk_read.issuer_of(what)), name)
            call = self._table.place(CallKey(name, group, place, size.bit_length(), p2p, device))
        tracked = not flags & Flag.UNTRACKED
        return OpClass(
            call,
            group,
            collective=not p2p,
            size=size,
            exact=tracked and not late,
            late=tracked and late,
            sync=bool(flags & Flag.SYNC),
            module=module,
            message=p2p and not flags & Flag.DEVICE,
        )


def _are_possible(slots: bulk_read.Slots) -> bool:
    columns = slots.issued, slots.number
    return all(min(one, default=0) >= 0 and max(one, default=0) < LONGEST for one in columns)
