"""The reader returns each event completely and in order, or not at all."""

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
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import Event, Flag, MarkKind, Shape, Side, StatusCell
from frtop_probe.ring.marks import read_marks
from frtop_probe.ring.reader import OpKey, Ring
from waiting import wait_for

TINY = Shape(groups=4, sites=8, overflow=4, slots=16, chunks=32, marks=8, side=80 * 1024)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnRing:
    monkeypatch.setattr(layout, "FULL", TINY)
    return create([tmp_path])


def issue(writer: OwnRing, pending: PendingOps | None = None, number: int = 1) -> int:
    sequence = writer.next_sequence()
    if pending is not None:
        pending.open[sequence] = 1
    now = time.monotonic_ns()
    body = layout.SLOT_BODY.pack(sequence, now, number, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0)
    writer.write_slot(sequence, body)
    return sequence


def test_sections_are_aligned_and_have_the_documented_sizes() -> None:
    assert layout.SLOT.size % 8 == 0
    assert layout.GROUP_ROW.size == 128
    assert layout.SITE_ROW.size == 32
    assert layout.HEADER.size <= layout.HEADER_SIZE
    for shape in (layout.FULL, layout.SMALL, TINY):
        offsets = (
            shape.sites_offset, shape.overflow_offset, shape.slots_offset, shape.side_offset
        )  # fmt: skip
        assert all(offset % 8 == 0 for offset in offsets)
    assert layout.FULL.size <= 3 * 1024 * 1024


def test_the_header_is_read_back(writer: OwnRing) -> None:
    writer.set_recorder_tid(4711)
    ring = Ring(writer.path)
    assert ring.header.pid == os.getpid()
    header = ring.header
    assert f"{header.pid}-{header.start_ticks}-{header.pid_namespace}.ring" == writer.path.name
    assert ring.header.main_ident == threading.main_thread().ident
    assert ring.recorder_tid == 4711
    assert ring.header.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert abs(ring.header.wall_ns - time.time_ns()) < 60e9
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert (ring.cell(StatusCell.RANK), ring.cell(StatusCell.OLDEST)) == (-1, 1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:100], "is not a ring"),
        (lambda data: b"\0" * 8 + data[8:], "not a ring"),
        (lambda data: data[:8] + b"\x63" + data[9:], "version 99"),
        (lambda data: data[:8] + bytes(4) + data[12:], "not completely created"),
        (lambda data: data[:-8], "do not add up"),
        (lambda data: data + bytes(9 * 1024 * 1024), "is not a ring"),
    ],
)
def test_a_damaged_file_is_refused(writer: OwnRing, damage: Any, reason: str) -> None:
    broken = writer.path.with_name("1-1.ring")
    broken.write_bytes(damage(writer.path.read_bytes()))
    with pytest.raises(RingError, match=reason):
        Ring(broken)


