"""How quantities are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frtop_tui.job import units

MS = 1_000_000


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (units.duration, 0, "0.0s"),
        (units.duration, 0.29, "0.2s"),
        (units.duration, 9.99, "9.9s"),
        (units.duration, 12.9, "12s"),
        (units.duration, 59.9, "59s"),
        (units.duration, 60, "1m00s"),
        (units.window, 60, "60 s"),
        (units.window, 600, "10m00s"),
        (units.duration, 252, "4m12s"),
        (units.duration, 3600, "1h00m"),
        (units.duration, 11520, "3h12m"),
        (units.duration, 86400, "1d00h"),
        (units.duration, -1, "0.0s"),
        (units.live_duration, 0.3, "<1s"),
        (units.live_duration, 1.9, "1s"),
        (units.live_duration, 9.9, "9s"),
        (units.live_duration, 12.5, "12s"),
        (units.live_duration, 61, "1m01s"),
        (units.timing, None, "-"),
        (units.timing, 0, "0 ms"),
        (units.timing, 340, "340 ns"),
        (units.timing, 350_000, "350 µs"),
        (units.timing, 999_960, "1.00 ms"),
        (units.timing, 18.2 * MS, "18.2 ms"),
        (units.timing, 2350 * MS, "2.35 s"),
        (units.timing, 59_000 * MS, "59.0 s"),
        (units.timing, 252_000 * MS, "4m12s"),
        (units.signed_timing, -0.34 * MS, "-340 µs"),
        (units.signed_timing, 1.2 * MS, "+1.20 ms"),
        (units.byte_size, None, "-"),
        (units.byte_size, 0, "0 B"),
        (units.byte_size, 812, "812 B"),
        (units.byte_size, 1536, "1.54 KB"),
        (units.byte_size, 999_700, "1.00 MB"),
        (units.byte_size, 52_428_800, "52.4 MB"),
        (units.byte_size, 41 << 30, "44.0 GB"),
        (units.byte_size, 3 << 40, "3.30 TB"),
        (units.byte_rate, None, "-"),
        (units.byte_rate, 41.3e9, "41.3 GB/s"),
        (units.percent, 0, "0 %"),
        (units.percent, 0.004, "0.4 %"),
        (units.percent, 0.015, "1.5 %"),
        (units.percent, 0.046, "4.6 %"),
        (units.percent, 0.05, "5 %"),
        (units.percent, 0.61, "61 %"),
        (units.percent_change, 0.012, "+1.2 %"),
        (units.cores, 40, "0.04"),
        (units.cores, 7900, "7.9"),
        (units.cores, 61_000, "61"),
        (units.local_clock, 1 << 90, "at an impossible time"),
        (units.utc_time, 0, "1970-01-01T00:00:00+00:00"),
        (units.how_often, 1, "once"),
        (units.how_often, 2, "2 times"),
        (units.how_often, 1000, "1,000 times"),
    ],
)  # fmt: skip
def test_each_quantity_is_written_in_one_way(
    write: Callable[[Any], str], value: float | None, words: str
) -> None:
    assert write(value) == words


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "rank", "0 ranks"),
        (1, "rank", "1 rank"),
        (1024, "rank", "1,024 ranks"),
        (1, "more op", "1 more op"),
        (2, "process", "2 processes"),
        (3, "batch", "3 batches"),
    ],
)
def test_one_is_in_the_singular(number: int, noun: str, said: str) -> None:
    assert units.counted(number, noun) == said


def test_what_lies_between_two_has_its_unit_once() -> None:
    assert units.timings(9 * MS, 400 * MS) == "9.00-400 ms"
    assert units.timings(900_000, 400 * MS) == "900 µs-400 ms"
    assert units.timings(400 * MS, 400 * MS) == "400 ms"
    assert units.byte_sizes(414, 557_000) == "414 B-557 KB"
