"""The gauges of a host on the operator's side: the newest, and the history if requested.

docs/features/gauges.md has the units. Values of a history stay packed: most are never drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import unpack_column

MAX_SUBJECTS: Final = 1024
MAX_SERIES: Final = 4096
MAX_POINTS: Final = 4096
"""Per host, whatever its agent sends."""
UNKNOWN: Final = -1


class GaugedSubject(Struct, frozen=True):
    """One subject with its newest figures; unknown figures are left out.

    `kind`, `name`, `detail`, `keys` and `problem` are as in `wire.GaugeSubject`. `history` maps a
    gauge to its values at the `times` of its host's gauges.
    """

    kind: str
    name: str
    detail: str = ""
    keys: tuple[int, ...] = ()
    problem: str = ""
    values: Mapping[str, int] = struct_field(default_factory=dict)
    history: Mapping[str, wire.HistoryColumn] = struct_field(default_factory=dict)


class HostGauges(Struct, frozen=True):
    """All gauges of one host at `at_ns` on its own clock; `notes` say what it does not offer."""

    at_ns: int
    subjects: tuple[GaugedSubject, ...] = ()
    notes: tuple[str, ...] = ()
    points: int = 0  # of the history, 0 for none
    times: wire.HistoryColumn = wire.HistoryColumn(0)

    def of_kind(self, kind: str) -> tuple[GaugedSubject, ...]:
        """The subjects of one kind, ordered by name."""
        return tuple(one for one in self.subjects if one.kind == kind)

    def without_ranks(self, keys: Collection[int]) -> HostGauges:
        """The same gauges without those of some ranks, as of ranks that have ended."""
        left = [one for one in self.subjects if one.kind != "rank" or not {*one.keys} <= {*keys}]
        return self if len(left) == len(self.subjects) else replace(self, subjects=tuple(left))

    def past(self, subject: GaugedSubject, gauge: str) -> tuple[int, ...]:
        """The history of a gauge, oldest first, with `UNKNOWN` for missing values."""
        column = subject.history.get(gauge)
        return _unpacked(column, self.points) if column is not None else ()

    def past_times(self) -> tuple[int, ...]:
        """When the values of the history were read, by the host's clock."""
        return _unpacked(self.times, self.points) if self.points else ()

    def as_of(self, place: int) -> HostGauges:
        """The gauges at one of the times of the history."""
        subjects = (
            replace(one, values=self._values(one, place), problem="") for one in self.subjects
        )
        return replace(self, at_ns=self.past_times()[place], subjects=tuple(subjects), points=0)

    def _values(self, subject: GaugedSubject, place: int) -> Mapping[str, int]:
        """A subject's values then; what hardly changes, like a limit, may have no history."""
        found = dict(subject.values)
        for gauge in subject.history:
            past = self.past(subject, gauge)
            value = past[place] if place < len(past) else UNKNOWN
            if value == UNKNOWN:
                found.pop(gauge, None)
            else:
                found[gauge] = value
        return found

    @property
    def host(self) -> Mapping[str, int]:
        """The figures of the host itself."""
        return next((one.values for one in self.subjects if one.kind == "host"), {})


def _unpacked(column: wire.HistoryColumn, points: int) -> tuple[int, ...]:
    known = _KNOWN.get(column)
    if known is None or known[0] != points:
        try:
            values = tuple(unpack_column(column, points))
        except ValueError:  # from a damaged file, or from something that is no agent
            values = ()
        known = _KNOWN[column] = points, values
    return known[1]


_KNOWN: Final[WeakKeyDictionary[wire.HistoryColumn, tuple[int, tuple[int, ...]]]] = (
    WeakKeyDictionary()
)
"""Number of points and values of a history, for as long as somebody has it."""


