"""No rank is in an op: whether something outside of the job holds all ranks for good.

Storage that is gone stops all loaders in the same step, and no rank is left to wait for
another. So each rank is examined for itself, and all of them have to be held: one that is
elsewhere may be the one that the others wait for. A queue, a socket, a sleep or a lock proves
nothing, because ranks without work sit there too. Writes prove nothing either: a checkpoint
takes its time in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.dataloader_worker import worker_of
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns, working_location
from frtop_tui.diagnosis.evidence.stack_location import is_polling, locate, system_call
from frtop_tui.diagnosis.evidence.thread_chain import by_acting_thread
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.thresholds import (
    CPU_SHARE,
    MOST_ABSENT_EXPLAINED,
    PATIENCE_WITHOUT_HISTORY_NS,
)
from frtop_tui.job.model import Rank, RankState

QUIET_NS: Final = PATIENCE_WITHOUT_HISTORY_NS
"""No rank is looked at before all have been idle for so long."""
HUNG_NS: Final = 60_000_000_000
STILL_NS: Final = 20_000_000_000
"""All ranks have to be seen in the same call for so long before they count as hung."""
TWICE_NS: Final = 2_000_000_000
BEGINS_NS: Final = 15_000_000_000
"""By then every rank was looked at twice, or never will be."""
HELD_AGAIN_NS: Final = 5_000_000_000
FREE_AGAIN_NS: Final = 30_000_000_000
"""A server may be at rest for days."""
IO_PER_S: Final = 4096
MEMORY_PER_S: Final = 2 << 20
MEMORY_LEAST: Final = 16 << 20
"""A long read shows in nothing else; the kernel's own housekeeping makes a process grow less."""
_OVER: Final[tuple[RankState, ...]] = ("dead", "done")
_READS: Final = frozenset({
    "read", "pread64", "readv", "preadv", "preadv2", "open", "openat", "openat2", "getdents64",
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink",
})  # fmt: skip
"""Calls in which a process waits for storage, other than to change it."""


class Held(NamedTuple):
    """The process that is held, of one rank, as the snapshot at `at_ns` (our clock) shows it."""

    at_ns: int
    process: wire.Process


@dataclass(slots=True)
class RestState:
    """A time in which no rank is in an op: since when, and how each rank was first held."""

    since_ns: int = 0
    first: Mapping[int, Held] = field(default_factory=dict)


class HeldOutside(Detail, frozen=True):
    """Ranks that one cause holds outside of any op, in the same call for `held_ns`.

    Attributes:
        issued_ns: operator's clock: when any rank last issued an op.
        at_store_key: ranks that wait for a store key meanwhile.
        others: ranks in no op that were not examined.
    """

    ranks: tuple[int, ...]
    issued_ns: int
    held_ns: int
    at_store_key: tuple[int, ...]
    others: int


class RestNote(NamedTuple):
    """No rank is in an op, and what one of them does instead, if that is known."""

    issued_ns: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class OutsideOps:
    """What is known of a job in which no rank is in an op, and whom to look at.

    `open_since_ns` is since when it lasts while snapshots may yet show that it is hung; else 0.
    """

    findings: tuple[Finding, ...] = ()
    note: RestNote | None = None
    look_at: tuple[int, ...] = ()
    open_since_ns: int = 0


