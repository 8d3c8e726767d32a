"""Who is slow is told of captures and black boxes by the rules of a live job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.fakes import frame_of, rank_view
from frtop_probe import wire
from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Frame, Verdict, Why
from frtop_tui.files import capture
from frtop_tui.files.formats.frame_json import frame_json
from frtop_tui.files.loader import open_paths
from frtop_tui.job.groups import group_views
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.plain import text
from history_rows import HistoryRow, packed
from job_statistics.ranks import ALL_REDUCE, LINE, MS, S, group

GROUP = group(1, "0-3")
NOW = 1000 * S
STEP = 200 * MS
Late = Callable[[int, int], int]
"""By rank and step, in ns."""


def rank_2(rank: int, _step: int) -> int:
    return 40 * MS if rank == 2 else 0


def job(
    steps: int, late: Late = rank_2, step: int = STEP, **fields: object
) -> tuple[Frame, dict[int, wire.HistoryResponse]]:
    """Four ranks that reduce once in a step, the last step up to now, and their histories."""
    moved = {1: wire.GroupProgress(1, steps, 0, NOW)}
    views = [rank_view(rank, "node0", groups={1: GROUP}, group_progress=moved) for rank in range(4)]
    views = [replace(view, identity=replace(view.identity, main_ident=1)) for view in views]
    known = {"health": "healthy", "groups": group_views(views), **fields}
    frame = frame_of(*views, now=NOW, **known)
    begun = [NOW - (steps - n) * step for n in range(steps)]
    arrivals = [[at + 50 * MS + late(rank, n) for rank in range(4)] for n, at in enumerate(begun)]
    ends = [max(those) + MS for those in arrivals]
    histories = {}
    for rank in range(4):
        rows = (
            HistoryRow(n, 1, n, 1, 1, those[rank], end - those[rank], 1, 1)
            for n, (those, end) in enumerate(zip(arrivals, ends, strict=True), 1)
        )
        marks = tuple(wire.Mark("step", end + MS, end + MS, n) for n, end in enumerate(ends))
        history = wire.History((ALL_REDUCE,), (LINE,), packed(rows), marks=marks)
        histories[rank] = wire.HistoryResponse(1, "node0", rank + 1, history)
    return frame, histories


def opened(path: Path, steps: int, late: Late = rank_2, **fields: Any) -> Frame:
    frame, histories = job(steps, late, **fields)
    capture.write(path, frame, histories, ())
    return open_paths([path])


def test_a_capture_without_a_verdict_shows_who_is_slow(tmp_path: Path) -> None:
    frame = opened(tmp_path / "a.cap", 200)
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("slow", (2,), "confirmed")
    assert (frame.health, exit_status(frame)) == ("slow", 5)
    assert verdict.slow is not None
    assert verdict.slow.late_ns == pytest.approx(40 * MS, rel=0.01)
    assert verdict.slow.share == pytest.approx(0.2, rel=0.05)
    said = "\n".join(text(frame))
    assert (
        "SLOW: rank 2 (node0 pid 102) is a straggler: it arrives 40.0 ms late at all_reduce" in said
    )
    page = html_page(incident_of(with_trace(frame), "9.9"))
    assert "arrives 40.0 ms late" in page
    assert b'"kind":"slow"' in frame_json(frame)
    trace = with_trace(frame).trace
    assert trace is not None
    assert [one.kind for one in trace.findings] == ["slow"]


def test_of_few_steps_it_is_a_suspicion(tmp_path: Path) -> None:
    frame = opened(tmp_path / "a.cap", 40)  # 8 s
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("slow", (2,), "suspect")
    assert (frame.health, exit_status(frame)) == ("slow", 4)


def test_of_steps_of_ten_seconds_more_than_a_minute_is_compared(tmp_path: Path) -> None:
    def late(rank: int, _step: int) -> int:
        return S if rank == 2 else 0

    frame = opened(tmp_path / "a.cap", 40, late, step=10 * S)
    (verdict,) = frame.verdicts
    assert (verdict.culprits, verdict.confidence) == ((2,), "confirmed")


def test_an_export_of_a_live_job_shows_it_as_its_capture_does(tmp_path: Path) -> None:
    frame, histories = job(200)
    (exported,) = capture.collected(frame, histories, ()).verdicts
    assert (exported,) == opened(tmp_path / "a.cap", 200).verdicts


def test_earlier_minutes_say_since_when_and_what_it_cost(tmp_path: Path) -> None:
    def late(rank: int, step: int) -> int:
        return 40 * MS if rank == 2 and step >= 300 else 0

    frame = opened(tmp_path / "a.cap", 1300, late)  # 60 s without, 200 s with it
    (verdict,) = frame.verdicts
    assert (NOW - verdict.since_ns) / S == pytest.approx(200, abs=5)
    assert verdict.slow is not None
    assert not verdict.slow.at_least
    assert verdict.slow.lost_ns == pytest.approx(3 * 1000 * 40 * MS, rel=0.1)
    assert frame.statistics is not None
    assert frame.statistics.seconds == pytest.approx(200, abs=5), "steps before it would hide it"
    assert "rank 2: 100 %" in html_page(incident_of(frame, "9.9"))


def test_who_was_slow_before_the_last_minute_is_not_named(tmp_path: Path) -> None:
    def late(rank: int, step: int) -> int:
        return 40 * MS if rank == 2 and step < 600 else 0

    frame = opened(tmp_path / "a.cap", 1000, late)
    assert (frame.verdicts, frame.health) == ((), "healthy")


@pytest.mark.parametrize("late", [
    lambda _rank, _step: 0,
    lambda rank, step: 40 * MS if rank == step * 7 % 4 else 0,
    lambda rank, step: 30 * S if rank == 0 and step == 120 else 0,
])  # fmt: skip
def test_nobody_is_named_who_is_not_slow(tmp_path: Path, late: Late) -> None:
    frame = opened(tmp_path / "a.cap", 200, late)
    assert (frame.verdicts, frame.health) == ((), "healthy")


@pytest.mark.parametrize("health", ["undecided", "starting"])
def test_a_job_that_is_not_known_to_run_is_not_called_slow(tmp_path: Path, health: str) -> None:
    assert opened(tmp_path / "a.cap", 200, health=health).health == health


def test_a_job_that_has_ended_was_slow(tmp_path: Path) -> None:
    frame = opened(tmp_path / "a.cap", 200, health="ended")
    (verdict,) = frame.verdicts
    assert "it arrived 40.0 ms late" in verdict.headline
    assert exit_status(frame) == 5


def test_what_was_said_while_the_job_lived_stays(tmp_path: Path) -> None:
    live = opened(tmp_path / "a.cap", 200)
    (verdict,) = live.verdicts
    known = replace(verdict, why=Why("data", "data", "its fetches take longer"))
    again = opened(tmp_path / "b.cap", 200, health="slow", verdicts=(known,))
    assert again.verdicts == (known,)
    assert (again.health, exit_status(again)) == ("slow", 5)


def test_of_a_job_that_died_it_is_a_note(tmp_path: Path) -> None:
    died = Verdict(
        "dead", "confirmed", "none", (1,), "rank 1 died", Why("signal", "unknown", ""), ""
    )
    frame = opened(tmp_path / "a.cap", 200, health="dead", verdicts=(died,))
    assert frame.verdicts == (died,)
    (note,) = frame.notes
    assert note.startswith(
        "before that: rank 2 (node0 pid 102) was a straggler: it arrived 40.0 ms late at all_reduce"
    )
    assert note.endswith("ranks 0-1,3 waited: 20 % of the time")
