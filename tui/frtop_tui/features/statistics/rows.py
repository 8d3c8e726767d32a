"""Statistics as rows: calls by line, op or group, merged if several share a row. Pure.

Figures that cannot be merged become a range: of several medians, the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.statistics import CallRow, JobStatistics
from frtop_tui.job.units import NOT_KNOWN, byte_sizes
from frtop_tui.statistics.by_group import GroupCalls, SampledByGroup
from frtop_tui.statistics.last_to_arrive import LastToArrive, last_to_arrive
from frtop_tui.statistics.orders import share_of_step, waited_ns
from frtop_tui.statistics.step_table import newest_steps
from frtop_tui.text.statistics_words import alike_words, mean_sizes

MOST_OPS: Final = 64
"""The newest sampled ops of a group that count: 64 in a group of 10,000 ranks take 0.3 s."""


class RankFigures(Struct, frozen=True):
    """One rank. Times in ns, None if not known.

    `others_ns` is how much less the other members would have waited if this rank had come together
    with the one before it, summed over members and sampled ops.
    """

    rank: int
    host: str
    ops: int = 0
    last: int = 0
    after_ns: int | None = None
    others_ns: int = 0
    step_ns: int | None = None
    data_ns: int | None = None
    steps: int = 0

    @property
    def text(self) -> str:
        """What a filter searches."""
        return f"rank {self.rank} {self.host}".lower()


def rank_rows(statistics: JobStatistics, hosts: dict[int, str]) -> list[RankFigures]:
    """A row for each rank that answered, in order of rank."""
    ops: dict[int, int] = {}
    last: dict[int, int] = {}
    others: dict[int, int] = {}
    after: dict[int, list[int]] = {}
    for group in statistics.groups:
        for op in group.arrivals[-MOST_OPS:]:
            if not op.complete or len(op.arrivals) < 2:
                continue
            first, latest, before = _ends(op.arrivals)
            for rank, at in op.arrivals.items():
                ops[rank] = ops.get(rank, 0) + 1
                after.setdefault(rank, []).append(at - first)
            if latest[0] - before > (op.error_ns or 0):
                rank = latest[1]
                last[rank] = last.get(rank, 0) + 1
                waited = (latest[0] - before) * (len(op.arrivals) - 1)
                others[rank] = others.get(rank, 0) + waited
    rows = []
    newest = newest_steps(statistics)
    for rank in sorted({*statistics.ranks, *ops}):
        steps = newest.get(rank, ())
        data = [step.data_ns for step in steps if step.data_ns is not None]
        rows.append(
            RankFigures(
                rank,
                hosts.get(rank, ""),
                ops.get(rank, 0),
                last.get(rank, 0),
                int(median(after[rank])) if rank in after else None,
                others.get(rank, 0),
                int(median(step.took_ns for step in steps)) if steps else None,
                int(median(data)) if data else None,
                len(statistics.steps.get(rank, ())),
            )
        )
    return rows


def _ends(arrivals: Mapping[int, int]) -> tuple[int, tuple[int, int], int]:
    """The first time, the last time with its rank, and the last but one time."""
    times = sorted((at, rank) for rank, at in arrivals.items())
    return times[0][0], times[-1], times[-2][0]


Grouping = Literal["line", "op", "group", "rank"]
GROUPINGS: Final[tuple[Grouping, ...]] = ("line", "op", "group", "rank")
Range = tuple[float, float]
"""The smallest and the largest value in a row."""
MOST_APART: Final = 3
"""How many groups that are later than similar ones get a line of their own below their row."""
NAMED: Final = 256
"""A filter finds up to this many groups of a row by their names."""


class StatisticsRow(Struct, frozen=True):
    """One line of the table. Times in ns; None if not known.

    `waited_ns` is the total time that ranks waited for the last one to arrive, in the samples.
    """

    key: tuple[object, ...]
    line: str
    op: str
    group: str
    sizes: Range | None
    ranks: frozenset[int]
    count: int = 0
    rate: float = 0.0
    bytes: int = 0
    timed: int = 0
    total_ns: int = 0
    waited_ns: int = 0
    pending: int = 0
    p50: Range | None = None
    p95: Range | None = None
    max_ns: int | None = None
    skew: Range | None = None
    transfer: Range | None = None
    algorithm: Range | None = None
    bus: Range | None = None
    sampled: int = 0
    last: LastToArrive = LastToArrive()
    share: Range | None = None
    kinds: frozenset[str] = frozenset()
    groups: tuple[GroupKey, ...] = ()
    names: str = ""
    calls: tuple[CallRow, ...] = ()
    of_row: tuple[object, ...] | None = None
    """For one group of a row, the key of that row; only samples of such a group are known."""

    @property
    def size(self) -> str:
        """Bytes of one op; `414 B-557 kB` if they differ."""
        return NOT_KNOWN if self.sizes is None else byte_sizes(*self.sizes)

    @property
    def text(self) -> str:
        """What a filter searches."""
        return f"{self.line} {self.op} {self.group} {self.size} {self.names}".lower()


def call_rows(
    statistics: JobStatistics, grouping: Grouping, labels: dict[GroupKey, str]
) -> list[StatisticsRow]:
    buckets: dict[tuple[object, ...], list[CallRow]] = {}
    key_of = _KEYS[grouping]
    for call in statistics.rows:
        buckets.setdefault(key_of(call, labels), []).append(call)
    return [_row(key, calls, labels) for key, calls in buckets.items()]


def _label(call: CallRow, labels: dict[GroupKey, str]) -> str:
    return alike_words(labels.get(key, key.name) for key in call.groups)


_KEYS: Final[dict[str, Callable[[CallRow, dict[GroupKey, str]], tuple[object, ...]]]] = {
    "line": lambda call, labels: (
        call.site,
        call.kind,
        _label(call, labels),
        "varying" if call.sizes else call.size,
    ),
    "op": lambda call, _: (call.kind,),
    "group": lambda call, labels: (_label(call, labels),),
}


def _row(
    key: tuple[object, ...], calls: Sequence[CallRow], labels: dict[GroupKey, str]
) -> StatisticsRow:
    longest = [call.max_ns for call in calls if call.max_ns is not None]
    groups = tuple(dict.fromkeys(key for call in calls for key in call.groups))
    names = [labels.get(key, key.name) for key in groups]
    return StatisticsRow(
        key,
        _several({site_name(call.site) or "no line" for call in calls}, "lines"),
        _several({call.kind for call in calls}, "ops"),
        alike_words(names),
        _range(size for call in calls for size in mean_sizes(call)),
        frozenset().union(*(call.ranks for call in calls)),
        sum(call.count for call in calls),
        sum(call.rate for call in calls),
        sum(call.bytes for call in calls),
        sum(call.timed for call in calls),
        sum(call.total_ns for call in calls),
        sum(waited_ns(call) for call in calls),
        sum(call.pending for call in calls),
        _range(call.p50_ns for call in calls),
        _range(call.p95_ns for call in calls),
        max(longest, default=None),
        _range(call.skew_ns for call in calls),
        _range(call.transfer_ns for call in calls),
        _range(call.algorithm_bandwidth for call in calls),
        _range(call.bus_bandwidth for call in calls),
        sum(call.sampled for call in calls),
        last_to_arrive(calls),
        _range(share_of_step(call) for call in calls),
        frozenset(call.kind for call in calls),
        groups,
        " ".join(names[:NAMED]),
        tuple(calls),
    )


def group_rows(
    row: StatisticsRow,
    by_group: SampledByGroup,
    labels: dict[GroupKey, str],
    blamed: Collection[GroupKey],
    *,
    unfolded: bool,
) -> list[StatisticsRow]:
    """The lines below a row that has several similar groups.

    `blamed` are the groups of verdicts. `unfolded`: all sampled groups; otherwise only
    those that differ from the others.
    """
    if len(row.groups) < 2:
        return []
    groups = by_group.groups_of if unfolded else by_group.groups_apart
    found = [one for call in row.calls for one in groups(call)]
    if not unfolded:
        found = sorted(found, key=lambda one: one.key not in blamed)[:MOST_APART]
    return [_of_group(row, one, labels) for one in found]


def _of_group(row: StatisticsRow, one: GroupCalls, labels: dict[GroupKey, str]) -> StatisticsRow:
    made = _row((*row.key, one.key), [one.row], labels)
    return replace(made, waited_ns=one.waited_ns, of_row=row.key)


def _several(names: set[str], plural: str) -> str:
    return names.pop() if len(names) == 1 else f"{len(names)} {plural}"


def _range(values: Iterable[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def matches(text: str, words: str) -> bool:
    """Whether a row's text contains all words of a filter; `!` before a word negates it."""
    for word in words.lower().split():
        negated = word.startswith("!")
        if (word.removeprefix("!") in text) == negated:
            return False
    return True
