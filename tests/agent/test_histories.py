"""What a ring still has: the same by field as it is read event by event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent.histories import history
from frtop_probe.agent.ring_view import RingView
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.layout import Event, Flag, MarkKind, Side, StatusCell
from frtop_probe.ring.reader import Ring
from frtop_tui.files.histories import ops_of
from history_rows import rows_of


@pytest.fixture
def builder(tmp_path: Path) -> RingBuilder:
    builder = RingBuilder(tmp_path)
    builder.standard_tables()
    builder.add_signature(2, "broadcast", inputs=[7], root=3)
    builder.add_entry(Side.SITE, 2, ["/srv/train.py", 40, "train"])
    return builder


def ring_rank(builder: RingBuilder) -> Any:
    """As much of a rank with a recorder as a history needs."""
    ring = Ring(builder.path)
    return SimpleNamespace(ring=ring, view=RingView(ring))


def read(builder: RingBuilder, limit: int = 0) -> wire.History:
    return asyncio.run(history(ring_rank(builder), limit))


def facts(op: wire.Op) -> wire.Op:
    """The op without what histories do not hold; what took no time took one ns."""
    done_ns = max(op.done_ns, op.issued_ns + 1) if op.done_ns else 0
    return replace(op, done_ns=done_ns, usual_ns=0, usual_count=0)


@pytest.mark.parametrize("count", [1, 7, 512, 600, 1500])
def test_a_history_is_what_is_read_event_by_event(builder: RingBuilder, count: int) -> None:
    for n in range(count):
        if n % 50 == 9:
            builder.pseudo("new_group")
        flags = (Flag.SYNC, Flag.P2P, Flag.UNTRACKED, Flag.DEVICE | Flag.ENQUEUED)[n % 4]
        builder.op(signature=1 + n % 2, site=1 + n % 4 // 2, flags=flags, done=n % 5 != 0)
    slots = builder.shape.slots
    found = read(builder)
    for limit in (slots, 5):
        expected, _ = ring_rank(builder).view.ops(limit)
        assert ops_of(read(builder, limit)) == tuple(map(facts, expected))
    assert (len(rows_of(found)), found.lost) == (min(builder.sequence, slots), 0)
    assert len(found.signatures) <= 3
    assert len(found.sites) <= 2


def test_failed_pending_and_outdated_ends(builder: RingBuilder) -> None:
    times = {"done": 900, "failed": -900, "pending": 0, "before": 100, "failed before": -100,
             "at once": 500}  # fmt: skip
    for number, done in enumerate(times.values(), 1):
        builder.write_slot(number, 500, number, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0, done_ns=done)
    assert [row.took_ns for row in rows_of(read(builder))] == [400, -400, 0, 0, 0, 1]


@pytest.mark.parametrize(("done", "wait", "later", "waited"), [
    (900, 600, Flag(0), 300),
    (900, 500, Flag(0), 400),  # at once
    (900, 600, Flag.ELSEWHERE, 0),
    (900, 400, Flag(0), 0),  # of the op that was there before
    (900, -800, Flag(0), 0),  # given up
    (900, 0, Flag(0), 0),
    (0, 600, Flag(0), 0),  # goes on
    (-900, 600, Flag(0), 0),  # failed
])  # fmt: skip
def test_how_long_the_thread_of_an_op_waited_is_kept(
    builder: RingBuilder, done: int, wait: int, later: Flag, waited: int
) -> None:
    builder.write_slot(
        1, 500, 1, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0, done_ns=done, wait_ns=wait, later=later
    )
    found = read(builder)
    assert [row.waited_ns for row in rows_of(found)] == [waited]
    (op,) = ops_of(found)
    assert op.wait_ns == (op.done_ns - waited if waited else 0)


def test_what_is_being_written_is_lost(builder: RingBuilder) -> None:
    for _ in range(6):
        builder.op(done=True)
    builder.map[builder._slot(4)] ^= 0xFF  # torn
    builder.map[builder._slot(5) + 8] ^= 0xFF
    builder.cells[StatusCell.HEAD] = builder.sequence
    found = read(builder)
    assert ([row.sequence for row in rows_of(found)], found.lost) == ([1, 2, 3, 6], 2)


@pytest.mark.parametrize("limit", [0, 5, 5000])
def test_what_was_overwritten_is_not_lost(builder: RingBuilder, limit: int) -> None:
    for _ in range(600):
        builder.op(done=True)
    slots = builder.shape.slots
    builder.map[builder._slot(600 - slots + 1)] ^= 0xFF  # a newer op is written there
    found = read(builder, limit)
    assert (len(rows_of(found)), found.lost) == (min(limit or slots, slots - 1), 0)
    assert ring_rank(builder).view.ops(limit or slots)[1] == 0


def test_marks_of_the_time_of_the_ops_are_in_a_history(builder: RingBuilder) -> None:
    builder.add_entry(Side.NOTE, 1, "checkpoint written")
    for n in range(1, 4):
        builder.write_slot(n, 100 * n, n, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0, done_ns=100 * n + 5)
    builder.mark(MarkKind.STEP, 50, 50, 6)  # before the first of the ops
    builder.mark(MarkKind.FETCH, 90, 160, 2)
    builder.mark(MarkKind.STEP, 250, 250, 7)
    builder.mark(MarkKind.NOTE, 260, 260, 1)
    builder.mark(MarkKind.BACKWARD, 270, 0, 8)
    step, note, lasting = (
        wire.Mark("step", 250, 250, 7),
        wire.Mark("note", 260, 260, 0, "checkpoint written"),
        wire.Mark("backward", 270, 0, 8),
    )
    assert read(builder).marks == (wire.Mark("fetch", 90, 160), step, note, lasting)
    assert read(builder, 2).marks == (step, note, lasting)
    rank = ring_rank(builder)
    assert [op.sequence for op in rank.view.ops(8)[0]] == [1, 2, 3]
    assert rank.ring.ops() == 0  # of the rows of groups: no mark counts


def test_a_rank_without_ops_has_its_marks(builder: RingBuilder) -> None:
    assert read(builder) == wire.History()
    builder.mark(MarkKind.FETCH, 90, 0)
    assert read(builder).marks == (wire.Mark("fetch", 90, 0),)


def test_values_that_are_impossible_are_left_out(builder: RingBuilder) -> None:
    """Rings are memory of another process: a damaged one may hold anything."""
    for number, (issued, counted, thread) in enumerate(
        [(5, 1, 1), (2**63 - 1, 1, 1), (-(2**63), 1, 1), (5, 2**64 - 1, 1), (5, 2**63, 1),
         (5, 1, 2**63 + 7), (6, 2, 2)], 1,
    ):  # fmt: skip
        builder.write_slot(number, issued, counted, thread, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0,
                           done_ns=2**62 - 1)  # fmt: skip
    builder.write_slot(8, 5, 1, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0, done_ns=2**63 - 1)
    assert {1, 7} <= {row.sequence for row in rows_of(read(builder))} <= {1, 4, 7}


def test_a_slot_of_an_unknown_kind_is_no_op(builder: RingBuilder) -> None:
    builder.write_slot(1, 5, 1, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0)
    assert read(builder).columns is None
    assert layout.SLOT_SIZE % 8 == 0  # slots are read as words


def test_what_the_rank_overwrites_meanwhile_is_there_all_the_same(builder: RingBuilder) -> None:
    """The agent pauses while it builds a history, and the rank goes on."""
    slots = builder.shape.slots
    for _ in range(slots):
        builder.op(done=True)
    ring = Ring(builder.path)
    chunks = bulk_read.slots(ring, 1, slots)
    found = [*next(chunks).sequence]
    for _ in range(slots):
        builder.op(done=True)
    for chunk in chunks:
        found += chunk.sequence
    assert found == list(range(1, slots + 1))
    assert [*bulk_read.slots(ring, 2**62, 2**62 - 1)] == []
