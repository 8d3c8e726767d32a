"""One running agent: ticks twice a second, and answers requests in between."""

from __future__ import annotations

import asyncio
import enum
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.gauges.gpu_watch import GpuWatch
from frtop_probe.agent.gauges.host_watch import HostWatch
from frtop_probe.agent.interfaces import Boxes, ClockReading, MakeUpdate, OperatorChannel
from frtop_probe.agent.options import OPERATOR_LINGER, Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.request_handler import RequestHandler
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.trace_requests import TraceRequests
from frtop_probe.agent.unprepared.watch import UnpreparedWatch
from frtop_probe.garbage import Collector
from frtop_probe.proc.within import within

TICK: Final = 0.5
LONGEST_TICK: Final = 2.0
"""An operator calls a host silent after 3 s."""
RANKS_AT_PACE: Final = 16_384
"""In a larger job, agents tick more rarely: one operator takes in all of them."""
REQUEST_GAP: Final = 8.0
"""A screen silent for this long has left: it asks for the time every 5 s."""
BOXES_TIMEOUT: Final = 2.0
"""Longest time a leaving agent waits for its black boxes, in s."""


def tick_s(ranks: int) -> float:
    """Seconds from tick to tick, for a job of this many ranks."""
    return min(LONGEST_TICK, TICK * max(1.0, ranks / RANKS_AT_PACE))


class LeaveReason(enum.Enum):
    """Why an agent leaves."""

    SIGNAL = enum.auto()
    COMPANION_ENDED = enum.auto()  # the process named by FRTOP_AGENT_WITH
    OPERATOR_LEFT = enum.auto()  # the pipe that the agent serves has ended
    IDLE = enum.auto()  # no ranks, or no requests, for the linger time


MakeBoxes = Callable[[SnapshotTaker, MakeUpdate, str, str], Boxes]
"""Makes the black box writer, given the agent's host and instance."""


