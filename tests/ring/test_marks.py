"""Marks are read as they were written, newest kept, and never for an op."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.recorder.marks.marks import MarkWriter
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind, Shape, StatusCell
from frtop_probe.ring.marks import read_marks, watched
from frtop_probe.ring.reader import Ring

TINY = Shape(groups=4, sites=8, overflow=4, slots=16, chunks=32, marks=8, side=80 * 1024)
FETCH, STEP, BACKWARD = MarkKind.FETCH, MarkKind.STEP, MarkKind.BACKWARD


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnRing:
    monkeypatch.setattr(layout, "FULL", TINY)
    return create([tmp_path])


def numbers(ring: Ring, since_ns: int = 0) -> list[int]:
    return [row.number for row in read_marks(ring, since_ns)]


@given(st.integers(0, 40))
def test_the_newest_marks_are_kept(tmp_path: Path, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "FULL", TINY)
        writer = create([tmp_path])
    for number in range(1, count + 1):
        writer.marks.instant(STEP, number)
    ring = Ring(writer.path)
    assert numbers(ring) == list(range(max(1, count - 7), count + 1))
    assert (ring.cell(StatusCell.MARKS), ring.cell(StatusCell.HEAD)) == (count, 0)
    ring.close()


def test_a_mark_has_its_times_and_samples(writer: OwnRing) -> None:
    before = time.monotonic_ns()
    fetch = writer.marks.begin(FETCH, 3)
    (lasting,) = read_marks(Ring(writer.path))
    assert (lasting.kind, lasting.end_ns, lasting.number) == (FETCH, 0, 3)
    writer.marks.end(fetch)
    step = writer.marks.instant(STEP, 7)
    writer.marks.add_samples(step, 32)
    writer.marks.add_samples(step, 32)
    first, second = read_marks(Ring(writer.path))
    assert before <= first.begin_ns <= first.end_ns <= second.begin_ns == second.end_ns
    assert (second.kind, second.number, second.samples, first.samples) == (STEP, 7, 64, 0)


def test_only_what_ended_since_then_is_read(writer: OwnRing) -> None:
    writer.marks.instant(STEP, 1)
    long = writer.marks.begin(BACKWARD, 2)
    writer.marks.instant(STEP, 3)
    since_ns = time.monotonic_ns()
    writer.marks.instant(STEP, 4)
    ring = Ring(writer.path)
    assert numbers(ring, since_ns) == [2, 4]
    writer.marks.end(long)
    assert numbers(ring, since_ns) == [2, 4]
    assert numbers(ring, time.monotonic_ns()) == []


def test_a_mark_that_nobody_saw_end_is_left_out(writer: OwnRing) -> None:
    writer.marks.abandon(writer.marks.begin(BACKWARD, 1))
    writer.marks.begin(BACKWARD, 2)  # an exception has passed
    writer.marks.begin(FETCH, 3)  # lasts
    writer.marks.end(writer.marks.begin(BACKWARD, 4))
    assert numbers(Ring(writer.path)) == [3, 4]
    assert numbers(Ring(writer.path), time.monotonic_ns()) == [3]


def test_the_end_of_an_overwritten_mark_is_dropped(writer: OwnRing) -> None:
    old = writer.marks.begin(FETCH, 1)
    for number in range(2, 10):
        writer.marks.instant(STEP, number)
    writer.marks.end(old)
    writer.marks.add_samples(old, 5)
    rows = read_marks(Ring(writer.path))
    assert [(row.number, row.samples) for row in rows] == [(n, 0) for n in range(2, 10)]
    assert all(row.begin_ns == row.end_ns for row in rows)


@given(st.binary(min_size=1, max_size=200), st.integers(0, 8 * layout.MARK_SIZE - 200))
def test_damage_costs_only_the_marks_that_it_hits(writer: OwnRing, noise: bytes, at: int) -> None:
    for number in range(1, 9):
        writer.marks.instant(STEP, number)
    offset = writer.shape.marks_offset
    writer.map[offset + at : offset + at + len(noise)] = noise
    assert set(numbers(Ring(writer.path))) <= set(range(1, 9))
    writer.cells[StatusCell.MARKS] = 2**62
    assert numbers(Ring(writer.path)) == []
    writer.cells[StatusCell.MARKS] = -5
    assert numbers(Ring(writer.path)) == []
    writer.cells[StatusCell.MARKS] = 8


def test_what_is_watched(writer: OwnRing) -> None:
    ring = Ring(writer.path)
    assert watched(ring) == frozenset()
    writer.marks.watch(FETCH, BACKWARD)
    assert watched(ring) == {FETCH, BACKWARD}
    writer.marks.unwatch(FETCH)
    assert watched(ring) == {BACKWARD}
    assert isinstance(writer.marks, MarkWriter)
