"""Ranks that have not entered an op: which to blame, as few as can be justified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.causes import CERTAIN, Cause
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.progress import ProgressSeen, progress_of
from frtop_tui.diagnosis.evidence.rank_activity import (
    has_newer_op,
    stacks_due,
    working_location,
)
from frtop_tui.diagnosis.evidence.rpc_call import by_handler
from frtop_tui.diagnosis.evidence.stack_location import locate
from frtop_tui.diagnosis.evidence.stack_state import stack_state
from frtop_tui.diagnosis.evidence.working_thread import prior_working_stack
from frtop_tui.diagnosis.finding import Detail, Finding, facts_of
from frtop_tui.diagnosis.graph.wait_node import RankSet, WaitNode
from frtop_tui.diagnosis.thresholds import MOST_ABSENT_EXPLAINED
from frtop_tui.job.jobs import LOOPBACK
from frtop_tui.job.model import Rank

_NOTHING_TO_SEE: Final[dict[Cause, ProgressSeen]] = {
    "idle": ProgressSeen("unknown", "nothing_to_do"),
    "input": ProgressSeen("unknown", "input_open"),
}
"""A server without work looks like one that hangs."""
_LOCKED: Final = ("file_lock", "build_lock")
_HOLDING: Final = ("key", *_LOCKED)
"""Places where a rank may wait for another absent one."""


class SameCause(Struct, frozen=True):
    """Ranks that are absent for the same cause; `example` is the one to show."""

    ranks: tuple[int, ...]
    cause: Cause
    example: int
    progress: ProgressSeen


class Absentees(Struct, frozen=True):
    """The absent ranks of one node."""

    culprits: tuple[SameCause, ...]  # those to blame, by cause
    moving: tuple[int, ...] = ()  # not blamed: they make progress
    unknown: tuple[int, ...] = ()  # not blamed: their progress is not known
    held_back: tuple[int, ...] = ()  # not blamed: a file lock or a store key holds them
    entering: tuple[int, ...] = ()  # not blamed: they are on their way into the op
    without_stack: tuple[int, ...] = ()  # not blamed: their stacks are still due


class NotEntered(Detail, frozen=True):
    """All ranks in `waiting` wait for `blamed`, one cause of `absentees`.

    `busy_ns`: how long after the wait began these still did other things, if evidence has no ages;
    otherwise snapshots show that.
    """

    waiting: RankSet
    blamed: SameCause
    absentees: Absentees
    members_unknown: bool
    busy_ns: int = 0


class NeverJoined(Detail, frozen=True):
    """Ranks of the world that never appeared while others start."""

    node: WaitNode
    members_unknown: bool
    on_reporting_hosts: bool


def find(context: Context, node: WaitNode, absent: Sequence[int]) -> list[Finding]:
    """One finding for each cause that keeps ranks of `absent` away from `node`."""
    views = context.ranks
    if node.rpc is not None:
        views = {rank: by_handler(views[rank]) for rank in absent}
    absentees = blame(views, absent, context.now_ns)
    return [_finding(context, node, blamed, absentees) for blamed in absentees.culprits]


def _finding(context: Context, node: WaitNode, blamed: SameCause, absentees: Absentees) -> Finding:
    others = context.graph.nodes_awaiting(blamed.ranks, context.overdue)
    nodes = (node, *(other for other in others if other is not node))
    waiting = context.graph.rank_set(nodes).without(blamed.ranks)
    members_unknown = not any(one.members_known for one in nodes)
    busy_ns = _busy_ns(context, node, blamed.ranks)
    return Finding(
        kind="not_entered",
        detail=NotEntered(waiting, blamed, absentees, members_unknown, busy_ns),
        key=("not_entered", blamed.ranks, node.id),
        culprits=blamed.ranks,
        victims=waiting.ranks,
        cause=blamed.cause,
        progress=blamed.progress.progress,
        **facts_of(nodes, context.now_ns),
    )


def _busy_ns(context: Context, node: WaitNode, ranks: Sequence[int]) -> int:
    """How long after a wait began `ranks` still did something else, by their own times."""
    if context.has_ages or not node.known_since_ns:
        return 0
    known = [context.ranks[rank] for rank in ranks]
    if not all(rank.evidence.has_numbers for rank in known):
        return 0
    return max(0, min(rank.reported_ns for rank in known) - node.known_since_ns)


def blame(views: Mapping[int, Rank], absent: Sequence[int], now_ns: int) -> Absentees:
    """Blames ranks without progress, else those of unknown progress, else all.

    A rank with the same cause as one without progress is blamed with it, unless it moves. Three
    kinds of ranks are never blamed: (a) a rank at a locked file while another one moves, which may
    hold the lock; (b) a rank at a store key while another one is elsewhere, which may have to set
    it; (c) a rank that is entering the op, or may be in another one. Until its stack arrives, any
    rank without a recorder or with an op pending may be: to the kernel, a wait in gloo looks like
    any lock, and polling like any work. At most `MOST_ABSENT_EXPLAINED` absent ranks are examined;
    those that others may hold back come last.
    """
    free_first = sorted(absent, key=lambda rank: _place_of(views[rank]) in _HOLDING)
    first = sorted(free_first[:MOST_ABSENT_EXPLAINED])
    causes = {rank: absence_cause(views[rank]).cause for rank in first}
    progress = {rank: _progress(views[rank], causes[rank], now_ns) for rank in causes}
    held_back = _held_back(views, progress)
    without_stack = {
        rank
        for rank, cause in causes.items()
        if cause not in CERTAIN and _has_no_stack_yet(views[rank], progress[rank])
    }
    entering = {rank for rank in progress if _is_entering(views[rank], now_ns)} - without_stack
    spared = {*held_back, *entering, *without_stack}
    progress = {rank: how for rank, how in progress.items() if rank not in spared}
    still = [rank for rank, seen in progress.items() if seen.progress == "none"]
    unseen = [rank for rank, seen in progress.items() if seen.progress == "unknown"]
    stalled = {causes[rank] for rank in still} - {"unknown"}
    alike = [rank for rank in unseen if causes[rank] in stalled]
    guilty = [*still, *alike] or unseen or list(progress)
    by_cause: dict[Cause, list[int]] = {}
    for rank in guilty:
        by_cause.setdefault(causes[rank], []).append(rank)
    culprits = tuple(
        SameCause(tuple(sorted(ranks)), cause, ranks[0], progress[ranks[0]])
        for cause, ranks in by_cause.items()
    )
    named = {*guilty, *spared}
    active = {rank for rank, seen in progress.items() if seen.progress == "active"}
    others = [rank for rank in absent if rank not in named]
    moving = tuple(rank for rank in others if rank in active)
    unknown = tuple(rank for rank in others if rank not in active)
    return Absentees(
        culprits, moving, unknown, held_back, tuple(sorted(entering)), tuple(sorted(without_stack))
    )


def _place_of(view: Rank) -> str:
    """The kind of place where the working thread is; "" if not known."""
    place = working_location(view)
    return place.kind if place is not None else ""


def _held_back(views: Mapping[int, Rank], progress: Mapping[int, ProgressSeen]) -> tuple[int, ...]:
    """Ranks at a locked file while another one moves, or at a store key while one is elsewhere."""
    places = {rank: _place_of(views[rank]) for rank in progress}
    locked = {rank for rank, place in places.items() if place in _LOCKED}
    keyed = {rank for rank, place in places.items() if place == "key"}
    elsewhere = progress.keys() - locked - keyed
    moves = any(progress[rank].progress == "active" for rank in elsewhere)
    return tuple(sorted((locked if moves else set()) | (keyed if elsewhere else set())))


def _progress(view: Rank, cause: Cause, now_ns: int) -> ProgressSeen:
    seen = progress_of(view, now_ns)
    if cause == "device" and seen.sign in ("cpu", "ready_cpu"):
        return replace(seen, progress="unknown", sign="spins")
    return _NOTHING_TO_SEE.get(cause, seen) if seen.progress == "none" else seen


def _has_no_stack_yet(view: Rank, progress: ProgressSeen) -> bool:
    """Whether it may be in an op that only a stack would show, and that stack is due.

    With an op pending, it may poll for it. If stacks cannot be had, only the second snapshot shows
    that it runs.
    """
    evidence = view.evidence
    if not evidence.has_ages or (evidence.has_every_op and not _may_poll(view)):
        return False
    if view.snapshot is None or stacks_due(view):
        return True
    unseen = evidence.has_every_op and working_location(view) is None
    return unseen and progress.sign == "one_snapshot"


def _may_poll(view: Rank) -> bool:
    return any(op.tracked and not (op.sync or op.pseudo) for op in view.pending)


def _is_entering(view: Rank, now_ns: int) -> bool:
    """Whether its stack is newly in a collective, or its snapshot shows a newer op."""
    if not view.evidence.has_ages:  # a stack is younger than its dump
        found = stack_state(view) if view.evidence.has_stacks else None
        call = found.call if found is not None and found.activity == "inside" else None
        return call is not None and call.role != "implicit"
    if has_newer_op(view, now_ns):
        return True
    if view.pending or _place_of(view) != "collective":
        return False
    before = prior_working_stack(view)
    return before is None or locate(before).kind != "collective"


_NO_REASON: Final = frozenset[Cause]({"unknown", "computing", "device"})
_SENDS_UNRECORDED: Final = "gloo"
"""The backend whose sends and receives the Flight Recorder does not record."""


class Withheld(Detail, frozen=True):
    """`findings` whose culprits are not named. `more_absent`: more are absent than wait."""

    findings: tuple[Finding, ...]
    more_absent: bool


def absent(finding: Finding) -> tuple[int, ...]:
    """Ranks that others wait for, named as culprits or not."""
    if isinstance(finding.detail, Withheld):
        return tuple(rank for one in finding.detail.findings for rank in one.culprits)
    return finding.culprits


def withhold(context: Context, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, without names that evidence without processes cannot justify."""
    if context.has_ages:
        return [*findings]
    bare = [finding for finding in findings if _is_bare(finding)]
    many = [one for one in bare if len(one.culprits) > len(one.victims) > 0]
    several = [one for one in bare if one not in many and _sends_unrecorded(context, one.culprits)]
    if len(several) == 1:
        several = []
    rest = [one for one in findings if one not in many and one not in several]
    return [*rest, *map(_more_absent, many), *([_several(several)] if several else ())]


