"""What the tables show of the newest statistics: grouping, filter, order, and the mark."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.statistics.rows import (
    GROUPINGS,
    Grouping,
    RankFigures,
    StatisticsRow,
    call_rows,
    group_rows,
    matches,
    rank_rows,
)
from frtop_tui.features.statistics.table import Difference, call_columns, rank_columns
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import identifier, members_of
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import duration, local_clock, window
from frtop_tui.statistics.by_group import SampledByGroup
from frtop_tui.text.statistics_words import labels_of, last_issued_ns, waiting_words
from frtop_tui.widgets.table import Column, neighbour

DEFAULT_SORT = {"rank": "others waited"}


class StatisticsView:
    """Builds rows once per answer and grouping, not once per frame."""

    def __init__(self) -> None:
        self.at = Difference()
        self.grouping: Grouping = "line"
        self.filter_text = ""
        self.sorts: dict[Grouping, str] = {}
        self.reverse = False
        self.baseline: tuple[JobStatistics, int] | None = None
        """The statistics that columns compare with, and their time on the operator's wall clock."""
        self.unfolded: frozenset[tuple[object, ...]] = frozenset()
        """Keys of the unfolded rows by line, which list all their groups below."""
        self.count = 0
        """How many rows match the filter; their groups are not counted."""
        self._frame: Frame | None = None
        self._below: dict[tuple[object, ...], list[StatisticsRow]] = {}
        self._made: tuple[object, ...] = ()
        self._calls: list[StatisticsRow] = []
        self._ranks: list[RankFigures] = []

    def take(self, frame: Frame) -> None:
        """Rebuilds the rows if the answer, the grouping or the mark has changed."""
        self._frame = frame
        statistics = frame.screen_statistics
        self.at.take_verdicts(frame.verdicts)
        made = (statistics, self.grouping, self.baseline, self.unfolded, self.at.places)
        if len(made) == len(self._made) and all(map(_same, made, self._made)):
            return
        self._made = made
        self._calls, self._ranks = self._rows(frame, statistics)
        self._below = self._groups_of(frame, statistics, self._calls)
        self.at.seconds = statistics.seconds if statistics is not None else 0.0
        before = self.baseline[0] if self.baseline is not None else None
        calls, ranks = self._rows(frame, before)
        below = [row for rows in self._groups_of(frame, before, calls).values() for row in rows]
        known = {row.key: row for row in (*calls, *below)}
        self.at.before = known if before is not None else None
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

    def _groups_of(
        self, frame: Frame, statistics: JobStatistics | None, rows: Sequence[StatisticsRow]
    ) -> dict[tuple[object, ...], list[StatisticsRow]]:
        """The groups below each row by line, by the row's key."""
        if statistics is None or self.grouping != "line":
            return {}
        by_group, labels = SampledByGroup(statistics), labels_of(frame.groups)
        blamed: list[GroupKey] = [key for key, _ in self.at.places]
        return {
            row.key: group_rows(
                row, by_group, labels, blamed, unfolded=row.key in self.unfolded
            )
            for row in rows
            if len(row.groups) > 1
        }  # fmt: skip

    def unfold(self, row: StatisticsRow) -> None:
        """Switches between all groups below a row and only those that differ."""
        self.unfolded ^= {row.of_row or row.key}

    def why_not_unfolded(self, row: StatisticsRow | RankFigures | None) -> str:
        """Why a row cannot be unfolded; "" if it can."""
        if not isinstance(row, StatisticsRow) or self.grouping != "line":
            return "Only rows by line have groups below them: press v."
        if row.of_row is None and len(row.groups) < 2:
            return "All ops of this row belong to one group."
        return ""

    def why_no_timeline(self, row: StatisticsRow | RankFigures | None) -> str:
        """Why a row has no place in the timeline; "" if it has one."""
        if row is None:
            return "There is no row here."
        if isinstance(row, StatisticsRow) and row.last.rank is None:
            return (
                f"No rank is known to arrive last at these ops ({row.last.words}): 8 has all lanes."
            )
        return ""

    def late_in(self, row: StatisticsRow) -> LateIn | None:
        """The ops of a row in which its last rank takes part; None if their group is not known."""
        rank = row.last.rank
        own = [key for key in row.groups if rank in members_of(key.ranks)]
        if not own:
            return None
        # Of several groups, take the verdict's: there the rank itself causes the delay.
        of_verdict = [key for key, _ in self.at.places if key in own]
        kind = next(iter(row.kinds)) if len(row.kinds) == 1 else ""
        sites = {call.site for call in row.calls}
        site = next(iter(sites)) if len(sites) == 1 else None
        return LateIn(identifier((of_verdict or own)[0]), kind, site)

    @property
    def sort(self) -> str:
        """The title of the column that rows are sorted by."""
        return self.sorts.get(self.grouping) or DEFAULT_SORT.get(self.grouping, "waited")

    @property
    def begins_with_stragglers(self) -> bool:
        """Whether the rows of a verdict's stragglers come first: until somebody sorts."""
        return bool(self.at.places) and self.grouping not in ("rank", *self.sorts)

    def calls(self) -> list[StatisticsRow]:
        """The calls that match the filter, in order, each with its groups below it."""
        rows = [row for row in self._calls if matches(row.text, self.filter_text)]
        ordered = self._sorted(rows, call_columns(self.grouping, self.at))
        if self.begins_with_stragglers:
            ordered.sort(key=lambda row: row.last.rank not in self.at.stragglers.blamed)
        self.count = len(rows)
        return [one for row in ordered for one in (row, *self._below.get(row.key, ()))]

    def ranks(self) -> list[RankFigures]:
        """The ranks that match the filter, in order."""
        rows = [row for row in self._ranks if matches(row.text, self.filter_text)]
        self.count = len(rows)
        return self._sorted(rows, rank_columns(self.at))

    def _sorted(self, rows: list, columns: Sequence[Column]) -> list:  # type: ignore[type-arg]
        column = next(column for column in columns if column.title == self.sort)
        return sorted(rows, key=column.key, reverse=self.reverse)

    def next_grouping(self) -> None:
        """From lines to ops, to groups, to ranks, and to lines again."""
        index = GROUPINGS.index(self.grouping) + 1
        self.grouping = GROUPINGS[index % len(GROUPINGS)]

    def sort_by_neighbour(self, titles: Sequence[str], by: int) -> None:
        self.sorts[self.grouping] = neighbour(titles, self.sort, by)

    def mark(self) -> bool:
        """Marks what is shown now, or removes the mark; False if nothing is shown."""
        frame = self._frame
        if self.baseline is not None:
            self.baseline = None
            return True
        if frame is None or frame.screen_statistics is None:
            return False
        self.baseline = frame.screen_statistics, frame.wall_ns
        return True

    def target(self, row: StatisticsRow) -> int | Collection[int]:
        """Where `enter` leads: to the rank that arrives last, else to all ranks of the row."""
        return row.ranks if row.last.rank is None else row.last.rank

    def difference_text(self) -> str:
        """What the columns compare with; "" if they show values."""
        if self.baseline is None:
            return ""
        statistics, wall_ns = self.baseline
        return (
            f"change since the mark at {local_clock(wall_ns)} ({window(statistics.seconds)});"
            " = is less than 9 %, and c removes the mark"
        )

    def why_empty(self, widen: str = "", no_answer: str = "") -> str:
        """The text that replaces an empty table.

        `widen` names the keys that widen the window; `no_answer` says why no answer will be shown.
        """
        frame = self._frame
        if frame is None or frame.screen_statistics is None:
            if frame is not None and frame.recorded is not None:
                return f"this {frame.recorded.kind} holds no statistics"
            return waiting_words(frame, None, no_answer) if frame is not None else ""
        if waiting := waiting_words(frame, frame.screen_statistics, no_answer):
            return waiting
        if self.filter_text:
            return "no row matches the filter; esc clears it"
        if self.grouping == "rank":
            return "no rank answered"
        step = f"; {widen}: as far as rings reach" if widen else ""
        return nothing_issued(frame) + step


def nothing_issued(frame: Frame) -> str:
    """`no op for 60 s, the last one 4m12s ago`, if these times are known."""
    statistics = frame.screen_statistics
    during = f" for {window(statistics.seconds)}" if statistics is not None else ""
    last_ns = last_issued_ns(frame)
    last = f", the last one {duration((frame.now_ns - last_ns) / 1e9)} ago" if last_ns else ""
    return f"no op{during}{last}"


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, str | tuple | frozenset) and one == other)
