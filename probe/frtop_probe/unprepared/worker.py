"""The parent's side of the child that reads (`__main__`), for asyncio.

A process stuck in a driver may hold the lock of its memory; then a reader also blocks, beyond any
timeout. So a child reads. If the child does not answer in time, it is killed and left to the
kernel, and the process that it was reading is not read again for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frtop_probe.proc import child_process
from frtop_probe.proc.line_child import CHILD_ENDED, LineChild
from frtop_probe.proc.memory import AT, NotReadable, identify
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Discovery
from frtop_probe.unprepared.model import (
    C10dState,
    FlightRing,
    FoundTransport,
    from_json,
    ring_from,
)

DEADLINE_S: Final = 2.0
"""For a look without rings. A first look takes 0.02 to 0.1 s."""
TOOK_TOO_LONG: Final = "not readable: reading its memory took too long"
SCAN_TOOK_TOO_LONG: Final = f"no search for jobs: it took longer than {DEADLINE_S:.0f} s"
QUARANTINE_S: Final = 60.0
"""Pause before retrying a process: a hung driver call lasts longer than seconds, and each try costs
a child."""
_RING_FACTOR: Final = 5
"""A look with rings may take five times as long: the first one searches 1 GB of symbols."""
MAX_LEFT: Final = 8
"""Children per worker that may hang in a read at the same time; each takes about 25 MB."""
_MODULE: Final = "frtop_probe.unprepared"


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one request.

    Attributes:
        c10d: None if the process could not be read at all; `reason` says why.
        environment: The requested variables that are set.
        transports: Loaded transports beyond c10d; None if not requested or unknown.
        after: c10d's state again, read after the rings.
    """

    pid: int
    c10d: C10dState | None = None
    rings: tuple[FlightRing, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    transports: tuple[FoundTransport, ...] | None = None
    after: C10dState | None = None


class UnpreparedWorker:
    """Reads processes through one child, one look at a time."""

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        quarantine_s: float = QUARANTINE_S,
        command: Sequence[str] | None = None,
    ) -> None:
        """The first look starts the child.

        Args:
            deadline_s: Seconds for a look by a running child; five times as many with rings.
            quarantine_s: Seconds before a process that did not answer is read again.
            command: Program that speaks the protocol of `__main__`; by default, `__main__`.
        """
        self._deadline_s = deadline_s
        self._quarantine_s = quarantine_s
        self._lock = asyncio.Lock()
        program = command or child_process.python_command(_MODULE)
        self._lines = LineChild(program, max_left=MAX_LEFT)
        self._quarantine: dict[tuple[int, int], float] = {}

    async def look(
        self,
        pid: int,
        *,
        rings: int | None = None,
        since: Mapping[str, int] | None = None,
        environment: Collection[str] = (),
        transports: bool = False,
    ) -> Look:
        """Reads c10d's state of one process, and more on request; never raises for its faults.

        `rings` is how many of the newest entries to read per Flight Recorder ring, None for no
        ring; `since` is the id of the first entry to read, by kind of ring.
        """
        request = {
            "pid": pid,
            "rings": rings,
            "since": dict(since or {}),
            "environment": sorted(environment),
            "transports": transports,
        }
        async with self._lock:
            try:
                return look_from(await self._ask(pid, request))
            except NotReadable as error:
                return Look(pid, reason=error.reason)

    async def scan(self, recorded: Collection[tuple[int, int]] = ()) -> Discovery:
        """Finds this user's jobs on this host; `reasons` say what it could not read.

        `recorded` are the pid and start ticks of each process with a recorder.
        """
        async with self._lock:
            request = {"scan": sorted(recorded), "stuck": [pid for pid, _ in self._quarantined()]}
            try:
                return from_json(Discovery, await self._exchange(request))
            except TimeoutError:
                self._avoid(self._lines.left_at)
                return Discovery(reasons=(SCAN_TOOK_TOO_LONG,))
            except NotReadable as error:
                return Discovery(reasons=(error.reason,))
            except (KeyError, TypeError) as error:
                return Discovery(reasons=(f"{SCAN_FAILED}: {error!r}",))

    async def close(self) -> None:
        """Ends the child after its look; waits at most 0.5 s for children left behind."""
        self._lines.refuse_requests()
        async with self._lock:
            await self._lines.close()

    async def _ask(self, pid: int, request: dict[str, Any]) -> dict[str, Any]:
        identity = identify(pid)  # stat never blocks
        key = identity.pid, identity.start_ticks
        self._refuse_in_quarantine(key)
        try:
            return await self._exchange(request)
        except TimeoutError as error:
            self._quarantine[key] = time.monotonic() + self._quarantine_s
            raise NotReadable(TOOK_TOO_LONG) from error

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        factor = 1 if request.get("rings") is None else _RING_FACTOR
        return await self._lines.exchange(request, factor * self._deadline_s)

    def _refuse_in_quarantine(self, key: tuple[int, int]) -> None:
        if key in self._quarantined():
            raise NotReadable(TOOK_TOO_LONG, "asked a short while ago")

    def _quarantined(self) -> dict[tuple[int, int], float]:
        now = time.monotonic()
        self._quarantine = {known: end for known, end in self._quarantine.items() if end > now}
        return self._quarantine

    def _avoid(self, left_at: str) -> None:
        """Keeps the next searches away from the process where one hung: the hang hid all others."""
        name, _, pid = left_at.rpartition(AT)
        if not name and pid.isdecimal():
            with suppress(NotReadable):  # it has ended
                found = identify(int(pid))
                key = found.pid, found.start_ticks
                self._quarantine[key] = time.monotonic() + self._quarantine_s


def look_from(answer: dict[str, Any]) -> Look:
    """Reads an answer.

    Raises:
        NotReadable: It does not have this version's form.
    """
    data = {**answer}
    try:
        rings = tuple(map(ring_from, data.pop("rings", ())))
        return replace(from_json(Look, data), rings=rings)
    except (LookupError, TypeError, ValueError) as error:
        raise NotReadable(CHILD_ENDED, repr(error)) from error
