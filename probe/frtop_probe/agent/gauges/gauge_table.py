"""Numbers all gauges of a host, and keeps their newest values, changes and last ten minutes.

Of a few gauges it also keeps a mean for each minute, so that a long run can be compared with
another one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from frtop_probe import wire
from frtop_probe.gauges.readings import SubjectReading
from frtop_probe.history_columns import pack

WINDOW_NS: Final = 600_000_000_000
MAX_POINTS: Final = 320
"""Most readings kept: ten minutes at one every 2 s, plus a margin."""
CLOSE_NS: Final = 1_500_000_000
"""Points closer than this become one: those of a host that is read every second cover as long."""
MAX_SERIES: Final = 1024
"""1,024 series of 320 points take 2.6 MB; a host with eight ranks and GPUs has about 250 series."""
UNKNOWN: Final = -1
_TRIM: Final = 32
_BITS: Final = 10
MINUTE_NS: Final = 60_000_000_000
MOST_MINUTES: Final = 1440
"""A day. Of a longer run, each point stands for two minutes, for four, and so on."""
MINUTE_GAUGES: Final = frozenset({
    "busy", "cpu", "free", "gpu_mem", "iowait", "mem", "mem_available", "mem_used", "power_mw",
    "psi_cpu", "psi_io", "psi_memory", "read", "received", "sent", "sm_mhz", "temperature",
    "throttled", "use", "written",
})  # fmt: skip
MOST_MINUTE_SERIES: Final = 256
"""1,440 points of so many series take 2.9 MB; a host with eight ranks and GPUs has about 110."""
ROUNDED: Final = frozenset({
    "cpu", "free", "gpu_mem", "mem", "mem_available", "mem_used", "others_mem", "power_mw", "read",
    "received", "sent", "swap_used", "waits", "written",
})  # fmt: skip
"""For these, three digits are enough and change less often."""
COUNTS: Final = frozenset({
    "discards", "drops", "errors", "link_downed", "oom_kills", "others", "processes", "state",
    "xid", "xids",
})  # fmt: skip
"""For these, the last of several readings represents all of them."""


@dataclass(slots=True)
class _Series:
    wired: wire.GaugeSeries
    points: array[int]
    minutes: array[int] | None = None
    value: int | None = None
    sent: int | None = None
    named: bool = False
    joins: int = UNKNOWN  # the last point, if it becomes one with the next


@dataclass(slots=True)
class _Subject:
    wired: wire.GaugeSubject
    seen_ns: int
    series: dict[str, _Series] = field(default_factory=dict)
    sent: wire.GaugeSubject | None = None


class GaugeTable:
    """Takes readings, one after another."""

    def __init__(self) -> None:
        self._subjects: dict[tuple[str, str], _Subject] = {}
        self._times: array[int] = array("q")
        self._minutes: array[int] = array("q")
        self._minute_ns = MINUTE_NS
        self._minute_began_ns = 0
        self._minute_series = 0
        self._notes: tuple[str, ...] = ()
        self._notes_sent: tuple[str, ...] = ()
        self._gone: list[int] = []
        self._next_subject = self._next_series = 1
        self._count = 0
        self._at_ns = 0

    def add(
        self,
        at_ns: int,
        readings: Iterable[SubjectReading],
        notes: Iterable[str],
        key_of: Callable[[int], int | None],
    ) -> None:
        """Adds a reading of all present subjects; `notes` are sentences about what is missing.

        `key_of` returns the key of the rank with a pid, or None for other processes.
        """
        self._at_ns = at_ns
        self._notes = tuple(dict.fromkeys(filter(None, notes)))
        crowded = len(self._times) > 1 and self._times[-1] - self._times[-2] < CLOSE_NS
        if crowded:
            self._times.pop()
        self._times.append(at_ns)
        for series in self._series():
            series.value = None
            series.joins = series.points.pop() if crowded else UNKNOWN
        for reading in readings:
            self._take(reading, at_ns, key_of)
        for series in self._series():
            value = UNKNOWN if series.value is None else series.value
            series.points.append(_joined((series.joins, value), series.wired.gauge))
        self._minute_began_ns = self._minute_began_ns or at_ns
        if at_ns - self._minute_began_ns >= self._minute_ns:
            self._end_minute(at_ns)
        self._forget_old(at_ns)

    def changes(self) -> wire.HostSample | None:
        """Returns what changed since the last call; None if nothing did."""
        named = [one for one in self._subjects.values() if one.wired != one.sent]
        series: list[wire.GaugeSeries] = []
        changed: list[_Series] = []
        for subject in self._subjects.values():
            for one in subject.series.values():
                if not one.named:
                    series.append(one.wired)
                if one.value != one.sent:
                    changed.append(one)
                one.named, one.sent = True, one.value
        for subject in named:
            subject.sent = subject.wired
        gone, self._gone = tuple(self._gone), []
        notes, self._notes_sent = self._notes_sent, self._notes
        if not (named or changed or gone or notes != self._notes):
            return None
        return wire.HostSample(
            self._at_ns,
            tuple(one.wired for one in named),
            tuple(series),
            tuple(one.wired.id for one in changed),
            tuple(one.value for one in changed),
            gone,
            (self._notes or ("",)) if notes != self._notes else (),
        )

    def full(self) -> wire.HostSample | None:
        """Returns all newest values; None before the first reading. Does not affect `changes`."""
        if not self._times:
            return None
        series = [*self._series()]
        return wire.HostSample(
            self._at_ns,
            tuple(subject.wired for subject in self._subjects.values()),
            tuple(one.wired for one in series),
            tuple(one.wired.id for one in series),
            tuple(one.value for one in series),
            notes=self._notes,
        )

    def answer(self, request: wire.GaugeHistoryRequest) -> wire.GaugeHistory:
        """Answers a request for the last ten minutes."""
        return self.history(frozenset(request.gauges), max(0, request.points))

    def history(self, gauges: Collection[str] = (), points: int = 0) -> wire.GaugeHistory:
        """Returns the last ten minutes of these gauges, or of all gauges.

        Without a limit on `points` (0), each reading is a point; otherwise several readings make
        one.
        """
        if not self._times:
            return wire.GaugeHistory(notes=self._notes)
        step = -(-len(self._times) // points) if points > 0 else 1
        columns = [
            wire.GaugeColumn(series.wired, pack(_thinned(series.points, step, gauge)))
            for subject in self._subjects.values()
            for gauge, series in subject.series.items()
            if not gauges or gauge in gauges
        ]
        used = {column.series.subject for column in columns}
        # Groups are counted back from the newest reading: only the oldest group may have fewer.
        times = list(self._times[::-1][::step][::-1])
        return wire.GaugeHistory(
            len(times),
            pack(times),
            tuple(one.wired for one in self._subjects.values() if one.wired.id in used),
            tuple(columns),
            self._notes,
        )

    def minutes(self, since_ns: int) -> wire.GaugeHistory | None:
        """The means of each minute from `since_ns` on; None if no minute has passed."""
        first = bisect_right(self._minutes, since_ns)
        times = self._minutes[first:]
        if not times:
            return None
        points_of = ((one.wired, one.minutes[first:]) for one in self._series() if one.minutes)
        columns = tuple(
            wire.GaugeColumn(wired, pack(points))
            for wired, points in points_of
            if points.count(UNKNOWN) < len(points)
        )
        used = {column.series.subject for column in columns}
        subjects = (one.wired for one in self._subjects.values() if one.wired.id in used)
        return wire.GaugeHistory(len(times), pack(times), tuple(subjects), columns)

    def _series(self) -> Iterator[_Series]:
        for subject in self._subjects.values():
            yield from subject.series.values()

    def _end_minute(self, at_ns: int) -> None:
        """Adds a point to the minutes; if there are too many, joins each two of them.

        Once a point stands for more than ten minutes, the last ten of them count.
        """
        first = bisect_right(self._times, self._minute_began_ns)
        self._minute_began_ns = at_ns
        known = [(one.minutes, one) for one in self._series() if one.minutes is not None]
        self._minutes.append(at_ns)
        for minutes, series in known:
            minutes.append(_joined(series.points[first:], series.wired.gauge))
        if len(self._minutes) >= MOST_MINUTES:
            self._minutes = self._minutes[1::2]
            self._minute_ns *= 2
            for minutes, series in known:
                series.minutes = array("q", _thinned(minutes, 2, series.wired.gauge))

    def _take(
        self, reading: SubjectReading, at_ns: int, key_of: Callable[[int], int | None]
    ) -> None:
        keys = tuple(sorted(key for pid in reading.pids if (key := key_of(pid)) is not None))
        if reading.kind == "rank" and not keys:
            return
        name = str(keys[0]) if reading.kind == "rank" else reading.name
        place = reading.kind, name
        known = self._subjects.get(place)
        number = known.wired.id if known is not None else self._next_subject
        wired = wire.GaugeSubject(number, reading.kind, name, reading.detail, keys, reading.problem)
        if known is None:
            known = self._subjects[place] = _Subject(wired, at_ns)
            self._next_subject += 1
        known.wired, known.seen_ns = wired, at_ns
        for gauge, value in reading.values.items():
            series = known.series.get(gauge)
            if series is None:
                if self._count >= MAX_SERIES:
                    continue
                made = wire.GaugeSeries(self._next_series, number, gauge)
                before = array("q", [UNKNOWN]) * (len(self._times) - 1)
                series = known.series[gauge] = _Series(made, before)
                if gauge in MINUTE_GAUGES and self._minute_series < MOST_MINUTE_SERIES:
                    series.minutes = array("q", [UNKNOWN]) * len(self._minutes)
                    self._minute_series += 1
                self._next_series += 1
                self._count += 1
            series.value = rounded(value) if gauge in ROUNDED else value

    def _forget_old(self, at_ns: int) -> None:
        """Forgets subjects not read for ten minutes, and points older than that."""
        old = [p for p, one in self._subjects.items() if at_ns - one.seen_ns > WINDOW_NS]
        for place in old:
            subject = self._subjects.pop(place)
            self._count -= len(subject.series)
            self._minute_series -= sum(one.minutes is not None for one in subject.series.values())
            self._gone.append(subject.wired.id)
        late = sum(at_ns - time > WINDOW_NS for time in self._times[: 2 * _TRIM])
        more = max(late, len(self._times) - MAX_POINTS)
        if more >= _TRIM:
            del self._times[:more]
            for series in self._series():
                del series.points[:more]


def rounded(value: int) -> int:
    """Keeps the first ten binary digits of a value: this reduces it by at most 0.2 %."""
    more = max(0, value.bit_length() - _BITS)
    return value >> more << more


def _thinned(points: array[int], step: int, gauge: str) -> list[int]:
    """Returns one value for every `step` points: their mean, or the last one for a count."""
    if step == 1:
        return list(points)
    ends = range(len(points), 0, -step)
    return [_joined(points[max(0, end - step) : end], gauge) for end in ends][::-1]


def _joined(points: Sequence[int], gauge: str) -> int:
    """One value for several points, of which some may be unknown."""
    some = [value for value in points if value != UNKNOWN]
    if not some:
        return UNKNOWN
    if gauge == "throttle":
        return reduce(or_, some)
    return some[-1] if gauge in COUNTS else sum(some) // len(some)
