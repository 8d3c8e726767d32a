"""Reported values pass from a rank through its ring to the agent exactly, or not at all."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.agent.reported_series import MOST_SENT, ReportedSeries
from frtop_probe.recorder.marks.reports import TOO_LONG, TOO_MANY, ReportRecorder
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MAX_REPORT_NAME, MAX_REPORT_NAMES, MarkKind, Shape
from frtop_probe.ring.marks import read_marks, read_reports, watched
from frtop_probe.ring.reader import Ring
from frtop_probe.statistics.reported_values import MOST, unpacked

TINY = Shape(groups=4, sites=8, overflow=4, slots=16, chunks=32, marks=512, side=80 * 1024)
ODD = (0.0, -0.0, -1.5, 2.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf)


class Rank:
    """A recorder's part for reported values, and what reads its ring."""

    def __init__(self, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layout, "FULL", TINY)
            self.own: OwnRing = create([folder])
        self.notes: list[str] = []
        self.steps = StepCounter(self.own, lambda: None)
        self.reports = ReportRecorder(self.own, self.steps, self.notes.append)
        self.ring = Ring(self.own.path)
        self.series = ReportedSeries(self.ring)

    def rows(self) -> list[tuple[str, int, float]]:
        self.ring.refresh()
        rows, _ = read_reports(self.ring)
        return [(self.ring.reports[row.name], row.step, row.value) for row in rows]

    def fresh(self) -> dict[str, list[tuple[int, float, int]]]:
        self.ring.refresh()
        return {
            one.name: [(v.step, v.value, v.times) for v in unpacked(one)]
            for one in self.series.fresh()
        }


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


@given(st.floats(width=64))
def test_every_double_comes_through_bit_by_bit(rank: Rank, value: float) -> None:
    rank.reports.report(3, {"x": value})
    rows, _ = read_reports(rank.ring)
    assert struct.pack("=d", rows[-1].value) == struct.pack("=d", value)
    assert rows[-1].step == 3


@pytest.mark.parametrize("value", ODD)
def test_the_agent_sends_what_was_reported(rank: Rank, value: float) -> None:
    rank.reports.report(1, {"x": value})
    ((step, sent, times),) = rank.fresh()["x"]
    assert (step, times, repr(sent)) == (1, 1, repr(value))
    assert rank.fresh() == {}
    (full,) = rank.series.full()
    assert (full.first, full.not_finite) == (1, int(not math.isfinite(value)))


def test_values_belong_to_the_step_that_ended_last(rank: Rank) -> None:
    rank.reports.report(None, {"loss": 4.0})
    rank.steps.stepped(7)
    rank.reports.report(None, {"loss": 3.0, "lr": 0.1})
    rank.reports.report(None, {"loss": 2.0})
    rank.reports.report(40, {"loss": 1.0})
    assert rank.fresh() == {
        "loss": [(0, 4.0, 1), (7, 2.0, 2), (40, 1.0, 1)],
        "lr": [(7, 0.1, 1)],
    }


def test_other_readers_of_marks_do_not_see_them(rank: Rank) -> None:
    rank.own.marks.instant(MarkKind.STEP, 1)
    rank.reports.report(1, {"loss": -1.0})
    rank.own.marks.instant(MarkKind.STEP, 2)
    assert [(row.kind, row.number) for row in read_marks(rank.ring)] == [
        (MarkKind.STEP, 1),
        (MarkKind.STEP, 2),
    ]
    assert watched(rank.ring) == {MarkKind.REPORT}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3, 3.0),
        (True, 1.0),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(-7), -7.0),
        (np.array(2.5), 2.5),
    ],
)
def test_numbers_that_need_no_device_are_read(rank: Rank, value: Any, read: float) -> None:
    rank.reports.report(1, {"x": value})
    assert rank.rows() == [("x", 1, read)]
    assert rank.notes == []


class Waiting:
    """Looks like a number, but reading it may wait for a device."""

    def __float__(self) -> float:
        raise AssertionError("it was read")


