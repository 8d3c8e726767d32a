"""Finds how far the clocks of traces are apart, from collectives that all members end together.

No member can end an all-reduce, say, before all members have begun it: this bounds the offset of
two clocks, whatever the network does, and tightly if each of the two is the last to arrive now and
then. If one of them always is, the bounds are wide; but members end at nearly the same time, so the
median difference of their ends tells the offset, and the spread of the differences its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil
from statistics import median
from typing import Final, NamedTuple

FEWEST: Final = 5
"""With fewer shared collectives, the spread of their ends says nothing: only the bounds do."""
_MOST_OF: Final = 0.9
"""Share of the differences that lie within the error."""

Key = tuple[object, ...]
"""Identifies a collective on all of its members."""


class Span(NamedTuple):
    """When one member began and ended a collective: Unix times in ns, on its own clock."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much a clock is ahead of the reference's, in ns.

    It lies within `bounds`; these are None if the collectives contradict each other, because a
    clock was set or drifted meanwhile. `shared` collectives were compared with `neighbour`, the
    next rank on the way to the reference.
    """

    offset: int = 0
    error: int = 0
    bounds: tuple[int, int] | None = (0, 0)
    shared: int = 0
    neighbour: int | None = None

    @property
    def shift(self) -> int:
        """What to add to times of this clock: nothing if the offset may be an error."""
        possible = self.bounds is None or self.bounds[0] <= 0 <= self.bounds[1]
        return 0 if possible and abs(self.offset) <= self.error else -self.offset

    @property
    def error_estimated(self) -> int:
        """The likely error of shifted times."""
        error = self.error + abs(self.offset + self.shift)
        return error if self.error_at_most is None else min(error, self.error_at_most)

    @property
    def error_at_most(self) -> int | None:
        """The largest possible error of shifted times; None if it has no bound."""
        return None if self.bounds is None else max(abs(one + self.shift) for one in self.bounds)


def compared(one: Mapping[Key, Span], other: Mapping[Key, Span]) -> ClockOffset | None:
    """By how much the clock of `other` is ahead of that of `one`; None if nothing tells it."""
    pairs = [(one[key], other[key]) for key in one.keys() & other.keys()]
    if not pairs:
        return None
    # In true time, each of two members begins before the other ends.
    least = max(theirs.begin - ours.end for ours, theirs in pairs)
    most = min(theirs.end - ours.begin for ours, theirs in pairs)
    bounds = (least, most) if least <= most else None
    middle, half = (least + most) // 2, (most - least + 1) // 2
    differences = [theirs.end - ours.end for ours, theirs in pairs]
    offset = round(median(differences))
    spread = sorted(abs(one - offset) for one in differences)
    error = spread[ceil(_MOST_OF * len(spread)) - 1]
    if bounds is None:
        return ClockOffset(offset, error, None, len(pairs)) if len(pairs) >= FEWEST else None
    if len(pairs) < FEWEST or half <= error:
        return ClockOffset(middle, half, bounds, len(pairs))
    return ClockOffset(min(max(offset, least), most), error, bounds, len(pairs))


def aligned(collectives: Mapping[int, Mapping[Key, Span]]) -> dict[int, ClockOffset]:
    """The clock offsets of the ranks that can be aligned with each other, by rank.

    The reference is the lowest rank of the largest set of ranks whose collectives connect them.
    Ranks that share none are reached over others, on the way with the smallest error.
    """
    pairs: dict[int, dict[int, ClockOffset]] = {rank: {} for rank in collectives}
    ranks = sorted(collectives)
    for place, one in enumerate(ranks):
        for other in ranks[place + 1 :]:
            if (found := compared(collectives[one], collectives[other])) is not None:
                pairs[one][other], pairs[other][one] = found, _reversed(found)
    best: dict[int, ClockOffset] = {}
    seen: set[int] = set()
    for rank in ranks:
        if rank not in seen:
            found_ranks = _reached(rank, pairs)
            seen |= found_ranks.keys()
            best = max(best, found_ranks, key=len)
    return best


def _reached(
    reference: int, pairs: Mapping[int, Mapping[int, ClockOffset]]
) -> dict[int, ClockOffset]:
    """All ranks that can be reached from the reference, with the smallest errors."""
    found: dict[int, ClockOffset] = {}
    heap = [(0, reference)]
    ways = {reference: ClockOffset()}
    while heap:
        _, rank = heappop(heap)
        if rank in found:
            continue
        found[rank] = way = ways[rank]
        for other, step in pairs[rank].items():
            error = way.error + step.error
            if other not in found and (other not in ways or error < ways[other].error):
                ways[other] = _added(way, step, rank)
                heappush(heap, (error, other))
    return found


def _added(way: ClockOffset, step: ClockOffset, neighbour: int) -> ClockOffset:
    bounds = None
    if way.bounds is not None and step.bounds is not None:
        bounds = way.bounds[0] + step.bounds[0], way.bounds[1] + step.bounds[1]
    offset, error = way.offset + step.offset, way.error + step.error
    return ClockOffset(offset, error, bounds, step.shared, neighbour)


def _reversed(one: ClockOffset) -> ClockOffset:
    bounds = None if one.bounds is None else (-one.bounds[1], -one.bounds[0])
    return ClockOffset(-one.offset, one.error, bounds, one.shared)
