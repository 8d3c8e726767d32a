"""Adds up rows of calls over ranks, slices of time and alike groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add, attrgetter
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.statistics.call_columns import added_up
from frtop_probe.statistics.calls import quantile
from frtop_probe.wire.values import storable
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow
from frtop_tui.statistics.alike_groups import GroupAcross
from frtop_tui.statistics.bandwidth import algorithm_bandwidth, bus_factor
from frtop_tui.statistics.sampled_ops import JoinedOp, RowKey

MOST_ROWS: Final = 16_384
"""Most rows of a job, whatever agents send."""
NAMED: Final = 16
"""At most this many ranks that came last at a row's ops."""
OpsByGroup = Mapping[int, Sequence[JoinedOp]]
"""Sampled ops of one row by the index of their group."""


class CallSums:
    """The sums of one row, over any number of ranks.

    `ranks` and `groups` say in which slice each was last seen. All slices share them: to unite
    those of each slice would take a third of the time to build statistics of thousands of ranks.
    """

    __slots__ = ("bytes", "count", "durations", "groups", "late", "max_ns", "pending", "ranks",
                 "timed", "total_ns", "waited_ns")  # fmt: skip

    def __init__(self, ranks: dict[int, int], groups: dict[GroupKey, int]) -> None:
        self.count = self.bytes = self.timed = self.total_ns = self.max_ns = 0
        self.waited_ns = self.late = self.pending = 0
        self.durations: list[int] = []  # counts by bucket
        self.ranks, self.groups = ranks, groups

    def merge(self, other: CallSums, *, newest: bool) -> None:
        """Adds the figures of a slice; unless it is the `newest`, its pending ops have ended."""
        self.count += other.count
        self.bytes += other.bytes
        self.timed += other.timed
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.waited_ns += other.waited_ns
        self.late += other.late
        self.pending += other.pending if newest else 0
        self.add_durations(0, other.durations)

    def add_durations(self, first: int, counts: Sequence[int]) -> None:
        """Adds the counts of the buckets from `first` on."""
        known, end = self.durations, first + len(counts)
        known += [0] * (end - len(known))
        known[first:end] = map(add, known[first:end], counts)


class AlikeRanks:
    """Ranks that have the same rows in the same order in a slice, as most ranks of a job have.

    They are added up together, field by field, which takes a fifth of the time.

    Attributes:
        keys: of each row, from place 1 on, as `SampledOps.call` counts; the first is None.
    """

    __slots__ = ("_calls", "_groups", "_local", "_ranks", "_sums", "keys")

    def __init__(
        self, keys: Sequence[RowKey], sums: Sequence[CallSums | None], local: Sequence[int]
    ) -> None:
        """Args: sums: where to add a row, None: it does not count; local: its group on a rank."""
        self.keys = (None, *keys)
        self._sums, self._local = sums, local
        self._calls: list[wire.CallColumns] = []
        self._ranks: list[int] = []
        self._groups: defaultdict[int, set[GroupKey]] = defaultdict(set)

    def take(self, rank: int, calls: wire.CallColumns, groups: Mapping[int, GroupAcross]) -> None:
        self._calls.append(calls)
        self._ranks.append(rank)
        for local, group in groups.items():
            self._groups[local].add(group.key)

    def add_up(self, number: int) -> None:
        """Adds what was taken to the sums of each row in slice `number`."""
        if not self._calls:
            return
        by_field = zip(*map(_FIGURES, self._calls), strict=True)
        figures = zip(*(map(sum, zip(*one, strict=True)) for one in by_field), strict=True)
        longest = map(max, zip(*(one.max_ns for one in self._calls), strict=True))
        first, durations = added_up(self._calls)
        ranks = dict.fromkeys(self._ranks, number)
        groups = {local: dict.fromkeys(one, number) for local, one in self._groups.items()}
        rows = zip(self._sums, figures, longest, self._local, strict=True)
        for row, (sums, (count, *others), max_ns, group) in enumerate(rows):
            if sums is None:
                continue
            size, timed, timed_ns, waited_ns, late, pending = others
            sums.count += count
            sums.bytes += size
            sums.timed += timed
            sums.total_ns += timed_ns
            sums.max_ns = max(sums.max_ns, max_ns)
            sums.waited_ns += waited_ns
            sums.late += late
            sums.pending += pending
            sums.add_durations(first, durations[row :: len(self._sums)])
            sums.ranks.update(ranks)
            sums.groups.update(groups.get(group, {}))
        self._calls.clear()
        self._ranks.clear()
        self._groups.clear()


_FIGURES: Final = attrgetter(
    "count", "total_bytes", "timed", "timed_ns", "waited_ns", "late", "pending"
)


class Rows(NamedTuple):
    """Rows of a job, those whose ops took the longest in total first; see `JobStatistics`."""

    calls: tuple[CallRow, ...]
    varying: tuple[CallRow, ...]


def rows_of(
    sums: Mapping[RowKey, CallSums],
    ops: Mapping[RowKey, OpsByGroup],
    seconds: Mapping[int, float],
) -> Rows:
    calls = {key: _row(key, one, ops.get(key, {}), seconds) for key, one in
             sums.items() if one.count > 0}  # fmt: skip
    together = []
    for keys in varying(calls, ops):
        together.append(_together(keys, sums, ops, seconds))
        for key in keys:
            calls[key] = replace(calls[key], in_varying=True)
    return Rows(_sorted(calls.values()), _sorted(together))


