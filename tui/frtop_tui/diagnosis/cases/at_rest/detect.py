"""No rank is in an op, and none has been issued for unusually long: what ranks do instead.

No rank waits for another, so each is examined by itself: where it is, and whether it stays there.

* Something outside the job may hold all of them for good: lost storage stops all loaders in the
same step. That is proven only if the kernel shows it for all ranks, as the others may wait for any
rank that is elsewhere. * All may wait for one kind of thing: a suspicion. * Ranks that left may
have left one behind that does not end. * Otherwise no rank is named, but the places of all are
listed.

A server without work waits, too. It is one if it was seen to wait at the same place before, and
then went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.absence_cause import AbsenceCause, doing, ending_cause
from frtop_tui.diagnosis.evidence.c10d_call import StackPath
from frtop_tui.diagnosis.evidence.death import ended_ns
from frtop_tui.diagnosis.evidence.program_end import others_have_ended, program_end
from frtop_tui.diagnosis.evidence.progress import Sighting, has_moved, longest_pause_ns, look_of
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.evidence.stack_location import is_polling, locate, system_call
from frtop_tui.diagnosis.evidence.unobserved_wait import unobserved_wait
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.thresholds import (
    LASTING_USUAL_WAITS,
    MOST_ABSENT_EXPLAINED,
    PATIENCE_WITHOUT_HISTORY_NS,
)
from frtop_tui.job.model import Rank, RankState

QUIET_NS: Final = PATIENCE_WITHOUT_HISTORY_NS
"""No rank is looked at before all have been idle for this long."""
UNUSUAL_NS: Final = 2 * PATIENCE_WITHOUT_HISTORY_NS
"""A pause is unusual after this, and after twice the longest pause that the job was seen to
make."""
STILL_NS: Final = 20_000_000_000
"""All ranks have to be seen in the same call for this long before they count as hung."""
TWICE_NS: Final = 2_000_000_000
BEGINS_NS: Final = 15_000_000_000
"""By then every rank has been looked at twice, or never will be."""
AGAIN_NS: Final = 5_000_000_000
KNOWN_AGAIN_NS: Final = 30_000_000_000
"""A server may be idle for days."""
_OVER: Final[tuple[RankState, ...]] = ("dead", "done")
_READS: Final = frozenset({
    "read", "pread64", "readv", "preadv", "preadv2", "open", "openat", "openat2", "getdents64",
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink",
})  # fmt: skip
"""Calls in which a process waits for storage without changing it: a checkpoint may be slow, and
shows no progress."""
_AWAITS: Final = frozenset[Cause](
    ["lock", "socket", "pipe", "subprocess", "store", "file_io", "dataloader", "gil", "stopped"]
)
"""Causes that show what a rank waits for. A sleep ends by itself, and may be polling."""
_AT_REST: Final = frozenset[Cause]({"idle", "input"})
"""Causes of ranks that wait for work, or for a person, from outside the job."""


class Unmoved(NamedTuple):
    """How long a rank has been where it is: the first look and the last."""

    first: Sighting
    last: Sighting
    moved_ns: int = 0  # how long before `first` it was seen elsewhere; 0: never

    @property
    def places(self) -> frozenset[StackPath]:
        return frozenset((self.last.path, *self.last.beside))

    @property
    def still_ns(self) -> int:
        return self.last.at_ns - self.first.at_ns

    @property
    def is_moving(self) -> bool:
        return self.moved_ns > 0 and not self.is_still

    @property
    def is_still(self) -> bool:
        # A rank that was seen to move may be slow: a long read shows only after a while.
        return self.still_ns >= (STILL_NS if self.moved_ns else TWICE_NS)


@dataclass(slots=True)
class RestState:
    """A pause in which no rank is in an op, and what earlier pauses have shown."""

    active_ns: int = 0  # when any rank last did anything before it; 0 if there was no pause
    since_ns: int = 0  # since when frtop has seen it
    paused_ns: int = 0  # how long no op has been issued; 0 before the first op
    stays: dict[int, Unmoved] = field(default_factory=dict)  # by rank that was looked at
    longest_ns: int = 0  # the longest earlier pause
    # where a rank waited in an earlier pause before it went on
    gone_on: dict[int, frozenset[StackPath]] = field(default_factory=dict)

    def begin(self, living: Iterable[Rank], since_ns: int, now_ns: int) -> None:
        """Begins a new pause: the job, and so most of its ranks, went on after the last one."""
        self.longest_ns = max(self.longest_ns, self.paused_ns)
        for view in living:
            stay = self.stays.get(view.rank)
            if stay is not None and _active_ns(view) > self.active_ns + TWICE_NS:
                self.gone_on[view.rank] = stay.places
        self.active_ns, self.since_ns = since_ns, now_ns
        self.stays = {}


class RestDetail(Detail, frozen=True):
    """Found while no rank is in an op; its detector decides which ranks to look at again."""


class Held(RestDetail, frozen=True):
    """Ranks that one cause holds outside of any op, in the same call for `held_ns`."""

    ranks: tuple[int, ...]
    issued_ns: int  # operator's clock: when any rank last issued an op
    held_ns: int
    at_store_key: tuple[int, ...]  # ranks that meanwhile wait for a store key
    others: int  # ranks in no op that were not examined
    proven: bool = True  # else what they wait for may still come


class NotEnding(RestDetail, frozen=True):
    """`ranks` do not end, and stay where they are for `held_ns`; `left` have ended."""

    ranks: tuple[int, ...]
    left: tuple[int, ...]
    held_ns: int
    proven: bool


class Resting(RestDetail, frozen=True):
    """Ranks in no op that wait for different or unknown things."""

    issued_ns: int
    ranks: tuple[int, ...]
    unseen: tuple[int, ...]
    left: tuple[int, ...]
    others: int


class RestNote(NamedTuple):
    """No rank is in an op; `ranks` were looked at."""

    issued_ns: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestFound:
    """What is known about a job in which no rank is in an op, and which ranks to look at.

    `open_since_ns` is when it began, while it is not known whether that is unusual; else 0.
    """

    findings: tuple[Finding, ...] = ()
    note: RestNote | None = None
    look_at: tuple[int, ...] = ()
    open_since_ns: int = 0

    @property
    def proven(self) -> RestFound:
        """Without what may follow from something else that is wrong."""
        sure = (one for one in self.findings if isinstance(one.detail, Held))
        return replace(self, findings=tuple(one for one in sure if one.progress == "none"))


class _AtRest(NamedTuple):
    """A job in which no rank is in an op."""

    living: Sequence[Rank]
    asked: Sequence[Rank]  # a sample, if there are very many
    left: tuple[int, ...]
    issued_ns: int
    since_ns: int
    causes: Mapping[int, AbsenceCause]
    unseen: bool  # some ranks that may be alive are not seen

    @property
    def serves(self) -> bool:
        """Whether a rank is where a server waits for work."""
        return any(cause.cause == "idle" for cause in self.causes.values())

    @property
    def others(self) -> int:
        return len(self.living) - len(self.asked)


def find_at_rest(context: Context, rest: RestState) -> RestFound:
    """Finds nothing if a rank is in an op, or was recently, or is not known."""
    now_ns, found = context.now_ns, _at_rest(context)
    if found is None:
        return RestFound()
    if found.since_ns > rest.active_ns + TWICE_NS:  # more than an error of the hosts' clocks
        rest.begin(found.asked, found.since_ns, now_ns)
    quiet_ns = now_ns - found.since_ns
    rest.paused_ns = quiet_ns if any(group.issued_ns for group in context.frame.groups) else 0
    _learn_stays(found, rest)
    stays = rest.stays
    note = RestNote(found.issued_ns, tuple(stays) or tuple(found.causes)[:1])
    by_age = sorted(found.asked, key=_looked_ns)
    due = tuple(one.rank for one in by_age if _is_due(one, found, rest, now_ns))
    if all(rank in stays and _is_well(rank, found, rest) for rank in found.causes):
        return RestFound(note=note, look_at=due)
    paused_ns = min(map(longest_pause_ns, found.asked))  # earlier, by the ops still known
    unusual_ns = max(UNUSUAL_NS, LASTING_USUAL_WAITS * max(rest.longest_ns, paused_ns))
    # The others may wait for those that work, for an unknown time.
    works = any(stay.is_moving or stay.last.runs for stay in stays.values())
    seen = all(rank in stays and stays[rank].is_still for rank in found.causes)
    begins = now_ns - rest.since_ns < BEGINS_NS
    findings = _held(found, stays) if seen and quiet_ns >= UNUSUAL_NS else ()
    is_known = works or _is_unobserved(context, found)
    if not findings and quiet_ns >= unusual_ns and not is_known and (seen or not begins):
        findings = _unproven(found, rest, seen=seen)
    if findings:
        return RestFound(findings, look_at=due)
    return RestFound(note=note, look_at=due, open_since_ns=found.since_ns)


def _at_rest(context: Context) -> _AtRest | None:
    """The job, if no rank is in an op and none has done anything for long."""
    now_ns, views = context.now_ns, context.ranks.values()
    issued_ns = max((group.issued_ns for group in context.frame.groups), default=0)
    # Before the first op, the pause begins when the last process starts.
    issued_ns = issued_ns or max(map(_started_ns, views), default=0)
    if not 0 < issued_ns < now_ns - QUIET_NS or not _nobody_waits(context):
        return None
    living = [view for view in views if view.state not in _OVER]
    left = tuple(view.rank for view in views if view.state == "done")
    times = [*map(_active_ns, living), *(ended_ns(context.ranks[rank]) for rank in left)]
    since_ns = max(times, default=0)
    if not living or not 0 < since_ns < now_ns - QUIET_NS:
        return None
    asked = living[:: -(-len(living) // MOST_ABSENT_EXPLAINED) or 1]
    causes = {view.rank: doing(view) for view in asked}
    few = len(views) < next(iter(views)).identity.job.world_size
    unseen = few and not all(map(_comes_last, asked))
    return _AtRest(living, asked, left, issued_ns, since_ns, causes, unseen)


def _nobody_waits(context: Context) -> bool:
    """Whether the present state of every rank is known, and none waits for another."""
    index, views = context.index, context.ranks.values()
    if context.deaths.some or index.states.get("unreachable"):
        return False
    if any(not wait.background for wait in index.waits.values()):
        return False
    if not all(view.evidence.has_ages for view in views):
        return False
    starting = len(index.states.get("starting", ()))
    return starting in (0, sum(view.state not in _OVER for view in views))


def _comes_last(view: Rank) -> bool:
    """Whether it is surely one of the last: then ranks that are not seen have left."""
    end = program_end(view)
    return others_have_ended(view) or (end is not None and end.sure)


def _started_ns(view: Rank) -> int:
    """When its process started, on the operator's clock; 0 if not known."""
    started_ns = view.identity.started_ns
    return started_ns + view.clock_ns if started_ns else 0


