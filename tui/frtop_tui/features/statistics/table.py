"""The tables of the statistics: calls by line, op or group, and ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Verdict
from frtop_tui.diagnosis.words.stragglers import Stragglers
from frtop_tui.features.statistics.rows import Grouping, Range, RankFigures, StatisticsRow
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.units import NOT_KNOWN, byte_rate, counted, percent, timing
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, join, plain
from frtop_tui.widgets.table import Column, LineTable

RESOLUTION: Final = 0.09
"""Medians count as equal if they differ by less than their buckets' width, twice 4.5 %."""

OPEN: Final = Binding(
    "enter",
    "choose",
    "open",
    tooltip="the rank that arrives last, if one is named; else the ranks of the row",
    id="statistics.open",
)


class Difference:
    """What cells need besides their row: ranks in verdicts, and the rows at the mark."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.before: Mapping[tuple[object, ...], StatisticsRow] | None = None
        self.before_ranks: Mapping[int, RankFigures] | None = None
        self.before_s = 0.0
        self.stragglers = Stragglers()
        self.of_interest: Sequence[int] = ()
        """The cursor starts on the row of one of these ranks, of the first if possible."""
        self.places: tuple[tuple[GroupKey, str], ...] = ()
        """The groups of verdicts *slow*, and the kind of their ops."""

    def take_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Takes what the cells and the cursor need from them."""
        slow = [one for one in verdicts if one.slow is not None]
        self.stragglers = Stragglers.of(verdicts)
        self.places = tuple(
            (one.group, one.op.kind if one.op is not None else "")
            for one in slow
            if one.group is not None and one.culprits
        )

    def former(self, row: StatisticsRow) -> StatisticsRow | None:
        """The same row at the mark."""
        return None if self.before is None else self.before.get(row.key)


def range_text(value: Range | None, show: Callable[[float], str]) -> str:
    """The value; the largest if there are several, which cannot be merged: `<=18.2 ms`."""
    if value is None:
        return "-"
    least, most = show(value[0]), show(value[1])
    return most if least == most else f"<={most}"


def change_text(after: float, before: float, show: Callable[[float], str]) -> Span:
    """`+1.2 ms`, or `=` if the difference is within the resolution."""
    by = after - before
    if abs(by) <= RESOLUTION * max(abs(after), abs(before)):
        return ("=", "dim")
    return (f"{'+' if by > 0 else '-'}{show(abs(by))}", "warn" if by > 0 else "good")


def _middle(value: Range | None) -> float | None:
    return None if value is None else (value[0] + value[1]) / 2


class _Cells:
    """The cells of calls: values, or changes since the mark."""

    def __init__(self, at: Difference) -> None:
        self.at = at

    def span(self, row: StatisticsRow, name: str, show: Callable[[float], str]) -> Span:
        value: Range | None = getattr(row, name)
        if self.at.before is None:
            return (range_text(value, show), "")
        former = self.at.former(row)
        before = None if former is None else getattr(former, name)
        if value is None or before is None:
            return ("new" if former is None else "-", "dim")
        return change_text(_middle(value) or 0.0, _middle(before) or 0.0, show)

    def count(self, row: StatisticsRow) -> Span:
        if row.of_row is not None:
            return (NOT_KNOWN, "dim")
        if self.at.before is None:
            return (f"{row.count:,}", "")
        former = self.at.former(row)
        if former is None:
            return ("new", "warn")
        return change_text(row.rate, former.rate, lambda rate: f"{rate:.3g}/s")

    def waited(self, row: StatisticsRow) -> Span:
        now_s = row.waited_ns / max(self.at.seconds, 1e-9)
        if self.at.before is None:
            return (timing(row.waited_ns or None), "")
        former = self.at.former(row)
        before_s = 0.0 if former is None else former.waited_ns / max(self.at.before_s, 1e-9)
        span = change_text(now_s, before_s, timing)
        return (f"{span[0]}/s" if span[0] != "=" else "=", span[1])

    def longest(self, row: StatisticsRow) -> Span:
        return (timing(row.max_ns), "dim")

    def last(self, row: StatisticsRow) -> Span:
        found = self.at.stragglers.first(row.last, row.calls)
        if found.rank is None:
            return (found.words, "dim")
        late, words = self.at.stragglers, self.at.stragglers.words(found, row.calls)
        if found.rank in late.waiting:
            return (words, "dim")
        return (words, "late" if found.rank in late.blamed else "warn")

    def timed(self, row: StatisticsRow) -> Span:
        if not row.count:
            return (NOT_KNOWN, "dim")
        share = row.timed / row.count
        return (percent(share), "" if share > 0.5 else "warn")