def _sorted(rows: Iterable[CallRow]) -> tuple[CallRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, -row.count, row.kind)))


def _together(
    keys: Sequence[RowKey],
    sums: Mapping[RowKey, CallSums],
    ops: Mapping[RowKey, OpsByGroup],
    seconds: Mapping[int, float],
) -> CallRow:
    """The row for several size classes; `keys` begins with the smallest."""
    total = CallSums({}, {})
    joined: defaultdict[int, dict[int, JoinedOp]] = defaultdict(dict)
    for key in keys:
        total.merge(sums[key], newest=True)
        total.ranks.update(sums[key].ranks)
        total.groups.update(sums[key].groups)
        for group, several in ops.get(key, {}).items():
            joined[group].update((op.number, op) for op in several)
    found = _row(keys[-1], total, {n: [*one.values()] for n, one in joined.items()}, seconds)
    means = [round(sums[key].bytes / sums[key].count) for key in keys if key[3]]
    return replace(found, sizes=(means[0], means[-1]))


def _row(
    key: RowKey,
    sums: CallSums,
    ops: OpsByGroup,
    seconds: Mapping[int, float],
) -> CallRow:
    kind, (_, members), site, size_class, p2p, on_device = key
    by_group = [here for one in ops.values() if (here := [op for op in one if op.complete])]
    joined = [op for one in by_group for op in one]
    # A few of many groups may be late: a median over all would say that nobody waits.
    waits = sum(len(one) * median(op.skew_ns for op in one) for one in by_group)
    transfers = [op.transfer_ns for op in joined if op.transfer_ns is not None]
    algorithm = algorithm_bandwidth(op.result for op in joined if op.result is not None)
    factor = bus_factor(kind, members)
    all_ranks = len(sums.ranks) == len(seconds)
    counted = seconds.values() if all_ranks else map(seconds.__getitem__, sums.ranks)
    mean = sum(counted) / max(1, len(sums.ranks))
    durations = dict(enumerate(sums.durations))
    # Within the clock error, nobody knows which rank is last.
    clear_skews = [op for op in joined if op.is_clear]
    last = Counter(op.last_rank for op in clear_skews)
    ordered = sorted(last.items(), key=lambda item: (-item[1], item[0]))
    return CallRow(
        kind=kind,
        groups=tuple(sorted(sums.groups, key=_order)),
        site=site,
        size=1 << size_class if size_class else 0,
        ranks=tuple(sorted(sums.ranks)),
        p2p=p2p,
        on_device=on_device,
        count=storable(sums.count),
        bytes=storable(sums.bytes),
        rate=sums.count / mean if mean > 0 else 0.0,
        timed=storable(sums.timed),
        p50_ns=quantile(durations, 0.5, sums.max_ns),
        p95_ns=quantile(durations, 0.95, sums.max_ns),
        max_ns=sums.max_ns or None,
        total_ns=storable(sums.total_ns),
        waited_ns=storable(sums.waited_ns),
        late=storable(sums.late),
        pending=storable(sums.pending),
        sampled=len(joined),
        skew_ns=round(median(op.skew_ns for op in joined)) if joined else None,
        mean_skew_ns=round(waits / len(joined)) if joined else None,
        transfer_ns=round(median(transfers)) if transfers else None,
        algorithm_bandwidth=algorithm,
        bus_bandwidth=algorithm * factor if algorithm is not None and factor else None,
        last=tuple(ordered[:NAMED]),
        members=members,
    )


def _order(key: GroupKey) -> tuple[int, str, str, int]:
    return (len(key.name), key.name, key.ranks, key.epoch)


def ops_by_row(groups: Iterable[Sequence[JoinedOp]]) -> dict[RowKey, dict[int, list[JoinedOp]]]:
    """The sampled ops of each row, by the index of the group."""
    found: defaultdict[RowKey, dict[int, list[JoinedOp]]] = defaultdict(dict)
    for place, ops in enumerate(groups):
        for op in ops:
            for row in op.rows:
                found[row].setdefault(place, []).append(op)
    return found


MOST_SIZES: Final = 4
"""How many size classes of one line have rows of their own."""
Place = tuple[str, tuple[str, int], wire.Site | None, bool, bool]
"""What the classes of one line have in common."""


def varying(
    keys: Iterable[RowKey], ops: Mapping[RowKey, Mapping[int, Sequence[JoinedOp]]]
) -> Iterator[list[RowKey]]:
    """The rows that become one row in a table.

    Either they have many classes, or the members of one op give it different sizes: then skew, and
    which rank arrives last, belong to no single class.
    """
    by_place: defaultdict[Place, list[RowKey]] = defaultdict(list)
    for key in keys:
        by_place[_place(key)].append(key)
    for place, several in by_place.items():
        if len(several) > MOST_SIZES or (
            len(several) > 1 and _have_ops_in_common(place, several, ops)
        ):
            yield sorted(several, key=lambda key: key[3])


def _place(key: RowKey) -> Place:
    kind, groups, site, _, p2p, on_device = key
    return kind, groups, site, p2p, on_device


def _have_ops_in_common(
    place: Place, keys: Sequence[RowKey], ops: Mapping[RowKey, Mapping[int, Sequence[JoinedOp]]]
) -> bool:
    joined = (op for key in keys for of_group in ops.get(key, {}).values() for op in of_group)
    return any(
        len(op.rows) > 1 and sum(_place(row) == place for row in op.rows) > 1 for op in joined
    )