def _active_ns(view: Rank) -> int:
    """When it last did anything, including its start, on the operator's clock."""
    active_ns = last_activity_ns(view)
    return active_ns + view.clock_ns if active_ns else _started_ns(view)


def _looked_ns(view: Rank) -> int:
    return view.snapshot.at_ns + view.clock_ns if view.snapshot is not None else 0


def _is_due(view: Rank, found: _AtRest, rest: RestState, now_ns: int) -> bool:
    """Two looks soon; then often while something may hold it for good, else now and then."""
    stay = rest.stays.get(view.rank)
    settled = stay is not None and (stay.is_still or 0 < stay.moved_ns < 2 * AGAIN_NS)
    held = stay is not None and stay.is_still and _is_held(view, stay.last, found)
    again_ns = KNOWN_AGAIN_NS if settled and not held else AGAIN_NS
    return _looked_ns(view) < now_ns - again_ns


def _learn_stays(found: _AtRest, rest: RestState) -> None:
    """Compares the last look at each rank with the first one at the same place."""
    for view in found.asked:
        look = look_of(view, found.causes[view.rank].cause)
        known = rest.stays.get(view.rank)
        if look is None or look.at_ns <= found.since_ns:
            rest.stays.pop(view.rank, None)
        elif known is None:
            rest.stays[view.rank] = Unmoved(look, look)
        elif look.at_ns > known.last.at_ns:
            moved_ns = look.at_ns - known.last.at_ns
            moved = has_moved(known.first, look)
            rest.stays[view.rank] = (
                Unmoved(look, look, moved_ns) if moved else known._replace(last=look)
            )


