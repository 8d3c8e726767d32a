"""An agent tells of a ring what a file of the same ops would."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.statistics_requests import (
    MAX_BYTES,
    ring_statistics,
    size_of,
    statistics_response,
)
from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import Event, Flag, MarkKind, Side, StatusCell
from frtop_probe.ring.reader import Ring
from frtop_probe.statistics.calls import SiteTable
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_tui.statistics.answers import RankAnswer
from job_statistics.ranks import MS, S, calls_of

FULL = Window(0, 2**60, calls=True, samples=64, steps=100)


@pytest.fixture
def builder(tmp_path: Path) -> RingBuilder:
    builder = RingBuilder(tmp_path)
    builder.standard_tables()
    builder.add_signature(2, "all_gather_into_tensor", inputs=[1024], outputs=[8192])
    builder.add_entry(Side.SITE, 2, ["/srv/train.py", 40, "train"])
    return builder


def rank_of(builder: RingBuilder) -> RingRank:
    return RingRank(3, Ring(builder.path), lives=True, pidfd=None)


def write(builder: RingBuilder, event: int, issued: int, number: int, **fields: Any) -> None:
    """A slot with any times; `done`, `flags`, `form`, `group` and `site` as needed."""
    builder.sequence += 1
    form = fields.get("form", 1)
    _, party, position = builder.signatures.get(form, (form, 0, 0))
    builder.write_slot(
        builder.sequence, issued, number, fields.get("thread", 1), fields.get("group", 1), form,
        fields.get("site", 1), 0, party, event, fields.get("flags", Flag(0)), 0, position,
        done_ns=fields.get("done", 0), wait_ns=fields.get("wait", 0),
        later=fields.get("later", 0), reduce=1,
    )  # fmt: skip


def told(builder: RingBuilder, window: Window) -> tuple[wire.RankStatistics, SiteTable]:
    sites = SiteTable()
    rank = rank_of(builder)
    work = ring_statistics(rank, window, sites, 2**60)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: wire.RankStatistics = end.value
            return found, sites


def as_file(builder: RingBuilder, window: Window) -> wire.RankStatistics:
    """The same out of ops as objects."""
    view = rank_of(builder).view
    view.ring.refresh()
    ops, _ = view.ops(builder.shape.slots)
    sites = SiteTable()
    summary = RankSummary(window, 2**60)
    summary.add(fields_of(ops, summary.table, sites, lambda group: len(view.members(group))))
    return summary.build(3, 0, 0, "")


def many_ops(builder: RingBuilder, count: int) -> None:
    flags = (Flag.SYNC, Flag(0), Flag.UNTRACKED, Flag.DEVICE | Flag.ENQUEUED, Flag.P2P)
    for n in range(1, count + 1):
        issued = 10 * S + n * MS
        done = (issued + n % 9 * MS // 4 + 1, issued + MS, 0, -issued - 5, issued)[n % 5]
        wait = (issued, done, issued + n % 5 * MS // 4, -done, 0)[n % 11 % 5]
        write(builder, Event.OP, issued, n, done=done, wait=wait, flags=flags[n % 7 % 5],
              later=Flag.ELSEWHERE * (n % 6 == 1), form=1 + n % 2, site=1 + n % 4 // 2)  # fmt: skip
        if n % 50 == 9:
            write(builder, Event.PSEUDO, issued, 0)


@pytest.mark.parametrize("count", [1, 7, 400, 1300])
def test_a_ring_and_its_ops_give_the_same(builder: RingBuilder, count: int) -> None:
    many_ops(builder, count)
    window = FULL._replace(steps=0)
    found, _ = told(builder, window)
    expected = as_file(builder, window)
    assert found.rows == expected.rows
    assert found.samples == expected.samples
    slots = builder.shape.slots
    born = rank_of(builder).ring.header.monotonic_ns
    assert (found.from_ns == born) is (builder.sequence <= slots)


def test_a_window_cuts_what_is_told(builder: RingBuilder) -> None:
    many_ops(builder, 300)
    window = Window(10 * S + 100 * MS, 10 * S + 200 * MS, calls=True, samples=16)
    found, _ = told(builder, window)
    assert sum(one.count for one in calls_of(found)) == 100
    expected = as_file(builder, window)
    assert sorted(calls_of(found), key=repr) == sorted(calls_of(expected), key=repr)
    assert told(builder, Window(99 * S, 100 * S))[0].rows is None


def test_samples_alone_have_line_kind_and_size(builder: RingBuilder) -> None:
    many_ops(builder, 300)
    window = FULL._replace(calls=False, samples=8, steps=0)
    found, sites = told(builder, window)
    everything, _ = told(builder, FULL._replace(samples=8, steps=0))
    names = {(one.kind, one.size_class, one.p2p) for one in calls_of(found)}
    assert names <= {(one.kind, one.size_class, one.p2p) for one in calls_of(everything)}
    assert names
    assert all(one.count == 0 for one in calls_of(found))
    assert sites.places
    for some, full in zip(found.samples, everything.samples, strict=True):
        assert (some.number, some.took_ns, some.bytes) == (full.number, full.took_ns, full.bytes)


def test_steps_are_split_by_the_ops_in_them(builder: RingBuilder) -> None:
    for step in range(1, 40):
        begin = 10 * S + step * 100 * MS
        write(builder, Event.OP, begin + 10 * MS, step, done=begin + 30 * MS, flags=Flag.SYNC)
        write(builder, Event.OP, begin + 40 * MS, step, done=begin + 50 * MS, group=3,
              wait=begin + 41 * MS, later=Flag.ELSEWHERE)  # fmt: skip
        write(builder, Event.OP, begin + 90 * MS, step, done=begin + 115 * MS, group=2,
              wait=begin + 95 * MS)  # fmt: skip
        builder.mark(MarkKind.STEP, begin + 100 * MS, begin + 100 * MS, step)
        builder.mark(MarkKind.FETCH, begin + 2 * MS, begin + 5 * MS, 1)
    builder.cells[StatusCell.WATCHED] = 1 << MarkKind.FETCH
    since = 10 * S + 2000 * MS
    found, _ = told(builder, Window(since, 2**60, calls=False, samples=0, steps=10))
    steps = RankAnswer(0, "", 0, {}, found, ()).steps()
    assert [one.number for one in steps] == list(range(30, 40))
    assert {(one.took_ns, one.blocked_ns, one.data_ns) for one in steps} == {
        (100 * MS, 20 * MS + 15 * MS, 3 * MS)
    }
    # The wait of the step before ends in the first op of this one. Another thread keeps nobody.
    # What the step before left pending for 15 ms, together with the op at 10 ms; that of
    # the other thread; and the last 10.
    assert {one.pending_ns for one in steps} == {30 * MS + 10 * MS + 10 * MS}
    newest, _ = told(builder, Window(since, 2**60, calls=False, samples=0, steps=2))
    assert newest.steps is not None
    assert newest.steps.count == 2


def test_a_damaged_ring_tells_what_fits_the_wire(builder: RingBuilder) -> None:
    for n, value in enumerate((2**63 - 1, -(2**63), -1, 2**62, 5), 1):
        write(builder, Event.OP, value, n, done=2**63 - 1)
        write(builder, Event.OP, 5 * n, 2**64 - 1, done=-(2**63))
        builder.mark(MarkKind.STEP, min(abs(value), 2**63 - 1), n, n)
    found, sites = told(builder, FULL)
    response = wire.StatisticsResponse(1, "node0", 0, 1, (found,), tuple(sites.places))
    assert wire.decode_response(wire.from_frame(wire.to_frame(response))) == response


def test_an_answer_leaves_out_ranks_that_do_not_fit(
    builder: RingBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_ops(builder, 200)
    rank = rank_of(builder)
    request = wire.StatisticsRequest(4, (3,), samples=64, steps=5)
    found = asyncio.run(statistics_response("node0", request, [rank, rank, rank]))
    assert len(found.ranks) == 3
    assert found.cpu_ns > 0
    assert found.until_ns <= time.monotonic_ns()
    size = len(wire.to_frame(found)) / 3
    assert 0.5 < size_of(found.ranks[0]) / size < 4
    monkeypatch.setattr("frtop_probe.agent.statistics_requests.MAX_BYTES", 10)
    assert len(asyncio.run(statistics_response("n", request, [rank, rank])).ranks) == 1
    assert MAX_BYTES < wire.MAX_MESSAGE / 2


def test_the_first_event_of_a_window_is_found(builder: RingBuilder) -> None:
    many_ops(builder, 20)
    ring = Ring(builder.path)
    head = ring.cell(StatusCell.HEAD)
    for at, place in ((0, 1), (10 * S + 4 * MS, 4), (10 * S + 4 * MS + 1, 5), (99 * S, head + 1)):
        assert bulk_read.first_since(ring, 1, head, at) == place