@given(st.lists(st.sampled_from(["issue", "finish", "spill", "fail"]), max_size=120))
def test_pending_ops_are_found_after_the_history_has_wrapped(
    tmp_path: Path, actions: list[str]
) -> None:
    """Reader and writer agree on the pending ops, except those counted as lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FULL", TINY)
        writer = create([tmp_path])
    pending = PendingOps(writer)
    ring = Ring(writer.path)
    for action in actions:
        if action == "issue":
            sequence = issue(writer, pending)
            if not sequence & (TINY.slots // 8 - 1):  # as the hook does
                pending.overflow.spill()
        elif action == "spill":
            pending.overflow.spill()
        elif pending.open:
            sequence = list(pending.open)[len(pending.open) // 2]
            entry = (None, sequence, time.monotonic_ns(), 0, 1, True, None, None)
            pending.finish(entry, time.monotonic_ns(), action == "fail")
        assert [row.sequence for row in ring.pending()] == sorted(pending.open)
    issued = writer.cells[StatusCell.HEAD]
    rows, lost = ring.events(0, 1000)
    assert [row.sequence for row in rows] == list(range(max(1, issued - 15), issued + 1))
    assert lost == max(0, issued - 16)
    ring.close()


@given(st.integers(0, 60), st.integers(0, 70), st.integers(1, 20))
def test_events_and_lost_events_add_up(tmp_path: Path, issued: int, since: int, limit: int) -> None:
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


def test_the_side_table_reserves_room_for_exceptions_and_notes(writer: OwnRing) -> None:
    ring = Ring(writer.path)
    number = 0
    while writer.write_entry(Side.FORM, number + 1, {"kind": "x" * 200}):
        number += 1
    assert writer.write_entry(Side.EXCEPTION, 1, {"kind": "ValueError"})
    writer.write_note("the table is full")
    ring.refresh()
    assert len(ring.forms) == number
    assert ring.exceptions == [{"kind": "ValueError"}]
    assert ring.notes == {1: "the table is full"}
    assert ring.events(0, 9) == ([], 0)
    assert [(row.kind, row.number) for row in read_marks(ring)] == [(MarkKind.NOTE, 1)]


def test_a_rank_that_ends_while_it_writes_the_side_table_anew_keeps_what_was_read(
    writer: OwnRing,
) -> None:
    writer.write_entry(Side.EXCEPTION, 1, {"kind": "ValueError"})
    writer.write_entry(Side.GROUP, 1, {"name": "world"})
    ring = Ring(writer.path)
    writer.cells[StatusCell.SIDE_USED] = 0
    writer.cells[StatusCell.SIDE_VERSION] += 1
    for _ in range(2):
        ring.refresh()
        assert ring.exceptions == [{"kind": "ValueError"}]
        assert ring.groups == {1: {"name": "world"}}


@given(st.binary(min_size=16, max_size=300), st.integers(0, 400))
def test_a_damaged_side_table_does_not_hide_events_or_raise(
    writer: OwnRing, noise: bytes, at: int
) -> None:
    writer.map[TINY.side_offset + at : TINY.side_offset + at + len(noise)] = noise
    writer.cells[StatusCell.SIDE_USED] = at + len(noise)
    issue(writer)
    ring = Ring(writer.path)
    ring.refresh()
    assert ring.events(0, 5)[0]
    ring.close()


@given(st.binary(min_size=layout.SLOT_SIZE, max_size=layout.SLOT_SIZE))
def test_noise_in_a_slot_is_dropped_or_read_but_never_raises(writer: OwnRing, noise: bytes) -> None:
    writer.cells[StatusCell.HEAD] = 3
    at = TINY.slots_offset + 3 * layout.SLOT_SIZE
    body = noise[: layout.SLOT_BODY.size]
    rest = noise[layout.SLOT_BODY.size + 4 :]
    writer.map[at : at + layout.SLOT_SIZE] = body + crc32(body).to_bytes(4, "little") + rest
    ring = Ring(writer.path)
    ring.pending()
    ring.events(0, 16)
    ring.close()


def test_a_deeply_nested_entry_is_skipped(writer: OwnRing) -> None:
    text = b"[" * 10_000
    entry = layout.SIDE_ENTRY.pack(len(text), Side.NOTE, 0, 1, crc32(text)) + text
    at = writer.shape.side_offset
    writer.map[at : at + len(entry)] = entry
    writer.cells[StatusCell.SIDE_USED] = len(entry)
    with pytest.raises(RecursionError):
        json.loads(text)
    assert Ring(writer.path).notes == {}


def test_untracked_ops_are_pending_only_during_their_call(writer: OwnRing) -> None:
    pending, ring = PendingOps(writer), Ring(writer.path)
    sequence = issue(writer, pending)
    assert [row.sequence for row in ring.pending()] == [sequence]
    pending.untrack(sequence)
    assert ring.pending() == []
    (row,) = ring.events(0, 1)[0]
    assert (row.flags, row.done_ns) == (Flag.UNTRACKED, 0)


def test_ops_that_do_not_fit_into_the_overflow_are_counted(writer: OwnRing) -> None:
    pending = PendingOps(writer)
    for _ in range(30):
        issue(writer, pending)
        pending.overflow.spill()
    assert len(Ring(writer.path).pending()) + writer.cells[StatusCell.PENDING_LOST] == 30
    assert writer.cells[StatusCell.PENDING_LOST] > 0


WRITERS = """
    import sys, threading
    from pathlib import Path
    from frtop_probe.recorder.own_ring import create
    from frtop_probe.ring import layout
    layout.FULL = layout.Shape(
        groups=4, sites=8, overflow=4, slots=16, chunks=32, marks=8, side=80 * 1024
    )
    writer = create([Path(sys.argv[1])])
    stopped = threading.Event()
    def issue():
        while not stopped.is_set():
            n = writer.next_sequence()
            body = layout.SLOT_BODY.pack(n, n, n, n, n % 4, n % 7, n % 5, 0, n % 3, 0, 0, 0, n)
            writer.write_slot(n, body)
            writer.marks.instant(layout.MarkKind.STEP, n)
    threads = [threading.Thread(target=issue) for _ in range(2)]
    print("writing", flush=True)
    [thread.start() for thread in threads]
    sys.stdin.read()
    stopped.set()
    [thread.join() for thread in threads]