_SHOWN: Final[dict[str, Callable[[float], str]]] = {"bus": byte_rate, "share": percent}
LAST_LEAST: Final = len("rank 85: 100 %")


def call_columns(grouping: Grouping, at: Difference) -> list[Column[StatisticsRow]]:
    cells = _Cells(at)
    line: Column[StatisticsRow] = Column(
        "line",
        14 if grouping == "line" else 13,
        lambda r: (r.line, "strong") if r.of_row is None else (f"└ {r.group}", ""),
        lambda r: r.line,
        wide=18,
    )
    op: Column[StatisticsRow] = Column(
        "op", 10, lambda r: ("" if r.of_row else r.op, ""), lambda r: r.op, wide=14
    )
    group: Column[StatisticsRow] = Column(
        "group",
        6,
        lambda r: ("" if r.of_row else r.group, ""),
        lambda r: r.group,
        wide=10,
        needs=60 * (grouping != "group"),
    )
    size = lambda r: ("" if r.of_row else r.size, "dim")  # noqa: E731
    first = {"line": [line, op, group], "op": [op, line, group], "group": [group, op, line]}

    def measure(title: str, name: str, needs: int = 0) -> Column[StatisticsRow]:
        show = _SHOWN.get(name, timing)
        cell = partial(cells.span, name=name, show=show)
        key = lambda row: -(_middle(getattr(row, name)) or 0.0)  # noqa: E731
        # A row of several lines shows `<=18.2 ms`.
        width = 9 + (grouping != "line" or name == "bus")
        return Column(title, width, cell, key, right=True, needs=needs)

    return [
        *first[grouping],
        Column("waited", 8, cells.waited, _by_waiting, right=True),
        measure("skew", "skew", 70),
        Column("size", 13, size, lambda r: -(_middle(r.sizes) or 0.0), right=True, needs=84),
        measure("bus", "bus", 92),
        measure("of a step", "share", 104),
        # If the width does not suffice, the last of these are left out first.
        measure("p50", "p50", 88),
        Column("count", 7, cells.count, lambda r: -r.count, right=True, needs=88),
        measure("p95", "p95", 104),
        Column("max", 8, cells.longest, lambda r: -(r.max_ns or 0), right=True, needs=144),
        measure("moved", "transfer", 156),
        Column("timed", 5, cells.timed, lambda r: -r.timed, right=True, needs=168),
        Column("last to arrive", 0, cells.last, lambda r: -r.last.share, least=LAST_LEAST),
    ]


def _by_waiting(row: StatisticsRow) -> tuple[int, int]:
    """Sorts by waiting; rows without any, by the time that their ops took."""
    return (-row.waited_ns, -row.total_ns)


def rank_columns(at: Difference) -> list[Column[RankFigures]]:
    def value(row: RankFigures, name: str) -> Span:
        now = getattr(row, name)
        if at.before_ranks is None:
            return (timing(now), "")
        former = at.before_ranks.get(row.rank)
        before = None if former is None else getattr(former, name)
        if now is None or before is None:
            return ("-", "dim")
        return change_text(now, before, timing)

    def measure(title: str, name: str, width: int, needs: int = 0) -> Column[RankFigures]:
        key = lambda row: -(getattr(row, name) or 0)  # noqa: E731
        return Column(title, width, partial(value, name=name), key, right=True, needs=needs)

    return [
        Column("rank", 6, lambda r: (str(r.rank), "strong"), lambda r: r.rank, right=True),
        Column("host", 8, lambda r: (r.host, ""), lambda r: r.host, wide=20),
        Column("arrives last", 13, _arrives_last, lambda r: -r.last, right=True),
        measure("after first", "after_ns", 11),
        measure("others waited", "others_ns", 15),
        measure("step", "step_ns", 9),
        measure("data", "data_ns", 9, 88),
        Column("steps", 6, lambda r: (f"{r.steps:,}", "dim"), lambda r: -r.steps, right=True,
               needs=100),
    ]  # fmt: skip


