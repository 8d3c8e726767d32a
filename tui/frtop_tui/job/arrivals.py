"""Who arrives when: the sampled ops of groups, summed up for a group and for each rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from frtop_probe import wire
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, SampledGroup

LITTLE_NS: Final = 1_000_000
"""A clock error below this hides nothing of interest."""


@dataclass(frozen=True, slots=True)
class SkewSummary:
    """Summary of the `ops` sampled ops in which all members are known to have arrived; times in ns.

    `last` lists the ranks that came last, each with its number of ops, most frequent first.
    `delays` maps a rank to its median delay after the first member. `error_ns` bounds the clock
    error between hosts, None if nobody measured it.
    """

    ops: int
    incomplete: int
    stride: int
    skew_ns: int
    longest_ns: int
    last: tuple[tuple[int, int], ...]
    delays: dict[int, int]
    error_ns: int | None


def summary_of(group: SampledGroup) -> SkewSummary | None:
    """None if no sampled op is complete: then the last rank is unknown."""
    complete = [op for op in group.arrivals if op.complete and op.arrivals]
    if not complete:
        return None
    delays: dict[int, list[int]] = defaultdict(list)
    for op in complete:
        first = op.first_ns
        for rank, at in op.arrivals.items():
            delays[rank].append(at - first)
    errors = [op.error_ns for op in complete]
    known = [error for error in errors if error is not None]
    return SkewSummary(
        len(complete),
        len(group.arrivals) - len(complete),
        group.stride,
        round(median(op.skew_ns for op in complete)),
        max(op.skew_ns for op in complete),
        tuple(Counter(op.last_rank for op in complete).most_common()),
        {rank: round(median(ones)) for rank, ones in delays.items()},
        max(known) if len(known) == len(errors) else None,
    )


def sampled_group(statistics: JobStatistics | None, key: GroupKey) -> SampledGroup | None:
    wanted = identifier(key)
    groups = statistics.groups if statistics is not None else ()
    return next((one for one in groups if identifier(one.group) == wanted), None)


def rank_delays(groups: Iterable[SampledGroup]) -> dict[int, int | None]:
    """Each rank's median delay after the first member, in ns, in its worst group.

    None if the delay is within the clock error of its hosts.
    """
    found: dict[int, int | None] = {}
    for group in groups:
        summary = summary_of(group)
        if summary is None:
            continue
        for rank, delay in summary.delays.items():
            error = summary.error_ns
            sure = error is not None and (delay > error or error <= LITTLE_NS)
            before = found.get(rank)
            if sure:
                found[rank] = max(before or 0, delay)
            elif before is None:
                found[rank] = None
    return found


@dataclass(frozen=True, slots=True)
class LateIn:
    """Which ops to search for one in which a rank came last.

    Without `kind` or `site`, any op matches.
    """

    group: Identifier
    kind: str = ""
    site: wire.Site | None = None
