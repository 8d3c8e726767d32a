"""A rank without a recorder: the state of its process from outside, and its changes.

Its numbers and pending ops come from c10d's state, read once a second (`groups`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.flight_history import FlightHistory
from frtop_probe.agent.unprepared.groups import (
    STALE_NS,
    UnpreparedGroups,
    label_of,
    place_of,
    reasons_of,
)
from frtop_probe.proc import ptrace_refusal
from frtop_probe.proc.exit_status import ExitStatus
from frtop_probe.proc.memory import NO_RIGHT, REPLACED
from frtop_probe.unprepared.c10d_state import NO_GROUPS, NO_MODULE
from frtop_probe.unprepared.discovery.facts import Candidate, FoundJob
from frtop_probe.unprepared.model import C10dState
from frtop_probe.unprepared.worker import Look

MAX_PENDING_OF_RANK: Final = 64
"""Most ops in progress in all groups of the rank."""
YOUNG_NS: Final = 30_000_000_000
"""By this age, a rank's launcher has started all ranks."""
FIRST_READS: Final = 4
"""How many times a caller waits for a ring that has never been read."""
NO_GROUPS_YET: Final = frozenset({NO_GROUPS, NO_MODULE})
"""Reasons why there are no groups yet."""
_NS_PER_TICK: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class UnpreparedRank(TrackedRank):
    """A rank that does not know frtop."""

    def __init__(self, key: int, candidate: Candidate, job: FoundJob, pidfd: int | None) -> None:
        super().__init__(key, candidate.pid, candidate.start_ticks, lives=True, pidfd=pidfd)
        self._candidate = candidate
        self._others_ended = candidate.ended > 0
        self._found = job
        self._started_ns = started_ns(candidate.start_ticks)
        self._c10d: C10dState | None = None
        self._sent = wire.RankUpdate(key=key)
        self._groups = UnpreparedGroups()
        self._notes: tuple[str, ...] = ()
        self._transports: tuple[wire.Transport, ...] | None = None
        self._names: dict[int, str] = {}
        self._seen_ns = 0
        self._read_ns = 0
        self.flight = FlightHistory()
        self.read_ring: Callable[[int], Awaitable[None]] | None = None
        """Reads the newest entries of its Flight Recorder, if that is possible soon."""
        self.first_seen_ns = time.monotonic_ns()
        self.box_folder: Callable[[], str] | None = None
        """Returns the folder for its black box, if somebody watches the rank now."""
        self._blocks: list[wire.BlockSums] = []

    @property
    def name(self) -> str:
        return f"process {self.pid}"

    @property
    def group_names(self) -> Mapping[int, str]:
        return self._names

    def learn(self, candidate: Candidate, job: FoundJob) -> None:
        """Adds what a later search found, which may be more.

        A rank with groups keeps its job: the end of a launcher must not move it to another job.
        """
        self._others_ended = candidate.ended > 0
        named = self._candidate.rank is not None or candidate.rank is None
        if not self.lives or (self._groups.any_lives and named):
            return
        if (candidate, job.identity, job.name) != (
            self._candidate,
            self._found.identity,
            self._found.name,
        ):
            self._candidate, self._found = candidate, job
            if self._identity is not None:
                self._identity = self._identify(self._c10d)

    def take(self, look: Look, at_ns: int, begun_ns: int = 0) -> None:
        """Adds a look that ended at `at_ns` and began at `begun_ns` (monotonic, ns).

        If the look could not read c10d's state, the last state stays, with the reason. After
        `STALE_NS` without a new state, everything from c10d is dropped.
        """
        c10d = look.c10d
        replaced = c10d is not None and c10d.start_ticks not in (0, self.start_ticks)
        if not self.lives or replaced or look.reason == REPLACED:
            return  # the next tick handles the end
        self._seen_ns = at_ns
        if look.transports is not None:
            self._transports = tuple(wire.Transport(o.name, o.sign) for o in look.transports)
        self._notes = tuple(map(self._explained, dict.fromkeys(reasons_of(look))))
        if c10d is not None and c10d.reason in NO_GROUPS_YET:
            self._groups.keep(frozenset())
            if self._groups.looks:  # it had some
                self._notes = (wire.LEFT_GROUPS,)
        if c10d is None or not c10d.groups:
            if not self._groups.any_lives:
                self._identity = self._identify(c10d)
            return
        self._c10d, self._read_ns = c10d, at_ns
        self._identity = self._identify(c10d)
        self._names = {group.address: label_of(group) for group in c10d.groups}
        self._notes += self._groups.take(c10d, at_ns, begun_ns or at_ns)

    def _explained(self, reason: str) -> str:
        """Adds to a reason the setting that stands in the way, and how to change it."""
        return f"{reason}: {ptrace_refusal.explain(self.pid)}" if reason == NO_RIGHT else reason

    def _expire(self, now_ns: int) -> None:
        """Drops the c10d state if it has been unreadable for a while."""
        old = self._read_ns and now_ns - self._read_ns > STALE_NS
        if (
            old
            and self._groups.any_lives
            and self._identity is not None
            and self._identity.c10d_readable
        ):
            self._identity = structs.replace(self._identity, c10d_readable=False)
            self._groups.forget_pending()

    def _identify(self, c10d: C10dState | None) -> wire.Identity:
        return identity_of(
            self._candidate, self._found, c10d, earlier=self._c10d, started_ns=self._started_ns
        )

    def update(self, now_ns: int) -> wire.RankUpdate | None:
        if self._identity is None:
            return None  # not looked at yet
        self._expire(now_ns)
        self._groups.age(now_ns)
        self._new_process()
        full, sent = self.full(), self._sent
        known = {group.id: group for group in sent.groups}
        progress = {front.group: front for front in sent.group_progress}
        fresh = wire.RankUpdate(
            key=self.key,
            identity=full.identity if full.identity != sent.identity else None,
            groups=tuple(one for one in full.groups if one != known.get(one.id)),
            group_progress=tuple(
                one for one in full.group_progress if one != progress.get(one.group)
            ),
            pending=full.pending if full.pending != sent.pending else None,
            pending_more=full.pending_more,
            process=full.process if full.process != sent.process else None,
            # An empty tuple means that nothing changed.
            notes=(full.notes or ("",)) if full.notes != sent.notes else (),
            transports=full.transports if full.transports != sent.transports else None,
            blocks=tuple(self._blocks),
            gauges=self._news("_gauges_sent", self.gauges),
        )
        self._blocks.clear()
        self._sent = full
        nothing = wire.RankUpdate(key=self.key, pending_more=full.pending_more)
        return None if fresh == nothing else fresh

    def _read_last(self, now_ns: int) -> bool:  # noqa: ARG002 - nothing is read
        self._identity = self._identity or self._identify(None)
        self._c10d = None
        self._groups.end()
        self._names.clear()
        return False  # only the exit status shows how the program ended

    @property
    def record(self) -> str:
        return self.box_folder() if self.box_folder is not None else ""

    @property
    def progress(self) -> tuple[object, ...]:
        return self._groups.moves

    @property
    def has_failed(self) -> bool:
        """Judged by its exit status; if that is unknown, it failed if ops were in progress."""
        ended = self.exit or ExitStatus()
        unknown = ended == ExitStatus()
        return bool(self._groups.pending) if unknown else ended != ExitStatus(code=0)

    def full(self) -> wire.RankUpdate:
        pending = self._groups.pending
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            groups=tuple(self._groups.known.values()),
            group_progress=tuple(self._groups.progress.values()),
            pending=pending[:MAX_PENDING_OF_RANK],
            pending_more=max(0, len(pending) - MAX_PENDING_OF_RANK),
            process=self._process,
            exit_info=self.exit_info,
            notes=(*self._notes, *filter(None, [self.recorder_note, self._ended_note()])),
            transports=self._transports,
            blocks=self.flight.recent_sums(),
            gauges=self.gauges,
        )

    def _ended_note(self) -> str:
        """Returns "" while a launcher may still be starting ranks one after another."""
        is_young = time.monotonic_ns() - self._started_ns < YOUNG_NS
        return wire.OTHERS_ENDED if self._others_ended and not is_young else ""

    def last_sign_ns(self) -> int:
        return self._seen_ns or time.monotonic_ns()

    async def read_first(self, limit: int) -> None:
        """Like `read_ops`, but waits for the first read if it is likely soon."""
        for _ in range(FIRST_READS):
            await self.read_ops(limit)
            if self.flight.read_ns:
                break

    async def read_ops(self, limit: int) -> None:
        if self.read_ring is not None and self.lives:
            await self.read_ring(limit)

    @property
    def ops_note(self) -> str:
        return self.flight.note

    def recent_ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        return self.flight.recent(limit)

    def take_ring(self, look: Look, at_ns: int, wall_offset_ns: int) -> None:
        """Adds a look with rings, and the state of c10d before and after them."""
        if look.c10d is None or look.c10d.start_ticks in (0, self.start_ticks):
            ids = self._groups.living_ids
            self._blocks += self.flight.take(look, ids, at_ns, wall_offset_ns)

    @property
    def issued(self) -> int:
        """Ops issued in all groups by c10d's count: if it has grown, a ring has new entries."""
        return self._groups.issued