class AgentService:
    """Connects rank tracker, channel and black boxes in one event loop."""

    def __init__(
        self,
        options: Options,
        tracker: RankTracker,
        channel: OperatorChannel,
        version: str,
        make_boxes: MakeBoxes | None = None,
    ) -> None:
        """Without `make_boxes` there are no black boxes."""
        self._options = options
        self._tracker = tracker
        self._channel = channel
        self._leaving: asyncio.Future[LeaveReason] = asyncio.get_running_loop().create_future()
        self._number = 0
        self._idle_since = self._started = time.monotonic()
        self._garbage = Collector()
        self.host = socket.gethostname()
        self.instance = secrets.token_hex(8)
        self.version = version
        taker = SnapshotTaker()
        self._handler = RequestHandler(self.host, tracker, channel, self._state, taker)
        self._unprepared = UnpreparedWatch(tracker, lambda: self._last_asked, boxes=options.boxes)
        every_s = options.gauges_s
        self._gauges = GpuWatch(tracker, lambda: self._last_asked, period_s=every_s)
        self._host_gauges = HostWatch(
            tracker, lambda: self._last_asked, self._gauges, period_s=every_s
        )
        self._handler.gauge_history = self._host_gauges.table.answer
        self._tick_time = ClockReading.now()
        self._boxes = make_boxes and make_boxes(taker, self._make_update, self.host, self.instance)
        if self._boxes is not None:
            self._boxes.gauge_history = self._host_gauges.table.history
            self._boxes.gauge_minutes = self._host_gauges.table.minutes

    async def run(self) -> LeaveReason:
        """Works until a signal, the end of the companion, or the end of the linger time."""
        companion = self._watch_companion()
        serving = asyncio.create_task(self._handler.serve())
        asking = TraceRequests(self._tracker)
        works = self._gauges.run(), asking.run(), self._host_gauges.run()
        tasks = [serving, *map(asyncio.create_task, works)]
        if self._options.unprepared:
            tasks.append(asyncio.create_task(self._unprepared.run()))
        try:
            while not self._leaving.done():
                begin = time.monotonic()
                self._tick()
                self._garbage.tick()
                self._leave_when_idle()
                if serving.done():
                    serving.result()  # raises: a new agent is better than one that does not answer
                rest = max(0.02, tick_s(self._tracker.largest_world) - (time.monotonic() - begin))
                with suppress(TimeoutError):
                    await within(rest, asyncio.shield(self._leaving))
            self._tick()  # sends the last exit infos
            if self._boxes is not None:
                await self._boxes.finish(self._tick, time.monotonic() + BOXES_TIMEOUT)
        finally:
            if companion is not None:
                asyncio.get_running_loop().remove_reader(companion)
                os.close(companion)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self._handler.close(), return_exceptions=True)
            # asyncio closes the pipe of signals before it takes their handlers away.
            signal.set_wakeup_fd(-1)
        return self._leaving.result()

    def _tick(self) -> None:
        """Runs one tick. No data, however damaged, may end the agent of a host."""
        try:
            self._read_and_publish()
        except Exception as error:  # noqa: BLE001 - a new agent would fail the same way
            self._tracker.note_fault(f"a tick of the agent failed: {error!r}")

    def _read_and_publish(self) -> None:
        self._tick_time = ClockReading.now()
        now_ns = self._tick_time.monotonic_ns
        result = self._tracker.tick(now_ns)
        if self._boxes is not None:
            try:
                self._boxes.tick(now_ns)
            except Exception as error:  # noqa: BLE001 - likewise; live data is still sent
                self._tracker.note_fault(f"black boxes cannot be kept: {error!r}")
        self._number += 1
        notes_changed = self._channel.rights.take_notes_changed() or result.notes_changed
        update = wire.Update(
            host=self.host,
            instance=self.instance,
            number=self._number,
            monotonic_ns=now_ns,
            wall_ns=self._tick_time.wall_ns,
            ranks=result.ranks,
            forgotten=result.forgotten,
            notes=(self._notes() or ("",)) if notes_changed else (),
            version=self.version,
            gauges=self._host_gauges.table.changes(),
            none_found=self._tracker.none_found,
            searching=self._tracker.searching,
        )
        try:
            frame = wire.to_frame(update)
        except Exception as error:  # noqa: BLE001 - the ranks have each been encoded
            self._tracker.note_fault(f"the gauges of the host cannot be sent: {error!r}")
            frame = wire.to_frame(structs.replace(update, gauges=None))
        self._channel.publish(frame)

    @property
    def _last_asked(self) -> float:
        """When the last request came. An operator that just started the agent is about to ask."""
        asked = max(self._handler.last_asked, self._channel.last_sign)
        return max(asked, self._started) if self._options.for_operator else asked

    def _leave_when_idle(self) -> None:
        now, linger = time.monotonic(), self._options.linger
        if self._options.for_operator and not self._tracker.had_rings:
            self._idle_since = self._last_asked
            linger = max(REQUEST_GAP, min(linger, OPERATOR_LINGER))
        elif self._tracker.busy:
            self._idle_since = now
            return
        if self._options.with_pid is None and now - self._idle_since >= linger:
            self.leave(LeaveReason.IDLE)

    def leave(self, reason: LeaveReason) -> None:
        """Ends `run`."""
        if not self._leaving.done():
            self._leaving.set_result(reason)

    def handle_signals(self) -> None:
        """From now on a signal ends `run`, even a signal that comes before `run`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.leave, LeaveReason.SIGNAL)

    def _watch_companion(self) -> int | None:
        """Watches the process named by FRTOP_AGENT_WITH, even if it has already ended."""
        if self._options.with_pid is None:
            return None
        try:
            descriptor = os.pidfd_open(self._options.with_pid)
        except OSError:
            self.leave(LeaveReason.COMPANION_ENDED)
            return None
        asyncio.get_running_loop().add_reader(descriptor, self.leave, LeaveReason.COMPANION_ENDED)
        return descriptor

    def _notes(self) -> tuple[str, ...]:
        return (*self._tracker.notes, *self._channel.rights.notes)

    def _state(self) -> wire.Update:
        """The full update of this host at the last tick."""
        update = self._make_update(self._tracker.full(), ClockReading.now())
        try:
            wire.encode(update)
        except Exception:  # noqa: BLE001 - as in a tick
            return structs.replace(update, gauges=None)
        return update

    def _make_update(
        self, ranks: tuple[wire.RankUpdate, ...], at: ClockReading | None = None
    ) -> wire.Update:
        """Makes a full update of some ranks, at `at` or at the last tick."""
        at = at or self._tick_time
        return wire.Update(
            host=self.host,
            instance=self.instance,
            number=self._number,
            monotonic_ns=at.monotonic_ns,
            wall_ns=at.wall_ns,
            ranks=ranks,
            notes=self._notes(),
            version=self.version,
            full=True,
            gauges=self._host_gauges.table.full(),
            none_found=self._tracker.none_found,
            searching=self._tracker.searching,
        )
