"""The record of one host: its agent's message numbers, its clock, its ranks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from frtop_tui.job.clock import HostClock, Timers
from frtop_tui.job.host_gauges import GaugeRecord
from frtop_tui.job.model import HostState, HostView, Problem
from frtop_tui.job.record import RankRecord
from frtop_tui.job.units import duration, how_often

HOST_SILENT_NS: Final = 3_000_000_000
"""An agent sends several updates a second even when nothing is new."""
LOSSES_SHOWN_NS: Final = 600_000_000_000


@dataclass(slots=True)
class ConnectionLosses:
    """Recent losses of the connection: a host that comes and goes must not look healthy."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=99))
    problem: Problem | None = None

    def add(self, now_ns: int, problem: Problem) -> None:
        self.times.append(now_ns)
        self.problem = problem

    def notes(self, now_ns: int) -> tuple[str, ...]:
        recent = [at for at in self.times if now_ns - at < LOSSES_SHOWN_NS]
        if not recent or self.problem is None:
            return ()
        ago = duration((now_ns - recent[-1]) / 1e9)
        times = how_often(len(recent))
        return (f"lost {times} in the last 10 minutes, last {ago} ago: {self.problem.text}",)


@dataclass(slots=True)
class HostRecord:
    """What is known about one host; `view` leaves out what depends on time."""

    view: HostView
    clock: HostClock = field(default_factory=HostClock)
    losses: ConnectionLosses = field(default_factory=ConnectionLosses)
    instance: str = ""
    number: int = 0  # of the last update
    complete: bool = False  # a full state was applied and no update is missing since
    missing: int = 0  # updates lost since the last full state
    limits: tuple[str, ...] = ()  # what its agent, when it started, said that it cannot do there
    records: dict[int, RankRecord] = field(default_factory=dict)
    gauges: GaugeRecord = field(default_factory=GaugeRecord)
    timers: Timers = field(default_factory=Timers)
    """By key, on the host's clock: when a record changes without a message."""
    _as_of: tuple[int, int, int] = (0, 0, 0)

    def changed_by_time(self) -> list[RankRecord]:
        """The records that may have changed without a message since the last call."""
        clock, was = self.clock, self._as_of
        silent_since_ns = clock.reported_ns if clock.silent else 0
        self._as_of = (clock.offset, silent_since_ns, clock.last_ns)
        if self._as_of[:2] != was[:2] or clock.last_ns < was[2]:
            return list(self.records.values())
        due = self.timers.due(clock.last_ns)
        return [self.records[key] for key in due if key in self.records]

    def set_timer(self, record: RankRecord) -> None:
        if at_ns := record.changes_ns():
            self.timers.set(record.key, at_ns)

    def view_at(self, now_ns: int, wall_ns: int) -> HostView:
        """The host, including what depends on time: silence, recent losses, clock error."""
        clock = self.clock
        clock.silent = bool(clock.reported_ns) and now_ns - clock.reported_ns > HOST_SILENT_NS
        state: HostState = "silent" if clock.silent else self.view.state
        if self.view.state == "failed":
            state = "failed"
        error = clock.error(now_ns)
        return replace(
            self.view,
            state=state,
            reported_ns=clock.reported_ns,
            as_of_ns=clock.as_of_ns,
            notes=(*self.limits, *self.view.notes, *self.losses.notes(now_ns)),
            clock_ns=clock.wall_offset(now_ns, wall_ns) if error is not None else 0,
            clock_error_ns=error,
            monotonic_ns=clock.offset,
            gauges=self.gauges.view(),
        )