def _is_well(rank: int, found: _AtRest, rest: RestState) -> bool:
    """Whether a rank works, waits for a person, or, beside a server, waits where it did before."""
    stay, known = rest.stays[rank], rest.gone_on.get(rank, frozenset())
    if stay.is_moving or stay.last.runs or found.causes[rank].cause == "input":
        return True
    return found.serves and bool(stay.last.path) and stay.places <= known


def _is_unobserved(context: Context, found: _AtRest) -> bool:
    """Whether ranks may wait for each other unobserved, which `standing_waits` judges."""
    some = (view for view in found.asked if view.rank in context.index.beside)
    return not found.serves and any(unobserved_wait(view) is not None for view in some)


def _held(found: _AtRest, stays: Mapping[int, Unmoved]) -> tuple[Finding, ...]:
    """What holds all ranks for good, one finding per cause; nothing if one rank is free.

    Ranks at a store key wait for those that are elsewhere.
    """
    held_ns = min(stay.still_ns for stay in stays.values())
    if held_ns < STILL_NS or found.left or found.unseen:
        return ()
    if not all(_is_held(view, stays[view.rank].last, found) for view in found.asked):
        return ()
    by_cause: dict[Cause, list[int]] = {}
    for rank, cause in found.causes.items():
        by_cause.setdefault(cause.cause, []).append(rank)
    waiting = tuple(by_cause.pop("store", ())) if len(by_cause) > 1 else ()
    return tuple(
        _held_by(found, cause, ranks, Held(
            tuple(ranks), found.issued_ns, held_ns, waiting, found.others
        ))
        for cause, ranks in by_cause.items()
    )  # fmt: skip


