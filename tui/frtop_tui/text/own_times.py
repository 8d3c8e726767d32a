"""What ranks do of their own in their steps, each beside ranks that have the same work. Pure.

Others' steps are as long as the straggler's, as they wait for it: their own part tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from frtop_tui.diagnosis.cases.slow.parts import MIN_STEPS, own_ns, waits_are_known
from frtop_tui.diagnosis.cases.slow.roles import op_rates, peers_of, places
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics

MOST_STEPS: Final = 12
"""The newest steps of each rank: a median of more says the same, and costs more at 10,000 ranks."""


class OwnTime(NamedTuple):
    """Of one rank. Times in ns; the medians over its newest steps.

    `own_ns` is an upper bound: waits that nobody sees are part of it. `more_ns` is how much more it
    is than that of its peers in the same steps; None where it has none, or too few such steps.
    """

    own_ns: int
    took_ns: int
    more_ns: int | None = None

    @property
    def share(self) -> float | None:
        """`more_ns` as a part of a step."""
        return None if self.more_ns is None or not self.took_ns else self.more_ns / self.took_ns


def own_times(frame: Frame) -> dict[int, OwnTime]:
    """By rank; without those of which neither their own waits nor those of peers are recorded."""
    statistics = frame.statistics
    if statistics is None:
        return {}
    ranks = [rank for rank in frame.ranks if statistics.steps.get(rank)]
    classes = peers_of(ranks, places(frame.ranks), op_rates(statistics))
    alone = set(ranks).difference(*classes)
    found: dict[int, OwnTime] = {}
    for peers in (*classes, *((rank,) for rank in alone)):
        if waits_are_known(statistics, peers, 0):
            found.update(_compared(statistics, peers))
    return found


def _compared(statistics: JobStatistics, peers: Sequence[int]) -> dict[int, OwnTime]:
    """Each of `peers` with the others, by the numbers of their steps."""
    newest = {rank: statistics.steps[rank][-MOST_STEPS:] for rank in peers}
    by_number: dict[int, list[int]] = {}
    for steps in newest.values():
        for step in steps:
            by_number.setdefault(step.number, []).append(own_ns(step))
    others = {number: _Others.of(own) for number, own in by_number.items() if len(own) > 1}
    found = {}
    for rank, steps in newest.items():
        own = [own_ns(step) for step in steps]
        more = [
            ns - others[step.number].median_beside(ns)
            for step, ns in zip(steps, own, strict=True)
            if step.number in others
        ]
        found[rank] = OwnTime(
            round(median(own)),
            round(median(step.took_ns for step in steps)),
            round(median(more)) if len(more) >= MIN_STEPS else None,
        )
    return found


class _Others(NamedTuple):
    """The median of values without one of them, for each: one of three, by where that one is."""

    low: int
    high: int
    without_low: float
    without_middle: float
    without_high: float

    @classmethod
    def of(cls, values: list[int]) -> _Others:
        """Of two values or more."""
        values.sort()
        at = len(values) // 2
        if len(values) % 2 == 0:
            low, high = values[at - 1], values[at]
            return cls(low, low, high, high, low)
        low, middle, high = values[at - 1 : at + 2]
        return cls(low, middle, (middle + high) / 2, (low + high) / 2, (low + middle) / 2)

    def median_beside(self, value: int) -> float:
        """The median of the others, for one of the values."""
        if value <= self.low:
            return self.without_low
        return self.without_middle if value <= self.high else self.without_high