@pytest.mark.parametrize("value", [Waiting(), "1.5", None, 10**400, np.ones(2), 1j])
def test_anything_else_is_refused_with_one_note(rank: Rank, value: Any) -> None:
    for _ in range(3):
        rank.reports.report(1, {"x": value, "y": 1.0})
    assert rank.rows() == [("y", 1, 1.0)] * 3
    assert len(rank.notes) == 1
    assert rank.notes[0].startswith("frtop_probe.report does not record x: ")


def test_names_are_bounded(rank: Rank) -> None:
    rank.reports.report(1, {"n" * (MAX_REPORT_NAME + 1): 1.0})
    for _ in range(2):
        rank.reports.report(1, {f"n{one}": 1.0 for one in range(40)})
    assert {name for name, *_ in rank.rows()} == {f"n{one}" for one in range(MAX_REPORT_NAMES)}
    assert set(rank.notes) == {TOO_LONG, TOO_MANY}


def test_a_library_that_logs_twice_is_recorded_once(rank: Rank) -> None:
    values: dict[Any, Any] = {"loss": math.nan, "epoch": 1, "text": "no number", 3: 1.0}
    for _ in range(2):  # two loggers
        rank.reports.logged(5, values)
    rank.reports.logged(6, {"loss": math.nan})
    assert [row[:2] for row in rank.rows()] == [("loss", 5), ("epoch", 5), ("loss", 6)]
    assert rank.notes == []


def test_a_fast_job_is_thinned_by_the_steps_numbers(rank: Rank) -> None:
    """Two ranks that are read at different times still send steps that both have."""
    for step in range(1, 101):
        rank.reports.report(step, {"loss": math.inf if step == 33 else 1.0})
    steps = [step for step, *_ in rank.fresh()["loss"]]
    assert steps == sorted({*range(8, 101, 8), 33, 100})
    assert len(steps) <= MOST_SENT
    (full,) = rank.series.full()
    assert full.steps == (33, *range(101 - MOST, 101))
    assert full.not_finite == 1


def test_an_agent_that_missed_marks_says_from_where_on_it_is_complete(rank: Rank) -> None:
    rank.reports.report(1, {"loss": 1.0})
    rank.fresh()
    for step in range(2, 2 + 2 * TINY.marks):
        rank.reports.report(step, {"loss": 1.0})
    rank.fresh()
    (full,) = rank.series.full()
    assert full.first == TINY.marks + 2


def test_a_value_that_a_preempted_thread_writes_late_is_sent(rank: Rank) -> None:
    for name in ("early", "late", "newest"):
        rank.reports.report(1, {name: 1.0})
    late = rank.own.shape.marks_offset + 2 * layout.MARK_SIZE
    written = rank.own.map[late : late + layout.MARK_SIZE]
    rank.own.map[late : late + layout.MARK_SIZE] = bytes(layout.MARK_SIZE)
    assert set(rank.fresh()) == {"early", "newest"}
    rank.own.map[late : late + layout.MARK_SIZE] = written
    assert rank.fresh() == {"late": [(1, 1.0, 1)]}
    assert rank.fresh() == {}


@given(st.binary(min_size=1, max_size=200), st.integers(0, 512 * layout.MARK_SIZE - 200))
def test_damage_costs_only_the_values_that_it_hits(rank: Rank, noise: bytes, at: int) -> None:
    for step in range(1, 513):
        rank.reports.report(step, {"x": float(step)})
    offset = rank.own.shape.marks_offset
    rank.own.map[offset + at : offset + at + len(noise)] = noise
    rows, _ = read_reports(rank.ring)
    assert len(rows) >= 505
    assert all(row.value == row.step for row in rows)


def test_what_libraries_log_from_devices_fills_no_notes(rank: Rank) -> None:
    torch: Any = pytest.importorskip("torch")
    for one in range(10 * MAX_REPORT_NAMES):
        rank.reports.logged(1, {f"norm/{one}": torch.ones((), device="meta")})
    assert len(rank.notes) == MAX_REPORT_NAMES
