"""A ring that was made longer while its rank goes on: every event is found where it was written."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.recorder import own_ring
from frtop_probe.recorder.ops.pending import Overflow
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.layout import Event, Shape, StatusCell
from frtop_probe.ring.reader import MAX_SIZE, Ring
from waiting import wait_for

SLOTS, MORE, AHEAD = 16, 64, 5
FULL = layout.FULL
TINY = Shape(
    groups=4, sites=8, overflow=4, slots=SLOTS, chunks=32, marks=8, side=80 * 1024, more=MORE
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FULL", TINY)
    monkeypatch.setattr(own_ring, "AHEAD", AHEAD)


@pytest.fixture
def writer(tmp_path: Path) -> OwnRing:
    return create([tmp_path])


def issue(writer: OwnRing, count: int = 1, *, done: bool = True) -> int:
    """Issues some ops, at the time of their number; returns the last one."""
    for _ in range(count):
        sequence = writer.next_sequence()
        writer.write_slot(sequence, layout.SLOT_BODY.pack(
            sequence, sequence, sequence, 1, 1, 1, 1, 0, 0, Event.OP, 0, 0, 0
        ))  # fmt: skip
        if done:
            writer.words[(writer.slot_at(sequence) + layout.SLOT_DONE) // 8] = sequence
    return sequence


def kept(before: int, after: int) -> list[int]:
    """What a ring has that was made longer after `before` ops, and got `after` more."""
    head, first = before + after, before + AHEAD
    if head < first:
        return list(range(max(1, head - SLOTS + 1), head + 1))
    oldest = first - SLOTS if head < first + MORE else head - MORE + 1
    return list(range(max(1, oldest), head + 1))


@given(before=st.integers(0, 3 * SLOTS), after=st.integers(0, 3 * MORE))
def test_all_readers_find_the_newest_events(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int
) -> None:
    writer = create([tmp_path_factory.mktemp("ring")])
    ring = Ring(writer.path)
    issue(writer, before) if before else None
    writer.lengthen()
    issue(writer, after) if after else None
    wanted, head = kept(before, after), before + after
    assert ring.oldest(ring.cell(StatusCell.HEAD)) == (wanted[0] if wanted else 1)
    assert [row.sequence for row in ring.events(0, 1000)[0]] == wanted
    columns = list(bulk_read.slots(ring, 1, head))
    assert [n for slots in columns for n in slots.sequence] == wanted
    words = list(bulk_read.words(ring, ring.oldest(ring.cell(StatusCell.HEAD)), head))
    assert [word[0] for word in words] == wanted
    assert all(word[-1] for word in words)
    for since in (0, before, head - 3, head + 1):
        first = bulk_read.first_since(ring, ring.oldest(ring.cell(StatusCell.HEAD)), head, since)
        assert first == next((n for n in wanted if n >= since), head + 1)
    ring.close()
    os.close(writer._file.number)


def test_pending_ops_of_before_and_after_are_found_and_completed(writer: OwnRing) -> None:
    ring = Ring(writer.path)
    opened: dict[int, int] = {}
    overflow = Overflow(writer, opened)
    for _ in range(2):
        opened[issue(writer, done=False)] = 1
        issue(writer, 3)
    writer.lengthen()
    for _ in range(MORE // 4):
        if len(opened) < 4:
            opened[issue(writer, done=False)] = 1
        issue(writer, 3)
        overflow.spill()
        assert {row.sequence for row in ring.pending()} == set(opened)
    assert ring.cell(StatusCell.PENDING_LOST) == 0
    writer.words[(writer.slot_at(min(opened)) + layout.SLOT_DONE) // 8] = time.monotonic_ns()
    overflow.retire(min(opened))
    assert {row.sequence for row in ring.pending()} == set(opened) - {min(opened)}
    ring.close()


def test_memory_is_taken_only_when_it_is_asked_for(writer: OwnRing) -> None:
    def blocks() -> int:
        return writer.path.stat().st_blocks * 512

    page = os.sysconf("SC_PAGE_SIZE")
    assert writer.path.stat().st_size == TINY.longest
    assert blocks() <= TINY.size + page
    writer.lengthen()
    assert blocks() >= TINY.longest
    assert writer.history == MORE
    first = writer.longer_from[0]
    issue(writer, 9)
    writer.lengthen()  # once
    assert writer.longer_from[0] == first


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs without room for a longer ring; needs root."""
    folder = tmp_path / "full"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={TINY.size + 4096}", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_where_there_is_no_room_the_ring_stays_as_it_is(tmpfs: Path) -> None:
    writer = create([tmpfs])
    with pytest.raises(OSError, match="No space left"):
        writer.lengthen()
    issue(writer, 3 * SLOTS)
    assert (writer.history, Ring(writer.path).oldest(3 * SLOTS)) == (SLOTS, 2 * SLOTS + 1)