def stalled_outside_ops(context: Context, rest: RestState) -> OutsideOps:
    """Nothing, if a rank is in an op, or was recently, or is not known."""
    frame, now_ns = context.frame, context.now_ns
    issued_ns = max((group.issued_ns for group in frame.groups), default=0)
    issued_ns = issued_ns or _started_ns(context)
    living, asked = list[Rank](), list[Rank]()
    if 0 < issued_ns < now_ns - QUIET_NS and _nobody_waits(context):
        living = [view for view in context.ranks.values() if view.state not in _OVER]
        # Of very many ranks, some from everywhere.
        asked = living[:: -(-len(living) // MOST_ABSENT_EXPLAINED) or 1]
    since_ns = max(map(_active_ns, asked), default=now_ns)
    if since_ns >= now_ns - QUIET_NS:
        rest.since_ns, rest.first = 0, {}
        return OutsideOps()
    rest.since_ns = rest.since_ns or now_ns
    causes = {view.rank: absence_cause(view).cause for view in asked}
    looked = [one for one in asked if one.state == "stopped" or _looked_ns(one) > since_ns]
    everybody = len(asked) == len(living)
    held = {view.rank: _held(view, causes[view.rank], everybody=everybody) for view in looked}
    seen = {rank: one for rank, one in held.items() if one is not None}
    free, lacking = len(seen) < len(looked), len(looked) < len(asked)
    held_ns = _held_ns(rest, {} if free or lacking else seen)
    findings = tuple[Finding, ...]()
    if held_ns >= STILL_NS and max(map(_active_ns, living)) < now_ns - HUNG_NS:
        findings = _findings(issued_ns, causes, held_ns, len(living))
    begins = now_ns - rest.since_ns < BEGINS_NS
    is_open = not (free or findings) and (begins or held_ns >= TWICE_NS)
    again_ns = now_ns - (FREE_AGAIN_NS if free else HELD_AGAIN_NS)
    due = tuple(one.rank for one in sorted(asked, key=_looked_ns) if _looked_ns(one) < again_ns)
    first = next((rank for rank, one in held.items() if one is None), min(held, default=None))
    return OutsideOps(
        findings,
        None if findings else RestNote(issued_ns, first),
        due,
        since_ns if is_open else 0,
    )


def _started_ns(context: Context) -> int:
    """When the last rank started, on the operator's clock; 0 unless all are without a group."""
    if len(context.index.states.get("starting", ())) < len(context.ranks):
        return 0
    started = (view.identity.started_ns + view.clock_ns for view in context.ranks.values())
    return max(started, default=0)


def _nobody_waits(context: Context) -> bool:
    """Whether the present state of every rank is known, and none waits for another."""
    index, views = context.index, context.ranks.values()
    starting = len(index.states.get("starting", ()))
    if context.deaths.some or index.states.get("unheard") or 0 < starting < len(views):
        return False
    if any(not wait.background for wait in index.waits.values()):
        return False
    world = next(iter(views)).identity.job.world_size
    return len(views) >= world and all(view.evidence.has_ages for view in views)


def _active_ns(view: Rank) -> int:
    """Operator's time at which it last did anything."""
    return last_activity_ns(view) + view.clock_ns


def _looked_ns(view: Rank) -> int:
    return view.snapshot.at_ns + view.clock_ns if view.snapshot is not None else 0


def _held(view: Rank, cause: str, *, everybody: bool) -> Held | None:
    """What holds a rank for good, None if nothing does.

    A store key counts only if `everybody` was examined: any other rank may have to set it. So
    does a build of an extension: any other rank may be the one that builds it.
    """
    if view.state == "stopped" and view.process is not None:
        return Held(view.heard_ns, view.process)
    looked = view.snapshot.processes if view.snapshot is not None else ()
    own = next((one for one in looked if one.pid == view.identity.pid), None)
    process = by_acting_thread(view, own) if own is not None else None
    if cause == "dataloader":
        process = worker_of(view) or process
    if process is None:
        return None
    if cause in ("dataloader", "file_io"):
        held = _reads(process)
    elif cause == "lock":
        held = everybody and _awaits_build(view)
    else:
        held = cause == "store" and everybody and is_polling(process)
    return Held(_looked_ns(view), process) if held else None


def _held_ns(rest: RestState, seen: Mapping[int, Held]) -> int:
    """For how long all have been held without progress; begins anew if one makes some."""
    known = rest.first.keys() == seen.keys()
    if not known or any(_has_moved(rest.first[rank], one) for rank, one in seen.items()):
        rest.first = seen
    return min((one.at_ns - rest.first[rank].at_ns for rank, one in seen.items()), default=0)


def _awaits_build(view: Rank) -> bool:
    location = working_location(view)
    return location is not None and location.kind == "build_lock"


def _reads(process: wire.Process) -> bool:
    """Whether the kernel says that a process waits for storage, or is stopped."""
    in_file = locate(None, process).kind == "file_io"
    return process.state in "Tt" or (in_file and system_call(process) in _READS)


def _has_moved(first: Held, last: Held) -> bool:
    """Whether a process made progress; other threads of it may do a little."""
    old, new, seconds = first.process, last.process, (last.at_ns - first.at_ns) / 1e9
    if (old.pid, old.syscall, old.file) != (new.pid, new.syscall, new.file):
        return True
    return (
        new.cpu_ns - old.cpu_ns > CPU_SHARE * 1e9 * (1 + seconds)
        or new.io_bytes - old.io_bytes > IO_PER_S * (4 + seconds)
        or new.rss - old.rss > MEMORY_LEAST + MEMORY_PER_S * seconds
    )


def _findings(
    issued_ns: int, causes: Mapping[int, str], held_ns: int, living: int
) -> tuple[Finding, ...]:
    """One for each cause. Ranks at a store key are held by those that are elsewhere."""
    by_cause: dict[str, list[int]] = {}
    for rank, cause in causes.items():
        by_cause.setdefault(cause, []).append(rank)
    waiting = tuple(by_cause.pop("store", ())) if len(by_cause) > 1 else ()
    return tuple(
        Finding(
            kind="not_entered",
            detail=HeldOutside(tuple(ranks), issued_ns, held_ns, waiting, living - len(causes)),
            key=("outside", tuple(ranks)),
            culprits=tuple(ranks),
            cause=cause,
            since_ns=issued_ns,
        )
        for cause, ranks in by_cause.items()
    )