def identity_of(
    candidate: Candidate,
    found: FoundJob,
    c10d: C10dState | None,
    *,
    earlier: C10dState | None,
    started_ns: int,
) -> wire.Identity:
    """Returns a rank's identity from its launcher, or else from its largest group.

    `earlier` is its last c10d state with groups, used once the rank has destroyed them.
    """
    rank, world = candidate.rank, candidate.world_size
    named_by = c10d if c10d is not None and c10d.groups else earlier
    groups = named_by.groups if named_by is not None else ()
    everybody = max(groups, key=lambda group: group.size, default=None)
    if everybody is not None and everybody.ranks is not None:
        in_order = 0 <= everybody.rank < len(everybody.ranks)
        rank = everybody.ranks[everybody.rank] if rank is None and in_order else rank
        world = everybody.size if world is None else world
    address, port, run_id = place_of(found.identity)
    return wire.Identity(
        pid=candidate.pid,
        start_ticks=candidate.start_ticks,
        rank=-1 if rank is None else rank,
        local_rank=-1 if candidate.local_rank is None else candidate.local_rank,
        job=wire.Job(
            master_addr=address,
            master_port=port,
            world_size=world or 0,
            run_id=run_id,
            nonce=hashlib.sha256(found.identity.encode()).hexdigest()[:8],
            name=found.name,
        ),
        started_ns=started_ns,
        settings=candidate.settings,
        prepared=False,
        c10d_readable=c10d is not None and (bool(c10d.groups) or c10d.reason in NO_GROUPS_YET),
    )


def started_ns(start_ticks: int) -> int:
    """When a process started, by the monotonic clock.

    The kernel counts from boot and includes the time while the host was suspended; the monotonic
    clock does not.
    """
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return start_ticks * _NS_PER_TICK - suspended_ns