def _held_by(found: _AtRest, cause: Cause, ranks: Sequence[int], detail: Held) -> Finding:
    return Finding(
        kind="not_entered",
        detail=detail,
        key=("held", tuple(ranks)),
        culprits=tuple(ranks),
        cause=cause,
        progress="none" if detail.proven else "unknown",
        since_ns=found.issued_ns,
    )


def _unproven(found: _AtRest, rest: RestState, *, seen: bool) -> tuple[Finding, ...]:
    """Which ranks do not end, or what all seem to wait for, or where each is."""
    seen = seen and not found.unseen
    ranks = tuple(found.causes)
    causes = {cause.cause for cause in found.causes.values()}
    held_ns = min((stay.still_ns for stay in rest.stays.values()), default=0)
    at_rest = not causes.isdisjoint(_AT_REST)
    if seen and not at_rest and (found.left or all(map(_leaves, found.asked))):
        detail = NotEnding(ranks, found.left, held_ns, proven=held_ns >= STILL_NS)
        cause = ending_cause(found.asked[0]).cause
        return (
            Finding(
                kind="stuck",
                detail=detail,
                key=("not ending", ranks),
                culprits=ranks,
                cause=cause,
                progress="none" if detail.proven else "unknown",
                since_ns=found.since_ns,
            ),
        )
    # With very many ranks, the others may wait for one that was not looked at.
    if seen and not found.others and len(causes) == 1 and causes <= _AWAITS:
        held = Held(ranks, found.issued_ns, held_ns, (), 0, proven=False)
        return (_held_by(found, causes.pop(), ranks, held),)
    unseen = tuple(rank for rank in ranks if rank not in rest.stays)
    return (
        Finding(
            kind="undecided",
            detail=Resting(found.issued_ns, ranks, unseen, found.left, found.others),
            key=("resting",),
            progress="unknown",
            since_ns=found.issued_ns,
        ),
    )


def _leaves(view: Rank) -> bool:
    return others_have_ended(view) or program_end(view) is not None


def _is_held(view: Rank, look: Sighting, found: _AtRest) -> bool:
    """Whether something holds a rank for good.

    A store key, or the build of an extension, counts only if all ranks were examined: any other one
    may have to set it, or may be building.
    """
    cause, process = found.causes[view.rank], look.process
    if view.state == "stopped":
        return True
    if process is None:
        return False
    if cause.cause in ("dataloader", "file_io"):
        return _reads(process)
    if found.others:
        return False
    if cause.cause == "lock":
        return cause.location is not None and cause.location.kind == "build_lock"
    return cause.cause == "store" and is_polling(process)


def _reads(process: wire.Process) -> bool:
    """Whether the kernel shows that a process waits for storage, or is stopped."""
    in_file = locate(None, process).kind == "file_io"
    return process.state in "Tt" or (in_file and system_call(process) in _READS)
