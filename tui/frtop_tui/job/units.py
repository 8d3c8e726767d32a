"""How to write quantities, one way for each wherever it is shown.

| quantity | function | examples |
|---|---|---|
| an age, how long it lasts | `duration(seconds)` | `0.2s`, `12s`, `4m12s`, `2d03h` |
| the same in a live table | `live_duration(seconds)` | `<1s`, `1s`, `12s`, `4m12s` |
| how long a window is | `window(seconds)` | `60 s`, `10m00s` |
| a time that was measured | `timing(ns)` | `340 µs`, `18.2 ms`, `1.10 s`, `4m12s` |
| between two measured times | `timings(least, most)` | `9.00-400 ms` |
| a difference of times | `signed_timing(ns)` | `+1.20 ms` |
| bytes | `byte_size(size)` | `812 B`, `550 KB`, `52.4 MB` |
| between two sizes | `byte_sizes(least, most)` | `414 B-557 KB`, `1.44-2.65 KB` |
| bytes per second | `byte_rate(rate)` | `949 MB/s`, `41.3 GB/s` |
| a share | `percent(share)` | `0 %`, `0.4 %`, `1.5 %`, `61 %` |
| between two shares | `percents(least, most)` | `1-45 %` |
| a change of a share | `percent_change(share)` | `+1.2 %` |
| a count | `counted(number, noun)` | `1 rank`, `1,024 ranks` |
| how often | `how_often(number)` | `once`, `3 times` |
| processors | `cores(thousandths)` | `0.04`, `7.9`, `61` |
| a time of day | `local_clock(wall_ns)` | `03:02:11` |
| with its date | `local_time(wall_ns)` | `2026-11-20 03:02:11` |
| a time for programs | `utc_time(wall_ns)` | `2026-11-20T03:02:11+00:00` |

Bytes are decimal (1 MB is 1,000,000 bytes), memory included: what ops move is compared with the
speed of links, which is decimal everywhere. So 80 GiB of a GPU are 85.9 GB here. What is measured
has three digits. What is not known is `NOT_KNOWN` where a table needs a cell.

µ is a letter that some encodings lack: `cli.output` writes `us` there.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Final

NOT_KNOWN: Final = "-"
_TIMES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES: Final = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B"))
_MINUTE_NS: Final = 60e9


def duration(seconds: float) -> str:
    """`0.2s`, `12s`, `4m12s`, `3h12m`, `2d03h`; always rounded down."""
    if seconds < 10:
        return f"{math.floor(max(0.0, seconds) * 10) / 10:.1f}s"
    total = int(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02}m"
    return f"{total // 86400}d{total % 86400 // 3600:02}h"


def window(seconds: float) -> str:
    """`60 s`: a window of time; from two minutes on like `duration`."""
    return f"{seconds:.0f} s" if 1 <= seconds <= 120 else duration(seconds)


def live_duration(seconds: float) -> str:
    """Like `duration` in whole seconds, `<1s` at first: live tables do not flicker."""
    if seconds < 1:
        return "<1s"
    return f"{int(seconds)}s" if seconds < 10 else duration(seconds)


def timing(ns: float | None) -> str:
    """`340 µs`, `18.2 ms`, `1.10 s`, from a minute on like `duration`; `NOT_KNOWN` for None."""
    if ns is None:
        return NOT_KNOWN
    if ns >= _MINUTE_NS:
        return duration(ns / 1e9)
    return _in_units(ns, _TIMES) or "0 ms"


def signed_timing(ns: float) -> str:
    """`+1.20 ms`, `-340 µs`: how far two clocks are apart."""
    return f"{'-' if ns < 0 else '+'}{timing(abs(ns))}"


def timings(least: float, most: float) -> str:
    """`9.00-400 ms`: between these two, in ns."""
    return _between(timing(least), timing(most)) if least else timing(most)


def byte_size(size: float | None) -> str:
    """`52.4 MB`, `812 B`; `NOT_KNOWN` for None."""
    return NOT_KNOWN if size is None else _in_units(size, _SIZES, exact=1.0) or "0 B"


def byte_sizes(least: float, most: float) -> str:
    """`414 B-557 KB`, `1.44-2.65 KB`: between these two."""
    return _between(byte_size(least), byte_size(most))


def byte_rate(rate: float | None) -> str:
    """`41.3 GB/s`; `NOT_KNOWN` for None."""
    return NOT_KNOWN if rate is None else f"{byte_size(rate)}/s"


def percent(share: float) -> str:
    """`0 %`, `0.4 %`, `1.5 %`, `61 %`: of a share from 0 to 1."""
    value = 100 * share
    if value >= 9.95:
        return f"{value:.0f} %"
    text = f"{value:.1f}"
    return f"{text.removesuffix('.0') if value >= 0.05 or not value else text} %"


def percents(least: float, most: float) -> str:
    """`1-45 %`: between these two shares."""
    return _between(percent(least), percent(most)) if least else percent(most)


def percent_change(share: float) -> str:
    """`+1.2 %`."""
    return f"{100 * share:+.1f} %"


def counted(number: int, noun: str) -> str:
    """`1 rank`, `1,024 ranks`, `2 processes`; `noun` is in the singular."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def how_often(number: int) -> str:
    """`once`, `3 times`."""
    return "once" if number == 1 else f"{number:,} times"


def cores(thousandths: int) -> str:
    """`0.04`, `7.9`, `61` cores."""
    value = thousandths / 1000
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def local_clock(wall_ns: int) -> str:
    """`03:02:11` in the viewer's time zone."""
    return _local(wall_ns, "%H:%M:%S")


def exact_clock(wall_ns: int) -> str:
    """`14:40:12.402` in the viewer's time zone."""
    return _local(wall_ns, f"%H:%M:%S.{wall_ns // 1_000_000 % 1000:03}")


def local_time(wall_ns: int) -> str:
    """`2026-11-20 03:02:11` in the viewer's time zone."""
    return _local(wall_ns, "%Y-%m-%d %H:%M:%S")


def of_time(wall_ns: int) -> str:
    """` of 2026-11-20 03:02:00`; nothing if the time is not known (0)."""
    return f" of {local_time(wall_ns)}" if wall_ns else ""


def utc_time(wall_ns: int, timespec: str = "seconds") -> str:
    """`2026-11-20T03:02:11+00:00`, for programs."""
    return datetime.fromtimestamp(wall_ns / 1e9, tz=timezone.utc).isoformat(timespec=timespec)


def _local(wall_ns: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(wall_ns // 1_000_000_000).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):  # a damaged file may have times of any size
        return "at an impossible time"


def _in_units(value: float, units: tuple[tuple[float, str], ...], exact: float = 0.0) -> str | None:
    """Three digits in the largest unit that fits; None if smaller than the smallest unit."""
    for unit, name in units:
        if abs(value) >= unit * 0.9995 or (unit == units[-1][0] and value):
            number = value / unit
            size = abs(number)
            digits = 0 if unit == exact or size >= 99.95 else 1 if size >= 9.995 else 2
            return f"{number:.{digits}f} {name}"
    return None


def _between(least: str, most: str) -> str:
    """Both values; a common unit only once."""
    if least == most:
        return most
    number, _, unit = least.partition(" ")
    return f"{number if unit and most.endswith(f' {unit}') else least}-{most}"
