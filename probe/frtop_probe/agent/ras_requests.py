"""Asks NCCL's RAS when a person wants it: at most one request at a time, and seldom.

Asking has crashed jobs. So before it is asked, the agent looks for reasons not to: RAS that is off
or elsewhere, a communicator that is being made, another job on the same port.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ras_checks import PortCheck, SetupCheck, check_port, check_setup
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.proc import daemon_thread
from frtop_probe.ras import client
from frtop_probe.ras.library import own_pid
from frtop_probe.ras.listeners import same_network
from frtop_probe.ras.process_reader import ProcessLook, look_at
from frtop_probe.ras.settings import ENABLE, RasSettings, parse_settings

PAUSE_S: Final = 10.0
"""Between two requests of one agent: polling RAS has crashed jobs."""
PORT_S: Final = 5.0
FIRST_VERSION: Final = (2, 24)
MAX_NOTED: Final = 8
_NEXT: Final = "`frtop diagnose` shows what is known without asking it"


class _Refusal(Exception):
    """RAS is not asked: `error` as in `wire.RasResponse`, and a text with the next step."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error, self.text = error, text


@dataclass(slots=True)
class _Findings:
    """What was found so far."""

    look: ProcessLook
    port: PortCheck | None = None
    setup: SetupCheck = SetupCheck()  # noqa: RUF009 - it is frozen
    unchecked: tuple[str, ...] = ()


class RasRequests:
    """Belongs to the agent's event loop."""

    def __init__(self, host: str, tracker: RankTracker, taker: SnapshotTaker) -> None:
        self._host = host
        self._tracker = tracker
        self._taker = taker
        self._asking = False
        self._last_s = -math.inf
        self._noted = 0

    async def respond(self, request: wire.RasRequest, rank: TrackedRank) -> wire.RasResponse:
        """Looks at the rank, and asks RAS if the request says so and nothing is in the way."""
        if not request.ask:
            return await self._look(request, rank)
        if reason := self._too_soon():
            return self._response(request, rank, None, _Refusal("busy", reason))
        self._asking = True
        try:
            return await self._ask(request, rank)
        finally:
            self._asking = False

    def _too_soon(self) -> str:
        if self._asking:
            return f"another request to RAS is under way on {self._host}; wait for its answer"
        left = self._last_s + PAUSE_S - time.monotonic()
        if left > 0:
            return (
                f"RAS was asked on {self._host} less than {PAUSE_S:.0f} s ago: polling it has"
                f" crashed jobs; ask again in {math.ceil(left)} s"
            )
        return ""

    async def _look(self, request: wire.RasRequest, rank: TrackedRank) -> wire.RasResponse:
        findings, refusal = await self._check(rank)
        if refusal is None and (reason := self._too_soon()):
            refusal = _Refusal("busy", reason)
        return self._response(request, rank, findings, refusal)

    async def _ask(self, request: wire.RasRequest, rank: TrackedRank) -> wire.RasResponse:
        findings, refusal = await self._check(rank)
        response = self._response(request, rank, findings, refusal)
        if refusal is not None or findings is None or findings.port is None:
            return response
        version = version_of(findings.look.version)
        answer = await client.ask(findings.port.hosts, findings.port.port, version)
        if answer.asked:
            self._last_s = time.monotonic()
            self._note(rank)
        error, text = answer.error, f"{answer.text}; {_NEXT}" if answer.error else ""
        report = answer.report
        if report is not None and not _is_of(report, {pid for _, pid in response.pids}):
            error, report = "other", None
            text = (
                f"another job answered at {answer.address}: the kernel picks one of those that"
                " listen there; set another NCCL_RAS_ADDR for each job next time"
            )
        return structs.replace(
            response,
            at_ns=time.monotonic_ns(),
            asked=answer.asked,
            address=answer.address or response.address,
            report=report,
            error=error,
            help=text,
        )

    async def _check(self, rank: TrackedRank) -> tuple[_Findings | None, _Refusal | None]:
        """What can be known without asking, and why RAS must not be asked."""
        if not rank.lives:
            return None, _gone(rank)
        look = await look_at(rank.pid)
        findings = _Findings(look)
        try:
            settings = _settings_of(rank, look)
            findings.unchecked = _require_same_network(rank)
            others = self._job_of(rank)
            findings.port = await _port_of(settings, rank, others)
            if findings.port.error:
                raise _Refusal(findings.port.error, findings.port.text)
            findings.setup = await check_setup(others, self._taker)
            if findings.setup.making:
                raise _Refusal("making", f"{findings.setup.making}; ask again when it is over")
        except _Refusal as refusal:
            return findings, refusal
        return findings, None

    def _job_of(self, rank: TrackedRank) -> list[TrackedRank]:
        """The living ranks of its job on this host, itself first."""
        others = (
            one
            for one in self._tracker.ranks.values()
            if one is not rank and one.lives and one.job is not None and one.job == rank.job
        )
        return [rank, *others]

    def _note(self, rank: TrackedRank) -> None:
        """So that others know, if the job ends just then."""
        self._noted += 1
        if self._noted <= MAX_NOTED:
            at = time.strftime("%H:%M:%S")
            self._tracker.note(f"NCCL's RAS was asked at {at}, for process {rank.pid}")

    def _response(
        self,
        request: wire.RasRequest,
        rank: TrackedRank,
        findings: _Findings | None,
        refusal: _Refusal | None,
    ) -> wire.RasResponse:
        found = findings or _Findings(ProcessLook(rank.pid))
        port = found.port
        return wire.RasResponse(
            request.id,
            self._host,
            rank.key,
            time.monotonic_ns(),
            version=found.look.version,
            version_source=found.look.source,
            library=found.look.library,
            address=port.address if port is not None else "",
            checked=(*(port.checked if port is not None else ()), *found.setup.checked),
            unchecked=(
                *found.unchecked,
                *(port.unchecked if port is not None else ()),
                *found.setup.unchecked,
            ),
            pids=tuple((one.key, own_pid(one.pid)) for one in self._job_of(rank)),
            error=refusal.error if refusal is not None else "",
            help=refusal.text if refusal is not None else "",
        )


