"""Nobody is in any op: whether something outside of the job keeps all ranks for good.

Storage that is gone stops all loaders in the same step, and no rank is left to wait for
another: no wait leads to a culprit. So each rank answers for itself, and all have to be kept:
one that is elsewhere may be whom the others wait for. As nobody waits, nobody is in a hurry to
say so, and what also keeps a rank that has nothing to do (a queue, a socket, a sleep, a lock)
proves nothing. Nor do writes: a checkpoint goes to its disk in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.detectors.not_entered import EXPLAINED
from frtop_tui.diagnosis.evidence.dataloader_worker import worker_of
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.evidence.stack_location import is_polling, locate, system_call
from frtop_tui.diagnosis.model import Verdict
from frtop_tui.diagnosis.thresholds import CPU_SHARE, PATIENCE_WITHOUT_HISTORY_NS
from frtop_tui.diagnosis.wording.absence import Absence, absence_of
from frtop_tui.diagnosis.wording.phrases import last_op_evidence, who
from frtop_tui.job.model import ObservedFrame, Rank, RankState
from frtop_tui.job.naming import duration, folded

QUIET_NS: Final = PATIENCE_WITHOUT_HISTORY_NS
"""So long nobody has done anything before anybody is looked at."""
HUNG_NS: Final = 60_000_000_000
STILL_NS: Final = 20_000_000_000
"""So long all have to be seen in the same call, before it is said that they hang."""
TWICE_NS: Final = 2_000_000_000
BEGINS_NS: Final = 15_000_000_000
"""By then all were looked at twice, or never will be."""
KEPT_AGAIN_NS: Final = 5_000_000_000
FREE_AGAIN_NS: Final = 30_000_000_000
"""A server may be at rest for days."""
IO_PER_S: Final = 4096
MEMORY_PER_S: Final = 2 << 20
MEMORY_LEAST: Final = 16 << 20
"""A long read shows in nothing else; the kernel's own tidying makes a process grow by less."""
_OVER: Final[tuple[RankState, ...]] = ("dead", "done")
_UNKNOWN: Final[tuple[RankState, ...]] = ("unheard", "starting")
_READS: Final = frozenset({
    "read", "pread64", "readv", "preadv", "preadv2", "open", "openat", "openat2", "getdents64",
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink",
})  # fmt: skip
"""Where the kernel keeps who waits for storage, other than to change what is there."""


class Seen(NamedTuple):
    """The process that is kept, of one rank, as a look at `at_ns` (our clock) found it."""

    at_ns: int
    process: wire.Process


