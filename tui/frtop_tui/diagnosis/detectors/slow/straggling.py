"""Tests who is late in part after part: more often than by chance, and by enough to matter.

In each part the delays are sorted. Whoever comes after the widest gap between two of them is late;
that is at most half of all. If nobody were slower than the others, late ranks would be random, and
the number of parts in which one rank is late would follow the binomial distribution. This is a
sign test: a checkpoint that takes a minute counts as one late part, as a delay of 1 ms does.
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
        who: ranks or groups, as few as explain the delays.
        since_ns: where the first part starts from which on they are late.
        late: in how many parts they are late, of the `parts` since then.
        parts: how many parts there are since then.
        share: the share of the time that all others lose by them: the median over the parts.
        twice: whether the test finds the same ones in each half of the time by itself.
        at_least: whether they are late since the first part of all, so perhaps for longer.
    """

    who: tuple[One, ...]
    since_ns: int
    late: int
    parts: int
    share: float
    twice: bool
    at_least: bool


def straggling(parts: Sequence[Part[One]], tests: int = 1) -> Straggling[One] | None:
    """Finds who is late in most of the last parts; None if that may be chance, or costs little.

    Args:
        parts: oldest first.
        tests: how many such tests are made at this time. With more tests each one has to be surer.
    """
    if len(parts) < MIN_SLOW_PARTS:
        return None
    late = [late_of(part) for part in parts]
    counts = Counter(one for those in late for one in those)
    if not counts:
        return None
    start = _start(late, counts.most_common(1)[0][0])
    found = _significant(parts[start:], late[start:], tests)
    if not found:
        return None
    since_ns, until_ns = parts[start].from_ns, parts[-1].to_ns
    half_ns = (since_ns + until_ns) // 2
    middle = next(n for n in range(start, len(parts)) if parts[n].to_ns >= half_ns) + 1
    halves = ((start, middle), (middle, len(parts)))
    twice = half_ns - since_ns >= HALF_WINDOW_NS and all(
        _significant(parts[first:last], late[first:last], tests) == found for first, last in halves
    )
    return Straggling(
        found,
        since_ns,
        sum(those.issuperset(found) for those in late[start:]),
        len(parts) - start,
        median(_share(part, found) for part in parts[start:]),
        twice,
        start == 0,
    )


def late_of(part: Part[One]) -> frozenset[One]:
    """Who is late in a part: all after the widest gap; nobody if wrong clocks may explain it."""
    order = sorted(part.delays.items(), key=lambda item: item[1])
    least = len(order) - len(order) // 2
    widest, cut = part.error_ns, len(order)
    for index in range(len(order) - 1, least - 1, -1):
        gap = order[index][1] - order[index - 1][1]
        if gap > widest:
            widest, cut = gap, index
    return frozenset(one for one, _ in order[cut:])


def chance(parts: int, late: int, share: float) -> float:
    """How likely one is late in at least `late` parts, if the chance in each is `share`."""
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


def _start(late: Sequence[frozenset[One]], one: One) -> int:
    """The index of the part since which `one` is late in most parts."""
    best, start, total = 0, len(late) - 1, 0
    for index in range(len(late) - 1, -1, -1):
        total += 1 if one in late[index] else -1
        if total >= best:
            best, start = total, index
    return start


def _significant(
    parts: Sequence[Part[One]], late: Sequence[frozenset[One]], tests: int
) -> tuple[One, ...]:
    """Whoever is late more often than by chance, and costs the others enough; may be empty."""
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
    """The share of a part's time in which all others wait for the last of `found`."""
    them = max(part.delays[one] for one in found)
    others = max(delay for one, delay in part.delays.items() if one not in found)
    length_ns = max(1, part.to_ns - part.from_ns)
    return max(0, them - others) / length_ns
