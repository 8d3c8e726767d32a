"""Which ranks, and which groups, can be compared: those with the same work by design.

Stages of a pipeline may differ in work, and the first one arrives last at the end of a step by
design. So ranks that send to each other are compared only with ranks at the same place of similar
groups; ranks whose place is not known are not compared. Nor are ranks if one issues far more ops
than the other: it has other work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.diagnosis.thresholds import OTHER_WORK
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import GroupKey, without_number
from frtop_tui.job.statistics import JobStatistics, SampledGroup

NEED_ALL: Final = frozenset({
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single",
    "barrier", "monitored_barrier",
})  # fmt: skip
"""Kinds that no rank can finish before all have arrived. A broadcast's root waits for no rank."""
_ON_HOSTS: Final = frozenset({"", "gloo", "mpi"})
"""Backends whose ops run on hosts; "" is unknown, without a sign of a device."""

Place = tuple[int, ...]
"""A rank's place in each group in which it sends or receives."""


def places(ranks: Mapping[int, Rank]) -> Mapping[int, Place]:
    """The places of ranks that send or receive; all others have the place `()`."""
    found: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for rank, view in ranks.items():
        for number, progress in view.group_progress.items():
            group = view.groups.get(number)
            if progress.p2p and group is not None:
                found[rank].add((group.ranks, _place_in(group.ranks).get(rank, -1)))
    return {rank: tuple(sorted(place for _, place in theirs)) for rank, theirs in found.items()}


@lru_cache(maxsize=4096)
def _place_in(ranks: str) -> Mapping[int, int]:
    try:
        return {rank: place for place, rank in enumerate(sorted(unfold(ranks)))}
    except ValueError:  # from a file
        return {}


def op_rates(statistics: JobStatistics) -> Mapping[int, float]:
    """How many collectives per ns each rank issued, in all its groups together."""
    rates: defaultdict[int, float] = defaultdict(float)
    for group in statistics.groups:
        if len(group.arrivals) > 1:
            first, last = group.arrivals[0], group.arrivals[-1]
            rate = (last.number - first.number) / max(1, last.last_ns - first.last_ns)
            for rank in group.members:
                rates[rank] += rate
    return rates


def peers_of(
    members: Sequence[int], known: Mapping[int, Place], rates: Mapping[int, float]
) -> list[tuple[int, ...]]:
    """Sets of two or more members with the same work."""
    alike: defaultdict[Place, list[int]] = defaultdict(list)
    for rank in members:
        alike[known.get(rank, ())].append(rank)
    found = (those for ranks in alike.values() for those in _of_equal_rate(ranks, rates))
    return [tuple(sorted(ranks)) for ranks in found if len(ranks) > 1]


def _of_equal_rate(ranks: Sequence[int], rates: Mapping[int, float]) -> list[list[int]]:
    found: list[list[int]] = []
    least = 0.0
    for rank in sorted(ranks, key=lambda rank: rates.get(rank, 0.0)):
        rate = rates.get(rank, 0.0)
        if not found or rate > OTHER_WORK * least:
            found.append([])
            least = rate
        found[-1].append(rank)
    return found


def on_devices(frame: BaseFrame) -> frozenset[GroupKey]:
    """Groups whose ops may run on devices: hosts issue them early, and do not wait."""
    return frozenset(group.key for group in frame.groups if group.backend not in _ON_HOSTS)


def axis_of(
    group: SampledGroup, description: str, hosts: Mapping[int, str]
) -> tuple[str, int, int]:
    """What similar groups have in common: description without its number, members, their hosts.

    Within one host data takes another way than between hosts.
    """
    label = "" if description == "undefined" else without_number(description)
    return label, len(group.members), len({hosts.get(rank, "") for rank in group.members})
