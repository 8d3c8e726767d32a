"""Ranks that stay in unobserved waits, while no wait in c10d explains anything.

In a transport past c10d, nothing shows which ranks have arrived: all may hang, or replay a graph. A
replayed graph freezes every counter of a healthy job, so a counter at rest proves nothing. Nor does
CPU time, because such waits spin. The stack remains: a rank at the same lines in every look, for as
long as a wait without history may take, is not called healthy, and no rank is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.c10d_call import StackPath, path_of, paths_differ
from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns, working_location
from frtop_tui.diagnosis.evidence.unobserved_wait import unobserved_wait
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.thresholds import (
    LEAD_NS,
    MOST_ABSENT_EXPLAINED,
    PATIENCE_WITHOUT_HISTORY_NS,
)
from frtop_tui.job.model import Rank, RankState

QUIET_NS: Final = LEAD_NS
"""A rank is looked at once c10d has shown nothing of it for this long."""
AGAIN_NS: Final = 5_000_000_000
STALE_NS: Final = 4 * AGAIN_NS
"""Looks that are further apart do not show that it stayed."""
MOST_LOOKED_AT: Final = 8
"""A sample of very many ranks: each look runs py-spy."""
Item = TypeVar("Item")
_OVER: Final[frozenset[RankState]] = frozenset({"dead", "done", "unreachable"})


class Stay(NamedTuple):
    """Where a rank was in every look since `since_ns`; times are on the operator's clock."""

    path: StackPath
    active_ns: int
    since_ns: int
    looked_ns: int


@dataclass(slots=True)
class StandingState:
    """The stay of each rank that is looked at."""

    stays: dict[int, Stay] = field(default_factory=dict)


class StandingWaits(Detail, frozen=True):
    """`ranks` stay in such waits; `others` were looked at and do not."""

    ranks: tuple[int, ...]
    others: int


class StandingFound(NamedTuple):
    """The finding, if any; ranks that only wait for work; and ranks to look at."""

    findings: tuple[Finding, ...] = ()
    idle: tuple[int, ...] = ()
    look_at: tuple[int, ...] = ()


def standing_waits(context: Context, state: StandingState) -> StandingFound:
    """Finds nothing if every transport is observed, or no rank stays that long."""
    index, now_ns = context.index, context.now_ns
    if not index.beside:
        state.stays.clear()
        return StandingFound()
    asked = _asked(context)
    stays = {one.rank: stay for one in asked if (stay := _stay(one, state)) is not None}
    state.stays = stays
    due = tuple(one.rank for one in asked if now_ns - _looked_ns(one) > AGAIN_NS)
    old = [rank for rank, stay in stays.items() if _lasts(stay, now_ns)]
    if not old:
        return StandingFound(look_at=due)
    idle = _idle(context)
    if idle:  # an engine without work: the others wait for what it will send them
        return StandingFound(idle=idle, look_at=due)
    since_ns = min(stays[rank].since_ns for rank in old)
    ranks = tuple(sorted(old))
    finding = Finding(
        kind="undecided",
        detail=StandingWaits(ranks, len(asked) - len(ranks)),
        key=("standing waits",),
        victims=frozenset(ranks),
        cause="unobserved",
        progress="unknown",
        since_ns=since_ns,
    )
    return StandingFound((finding,), look_at=due)


def is_unobserved(context: Context, node: WaitNode) -> bool:
    """Whether a wait for devices, in an op that all have issued, may be for transports instead.

    The op may have ended hours ago: that is not noted, and a replayed graph issues no other.
    """
    index = context.index
    if not index.beside or node.op.tracked or node.op.p2p:
        return False
    context.graph.look_into(node, context.now_ns)
    if not node.entered_by_all or not index.beside.issuperset(node.waiting):
        return False
    places = (working_location(context.ranks[rank]) for rank in node.waiting)
    return all(place is not None and place.kind == "device" for place in places)


def _asked(context: Context) -> Sequence[Rank]:
    """Ranks with such transports, about which c10d has shown nothing for a while."""
    index = context.index
    # An untracked op may be over: its rank may wait for something else.
    known = {rank for rank, wait in index.waits.items() if wait.op.tracked}
    free = sorted(index.beside - known)
    some = (context.ranks[rank] for rank in _spread(free, MOST_ABSENT_EXPLAINED))
    return _spread([view for view in some if _is_quiet(view, context.now_ns)], MOST_LOOKED_AT)


def _spread(every: Sequence[Item], most: int) -> Sequence[Item]:
    """At most `most`, spread evenly."""
    return every[:: -(-len(every) // most) or 1]


def _is_quiet(view: Rank, now_ns: int) -> bool:
    active_ns = last_activity_ns(view) + view.clock_ns
    return view.state not in _OVER and now_ns - active_ns > QUIET_NS


def _looked_ns(view: Rank) -> int:
    return view.stacks_taken_ns + view.clock_ns if view.stacks_taken_ns else 0


def _stay(view: Rank, state: StandingState) -> Stay | None:
    """Where the rank stays; None if its last look shows no such wait."""
    working = working_stack(view)
    if working is None or working.frames == () or view.stacks_taken_ns < last_activity_ns(view):
        return None
    if unobserved_wait(view) is None:
        return None
    path, active_ns, looked_ns = path_of(working.frames), last_activity_ns(view), _looked_ns(view)
    known = state.stays.get(view.rank)
    if known is not None and known.looked_ns == looked_ns:
        return known
    same = (
        known is not None
        and known.active_ns == active_ns
        and looked_ns - known.looked_ns <= STALE_NS
        and not paths_differ(known.path, path)
    )
    since_ns = known.since_ns if same and known is not None else looked_ns
    return Stay(path, active_ns, since_ns, looked_ns)


def _lasts(stay: Stay, now_ns: int) -> bool:
    seen_ns = stay.looked_ns - stay.since_ns
    return seen_ns >= PATIENCE_WITHOUT_HISTORY_NS and now_ns - stay.looked_ns <= STALE_NS


def _idle(context: Context) -> tuple[int, ...]:
    """Ranks in no op that wait for work from outside the job."""
    free = [rank for rank in context.ranks if rank not in context.index.waits]
    living = (context.ranks[rank] for rank in _spread(free, MOST_ABSENT_EXPLAINED))
    return tuple(
        view.rank
        for view in living
        if view.state not in _OVER and absence_cause(view).cause == "idle"
    )
