"""Which ranks can be compared: those that have the same work by design.

Stages of a pipeline may differ in work, and the first one is the last to come to whatever ends a
step: that is how it was built. So ranks that send to each other are compared only with ranks at the
same place of groups that are alike. Ranks of which nothing tells the place are compared with none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.job.statistics import CallRow, JobStatistics

NEED_ALL: Final = frozenset({
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single",
    "barrier", "monitored_barrier",
})  # fmt: skip
"""Kinds that no rank can finish before all have come. The root of a broadcast waits for nobody."""

Place = tuple[int, ...]
"""At which place of each group in which it sends or receives a rank is."""


def places(calls: Sequence[CallRow]) -> Mapping[int, Place]:
    """Of each rank that sends or receives; all others have the place `()`."""
    found: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for row in calls:
        if row.p2p and row.count:
            senders = set(row.ranks)
            for group in row.groups:
                for place, rank in enumerate(sorted(unfold(group.ranks))):
                    if rank in senders:
                        found[rank].add((group.ranks, place))
    return {rank: tuple(sorted(place for _, place in theirs)) for rank, theirs in found.items()}


def peers_of(members: Sequence[int], known: Mapping[int, Place]) -> list[tuple[int, ...]]:
    """The members with the same work, where there are two or more of it."""
    alike: defaultdict[Place, list[int]] = defaultdict(list)
    for rank in members:
        alike[known.get(rank, ())].append(rank)
    return [tuple(ranks) for ranks in alike.values() if len(ranks) > 1]


class OpsOnDevices:
    """Which ops are of devices: their hosts issue them early, and wait for none."""

    def __init__(self, statistics: JobStatistics) -> None:
        self._known = {
            (row.kind, group.name, group.ranks)
            for row in statistics.calls
            if row.on_device
            for group in row.groups
        }

    def has(self, kind: str, name: str, ranks: str) -> bool:
        return (kind, name, ranks) in self._known

    @property
    def some(self) -> bool:
        return bool(self._known)