def _is_bare(finding: Finding) -> bool:
    """Whether all that is known about its culprits is that none of their ops is unfinished.

    Stacks that run, or wait at a device, show no more than that.
    """
    return (
        isinstance(finding.detail, NotEntered)
        and finding.cause in _NO_REASON
        and bool(finding.culprits)
    )


def _sends_unrecorded(context: Context, ranks: Sequence[int]) -> bool:
    return all(
        any(_SENDS_UNRECORDED in group.backend for group in context.ranks[rank].groups.values())
        for rank in ranks
    )


def _more_absent(finding: Finding) -> Finding:
    return replace(
        finding,
        kind="undecided",
        detail=Withheld((finding,), more_absent=True),
        progress="unknown",
        culprits=(),
        parties=(finding.culprits, tuple(sorted(finding.victims))),
        victims=frozenset({*finding.culprits, *finding.victims}),
    )


def _several(findings: Sequence[Finding]) -> Finding:
    return replace(
        findings[0],
        kind="undecided",
        detail=Withheld(tuple(findings), more_absent=False),
        progress="unknown",
        culprits=(),
        victims=frozenset().union(*(finding.victims for finding in findings)),
        nodes=tuple(dict.fromkeys(node for finding in findings for node in finding.nodes)),
    )


def find_never_joined(context: Context, node: WaitNode) -> Finding | None:
    """The finding on ranks that a call of the whole world needs, but that never appeared."""
    never = tuple(rank for rank in node.unobserved if rank not in context.ranks)
    if not (node.op.pseudo and never):
        return None
    return Finding(
        kind="not_entered",
        detail=NeverJoined(
            node, not node.members_known, _belong_to_reporting_hosts(context.ranks, never)
        ),
        key=("never joined", node.id, never),
        culprits=never,
        victims=frozenset(node.waiting).difference(never),
        cause="never_joined",
        progress="unknown",
        **facts_of([node], context.now_ns),
    )


def _belong_to_reporting_hosts(views: Mapping[int, Rank], never: Sequence[int]) -> bool:
    """Whether missing ranks would run on reporting hosts, by the ranks around them.

    Others may run on hosts without a connected agent: their silence means little.
    """
    if all(view.identity.job.master_addr in LOOPBACK for view in views.values()):
        return True
    spans: dict[str, tuple[int, int]] = {}
    for rank, view in views.items():
        first, last = spans.get(view.host, (rank, rank))
        begin = rank - max(0, view.identity.local_rank)
        spans[view.host] = (min(first, begin), max(last, rank))
    return all(any(first <= rank <= last for first, last in spans.values()) for rank in never)
