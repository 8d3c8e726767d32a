"""A row of several groups that are alike, group by group, as far as sampled ops tell of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp
from frtop_tui.statistics.bandwidth import algorithm_bandwidth, bus_factor
from frtop_tui.statistics.comparison import BUCKET, measured
from frtop_tui.statistics.last_to_come import last_to_come

Place = tuple[GroupKey, str, wire.Site | None, int]
"""Group, kind, line, class of size: what sampled ops of one row and group have in common."""
COMPARED: Final = 256
"""Ops of the others that a group is compared with, if these are fewer groups."""


class GroupCalls(NamedTuple):
    """One group of a row. `apart`: later than its like, and not by chance."""

    key: GroupKey
    row: CallRow
    waited_ns: int
    apart: bool


class SampledByGroup:
    """The sampled ops of a job by group and row; made once for each answer."""

    def __init__(self, statistics: JobStatistics) -> None:
        self._groups: dict[GroupKey, SampledGroup] = {}
        self._ops: defaultdict[Place, list[SampledOp]] = defaultdict(list)
        for group in statistics.groups:
            self._groups[group.group] = group
            for op in group.arrivals:
                if op.complete:
                    size = op.bytes.bit_length()
                    self._ops[group.group, op.kind, op.site, size].append(op)

    def groups_of(self, row: CallRow, most: int | None = None) -> list[GroupCalls]:
        """The groups of a row that were sampled, those first for which ranks waited longest.

        Counts and durations are of all groups together, and known of none by itself.

        Args:
            row: of several groups.
            most: so many groups; None: all.
        """
        size = row.size.bit_length() - 1 if row.size else 0
        ops = {
            key: several for key in row.groups
            if (several := self._ops.get((key, row.kind, row.site, size)))
        }  # fmt: skip
        sampled = sum(map(len, ops.values()))
        waited = {
            key: round(median(op.skew_ns for op in several) * row.count * len(several) / sampled)
            for key, several in ops.items()
        }
        ordered = sorted(ops, key=lambda key: (-waited[key], len(key.name), key.name))
        # A comparison needs a few ops of each of the others, however many they are.
        each = max(1, COMPARED // max(1, len(ops)))
        found = []
        for key in ordered[:most]:
            one = _of_group(row, self._groups[key], ops[key])
            others = [op.skew_ns for other in ops if other != key for op in ops[other][-each:]]
            apart = _is_apart(one, ops[key], others)
            found.append(GroupCalls(key, one, waited[key], apart))
        return found


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


def _is_apart(one: CallRow, ops: Sequence[SampledOp], others: Sequence[int]) -> bool:
    """Whether a rank is named in this group, and its ops wait for longer than those of the others.

    By more than the noise and a bucket, as `frtop diff` compares two windows, and by more than
    clocks may be wrong.
    """
    if last_to_come([one]).rank is None:
        return False
    found = measured(others, [op.skew_ns for op in ops])
    if found.change != "slower" or found.before_ns is None or found.after_ns is None:
        return False
    error = max(op.error_ns or 0 for op in ops)
    return found.after_ns - found.before_ns > max(error, BUCKET * found.after_ns)
