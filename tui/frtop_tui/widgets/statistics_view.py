"""What a table of statistics shows of the newest answer: grouping, filter, order, and the mark."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.report.statistics_words import labels_of
from frtop_tui.widgets.call_rows import (
    GROUPINGS,
    Grouping,
    StatisticsRow,
    call_rows,
    matches,
)
from frtop_tui.widgets.formats import format_local_clock
from frtop_tui.widgets.rank_rows import RankFigures, rank_rows
from frtop_tui.widgets.statistics_table import Difference, call_columns, rank_columns
from frtop_tui.widgets.table import Column

DEFAULT_SORT = {"rank": "others waited"}


class StatisticsView:
    """Rows are made once for each answer and grouping, not for each frame."""

    def __init__(self) -> None:
        self.at = Difference()
        self.grouping: Grouping = "line"
        self.filter_text = ""
        self.sorts: dict[Grouping, str] = {}
        self.reverse = False
        self.baseline: tuple[JobStatistics, int] | None = None
        """What columns show the difference to, and its time on the operator's wall clock."""
        self._frame: Frame | None = None
        self._made: tuple[object, ...] = ()
        self._calls: list[StatisticsRow] = []
        self._ranks: list[RankFigures] = []

    def take(self, frame: Frame) -> None:
        """Makes the rows, where the answer, the grouping or the mark is another one."""
        self._frame = frame
        statistics = frame.screen_statistics
        made = (statistics, self.grouping, self.baseline)
        if len(made) == len(self._made) and all(map(_same, made, self._made)):
            return
        self._made = made
        self._calls, self._ranks = self._rows(frame, statistics)
        self.at.seconds = statistics.seconds if statistics is not None else 0.0
        before = self.baseline[0] if self.baseline is not None else None
        calls, ranks = self._rows(frame, before)
        self.at.before = {row.key: row for row in calls} if before is not None else None
        self.at.before_ranks = {row.rank: row for row in ranks} if before is not None else None
        self.at.before_s = before.seconds if before is not None else 0.0

    def _rows(
        self, frame: Frame, statistics: JobStatistics | None
    ) -> tuple[list[StatisticsRow], list[RankFigures]]:
        if statistics is None:
            return [], []
        if self.grouping == "rank":
            hosts = {number: rank.host for number, rank in frame.ranks.items()}
            return [], rank_rows(statistics, hosts)
        return call_rows(statistics, self.grouping, labels_of(frame.groups)), []

    @property
    def sort(self) -> str:
        """The title of the column that rows are sorted by."""
        return self.sorts.get(self.grouping) or DEFAULT_SORT.get(self.grouping, "waited")

    def calls(self) -> list[StatisticsRow]:
        """The calls that match the filter, in order."""
        rows = [row for row in self._calls if matches(row.text, self.filter_text)]
        return self._sorted(rows, call_columns(self.grouping, self.at))

    def ranks(self) -> list[RankFigures]:
        """The ranks that match the filter, in order."""
        rows = [row for row in self._ranks if matches(row.text, self.filter_text)]
        return self._sorted(rows, rank_columns(self.at))

    def _sorted(self, rows: list, columns: Sequence[Column]) -> list:  # type: ignore[type-arg]
        column = next(column for column in columns if column.title == self.sort)
        return sorted(rows, key=column.key, reverse=self.reverse)

    def next_grouping(self) -> None:
        """From lines to ops, to groups, to ranks, and to lines again."""
        index = GROUPINGS.index(self.grouping) + 1
        self.grouping = GROUPINGS[index % len(GROUPINGS)]

    def sort_by_neighbour(self, titles: Sequence[str], by: int) -> None:
        """Sorts by the column beside the current one."""
        index = titles.index(self.sort) if self.sort in titles else 0
        self.sorts[self.grouping] = titles[(index + by) % len(titles)]

    def mark(self) -> bool:
        """Compares with what is shown now, or with nothing; False where nothing is shown."""
        frame = self._frame
        if self.baseline is not None:
            self.baseline = None
            return True
        if frame is None or frame.screen_statistics is None:
            return False
        self.baseline = frame.screen_statistics, frame.wall_ns
        return True

    def target(self, row: StatisticsRow) -> int | Collection[int]:
        """Where `enter` leads: to the rank that is named as the last to come, else to all ranks."""
        return row.ranks if row.last.rank is None else row.last.rank

    def difference_text(self) -> str:
        """What the columns show, where that is a difference; else ""."""
        if self.baseline is None:
            return ""
        statistics, wall_ns = self.baseline
        return (
            f"change since the mark of {format_local_clock(wall_ns)} ({statistics.seconds:.0f} s);"
            " = is less than 9 %, and m removes the mark"
        )

    def why_empty(self) -> str:
        """What is said where there is no row."""
        frame = self._frame
        if frame is None or frame.screen_statistics is None:
            if frame is not None and frame.recorded is not None:
                return f"this {frame.recorded.kind} holds no statistics"
            return "asked for; no answer yet"
        if self.filter_text:
            return "no row matches the filter; esc clears it"
        if self.grouping == "rank":
            return "no rank answered"
        return "no op was issued within the window"


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, str) and one == other)
