"""Ranks by what they report: the one rule for which of them differs from the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankSide:
    """Ranks that report the same, in order."""

    value: str
    ranks: tuple[int, ...]


def sides_of(values: Iterable[tuple[int, str]]) -> tuple[RankSide, ...]:
    """Sides of ranks with their values, largest first; among equals, the lowest rank's first."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for rank, value in values:
        found[value].append(rank)
    sides = (RankSide(value, tuple(sorted(ranks))) for value, ranks in found.items())
    return tuple(sorted(sides, key=lambda side: (-len(side.ranks), side.ranks)))


def odd_ranks(sides: Sequence[RankSide]) -> tuple[int, ...]:
    """Ranks that differ from the value that more than half of them share; else empty.

    With two sides of equal size, or if all differ, nobody can say which is wrong.
    """
    total = sum(len(side.ranks) for side in sides)
    if len(sides) < 2 or 2 * len(sides[0].ranks) <= total:
        return ()
    return tuple(sorted(rank for side in sides[1:] for rank in side.ranks))
