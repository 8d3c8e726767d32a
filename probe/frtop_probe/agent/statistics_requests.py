"""Answers what some ranks did within a window: rank by rank, a few hundred ops at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from typing import Final, TypeVar

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_statistics import ring_statistics
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.ring.rank_ranges import unfold
from frtop_probe.statistics.calls import SiteTable
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_probe.statistics.samples import MAX_SAMPLES
from frtop_probe.statistics.steps import MAX_STEPS

MAX_BYTES: Final = wire.MAX_MESSAGE // 4
"""Of an answer, about. Ranks that do not fit are left out, and can be asked for again."""
LIMIT: Final = 4096
"""Ops that are read of a rank without a recorder: all that are remembered of it."""
UNREAD: Final = "its Flight Recorder was not read yet"
NO_ENDS: Final = "when ops ended is not known"
Result = TypeVar("Result")


async def statistics_response(
    host: str, request: wire.StatisticsRequest, ranks: Sequence[TrackedRank]
) -> wire.StatisticsResponse:
    """What these ranks did, in the order in which they are asked for."""
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
    """Does the work while ticks and other requests get their turn; and how long it took, in ns."""
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
    """Returns what torch's Flight Recorder has of a rank: issue times, seldom ends, no steps."""
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
    """About how many bytes a rank takes in an answer."""
    durations = sum(len(call.durations) for call in one.calls)
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
    return 100 + 40 * len(one.modules) + 80 * len(one.calls) + 6 * durations + packed