"""


def test_no_torn_read_while_threads_write(tmp_path: Path) -> None:
    """Every field of a slot is its sequence number, so that a torn slot is visible."""
    arguments = [sys.executable, "-c", textwrap.dedent(WRITERS), str(tmp_path)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        (path,) = tmp_path.glob("*.ring")
        ring = Ring(path)
        assert ring.writer_lives()
        seen = previous = 0

        def is_enough() -> bool:
            nonlocal seen, previous
            for row in ring.events(previous, 16)[0]:
                n = row.sequence
                assert (row.issued_ns, row.number, row.thread) == (n, n, n)
                assert (row.key, row.site) == (OpKey(n % 4, n % 7, n % 3, n), n % 5)
                seen, previous = seen + 1, n
            for words in bulk_read.words(ring, previous - 8, previous):
                number = words[0]
                assert not words[-1] or words[1] == words[2] == words[5] == number
            for slots in bulk_read.slots(ring, max(1, previous - 8), previous):
                assert slots.sequence == slots.issued == slots.number == slots.thread
                assert slots.record == slots.sequence
            for mark in read_marks(ring):
                assert mark.begin_ns == mark.end_ns
            return seen >= 3000

        wait_for(is_enough, lambda: f"3000 events; there are {seen}", seconds=60, pause_s=0)
    assert not ring.writer_lives()


def test_pending_ops_are_found_across_the_end_of_the_slots(writer: OwnRing) -> None:
    slots = writer.shape.slots
    unfinished = {slots + 1, slots + 3, 2 * slots - 1, 2 * slots, 2 * slots + 4}
    for number in range(1, 2 * slots + 6):
        sequence = issue(writer, number=number)
        if sequence not in unfinished:
            at = writer.shape.slots_offset + sequence % slots * layout.SLOT_SIZE
            writer.words[(at + layout.SLOT_DONE) // 8] = time.monotonic_ns()
    ring = Ring(writer.path)
    for oldest in (1, slots + 2, 2 * slots, 2 * slots + 5):
        writer.cells[StatusCell.OLDEST] = oldest
        first = max(oldest, slots + 6)
        assert {row.sequence for row in ring.pending()} == {n for n in unfinished if n >= first}
    ring.close()


def test_the_old_ring_of_a_program_that_replaced_itself_stays_readable(tmp_path: Path) -> None:
    old = Ring(create([tmp_path]).path)
    new = Ring(create([tmp_path]).path)
    assert old.cell(StatusCell.HEAD) == new.cell(StatusCell.HEAD) == 0
    assert [path.name for path in tmp_path.iterdir()] == [new.path.name]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever owns the folder may put one there between the listing and the reading."""
    os.mkfifo(tmp_path / "1-1.ring")
    with pytest.raises(RingError):
        Ring(tmp_path / "1-1.ring")
