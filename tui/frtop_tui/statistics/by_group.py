"""Splits a row of alike groups by group, as far as sampled ops allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp
from frtop_tui.statistics.bandwidth import algorithm_bandwidth, bus_factor
from frtop_tui.statistics.comparison import BUCKET, measured
from frtop_tui.statistics.last_to_arrive import last_to_arrive

Place = tuple[GroupKey, str, wire.Site | None, int]
"""Group, kind, line, class of size: what sampled ops of one row and group have in common."""
ANY: Final = -1
"""Instead of a class: all classes, in a row whose sizes vary."""
COMPARED: Final = 256
"""At most this many ops of the other groups to compare a group with."""
LOOKED_AT: Final = 8
"""How many groups of a row, latest first, to compare with the others."""

LONGER: Final = 1 / 3
"""Share of a transfer by which it is longer than those of similar groups: as over a slow link."""


class GroupCalls(NamedTuple):
    """One group of a row; `waited_ns` is the total time that its ranks waited."""

    key: GroupKey
    row: CallRow
    waited_ns: int


class SampledByGroup:
    """The sampled ops of a job by group and row; made once for each answer."""

    def __init__(self, statistics: JobStatistics) -> None:
        self._groups: dict[GroupKey, SampledGroup] = {}
        self._ops: defaultdict[Place, list[SampledOp]] = defaultdict(list)
        varying = {(row.kind, row.site) for row in statistics.varying}
        for group in statistics.groups:
            self._groups[group.group] = group
            for op in group.arrivals:
                if op.complete:
                    size = op.bytes.bit_length()
                    self._ops[group.group, op.kind, op.site, size].append(op)
                    if (op.kind, op.site) in varying:
                        self._ops[group.group, op.kind, op.site, ANY].append(op)

    def groups_of(self, row: CallRow) -> list[GroupCalls]:
        """The sampled groups of a row, those with the longest waits first.

        Counts and durations are known only for all groups together.
        """
        ops = self._ops_of(row)
        return [self._calls(row, key, ops[key], ns) for key, ns in _waited(row, ops)]

    def groups_apart(self, row: CallRow) -> list[GroupCalls]:
        """The groups that differ from the others, not by chance, the latest first.

        Their ranks wait longer for the last one, or data moves longer once all have arrived: the
        first `LOOKED_AT` groups in each of these are compared.
        """
        ops = self._ops_of(row)
        # A comparison needs only a few ops of each other group, however many there are.
        each = max(1, COMPARED // max(1, len(ops)))
        waited = _waited(row, ops)
        ns, found = dict(waited), dict[GroupKey, GroupCalls]()
        for times, order, is_apart in (
            (_skews, [key for key, _ in waited], _is_later),
            (_transfers, _slowest(ops), _is_slower),
        ):
            values = {key: times(several[-each:]) for key, several in ops.items()}
            for key in order[:LOOKED_AT]:
                others = [ns for other, several in values.items() if other != key for ns in several]
                one = self._calls(row, key, ops[key], ns[key])
                if key not in found and is_apart(one.row, ops[key], others):
                    found[key] = one
        return [*found.values()]

    def _ops_of(self, row: CallRow) -> dict[GroupKey, list[SampledOp]]:
        size = ANY if row.sizes else row.size.bit_length() - 1 if row.size else 0
        return {
            key: several for key in row.groups
            if (several := self._ops.get((key, row.kind, row.site, size)))
        }  # fmt: skip

    def _calls(
        self, row: CallRow, key: GroupKey, ops: Sequence[SampledOp], waited_ns: int
    ) -> GroupCalls:
        return GroupCalls(key, _of_group(row, self._groups[key], ops), waited_ns)


def _waited(
    row: CallRow, ops: Mapping[GroupKey, Sequence[SampledOp]]
) -> list[tuple[GroupKey, int]]:
    """The total time that ranks of each group waited, the longest first."""
    sampled = sum(map(len, ops.values()))
    waited = {
        key: round(median(op.skew_ns for op in several) * row.count * len(several) / sampled)
        for key, several in ops.items()
    }
    return sorted(waited.items(), key=lambda one: (-one[1], len(one[0].name), one[0].name))


def _of_group(row: CallRow, group: SampledGroup, ops: Sequence[SampledOp]) -> CallRow:
    transfers = [op.transfer_ns for op in ops if op.transfer_ns is not None]
    clear = [op for op in ops if op.error_ns is not None and op.skew_ns > op.error_ns]
    last = Counter(op.last_rank for op in clear)
    algorithm, factor = algorithm_bandwidth(ops), bus_factor(row.kind, len(group.members))
    ordered = sorted(last.items(), key=lambda item: (-item[1], item[0]))
    return replace(
        row, groups=(group.group,), ranks=group.members, count=0, bytes=0, rate=0.0, timed=0,
        p50_ns=None, p95_ns=None, max_ns=None, total_ns=0, waited_ns=0, late=0, pending=0,
        sampled=len(ops), skew_ns=round(median(op.skew_ns for op in ops)), mean_skew_ns=None,
        transfer_ns=round(median(transfers)) if transfers else None,
        algorithm_bandwidth=algorithm,
        bus_bandwidth=algorithm * factor if algorithm is not None and factor else None,
        last=tuple(ordered),
    )  # fmt: skip


def _skews(ops: Sequence[SampledOp]) -> list[int]:
    return [op.skew_ns for op in ops]


def _transfers(ops: Sequence[SampledOp]) -> list[int]:
    return [op.transfer_ns for op in ops if op.transfer_ns is not None]


def _slowest(ops: Mapping[GroupKey, Sequence[SampledOp]]) -> list[GroupKey]:
    """The groups whose transfers are known, the longest first."""
    medians = {key: median(known) for key, those in ops.items() if (known := _transfers(those))}
    return sorted(medians, key=lambda key: (-medians[key], len(key.name), key.name))


def _is_later(one: CallRow, ops: Sequence[SampledOp], others: Sequence[int]) -> bool:
    """Whether this group names a rank, and its ops wait longer than the other groups'."""
    return last_to_arrive([one]).rank is not None and _exceeds(_skews(ops), ops, others, BUCKET)


def _is_slower(_: CallRow, ops: Sequence[SampledOp], others: Sequence[int]) -> bool:
    """Whether its data moves half as long again as that of the other groups."""
    return _exceeds(_transfers(ops), ops, others, LONGER)


def _exceeds(
    values: Sequence[int], ops: Sequence[SampledOp], others: Sequence[int], share: float
) -> bool:
    """Whether the values of a group exceed those of the others.

    The difference must exceed the noise, as when `frtop diff` compares two windows, a share of the
    value, and the clock error.
    """
    found = measured(others, values)
    if found.change != "slower" or found.before_ns is None or found.after_ns is None:
        return False
    error = max(op.error_ns or 0 for op in ops)
    return found.after_ns - found.before_ns > max(error, share * found.after_ns)
