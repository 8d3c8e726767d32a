"""Histograms of durations, which can be added up over ranks and hosts.

A bucket is an eighth of an octave, so what is read from a histogram is within 4.5 % of the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log2
from typing import Final

from frtop_probe.wire.statistics import OCTAVE

MOST: Final = 2**62
"""Longer durations are nonsense from a broken ring."""
LAST_BUCKET: Final = 62 * OCTAVE


def histogram(durations: Iterable[int]) -> Counter[int]:
    """How many of the durations, in ns from 1 on, are in which bucket."""
    return Counter([int(log2(one) * OCTAVE) for one in durations])


def quantile(buckets: Mapping[int, int], share: float, most_ns: int) -> int | None:
    """The duration in ns that this share of all is not above; None of an empty histogram.

    Args:
        buckets: counts by bucket.
        share: from 0 to 1.
        most_ns: the longest duration, which is known exactly.
    """
    total = sum(buckets.values())
    if not total:
        return None
    rank = share * total
    for bucket, count in sorted(buckets.items()):
        rank -= count
        if rank <= 0:
            return min(round(2 ** ((bucket + 0.5) / OCTAVE)), most_ns)
    return most_ns
