"""The parent's side of the child that reads (`__main__`), for asyncio.

A process that is stuck in a driver may hold the lock of its memory, and whoever reads it waits
with it, out of reach of any timeout. So a child reads. When it does not answer in time it is
killed and left to the kernel, and the process that it was reading is not asked again for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from frtop_probe.proc import child_process
from frtop_probe.proc.line_child import CHILD_ENDED, CLOSED, NO_CHILD, TOO_MANY_LEFT, LineChild
from frtop_probe.proc.memory import PROC, NotReadable
from frtop_probe.proc.process import AT, identify
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Discovery, discovery_from
from frtop_probe.unprepared.model import (
    C10dState,
    FlightRing,
    FoundTransport,
    TensorInfo,
    Work,
    c10d_state_from,
    tensor_from,
    work_from,
)
from frtop_probe.unprepared.ring_table import ring_from

__all__ = ["CHILD_ENDED", "CLOSED", "NO_CHILD", "TOO_MANY_LEFT", "Look", "UnpreparedWorker"]

DID_NOT_RETURN: Final = "not readable: a read of its memory did not return"
SCAN_DID_NOT_RETURN: Final = "no search for jobs: a read of /proc did not return"

DEADLINE_S: Final = 2.0
"""For a look without rings. A first look takes 0.02 to 0.1 s."""
QUARANTINE_S: Final = 60.0
"""A driver call that hangs does not end within seconds, and each try costs a child."""
_RING_FACTOR: Final = 5
"""How many times as long a look with a ring may take: the first searches a gigabyte of symbols."""
MAX_LEFT: Final = 8
"""Children that may hang in a read at a time, per worker; some 25 MB each."""
_MODULE: Final = "frtop_probe.unprepared"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Look:
    """What one request brought.

    Attributes:
        c10d: None when the process could not be read at all; then `reason` says why.
        tensors: By the address that was asked for; those not readable are missing. So `works`.
        environment: Variables that were asked for and are set.
        transports: Those past c10d that it has at hand; None when nobody asked, or it is not known.
        after: c10d's state once more, read after the rings.
    """

    pid: int
    c10d: C10dState | None = None
    rings: tuple[FlightRing, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    tensors: dict[int, TensorInfo] = field(default_factory=dict)
    works: dict[int, Work] = field(default_factory=dict)
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
        proc: Path = PROC,
    ) -> None:
        """The child starts with the first look.

        Args:
            deadline_s: Seconds for a look of a child that is ready; five times that with rings.
            quarantine_s: Seconds for which a process is not asked again.
            command: Program that speaks the protocol of `__main__`; by default that itself.
            proc: Where /proc is.
        """
        self._deadline_s = deadline_s
        self._quarantine_s = quarantine_s
        self._proc = proc
        self._lock = asyncio.Lock()
        program = command or child_process.python_command(_MODULE)
        self._lines = LineChild(program, max_left=MAX_LEFT, proc=proc)
        self._quarantine: dict[tuple[int, int], float] = {}

    async def look(
        self,
        pid: int,
        *,
        c10d: bool = True,
        rings: int | None = None,
        since: Mapping[str, int] | None = None,
        environment: Collection[str] = (),
        tensors: Collection[int] = (),
        works: Collection[int] = (),
        transports: bool = False,
    ) -> Look:
        """Reads one process; never raises for what is wrong with it.

        Args:
            pid: Of the process.
            c10d: Whether to read c10d's state.
            rings: Newest entries to read of each Flight Recorder ring; None for no ring.
            since: By kind of ring, the id of the first entry that is wanted.
            environment: Names of variables.
            tensors: Addresses of Python objects, as in `<Tensor at 0x...>` of a stack's locals.
            works: The same for `<Work at 0x...>`.
            transports: Whether to search for transports past c10d.
        """
        request = {
            "pid": pid,
            "c10d": c10d,
            "rings": rings,
            "since": dict(since or {}),
            "environment": sorted(environment),
            "tensors": sorted(tensors),
            "works": sorted(works),
            "transports": transports,
        }
        async with self._lock:
            try:
                answer = await self._ask(pid, request)
                return look_from(answer)
            except NotReadable as error:
                return Look(pid, reason=error.reason)

    async def scan(self, recorded: Collection[tuple[int, int]] = ()) -> Discovery:
        """Finds the jobs of this user on this host; never raises for what is in the way.

        Args:
            recorded: pid and start ticks of the processes that have a recorder.
        """
        async with self._lock:
            request = {"scan": sorted(recorded), "stuck": [pid for pid, _ in self._quarantined()]}
            try:
                return discovery_from(await self._exchange(request))
            except TimeoutError:
                self._avoid(self._lines.left_at)
                return Discovery(reasons=(SCAN_DID_NOT_RETURN,))
            except NotReadable as error:
                return Discovery(reasons=(error.reason,))
            except (KeyError, TypeError) as error:
                return Discovery(reasons=(f"{SCAN_FAILED}: {error!r}",))

    async def close(self) -> None:
        """Ends the child once its look is over; then waits at most 0.5 s for all that were left."""
        self._lines.refuse_requests()
        async with self._lock:
            await self._lines.close()

    async def _ask(self, pid: int, request: dict[str, Any]) -> dict[str, Any]:
        identity = identify(pid, self._proc)  # stat never blocks
        key = identity.pid, identity.start_ticks
        self._refuse_in_quarantine(key)
        try:
            return await self._exchange(request)
        except TimeoutError as error:
            self._quarantine[key] = time.monotonic() + self._quarantine_s
            raise NotReadable(DID_NOT_RETURN) from error

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        factor = 1 if request.get("rings") is None else _RING_FACTOR
        return await self._lines.exchange(request, factor * self._deadline_s)

    def _refuse_in_quarantine(self, key: tuple[int, int]) -> None:
        if key in self._quarantined():
            raise NotReadable(DID_NOT_RETURN, "asked a short while ago")

    def _quarantined(self) -> dict[tuple[int, int], float]:
        now = time.monotonic()
        self._quarantine = {known: end for known, end in self._quarantine.items() if end > now}
        return self._quarantine

    def _avoid(self, left_at: str) -> None:
        """Keeps the next searches from the process at which one has hung: it hides all others."""
        name, _, pid = left_at.rpartition(AT)
        if not name and pid.isdecimal():
            with suppress(NotReadable):  # it has ended
                found = identify(int(pid), self._proc)
                key = found.pid, found.start_ticks
                self._quarantine[key] = time.monotonic() + self._quarantine_s


def look_from(answer: dict[str, Any]) -> Look:
    """Reads an answer.

    Raises:
        NotReadable: it is not in the form of this version.
    """
    try:
        c10d, transports = answer.get("c10d"), answer.get("transports")
        return Look(
            pid=answer["pid"],
            c10d=None if c10d is None else c10d_state_from(c10d),
            rings=tuple(ring_from(ring) for ring in answer.get("rings", ())),
            environment=answer.get("environment", {}),
            tensors=_by_address(answer.get("tensors", {}), tensor_from),
            works=_by_address(answer.get("works", {}), work_from),
            reason=answer["reason"],
            transports=None
            if transports is None
            else tuple(FoundTransport(**one) for one in transports),
            after=None if answer.get("after") is None else c10d_state_from(answer["after"]),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise NotReadable(CHILD_ENDED, repr(error)) from error


def _by_address(
    data: dict[str, dict[str, Any]], read: Callable[[dict[str, Any]], Result]
) -> dict[int, Result]:
    return {int(address): read(value) for address, value in data.items()}
