"""The test: who is late in part after part, more often than chance and by enough to matter.

In each part those above the widest gap of delays are late, at most half of all. Were nobody
slower than the others, who is late would change from part to part as dice do. So the number of
parts in which one is late is compared with the binomial distribution. It is a sign test: one
checkpoint of a minute counts as one part, however long it took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, lgamma, log
from statistics import median
from typing import Generic, NamedTuple

from frtop_tui.diagnosis.detectors.slow.parts import One, Part
from frtop_tui.diagnosis.thresholds import (
    HALF_WINDOW_NS,
    MIN_SLOW_PARTS,
    MIN_SLOW_SHARE,
    SLOW_CHANCE,
)


class Straggling(NamedTuple, Generic[One]):
    """Who is late, and in which parts.

    Attributes:
        who: as few as explain it.
        since_ns: begin of the first part from which on they are late.
        late: parts in which they are, of `parts` since then.
        share: of the time, that all others lose: the median of the parts.
        twice: whether both halves of the time show it, each by itself.
        at_least: whether it began before the first part, or with it.
    """

    who: tuple[One, ...]
    since_ns: int
    late: int
    parts: int
    share: float
    twice: bool
    at_least: bool


def straggling(parts: Sequence[Part[One]], tests: int = 1) -> Straggling[One] | None:
    """Those who are late in most of the last parts; None if that may be chance, or costs little.

    Args:
        parts: oldest first.
        tests: in how many windows one is looked for at this time: each has its own chance.
    """
    if len(parts) < MIN_SLOW_PARTS:
        return None
    late = [late_of(part) for part in parts]
    counts = Counter(one for those in late for one in those)
    if not counts:
        return None
    begin = _begin(late, counts.most_common(1)[0][0])
    found = _significant(parts[begin:], late[begin:], tests)
    if not found:
        return None
    since_ns, until_ns = parts[begin].from_ns, parts[-1].to_ns
    half_ns = (since_ns + until_ns) // 2
    middle = next(n for n in range(begin, len(parts)) if parts[n].to_ns >= half_ns) + 1
    halves = ((begin, middle), (middle, len(parts)))
    twice = half_ns - since_ns >= HALF_WINDOW_NS and all(
        _significant(parts[first:last], late[first:last], tests) == found for first, last in halves
    )
    return Straggling(
        found,
        since_ns,
        sum(those.issuperset(found) for those in late[begin:]),
        len(parts) - begin,
        median(_share(part, found) for part in parts[begin:]),
        twice,
        begin == 0,
    )


def late_of(part: Part[One]) -> frozenset[One]:
    """Those above the widest gap of a part's delays; empty if clocks may be all of it."""
    order = sorted(part.delays.items(), key=lambda item: item[1])
    least = len(order) - len(order) // 2
    widest, cut = part.error_ns, len(order)
    for index in range(len(order) - 1, least - 1, -1):
        gap = order[index][1] - order[index - 1][1]
        if gap > widest:
            widest, cut = gap, index
    return frozenset(one for one, _ in order[cut:])


def chance(parts: int, late: int, share: float) -> float:
    """How likely it is to be late in at least `late` of `parts`, each with probability `share`."""
    if share >= 1:
        return 1.0
    terms = (
        exp(
            lgamma(parts + 1) - lgamma(n + 1) - lgamma(parts - n + 1)
            + n * log(share) + (parts - n) * log(1 - share)
        )
        for n in range(late, parts + 1)
    )  # fmt: skip
    return min(1.0, sum(terms))


def _begin(late: Sequence[frozenset[One]], one: One) -> int:
    """Where the last stretch begins in which `one` is late in most parts."""
    best, begin, total = 0, len(late) - 1, 0
    for index in range(len(late) - 1, -1, -1):
        total += 1 if one in late[index] else -1
        if total >= best:
            best, begin = total, index
    return begin


def _significant(
    parts: Sequence[Part[One]], late: Sequence[frozenset[One]], tests: int
) -> tuple[One, ...]:
    """All who are late more often than chance, and cost the others enough; empty if nobody is."""
    if len(parts) < MIN_SLOW_PARTS:
        return ()
    members = len(parts[0].delays)
    share = max(1.0, sum(map(len, late)) / len(late)) / members
    counts = Counter(one for those in late for one in those)
    often = [
        one
        for one, count in counts.items()
        if 2 * count > len(parts)
        and tests * members * chance(len(parts), count, share) <= SLOW_CHANCE
    ]
    found = tuple(sorted(often))
    lost = median(_share(part, found) for part in parts) if found else 0.0
    return found if lost >= MIN_SLOW_SHARE else ()


def _share(part: Part[One], found: Sequence[One]) -> float:
    """Of the part's time, how much everybody else waits for the last of `found`."""
    them = max(part.delays[one] for one in found)
    others = max(delay for one, delay in part.delays.items() if one not in found)
    length_ns = max(1, part.to_ns - part.from_ns)
    return max(0, them - others) / length_ns