@dataclass(slots=True)
class GaugeRecord:
    """What a host's agent has reported of its gauges; `view` is rebuilt when that changes."""

    _at_ns: int = -1  # none yet
    _notes: tuple[str, ...] = ()
    _subjects: dict[int, wire.GaugeSubject] = field(default_factory=dict)
    _series: dict[int, wire.GaugeSeries] = field(default_factory=dict)
    _values: dict[int, int] = field(default_factory=dict)
    _history: wire.GaugeHistory = field(default_factory=wire.GaugeHistory)
    _view: HostGauges | None = None
    _ordered: list[tuple[int, wire.GaugeSubject]] | None = None  # as a view has them

    def apply(self, sample: wire.HostSample, *, full: bool) -> None:
        """Takes in what is new, or, if `full`, everything."""
        if full:
            self._subjects, self._series, self._values, self._notes = {}, {}, {}, ()
        self._at_ns = max(0, sample.at_ns)
        for subject in sample.subjects:
            if subject.id in self._subjects or len(self._subjects) < MAX_SUBJECTS:
                self._subjects[subject.id] = subject
        for series in sample.series:
            if len(self._series) < MAX_SERIES:
                self._series[series.id] = series
        for number, value in zip(sample.ids, sample.values, strict=False):
            if value is None or value < 0 or number not in self._series:
                self._values.pop(number, None)
            else:
                self._values[number] = value
        if sample.gone:
            self._forget(frozenset(sample.gone))
        if sample.notes or full:
            self._notes = tuple(filter(None, sample.notes))
        self._view = None
        self._ordered = None if full or sample.subjects or sample.gone else self._ordered

    def apply_history(self, history: wire.GaugeHistory) -> None:
        """Takes in the last ten minutes, replacing what was known of them."""
        if 0 <= history.points <= MAX_POINTS and len(history.columns) <= MAX_SERIES:
            self._history = history
            self._view = self._ordered = None

    def forget(self) -> None:
        """Forgets everything: another agent has other numbers."""
        self._history = wire.GaugeHistory()
        self._subjects, self._series, self._values, self._notes = {}, {}, {}, ()
        self._at_ns, self._view, self._ordered = -1, None, None

    def view(self) -> HostGauges | None:
        """All gauges; None before the first sample. The same object until something changes."""
        if self._view is None and (self._at_ns >= 0 or self._history.points):
            self._view = self._made()
        return self._view

    def _made(self) -> HostGauges:
        values: dict[int, dict[str, int]] = {}
        for number, value in self._values.items():
            series = self._series[number]
            values.setdefault(series.subject, {})[series.gauge] = value
        past: dict[int, dict[str, wire.HistoryColumn]] = {}
        for column in self._history.columns:
            past.setdefault(column.series.subject, {})[column.series.gauge] = column.values
        if self._ordered is None:
            known = self._subjects or {one.id: one for one in self._history.subjects}
            self._ordered = sorted(known.items(), key=lambda item: _place(item[1]))
        subjects = [
            GaugedSubject(
                one.kind, one.name, one.detail, one.keys, one.problem,
                values.get(number, {}), past.get(number, {}),
            )
            for number, one in self._ordered
        ]  # fmt: skip
        points = self._history.points
        times = self._history.times
        at_ns = self._at_ns if self._at_ns >= 0 else (_unpacked(times, points) or (0,))[-1]
        notes = self._notes or self._history.notes
        return HostGauges(at_ns, tuple(subjects), notes, points, times)

    def _forget(self, gone: frozenset[int]) -> None:
        for number in gone:
            self._subjects.pop(number, None)
        for number in [n for n, one in self._series.items() if one.subject in gone]:
            del self._series[number]
            self._values.pop(number, None)


def _place(subject: wire.GaugeSubject) -> tuple[int, tuple[int, int, str]]:
    return _ORDER.get(subject.kind, len(_ORDER)), natural(subject.name)


def natural(name: str) -> tuple[int, int, str]:
    """Sort key: numbers by size, before names."""
    return (0, int(name), "") if name.isdecimal() and len(name) < 10 else (1, 0, name)


_ORDER: Final = {
    kind: n for n, kind in enumerate(("host", "gpu", "infiniband", "nic", "disk", "cgroup", "rank"))
}
