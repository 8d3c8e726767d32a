"""What a table of statistics is of: the window, how much of it was timed, who is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import counted, live_duration
from frtop_tui.text.statistics_words import clock_words, waiting_words, window_words
from frtop_tui.widgets.formats import shorten_ranks
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, flow, plain, wrap


def scope_parts(frame: Frame, statistics: JobStatistics, no_answer: str) -> Iterator[Line]:
    """What the numbers are of, a part each."""
    if waiting := waiting_words(frame, statistics, no_answer):
        yield plain(waiting, "warn" if statistics.ranks else "")
    if not statistics.ranks or not statistics.with_calls:
        return
    age_s = max(0.0, (frame.now_ns - statistics.until_ns) / 1e9)
    yield plain(f"{window_words(statistics)}, until {live_duration(age_s)} ago")
    yield plain(counted(len(statistics.ranks), "rank"))
    count = sum(call.count for call in statistics.calls)
    timed = sum(call.timed for call in statistics.calls)
    if count:
        tone = "warn" if timed < count / 2 else ""
        yield plain(f"timed {timed:,} of {count:,} ops", tone)
    yield plain(clock_words(statistics), "" if statistics.clock_error_ns is not None else "warn")
    if statistics.lost:
        yield plain(f"{statistics.lost:,} ops could not be read", "warn")
    if statistics.missing:
        missing = statistics.missing
        yield plain(f"{len(missing):,} missing: {shorten_ranks(fold(missing), 24)}", "warn")


def scope_lines(frame: Frame, width: int, no_answer: str = "") -> list[Line]:
    """The parts in as many lines as they need, then the notes."""
    statistics = frame.screen_statistics
    if statistics is None:
        waiting = waiting_words(frame, None, no_answer)
        return [plain(waiting)] if frame.recorded is None else []
    rows = flow(scope_parts(frame, statistics, no_answer), width, between=" · ")
    for note in statistics.notes:
        rows += wrap(note, width, "dim", ("note  ", "dim"))
    return rows


class StatisticsHead(LineView, can_focus=False):
    """The lines above the table; as many as they are."""

    def __init__(self) -> None:
        super().__init__(id="scope")
        self.frame: Frame | None = None
        self.difference = ""
        """What columns show the difference to; "" where they show values."""
        self.no_answer = ""
        """Why no answer will be shown; "" where one may come."""

    def show(self, frame: Frame, difference: str, no_answer: str) -> None:
        self.frame, self.difference, self.no_answer = frame, difference, no_answer
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows = scope_lines(self.frame, width - 2, self.no_answer)
        if self.difference:
            rows[:0] = wrap(self.difference, width - 2, "strong")
        return [(*plain(" "), *row) for row in rows]
