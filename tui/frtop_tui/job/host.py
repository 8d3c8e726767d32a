"""One host as it is being heard: its agent's numbers, its clock, its ranks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from frtop_tui.job.alarms import Alarms
from frtop_tui.job.clock import HostClock
from frtop_tui.job.model import HostState, HostView, Problem
from frtop_tui.job.naming import duration
from frtop_tui.job.record import RankRecord

HOST_SILENT_NS: Final = 3_000_000_000
"""An agent speaks several times a second even when nothing is new."""
LOSSES_TOLD_NS: Final = 600_000_000_000


@dataclass(slots=True)
class Losses:
    """When a host was lost lately: one that comes and goes should not look well between."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=99))
    problem: Problem | None = None

    def add(self, now_ns: int, problem: Problem) -> None:
        self.times.append(now_ns)
        self.problem = problem

    def notes(self, now_ns: int) -> tuple[str, ...]:
        lately = [at for at in self.times if now_ns - at < LOSSES_TOLD_NS]
        if not lately or self.problem is None:
            return ()
        times = "once" if len(lately) == 1 else f"{len(lately)} times"
        ago = duration((now_ns - lately[-1]) / 1e9)
        return (f"lost {times} in the last 10 minutes, {ago} ago at last: {self.problem.text}",)


@dataclass(slots=True)
class HostRecord:
    view: HostView
    clock: HostClock = field(default_factory=HostClock)
    losses: Losses = field(default_factory=Losses)
    instance: str = ""
    number: int = 0
    whole: bool = False  # a full state was applied and no update is missing since
    missing: int = 0  # updates lost since the last full state
    records: dict[int, RankRecord] = field(default_factory=dict)
    alarms: Alarms = field(default_factory=Alarms)
    """By key, on the host's clock: when a record changes by time alone."""
    _as_of: tuple[int, bool, int] = (0, False, 0)

    def moved(self) -> list[RankRecord]:
        """Records that may have changed by time alone since the last call."""
        clock, was = self.clock, self._as_of
        self._as_of = (clock.offset, clock.silent, clock.last_ns)
        if self._as_of[:2] != was[:2] or clock.last_ns < was[2]:
            return list(self.records.values())
        rung = self.alarms.rung(clock.last_ns)
        return [self.records[key] for key in rung if key in self.records]

    def watch(self, record: RankRecord) -> None:
        """Sets the alarm for a record that was just viewed."""
        if at_ns := record.changes_ns():
            self.alarms.set(record.key, at_ns)

    def shown(self, now_ns: int, wall_ns: int) -> HostView:
        """The host with what only the clock tells: its silence, and how far it is off."""
        clock = self.clock
        clock.silent = bool(clock.heard_ns) and now_ns - clock.heard_ns > HOST_SILENT_NS
        state: HostState = "silent" if clock.silent else self.view.state
        if self.view.state == "failed":
            state = "failed"
        error = clock.error(now_ns)
        return replace(
            self.view,
            state=state,
            heard_ns=clock.heard_ns,
            notes=(*self.view.notes, *self.losses.notes(now_ns)),
            clock_ns=clock.wall_offset(now_ns, wall_ns) if error is not None else 0,
            clock_error_ns=error,
        )
