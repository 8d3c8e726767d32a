"""Packs rows of calls by field, and adds up the histograms of many ranks at once.

The durations of a rank are a matrix: for each bucket a count for each row. `added_up` reads it as
one large integer, in which each count has twice as many bits as it needs (a "lane"): the first
bucket's counts have the lowest lanes. The sum of two such integers has the sum of both counts in
each lane, so a rank is added without a loop over rows and buckets. If its first bucket is `n`
buckets later, it is shifted by `n * rows` lanes before. Those of `MOST_RANKS` cannot overflow.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from frtop_probe import wire

LAST_BUCKET: Final = 62 * wire.OCTAVE
"""Longer durations are garbage from a broken ring."""
MOST_ROWS: Final = 1024
"""Rows of one rank. Agents send half as many at most."""
LARGEST_CLASS: Final = 63
MOST_RANKS: Final = 128
MOST_COUNT: Final = 2**32 - 1
WIDTHS: Final = (1, 2, 4)
_FIELDS: Final = attrgetter(*wire.CallColumns.__struct_fields__)
_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
CallFields = tuple[
    str, int, int, int, bool, bool, int, int, int, int, int, int, int, int, Mapping[int, int]
]
"""The fields of a row in `wire.CallColumns`, then its durations: counts by bucket, from 1 to
`MOST_COUNT`."""


def pack_calls(rows: Sequence[CallFields]) -> wire.CallColumns | None:
    """Returns rows by field, without impossible durations; None without rows."""
    if not rows:
        return None
    fields: list[Any] = list(zip(*rows, strict=True))
    histograms = fields.pop()
    buckets: set[int] = set().union(*histograms)
    first, last = min(buckets, default=0), max(buckets, default=-1)
    if first < 0 or last > LAST_BUCKET:
        return pack_calls([(*row[:-1], _possible(row[-1])) for row in rows])
    most = max((max(one.values()) for one in histograms if one), default=0)
    width = 1 if most < 2**8 else 2 if most < 2**16 else 4
    counts = array(_CODES[width], bytes(width * len(rows) * (last + 1 - first)))
    for row, one in enumerate(histograms, -first * len(rows)):
        for bucket, count in one.items():
            counts[bucket * len(rows) + row] = count
    if sys.byteorder == "big":
        counts.byteswap()
    fields += first, width, counts.tobytes()
    return wire.CallColumns(*fields)


def _possible(durations: Mapping[int, int]) -> dict[int, int]:
    return {bucket: n for bucket, n in durations.items() if 0 <= bucket <= LAST_BUCKET}


def fit(calls: wire.CallColumns) -> bool:
    """Whether all fields have the same number of rows, with possible sizes and durations."""
    *fields, first, width, durations = _FIELDS(calls)
    rows = len(calls.kind)
    if not 0 < rows <= MOST_ROWS or width not in WIDTHS or {*map(len, fields)} != {rows}:
        return False
    if min(calls.size_class) < 0 or max(calls.size_class) > LARGEST_CLASS:
        return False
    buckets, rest = divmod(len(durations), rows * width)
    return not rest and 0 <= first <= LAST_BUCKET + 1 - buckets


def added_up(several: Sequence[wire.CallColumns]) -> tuple[int, Sequence[int]]:
    """Adds up the durations of at most `MOST_RANKS` ranks; they fit, and rows and width are equal.

    Returns:
        The first bucket; and for each bucket from it on, a count for each row.
    """
    rows, width = len(several[0].kind), several[0].width
    lane = 2 * width
    first = min((one.first_bucket for one in several if one.durations), default=0)
    total = 0
    for one in several:
        lanes = bytearray(lane * (len(one.durations) // width))
        for byte in range(width):
            lanes[byte::lane] = one.durations[byte::width]
        later = (one.first_bucket - first) * rows
        total += int.from_bytes(lanes, "little") << 8 * lane * later if lanes else 0
    counts = -(-total.bit_length() // (8 * lane))
    return first, struct.unpack(f"<{counts}{_CODES[lane]}", total.to_bytes(counts * lane, "little"))