def version_of(text: str) -> tuple[int, ...]:
    """`2.28.9` as numbers; () when it is not known."""
    return tuple(int(part) for part in text.split(".")) if text else ()


def _settings_of(rank: TrackedRank, look: ProcessLook) -> RasSettings:
    """The settings of its RAS.

    Raises:
        _Refusal: there is no RAS in this rank, as far as can be seen.
    """
    if look.start_ticks not in (0, rank.start_ticks):
        raise _gone(rank)
    if look.reason:
        text = f"process {rank.pid} cannot be looked at, so RAS is not asked: {look.reason}"
        raise _Refusal("failed", f"{text}; {_NEXT}")
    if not look.library:
        raise _Refusal(
            "missing",
            f"process {rank.pid} has no libnccl.so mapped: it has no NCCL, or one that is linked"
            f" into another library; {_NEXT}",
        )
    version = version_of(look.version)
    if version and version < FIRST_VERSION:
        raise _Refusal("missing", f"NCCL {look.version} has no RAS: it came with 2.24; {_NEXT}")
    settings = parse_settings(look.environment)
    if not settings.enabled:
        raise _Refusal("off", f"process {rank.pid} has switched RAS off ({ENABLE}=0); {_NEXT}")
    if settings.problem:
        raise _Refusal("closed", f"{settings.problem}; {_NEXT}")
    return settings


async def _port_of(
    settings: RasSettings, rank: TrackedRank, others: list[TrackedRank]
) -> PortCheck:
    """Looks for listeners in a thread: it reads the descriptors of all processes of this user."""
    looking = daemon_thread.run(partial(check_port, settings, rank, others), "frtop ports")
    try:
        return await asyncio.wait_for(looking, PORT_S)
    except (asyncio.TimeoutError, TimeoutError):
        text = f"who listens on port {settings.port} was not found out within {PORT_S:.0f} s"
        raise _Refusal("failed", f"{text}; {_NEXT}") from None


def _require_same_network(rank: TrackedRank) -> tuple[str, ...]:
    """What could not be checked; raises `_Refusal` if the rank is in another network namespace."""
    same = same_network(rank.pid)
    if same is False:
        raise _Refusal(
            "namespace",
            f"process {rank.pid} is in another network namespace, which is not entered from here;"
            " run `frtop agent` and `frtop ras` inside its container",
        )
    return () if same else (f"whether process {rank.pid} is in this network namespace",)


def _gone(rank: TrackedRank) -> _Refusal:
    return _Refusal("gone", f"process {rank.pid} has ended: choose a rank that lives")


def _is_of(report: wire.RasReport, pids: Iterable[int]) -> bool:
    """Whether a report may be of the job with these own pids: text names too few to tell."""
    named = {rank.pid for one in report.communicators for rank in one.ranks}
    named |= {rank.pid for one in report.communicators for rank in one.missing}
    named.discard(0)  # not known
    return not named or not named.isdisjoint(pids)