def _arrives_last(row: RankFigures) -> Span:
    if not row.ops:
        return ("not sampled", "dim")
    return (f"{row.last:,} of {row.ops:,}", "" if row.last else "dim")


class CallStatisticsTable(LineTable[StatisticsRow]):
    """Calls; the cursor stays on its row."""

    BINDINGS: ClassVar[list[BindingType]] = [OPEN]

    def __init__(self, at: Difference) -> None:
        super().__init__(call_columns("line", at), "", id="calls", classes="pane")
        self.at = at
        self.grouping: Grouping = "line"

    def show_rows(self, rows: Sequence[StatisticsRow], grouping: Grouping) -> None:
        begins = not self.rows or grouping != self.grouping
        if grouping != self.grouping:
            self.grouping, self.columns = grouping, tuple(call_columns(grouping, self.at))
            self.cursor = 1
        self.suffices = {
            title: max((len(getattr(row, title)) for row in rows), default=0)
            for title in ("line", "op", "group", "size")
        }
        self.show(rows, lambda row: row.key)
        if begins and (line := self._first_line()):
            self.start_at(line)

    def _first_line(self) -> int:
        """Where the cursor starts: at the verdict's row, unless the user looks at a victim."""
        about = self.at.of_interest[:1]
        if (
            about
            and about[0] not in self.at.stragglers.blamed
            and (line := self._first_line_of(about))
        ):
            return line
        return self._line_of_verdict() or self._first_line_of(self.at.of_interest)

    def _line_of_verdict(self) -> int:
        """The line of a verdict's group and kind at which ranks wait longest; 0 if there is none.

        The line of the group alone comes before a line of several similar groups.
        """
        for key, kind in self.at.places:
            found = [
                (len(row.groups) > 1, -row.waited_ns, line)
                for line, row in enumerate(self.rows, 1)
                if key in row.groups and (not kind or kind in row.kinds)
            ]
            if found:
                return min(found)[-1]
        return 0

    def _first_line_of(self, ranks: Sequence[int]) -> int:
        """The line in which one of these ranks arrives last most often; 0 if none does.

        The first of `ranks` comes before the others.
        """
        best: dict[int, tuple[float, int]] = {}
        for line, row in enumerate(self.rows, 1):
            found = row.last
            if found.rank is not None and found.share > best.get(found.rank, (0.0, 0))[0]:
                best[found.rank] = (found.share, line)
        return next((best[rank][1] for rank in ranks if rank in best), 0)

    def rest(self) -> Line:
        """The figures of the cursor's row for which the table has no room."""
        row = self.chosen
        if row is None:
            return ()
        shown = {column.title for column, _ in self.visible_columns(self.room)}
        parts = [
            ((f"{column.title} ", "dim"), column.cell(row))
            for column in self.columns
            if column.title not in shown
        ]
        said = [part for part in parts if part[1][0] not in ("", NOT_KNOWN)]
        sampled = plain(f"{counted(row.sampled, 'op')} sampled", "dim")
        return join([*said, sampled], between=" · ")


class RowRest(LineView, can_focus=False):
    """One line below the table, with what the table has no room for."""

    def __init__(self) -> None:
        super().__init__(id="row-rest")
        self.line: Line = ()

    def show(self, line: Line) -> None:
        self.line = line
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:  # noqa: ARG002 - it is one line
        return [(*plain(" "), *self.line)]


class RankStatisticsTable(LineTable[RankFigures]):
    """Ranks; the cursor stays on its rank."""

    BINDINGS: ClassVar[list[BindingType]] = [OPEN]

    def __init__(self, at: Difference) -> None:
        super().__init__(rank_columns(at), "", id="by-rank", classes="pane")
        self.at = at

    def show_rows(self, rows: Sequence[RankFigures]) -> None:
        begins = not self.rows
        self.show(rows, lambda row: row.rank)
        lines = {row.rank: n for n, row in enumerate(rows, 1)}
        line = next((lines[rank] for rank in self.at.of_interest if rank in lines), 0)
        if begins and line:
            self.start_at(line)
