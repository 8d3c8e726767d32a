"""What a writer leaves is what a reader finds: whole, in order, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.writer import Writer, create
from frtop_probe.ring import layout
from frtop_probe.ring.fold import fold, unfold
from frtop_probe.ring.layout import Cell, Event, Flag, Shape, Side
from frtop_probe.ring.reader import Ring, RingError

TINY = Shape(groups=4, sites=8, leftovers=4, slots=16, side=80 * 1024)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setattr(layout, "FULL", TINY)
    return create([tmp_path])


def issue(writer: Writer, pending: Pending | None = None, number: int = 1) -> int:
    sequence = writer.next_sequence()
    at = writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE
    if pending is not None:
        pending.open[sequence] = 1
    layout.SLOT.pack_into(
        writer.map,
        at,
        sequence,
        time.monotonic_ns(),
        0,
        number,
        1,
        1,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
        sequence,
    )
    writer.reach(sequence)
    return sequence


def test_sizes_are_what_the_layout_says() -> None:
    assert layout.SLOT.size % 8 == 0
    assert layout.GROUP_ROW.size == 64
    assert layout.SITE_ROW.size == 32
    assert layout.IDENTITY.size <= layout.IDENTITY_SIZE
    for shape in (layout.FULL, layout.SMALL, TINY):
        offsets = (
            shape.sites_offset, shape.leftovers_offset, shape.slots_offset, shape.side_offset
        )  # fmt: skip
        assert all(offset % 8 == 0 for offset in offsets)
    assert layout.FULL.size <= 2 * 1024 * 1024


def test_the_birth_is_read_back(writer: Writer) -> None:
    writer.name_thread(4711)
    ring = Ring(writer.path)
    assert ring.birth.pid == os.getpid()
    birth = ring.birth
    assert f"{birth.pid}-{birth.start_ticks}-{birth.pid_namespace}.ring" == writer.path.name
    assert ring.birth.main_ident == threading.main_thread().ident
    assert ring.recorder_tid == 4711
    assert ring.birth.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert abs(ring.birth.wall_ns - time.time_ns()) < 60e9
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert (ring.cell(Cell.RANK), ring.cell(Cell.OLDEST)) == (-1, 1)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:100], "is no ring"),
        (lambda data: b"\0" * 8 + data[8:], "not a ring"),
        (lambda data: data[:8] + b"\x63" + data[9:], "version 99"),
        (lambda data: data[:-8], "do not add up"),
        (lambda data: data + bytes(9 * 1024 * 1024), "is no ring"),
    ],
)
def test_what_is_no_ring_is_refused(writer: Writer, damage: Any, says: str) -> None:
    broken = writer.path.with_name("1-1.ring")
    broken.write_bytes(damage(writer.path.read_bytes()))
    with pytest.raises(RingError, match=says):
        Ring(broken)


@given(st.lists(st.sampled_from(["issue", "finish", "advance", "fail"]), max_size=120))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pending_ops_are_found_however_far_the_history_has_moved_on(
    tmp_path: Path, acts: list[str]
) -> None:
    """The reader's list of pending ops is the writer's, but for those counted as lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FULL", TINY)
        writer = create([tmp_path])
    pending = Pending(writer)
    ring = Ring(writer.path)
    for act in acts:
        if act == "issue":
            sequence = issue(writer, pending)
            if not sequence & (TINY.slots // 8 - 1):  # as the hook does
                pending.advance()
        elif act == "advance":
            pending.advance()
        elif pending.open:
            sequence = list(pending.open)[len(pending.open) // 2]
            entry = (None, sequence, time.monotonic_ns(), 0, 1, True, None, None)
            pending.finish(entry, time.monotonic_ns(), act == "fail")
        assert [row.sequence for row in ring.pending()] == sorted(pending.open)
    issued = writer.cells[Cell.HEAD]
    rows, lost = ring.events(0, 1000)
    assert [row.sequence for row in rows] == list(range(max(1, issued - 15), issued + 1))
    assert lost == max(0, issued - 16)
    ring.close()


@given(st.integers(0, 60), st.integers(0, 70), st.integers(1, 20))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_events_and_losses_add_up(tmp_path: Path, issued: int, since: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FULL", TINY)
        writer = create([tmp_path])
    for number in range(1, issued + 1):
        issue(writer, number=number)
    ring = Ring(writer.path)
    rows, lost = ring.events(since, limit)
    assert all(row.number == row.sequence for row in rows)
    assert len(rows) + lost == max(0, min(issued - since, limit))
    assert [row.sequence for row in rows] == sorted(row.sequence for row in rows)
    ring.close()


def test_the_side_table_keeps_room_for_what_matters(writer: Writer) -> None:
    ring = Ring(writer.path)
    number = 0
    while writer.enter(Side.SIGNATURE, number + 1, {"kind": "x" * 200}):
        number += 1
    assert writer.enter(Side.EXCEPTION, 1, {"kind": "ValueError"})
    writer.note("the table is full")
    ring.refresh()
    assert len(ring.signatures) == number
    assert ring.exceptions == [{"kind": "ValueError"}]
    assert ring.notes == {1: "the table is full"}
    assert [row.event for row in ring.events(0, 9)[0]] == [Event.NOTE]


@given(st.binary(min_size=16, max_size=300), st.integers(0, 400))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_side_table_hides_nothing_else_and_never_raises(
    writer: Writer, noise: bytes, at: int
) -> None:
    writer.map[TINY.side_offset + at : TINY.side_offset + at + len(noise)] = noise
    writer.cells[Cell.SIDE_USED] = at + len(noise)
    issue(writer)
    ring = Ring(writer.path)
    ring.refresh()
    assert ring.events(0, 5)[0]
    ring.close()


@given(st.binary(min_size=layout.SLOT_SIZE, max_size=layout.SLOT_SIZE))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_in_a_slot_is_dropped_or_read_but_never_raises(writer: Writer, noise: bytes) -> None:
    writer.cells[Cell.HEAD] = 3
    at = TINY.slots_offset + 3 * layout.SLOT_SIZE
    writer.map[at : at + layout.SLOT_SIZE] = noise[:-8] + noise[:8]
    ring = Ring(writer.path)
    ring.pending()
    ring.events(0, 16)
    ring.close()


def test_an_entry_nested_without_end_hides_nothing_else(writer: Writer) -> None:
    text = b"[" * 10_000
    entry = layout.SIDE_ENTRY.pack(len(text), Side.NOTE, 0, 1) + text
    at = writer.shape.side_offset
    writer.map[at : at + len(entry)] = entry
    writer.cells[Cell.SIDE_USED] = len(entry)
    with pytest.raises(RecursionError):
        json.loads(text)
    assert Ring(writer.path).notes == {}


def test_untracked_ops_are_pending_only_inside_their_call(writer: Writer) -> None:
    pending, ring = Pending(writer), Ring(writer.path)
    sequence = issue(writer, pending)
    assert [row.sequence for row in ring.pending()] == [sequence]
    pending.untrack(sequence)
    assert ring.pending() == []
    (row,) = ring.events(0, 1)[0]
    assert (row.flags, row.done_ns) == (Flag.UNTRACKED, 0)


def test_when_the_leftovers_are_full_the_loss_is_counted(writer: Writer) -> None:
    pending = Pending(writer)
    for _ in range(30):
        issue(writer, pending)
        pending.advance()
    assert len(Ring(writer.path).pending()) + writer.cells[Cell.PENDING_LOST] == 30
    assert writer.cells[Cell.PENDING_LOST] > 0


WRITERS = """
    import sys, threading, time
    from pathlib import Path
    from frtop_probe.recorder.writer import create
    from frtop_probe.ring import layout
    layout.FULL = layout.Shape(groups=4, sites=8, leftovers=4, slots=16, side=80 * 1024)
    writer = create([Path(sys.argv[1])])
    end = time.monotonic() + float(sys.argv[2])
    def issue():
        while time.monotonic() < end:
            n = writer.next_sequence()
            at = writer.shape.slots_offset + n % 16 * layout.SLOT_SIZE
            slot = (n, n, n, n, n, n % 4, n % 7, n % 5, 0, 0, 0, 0, 0, n)
            layout.SLOT.pack_into(writer.map, at, *slot)
            row = (n, n, n, n, n, 0, 0, n)
            layout.GROUP_ROW.pack_into(writer.map, layout.GROUPS_OFFSET + 64, *row)
            writer.reach(n)
    threads = [threading.Thread(target=issue) for _ in range(2)]
    print("writing", flush=True)
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_no_torn_read_while_threads_write(tmp_path: Path) -> None:
    """Every field of a slot is its sequence number, so that half of another one shows."""
    arguments = [sys.executable, "-c", textwrap.dedent(WRITERS), str(tmp_path), "1.5"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        (path,) = tmp_path.glob("*.ring")
        ring = Ring(path)
        assert ring.writer_lives()
        seen = previous = 0
        while process.poll() is None:
            for row in ring.events(previous, 16)[0]:
                n = row.sequence
                assert (row.issued_ns, row.number, row.thread) == (n, n, n)
                assert (row.group, row.signature, row.site) == (n % 4, n % 7, n % 5)
                seen, previous = seen + 1, n
            for front in ring.group_rows():
                assert front.number == front.p2p == front.sequence == front.issued_ns
    assert seen > 1000
    assert not ring.writer_lives()


@given(st.sets(st.integers(0, 300)))
def test_folding_is_undone_by_unfolding(ranks: set[int]) -> None:
    assert unfold(fold(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize("text", ["3-1", "a", "0-99999999", "1--2"])
def test_what_is_no_list_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        unfold(text)


def test_pending_ops_are_found_in_a_wrapped_history(writer: Writer) -> None:
    slots = writer.shape.slots
    still = {slots + 1, slots + 3, 2 * slots - 1, 2 * slots, 2 * slots + 4}
    for number in range(1, 2 * slots + 6):
        sequence = issue(writer, number=number)
        if sequence not in still:
            at = writer.shape.slots_offset + sequence % slots * layout.SLOT_SIZE
            writer.map[at + layout.SLOT_DONE] = 1
    ring = Ring(writer.path)
    for oldest in (1, slots + 2, 2 * slots, 2 * slots + 5):
        writer.cells[Cell.OLDEST] = oldest
        kept = max(oldest, slots + 6)
        assert {row.sequence for row in ring.pending()} == {n for n in still if n >= kept}
    ring.close()


def test_a_program_that_replaced_itself_leaves_the_old_ring_readable(tmp_path: Path) -> None:
    old = Ring(create([tmp_path]).path)
    new = Ring(create([tmp_path]).path)
    assert old.cell(Cell.HEAD) == new.cell(Cell.HEAD) == 0
    assert [path.name for path in tmp_path.iterdir()] == [new.path.name]
