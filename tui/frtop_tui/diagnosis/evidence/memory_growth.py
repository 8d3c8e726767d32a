"""Whether the memory of ranks grows without a pause, as with a leak.

The newest figures do not say it, so it needs the history: of the host that a screen shows, and in
captures and black boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from frtop_tui.diagnosis.evidence.host_fact import HostFact
from frtop_tui.diagnosis.thresholds import GROWTH_BLOCKS, GROWTH_LEFT_S, GROWTH_NS
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges

MINUTE_NS = 60_000_000_000


def growth_facts(gauges: HostGauges) -> tuple[HostFact, ...]:
    """One for each rank that grows, if together they would use up the host or their cgroup."""
    times = gauges.past_times()
    growing = [
        (rank, pace)
        for rank in gauges.of_kind("rank")
        if (pace := pace_of(times, gauges.past(rank, "mem"))) > 0
    ]
    facts = []
    for rank, pace in growing:
        room = _room(gauges, rank)
        together = sum(other for one, other in growing if _shares(gauges, rank, one))
        left_s = None if room is None else round(60 * room / together)
        if left_s is not None and left_s <= GROWTH_LEFT_S:
            facts.append(
                HostFact("memory grows", rank.name, rank.keys, pace, left_s, times[0], True)
            )
    return tuple(facts)


def pace_of(times: Sequence[int], values: Sequence[int]) -> int:
    """Bytes a minute by which the least of a part of the time has grown; 0 if it has not in each.

    Args:
        times: of the values, in ns, oldest first.
        values: in bytes; `UNKNOWN` where nothing was read.
    """
    known = [(at, value) for at, value in zip(times, values, strict=False) if value != UNKNOWN]
    if len(known) < 2 * GROWTH_BLOCKS or known[-1][0] - known[0][0] < GROWTH_NS:
        return 0
    begin, length = known[0][0], known[-1][0] - known[0][0] + 1
    least: list[int | None] = [None] * GROWTH_BLOCKS
    for at, value in known:
        place = (at - begin) * GROWTH_BLOCKS // length
        before = least[place]
        least[place] = value if before is None else min(before, value)
    found = [value for value in least if value is not None]
    if len(found) < GROWTH_BLOCKS or any(after <= before for before, after in pairwise(found)):
        return 0
    passed_ns = length * (GROWTH_BLOCKS - 1) / GROWTH_BLOCKS
    return round((found[-1] - found[0]) * MINUTE_NS / passed_ns)


def _room(gauges: HostGauges, rank: GaugedSubject) -> int | None:
    """The memory that is left to a rank: of its host or its cgroup, what is less."""
    free = gauges.host.get("mem_available")
    rooms = [free] if free is not None else []
    group = _cgroup(gauges, rank)
    if group is not None and group.values.get("mem_limit") and "mem_used" in group.values:
        rooms.append(max(0, group.values["mem_limit"] - group.values["mem_used"]))
    return min(rooms, default=None)


def _shares(gauges: HostGauges, rank: GaugedSubject, other: GaugedSubject) -> bool:
    """Whether both take from the same memory: the host's, or that of one cgroup with a limit."""
    group = _cgroup(gauges, rank)
    if group is None or not group.values.get("mem_limit"):
        return True
    return _cgroup(gauges, other) is group


def _cgroup(gauges: HostGauges, rank: GaugedSubject) -> GaugedSubject | None:
    keys = set(rank.keys)
    groups = (one for one in gauges.of_kind("cgroup") if keys & set(one.keys))
    return next(groups, None) if keys else None