def test_a_file_that_the_program_has_closed_is_left_alone(writer: OwnRing, tmp_path: Path) -> None:
    """Another file has its number by then."""
    other = os.open(tmp_path / "checkpoint", os.O_RDWR | os.O_CREAT)
    os.write(other, b"weights")
    os.dup2(other, writer._file.number)
    with pytest.raises(OSError, match="has closed the ring's file"):
        writer.lengthen()
    assert (tmp_path / "checkpoint").read_bytes() == b"weights"
    assert writer.history == SLOTS
    os.close(other)


def test_where_files_may_not_get_so_long_a_ring_is_as_it_always_was(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (TINY.size, before[1]))
    try:
        writer = create([tmp_path])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ring = Ring(writer.path)
    assert (ring.shape.slots, ring.shape.more) == (SLOTS, 0)
    with pytest.raises(OSError, match="File too large"):
        writer.lengthen()
    issue(writer, 3 * SLOTS)
    assert len(ring.events(0, 1000)[0]) == SLOTS
    ring.close()


def test_many_pending_ops_stay_in_a_longer_ring(writer: OwnRing) -> None:
    """The overflow has room for four."""
    ring = Ring(writer.path)
    opened: dict[int, int] = {}
    overflow = Overflow(writer, opened)
    writer.lengthen()
    issue(writer, AHEAD)
    for _ in range(SLOTS):
        opened[issue(writer, done=False)] = 1
        overflow.spill()
    for _ in range(MORE // 2):
        issue(writer)
        overflow.spill()
    assert {row.sequence for row in ring.pending()} == set(opened)
    assert ring.cell(StatusCell.PENDING_LOST) == 0
    for _ in range(MORE):
        issue(writer)
        overflow.spill()
    assert ring.cell(StatusCell.PENDING_LOST) == SLOTS - TINY.overflow
    assert {row.sequence for row in ring.pending()} == set(opened)
    ring.close()


def test_a_head_that_drops_does_not_make_a_reader_read_more(writer: OwnRing) -> None:
    issue(writer, 40)
    ring = Ring(writer.path)
    assert sum(len(one.sequence) for one in bulk_read.slots(ring, 1, 2**62)) == 0
    ring.close()  # no view of the file is left


def test_the_longest_ring_is_one_that_readers_take() -> None:
    assert max(FULL.longest, layout.SMALL.longest) <= MAX_SIZE


def test_threads_that_issue_meanwhile_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_ring, "AHEAD", 8192)
    monkeypatch.setattr(layout, "FULL", Shape(
        groups=4, sites=8, overflow=4, slots=8192, chunks=32, marks=8, side=80 * 1024, more=65_536
    ))  # fmt: skip
    writer = create([tmp_path])
    ended = threading.Event()

    def train() -> None:
        while not ended.is_set():
            issue(writer)
            time.sleep(0)  # as ops do: nobody holds a number for thousands of other ops

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    ring = Ring(writer.path)
    wait_for(lambda: ring.cell(StatusCell.HEAD) > 9000, "many ops", 60)
    writer.lengthen()
    wait_for(lambda: ring.cell(StatusCell.HEAD) > writer.longer_from[0] + 9000, "more ops", 60)
    ended.set()
    for thread in threads:
        thread.join()
    rows, lost = ring.events(0, 2**40)
    assert lost == ring.oldest(ring.cell(StatusCell.HEAD)) - 1  # nothing in between
    assert (
        len(rows)
        == ring.cell(StatusCell.HEAD) - ring.oldest(ring.cell(StatusCell.HEAD)) + 1
        > 8192 + 9000
    )
    ring.close()


@pytest.mark.parametrize(("longer_from", "head"), [
    (-1, 40), (-(2**63), 2**63 - 1), (2**63 - 1, 2**63 - 1), (1, 2**63 - 1), (2**40, 3),
])  # fmt: skip
def test_a_damaged_ring_costs_no_more_than_its_size(
    writer: OwnRing, longer_from: int, head: int
) -> None:
    writer.cells[StatusCell.LONGER_FROM] = longer_from
    writer.cells[StatusCell.HEAD] = head
    ring = Ring(writer.path)
    head = ring.cell(StatusCell.HEAD)
    assert head - ring.oldest(head) < SLOTS + MORE
    assert ring.events(0, 1000)[0] == ring.pending() == []
    assert not any(slots.sequence for slots in bulk_read.slots(ring, ring.oldest(head), head))
    ring.close()
