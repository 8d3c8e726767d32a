"""One agent at work: a tick twice a second, requests in between."""

from __future__ import annotations

import asyncio
import enum
import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.announcement import Announcement, own_version
from frtop_probe.agent.black_boxes import BlackBoxWriter, ClockReading
from frtop_probe.agent.options import OPERATOR_LINGER, Options
from frtop_probe.agent.outside_watch import OutsideWatch
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.request_handler import RequestHandler
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.sockets import AgentSockets
from frtop_probe.ring.recording import RecordingLock

TICK: Final = 0.5
REQUEST_GAP: Final = 8.0
"""A screen asks for the time every 5 s: after so many seconds it has left."""
BOXES_TIMEOUT: Final = 2.0
"""Seconds for which a leaving agent waits for its black boxes at most."""


class LeaveReason(enum.Enum):
    """Why an agent leaves."""

    SIGNAL = enum.auto()
    COMPANION_ENDED = enum.auto()  # the process named by --with-pid
    IDLE = enum.auto()  # no ranks, or no requests, for the linger time


class AgentService:
    """Connects rank tracker, sockets and black boxes, in one event loop."""

    def __init__(
        self, options: Options, tracker: RankTracker, sockets: AgentSockets, public_key: bytes
    ) -> None:
        self._options = options
        self._tracker = tracker
        self._sockets = sockets
        self._leaving: asyncio.Future[LeaveReason] = asyncio.get_running_loop().create_future()
        self._number = 0
        self._idle_since = self._started = time.monotonic()
        self._host = socket.gethostname()
        taker = SnapshotTaker()
        self._handler = RequestHandler(self._host, tracker, sockets, self._state, taker)
        shown = tracker.shown = self._handler.shown
        self._outside = OutsideWatch(tracker, lambda: self._last_asked, shown, boxes=options.boxes)
        self._version = own_version()
        self.card = Announcement(
            pid=os.getpid(),
            host=self._host,
            address=sockets.address,
            pub=sockets.pub,
            ask=sockets.ask,
            public_key=public_key.decode(),
            instance=secrets.token_hex(8),
            version=self._version,
            started_wall_ns=time.time_ns(),
        )
        self._tick_time = ClockReading.now()
        self._boxes = BlackBoxWriter(
            tracker,
            taker,
            self._make_update,
            RecordingLock(tracker.home),
            host=self._host,
            instance=self.card.instance,
        )

    async def run(self) -> LeaveReason:
        """Works until a signal, the companion's end, or the end of the linger time."""
        companion = self._watch_companion()
        serving = asyncio.create_task(self._handler.serve())
        tasks = [serving]
        if self._options.outside:
            tasks.append(asyncio.create_task(self._outside.run()))
        try:
            while not self._leaving.done():
                begin = time.monotonic()
                self._tick()
                self._leave_when_idle()
                if serving.done():
                    serving.result()  # raises: a new agent is better than one that does not answer
                rest = max(0.02, TICK - (time.monotonic() - begin))
                with suppress(asyncio.TimeoutError, TimeoutError):
                    await asyncio.wait_for(asyncio.shield(self._leaving), rest)
            self._tick()  # sends the last exit infos
            await self._boxes.finish(self._tick, time.monotonic() + BOXES_TIMEOUT)
        finally:
            if companion is not None:
                asyncio.get_running_loop().remove_reader(companion)
                os.close(companion)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self._handler.close(), return_exceptions=True)
        return self._leaving.result()

    def _tick(self) -> None:
        self._tick_time = ClockReading.now()
        now_ns = self._tick_time.monotonic_ns
        result = self._tracker.tick(now_ns)
        self._boxes.tick(now_ns)
        self._number += 1
        notes_changed = self._sockets.admission.take_notes_changed() or result.notes_changed
        update = wire.Update(
            host=self._host,
            instance=self.card.instance,
            number=self._number,
            monotonic_ns=now_ns,
            wall_ns=self._tick_time.wall_ns,
            ranks=result.ranks,
            forgotten=result.forgotten,
            notes=(self._notes() or ("",)) if notes_changed else (),
            version=self._version,
        )
        # PUB drops messages instead of blocking, so this completes at once.
        self._sockets.updates.send(wire.to_frame(update))

    @property
    def _last_asked(self) -> float:
        """When an operator last asked; one that has started the agent is about to ask."""
        asked = self._handler.last_asked
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
            self._leave(LeaveReason.IDLE)

    def _leave(self, reason: LeaveReason) -> None:
        if not self._leaving.done():
            self._leaving.set_result(reason)

    def handle_signals(self) -> None:
        """From now on a signal ends `run`, also one that comes before it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, LeaveReason.SIGNAL)

    def _watch_companion(self) -> int | None:
        """Watches the process named by --with-pid, which may have ended already."""
        if self._options.with_pid is None:
            return None
        try:
            descriptor = os.pidfd_open(self._options.with_pid)
        except OSError:
            self._leave(LeaveReason.COMPANION_ENDED)
            return None
        asyncio.get_running_loop().add_reader(descriptor, self._leave, LeaveReason.COMPANION_ENDED)
        return descriptor

    def _notes(self) -> tuple[str, ...]:
        return (*self._tracker.notes, *self._sockets.admission.notes)

    def _state(self) -> wire.Update:
        """The full update of this host, as of the last tick."""
        ranks = tuple(rank.full() for rank in self._tracker.ranks.values())
        return self._make_update(ranks, ClockReading.now())

    def _make_update(
        self, ranks: tuple[wire.RankUpdate, ...], at: ClockReading | None = None
    ) -> wire.Update:
        """Makes a full update of some ranks, as of `at` or of the last tick."""
        at = at or self._tick_time
        return wire.Update(
            host=self._host,
            instance=self.card.instance,
            number=self._number,
            monotonic_ns=at.monotonic_ns,
            wall_ns=at.wall_ns,
            ranks=ranks,
            notes=self._notes(),
            version=self._version,
            full=True,
        )