@dataclass(slots=True)
class RestState:
    """A time in which nobody was in an op: since when, and how all were found to be kept."""

    since_ns: int = 0
    first: Mapping[int, Seen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutsideOps:
    """What there is to say of a job of which nobody is in an op, and whom to look at.

    `open_since_ns` is since when, as long as looks may yet tell that it is hung; else 0.
    """

    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    wanted: tuple[int, ...] = ()
    open_since_ns: int = 0


def outside(frame: ObservedFrame, index: RankIndex, rest: RestState) -> OutsideOps:
    """Nothing of a job in which somebody is in an op, or was of late, or is not known."""
    now_ns = frame.now_ns
    issued_ns = max((group.issued_ns for group in frame.groups), default=0)
    living, asked = list[Rank](), list[Rank]()
    if 0 < issued_ns < now_ns - QUIET_NS and _nobody_waits(index):
        living = [view for view in index.views.values() if view.state not in _OVER]
        # Of very many, some from everywhere.
        asked = living[:: -(-len(living) // EXPLAINED) or 1]
    since_ns = max(map(_active_ns, asked), default=now_ns)
    if since_ns >= now_ns - QUIET_NS:
        rest.since_ns, rest.first = 0, {}
        return OutsideOps()
    rest.since_ns = rest.since_ns or now_ns
    absences = {view.rank: absence_of(view, now_ns) for view in asked}
    looked = [view for view in asked if _is_looked_at(view, since_ns)]
    everybody = len(asked) == len(living)
    kept = {view.rank: _kept(view, absences[view.rank], everybody=everybody) for view in looked}
    seen = {rank: one for rank, one in kept.items() if one is not None}
    free, lacking = len(seen) < len(looked), len(looked) < len(asked)
    still_ns = _still_ns(rest, {} if free or lacking else seen)
    verdicts = tuple[Verdict, ...]()
    if still_ns >= STILL_NS and max(map(_active_ns, living)) < now_ns - HUNG_NS:
        verdicts = _verdicts(frame, issued_ns, absences, still_ns, len(living))
    begins = now_ns - rest.since_ns < BEGINS_NS
    is_open = not (free or verdicts) and (begins or still_ns >= TWICE_NS)
    first = next((rank for rank, one in kept.items() if one is None), min(kept, default=None))
    text = _age(now_ns, issued_ns)
    note = text if first is None else f"{text}; rank {first}: {absences[first].why.text}"
    return OutsideOps(
        verdicts,
        () if verdicts else (note,),
        _due(asked, now_ns - (FREE_AGAIN_NS if free else KEPT_AGAIN_NS)),
        since_ns if is_open else 0,
    )


def _nobody_waits(index: RankIndex) -> bool:
    """Whether all ranks are known as they are now, and nobody waits for another."""
    if index.deaths.some or any(index.postures.get(posture) for posture in _UNKNOWN):
        return False
    if any(not wait.background for wait in index.waits.values()):
        return False
    views = index.views.values()
    first = next(iter(views))
    return len(views) >= first.identity.job.world_size and not any(v.dumped for v in views)


def _active_ns(view: Rank) -> int:
    """When it last did anything, on our clock."""
    return last_activity_ns(view) + view.clock_ns


def _looked_ns(view: Rank) -> int:
    return view.snapshot.at_ns + view.clock_ns if view.snapshot is not None else 0


def _is_looked_at(view: Rank, since_ns: int) -> bool:
    return view.state == "stopped" or _looked_ns(view) > since_ns


def _kept(view: Rank, absence: Absence, *, everybody: bool) -> Seen | None:
    """What keeps a rank for good, None if nothing does.

    A key does only if `everybody` was asked: any other may have to set it.
    """
    if view.state == "stopped" and view.process is not None:
        return Seen(view.heard_ns, view.process)
    looked = view.snapshot.processes if view.snapshot is not None else ()
    own = next((process for process in looked if process.pid == view.identity.pid), None)
    cause = absence.why.cause
    process = (worker_of(view) or own) if cause == "dataloader" else own
    reads = cause in ("dataloader", "file_io") and _reads(process)
    polls = cause == "store" and everybody and is_polling(process)
    return Seen(_looked_ns(view), process) if process is not None and (reads or polls) else None


def _still_ns(rest: RestState, seen: Mapping[int, Seen]) -> int:
    """How long all have been `seen` to be kept and to get nowhere; begins anew if one does."""
    known = rest.first.keys() == seen.keys()
    if not known or any(_has_moved(rest.first[rank], one) for rank, one in seen.items()):
        rest.first = seen
    return min((one.at_ns - rest.first[rank].at_ns for rank, one in seen.items()), default=0)


def _reads(process: wire.Process | None) -> bool:
    """Whether a process waits for storage, by the kernel's word; or is stopped."""
    if process is None:
        return False
    in_file = locate(None, process).kind == "file_io"
    return process.state in "Tt" or (in_file and system_call(process) in _READS)


def _has_moved(first: Seen, last: Seen) -> bool:
    """Whether a process got on, on the whole; others of its threads do this and that."""
    old, new, seconds = first.process, last.process, (last.at_ns - first.at_ns) / 1e9
    if (old.pid, old.syscall, old.file) != (new.pid, new.syscall, new.file):
        return True
    return (
        new.cpu_ns - old.cpu_ns > CPU_SHARE * 1e9 * (1 + seconds)
        or new.io_bytes - old.io_bytes > IO_PER_S * (4 + seconds)
        or new.rss - old.rss > MEMORY_LEAST + MEMORY_PER_S * seconds
    )


def _due(asked: Sequence[Rank], before_ns: int) -> tuple[int, ...]:
    """Whom to look at next, first who was looked at longest ago."""
    looked = {view.rank: at_ns for view in asked if (at_ns := _looked_ns(view)) < before_ns}
    return tuple(sorted(looked, key=looked.__getitem__))


def _age(now_ns: int, issued_ns: int) -> str:
    return f"nobody is in an op, and none was issued for {duration((now_ns - issued_ns) / 1e9)}"


def _verdicts(
    frame: ObservedFrame,
    issued_ns: int,
    absences: Mapping[int, Absence],
    still_ns: int,
    living: int,
) -> tuple[Verdict, ...]:
    """One for each cause. Who waits for a key is kept by those that are elsewhere."""
    causes: dict[str, list[int]] = {}
    for rank, absence in absences.items():
        causes.setdefault(absence.why.cause, []).append(rank)
    waiting = causes.pop("store", []) if len(causes) > 1 else []
    still = duration(still_ns / 1e9)
    common = [f"in the same call for {still}, with hardly any CPU time, I/O or growth of memory"]
    if waiting:
        common.append(f"{folded(waiting)} not in an op either: at a key of the store")
    if others := living - len(absences):
        common.append(f"{others:,} more ranks are in no op either; they were not looked at")
    return tuple(
        Verdict(
            kind="not_entered",
            confidence="confirmed",
            progress="none",
            culprits=tuple(ranks),
            headline=(
                f"{_age(frame.now_ns, issued_ns)}: {who(frame.ranks, ranks)}"
                f" {'gets' if len(ranks) == 1 else 'get'} nowhere"
            ),
            why=absences[ranks[0]].why,
            next=absences[ranks[0]].next,
            since_ns=issued_ns,
            evidence=(
                *absences[ranks[0]].evidence,
                *common,
                *last_op_evidence(frame.ranks, ranks),
            ),
            missing=absences[ranks[0]].missing,
        )
        for ranks in causes.values()
    )
