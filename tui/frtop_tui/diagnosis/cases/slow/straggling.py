"""Tests which ranks are late in part after part: beyond chance, and by enough to matter.

In each part the delays are sorted. The ranks after the widest gap are late, at most half of them.
If no rank were slower than the others, late ranks would be random, and the number of parts in which
one rank is late would follow the binomial distribution. This is a sign test: a checkpoint of a
minute counts as one late part, just like a delay of 1 ms.

There is one test over all parts since a rank began to be late, at two levels: surely slow, or
suspected. Its probability is multiplied by the number of starts, members and tests among which it
was chosen. If late ranks tend to stay late for some parts, as with moving imbalance, that measured
probability counts as the chance in each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, lgamma, log
from statistics import median
from typing import Final, Generic, NamedTuple

from frtop_tui.diagnosis.cases.slow.parts import One, Part
from frtop_tui.diagnosis.thresholds import (
    MIN_SLOW_PARTS,
    MIN_SLOW_SHARE,
    MIN_SUSPECT_PARTS,
    SLOW_CHANCE,
    SLOW_LASTS_NS,
    SUSPECT_CHANCE,
    SUSPECT_LASTS_NS,
)


class Level(NamedTuple):
    """What is required: the highest probability, the fewest parts, the shortest time."""

    chance: float
    parts: int
    lasts_ns: int


SURE: Final = Level(SLOW_CHANCE, MIN_SLOW_PARTS, SLOW_LASTS_NS)
SUSPECTED: Final = Level(SUSPECT_CHANCE, MIN_SUSPECT_PARTS, SUSPECT_LASTS_NS)


@dataclass(frozen=True, slots=True)
class Straggling(Generic[One]):
    """The late ranks or groups."""

    who: tuple[One, ...]  # ranks or groups, as few as explain the delays
    since_ns: int  # the start of the first late part
    late: int  # in how many of the `parts` since then they are late
    parts: int
    share: float  # of the time that all others lose: the median over the parts
    sure: bool  # beyond doubt; else only suspected
    at_least: bool  # late since the very first part, so perhaps for longer


def straggling(parts: Sequence[Part[One]], tests: int = 1) -> Straggling[One] | None:
    """Finds what is late in most of the last parts; None if that may be chance, or costs little.

    `parts` begin with the oldest. The more `tests` are made at a time, the surer each has to be.
    """
    if len(parts) < MIN_SUSPECT_PARTS:
        return None
    late = [late_of(part) for part in parts]
    counts = Counter(one for those in late for one in those)
    if not counts:
        return None
    start = _start(late, counts.most_common(1)[0][0])
    chosen_from = tests * len(parts) * len(parts[0].delays)
    often = _often(parts, late, start)
    for level in (SURE, SUSPECTED):
        found = tuple(
            sorted(one for one, seen in often.items() if seen.reaches(level, chosen_from))
        )
        lost = median(_share(part, found) for part in parts[start:]) if found else 0.0
        if lost >= MIN_SLOW_SHARE:
            return Straggling(
                found,
                parts[start].from_ns,
                sum(those.issuperset(found) for those in late[start:]),
                len(parts) - start,
                lost,
                level is SURE,
                start == 0,
            )
    return None


def least_found(parts: Sequence[Part[One]], tests: int = 1) -> float | None:
    """The share of time that a rank has to cost the others to be suspected.

    None if there are too few parts to find any. A rank that arrives after all others, by more than
    these are apart, is late in a part.
    """
    if len(parts) < SUSPECTED.parts:
        return None
    members, span_ns = len(parts[0].delays), parts[-1].to_ns - parts[0].from_ns
    late_ones = [late_of(part) for part in parts]
    counts = Counter(one for those in late_ones for one in those)
    most = {one for one, count in counts.items() if 2 * count > len(parts)}
    share = max(1 / members, _again(late_ones, most, 1 / members))
    for late in range(len(parts) // 2 + 1, len(parts) + 1):
        seen = _Seen(late, len(parts), span_ns * late // len(parts), share)
        if seen.reaches(SUSPECTED, tests * len(parts) * members):
            return sorted(map(_least_late, parts))[late - 1]
    return None


def _least_late(part: Part[One]) -> float:
    """The share of a part's time that a rank has to cost to be surely the late one."""
    length_ns, spread_ns = part.to_ns - part.from_ns, max(part.delays.values())
    gap_ns = max(spread_ns, part.error_ns)
    costs_enough = (spread_ns + MIN_SLOW_SHARE * length_ns) / (1 - MIN_SLOW_SHARE)
    delay_ns = max(spread_ns + gap_ns, costs_enough)
    return delay_ns / max(1, length_ns + delay_ns)


def late_of(part: Part[One]) -> frozenset[One]:
    """Who is late in a part: all after the widest gap; nobody if clocks may explain it."""
    order = sorted(part.delays.items(), key=lambda item: item[1])
    least = len(order) - len(order) // 2
    widest, cut = part.error_ns, len(order)
    for index in range(len(order) - 1, least - 1, -1):
        gap = order[index][1] - order[index - 1][1]
        if gap > widest:
            widest, cut = gap, index
    return frozenset(one for one, _ in order[cut:])


def chance(parts: int, late: int, share: float) -> float:
    """The probability of being late in at least `late` parts, if it is `share` in each."""
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


class _Seen(NamedTuple):
    """In how many of `parts` parts one is late, and for how long in sum."""

    late: int
    parts: int
    lasts_ns: int
    share: float  # the probability in each part

    def reaches(self, level: Level, chosen_from: int) -> bool:
        """Whether that is as unlikely, and lasts as long, as `level` requires."""
        return (
            self.parts >= level.parts
            and self.lasts_ns >= level.lasts_ns
            and chosen_from * chance(self.parts, self.late, self.share) <= level.chance
        )


def _often(
    parts: Sequence[Part[One]], late: Sequence[frozenset[One]], start: int
) -> dict[One, _Seen]:
    """Those that are late in more than half of the parts from `start`."""
    since, span_ns = late[start:], parts[-1].to_ns - parts[start].from_ns
    counts = Counter(one for those in since for one in those)
    most = {one: count for one, count in counts.items() if 2 * count > len(since)}
    members = len(parts[0].delays)
    share = max(1.0, sum(map(len, since)) / len(since)) / members
    share = max(share, _again(late, most, share))
    return {
        one: _Seen(count, len(since), span_ns * count // len(since), share)
        for one, count in most.items()
    }


def _again(late: Sequence[frozenset[One]], most: Collection[One], share: float) -> float:
    """How likely a late one is late in the next part, too, for those not in `most`.

    `share` counts as one more observation, as there may be few.
    """
    before = after = 0
    for those, then in pairwise(late):
        others = those.difference(most)
        before += len(others)
        after += len(others & then)
    return (after + share) / (before + 1)


def _share(part: Part[One], found: Sequence[One]) -> float:
    """The share of a part's time in which all others wait for the last of `found`."""
    them = max(part.delays[one] for one in found)
    others = max(delay for one, delay in part.delays.items() if one not in found)
    length_ns = max(1, part.to_ns - part.from_ns)
    return max(0, them - others) / length_ns
