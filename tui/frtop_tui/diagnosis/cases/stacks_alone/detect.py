"""Ranks known by stacks only: which are in which call, which are not, which are further on.

Stacks show no op numbers, and usually no groups. So a rank is not blamed for being alone in a call:
it may be ahead. A rank is blamed if it is in no call while enough others are in one, but never if
it may wait for its device: behind a full queue every host stops at whatever it launches next,
whichever rank is late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.c10d_call import (
    DEVICE_WAIT,
    C10dCall,
    paths_differ,
    program_order,
)
from frtop_tui.diagnosis.evidence.rank_activity import is_stale, last_issued_ns
from frtop_tui.diagnosis.evidence.stack_state import StackState, has_device, stack_state
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName, Progress
from frtop_tui.diagnosis.thresholds import PATIENCE_WITHOUT_HISTORY_NS
from frtop_tui.job.stack_frames import is_user_code

MOST_DEADLOCKS: Final = 4
_PAIR: Final = 2


class SharedCall(Struct, frozen=True):
    """Ranks in the same call at the same place."""

    call: C10dCall
    states: tuple[StackState, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(state.rank for state in self.states))


class CallDetail(Detail, frozen=True):
    """What stacks alone show; no second look at files confirms it."""


class OutsideCall(CallDetail, frozen=True):
    """`blamed` are in no call for one cause, while those of `sites` wait; nor are `others`."""

    sites: tuple[SharedCall, ...]
    blamed: tuple[StackState, ...]
    others: tuple[StackState, ...]


WhyOpen = Literal[
    "moves",  # some have left a call between two dumps
    "device",  # some may wait for a device
    "later",  # some are further on than the call, by their lines
    "many",  # very many are outside
    "unclear",  # their stacks do not show what they wait for
    "running",  # they run, and may arrive any moment
]
"""Why no rank is blamed for being outside the call."""


class MaybeComing(CallDetail, frozen=True):
    """Ranks are `outside` while others wait; stacks do not show whether they will arrive."""

    sites: tuple[SharedCall, ...]
    outside: tuple[StackState, ...]
    why: WhyOpen


class SameCall(CallDetail, frozen=True):
    """All ranks that were seen are in one call at one place."""

    site: SharedCall


class DifferentCalls(CallDetail, frozen=True):
    """All ranks are in calls, but not in the same one; the largest site first."""

    sites: tuple[SharedCall, ...]


class CallDeadlock(CallDetail, frozen=True):
    """Sends and receives that wait for each other."""

    states: tuple[StackState, ...]


def states_of(context: Context) -> dict[int, StackState]:
    """What each rank is doing, by its stack; empty if anything else is known about a rank."""
    if context.has_numbers:
        return {}
    found = map(stack_state, context.ranks.values())
    return {state.rank: state for state in found if state is not None}


def leaves(state: StackState) -> bool:
    """Whether a rank is in the call that leaves all groups."""
    return state.call is not None and state.call.is_teardown


def detect(context: Context) -> list[Finding]:
    """Findings on frames with stacks only; none if a rank in a call was seen to move."""
    states = states_of(context)
    if not states:
        context.explained.update(_undated(context))
        return []
    context.explained.update(context.graph.all.values())  # other detectors compare numbers
    inside = [state for state in states.values() if state.activity == "inside"]
    if any(state.progress == "active" for state in inside):
        return []
    sites = _shared_calls(inside)
    awaited = {rank for node in context.overdue for rank in node.free}
    outside = [state for rank, state in states.items() if rank in awaited]
    if outside:
        return _outside(context, states, sites, outside)
    deadlocks = context.graph.deadlocks(context.graph.settled(context.now_ns))
    if deadlocks:
        return [_deadlock(states, nodes) for nodes in deadlocks[:MOST_DEADLOCKS]]
    if len(sites) > 1:
        return [_undecided(DifferentCalls(tuple(sites)), sites)]
    return [_undecided(SameCall(sites[0]), sites)] if sites else []


def _undated(context: Context) -> list[WaitNode]:
    """Waits from stacks that may be young, in jobs where other ranks' ops are counted.

    In a moving job, every look finds some stack in a call. Such a wait counts once the counted
    ranks have issued nothing for long, and two looks agree.
    """
    if not (context.has_ages and context.index.partial):
        return []
    found = [node for node in context.graph.all.values() if node.call is not None]
    if not found:
        return []
    counted = [one for one in context.ranks.values() if one.evidence.has_numbers]
    last_ns = max(max(last_issued_ns(o), o.identity.started_ns) + o.clock_ns for o in counted)
    rests = context.now_ns - last_ns > PATIENCE_WITHOUT_HISTORY_NS
    if not rests or any(map(is_stale, counted)):
        return found
    return [node for node in found if not any(_stays(context, rank) for rank in node.waiting)]


def _stays(context: Context, rank: int) -> bool:
    state = stack_state(context.ranks[rank])
    return state is not None and state.progress == "none"


def _outside(
    context: Context,
    states: Mapping[int, StackState],
    sites: Sequence[SharedCall],
    outside: Sequence[StackState],
) -> list[Finding]:
    """One finding for each cause that keeps ranks out of all calls.

    One look is not enough for blame if ranks can be looked at again: their waits have no age.
    """
    once = context.has_ages and any(
        state.progress_seen.sign == "stacks_once" for site in sites for state in site.states
    )
    on_device = any(map(has_device, context.ranks.values()))
    why = _why_open(outside, sites, len(states), on_device=on_device)
    blamed = (
        [] if once or why in ("moves", "many") else _blamed(outside, sites, on_device=on_device)
    )
    if not blamed:
        detail = MaybeComing(tuple(sites), tuple(outside), why)
        return [_undecided(detail, sites, outside)]
    causes: dict[Cause, list[StackState]] = {}
    for state in blamed:
        cause: Cause = "out_of_loop" if leaves(state) else absence_cause(state.view).cause
        causes.setdefault(cause, []).append(state)
    return [
        _not_entered(context, sites, cause, alike, [one for one in outside if one not in alike])
        for cause, alike in causes.items()
    ]


def _why_open(
    outside: Sequence[StackState], sites: Sequence[SharedCall], seen: int, *, on_device: bool
) -> WhyOpen:
    """Why no rank is blamed, if none is; "moves" and "many" allow no blame at all."""
    if any(state.has_left_call for state in outside):
        return "moves"  # so will the others
    if 2 * len(outside) >= seen and seen != _PAIR:
        return "many"
    only_devices = all(site.call.kind == DEVICE_WAIT for site in sites)
    if only_devices or any(_may_be_at_device(state, on_device=on_device) for state in outside):
        return "device"
    if any(is_later(state, sites) for state in outside):
        return "later"
    return "unclear" if all(state.activity == "unclear" for state in outside) else "running"


def _blamed(
    outside: Sequence[StackState], sites: Sequence[SharedCall], *, on_device: bool
) -> list[StackState]:
    """As few as can be justified: ranks at a place where a rank stays, else in Python code.

    Not a rank that is further on than the call in the only look: it may have passed the call.
    """
    if all(site.call.kind == DEVICE_WAIT for site in sites):
        return []  # no rank is seen to wait for another one
    open_to = [
        state
        for state in outside
        if not _may_be_at_device(state, on_device=on_device)
        and (leaves(state) or not is_later(state, sites) or state.progress == "none")
    ]
    candidates = [state for state in open_to if state.activity == "away"]
    if not candidates and _is_one_wait(sites):
        candidates = [state for state in open_to if _runs_python(state)]
    for progress in ("none", "unknown", "active"):
        chosen = [state for state in candidates if state.progress == progress]
        if chosen:
            return chosen
    return []


def _may_be_at_device(state: StackState, *, on_device: bool) -> bool:
    """Whether it waits, or may wait, for its device: a launch into a full queue has no frame."""
    if state.at_device:
        return True
    located = state.activity == "away" and not leaves(state)
    gil = located and absence_cause(state.view).cause == "gil"
    moves = state.progress_seen.sign == "stack_moved"
    return on_device and not moves and (gil or not located)


def is_later(state: StackState, sites: Sequence[SharedCall]) -> bool:
    """Whether a rank is further on than one of the calls, by their lines."""
    orders = (program_order(state.path, site.states[0].path)[0] for site in sites)
    return "later" in orders


def _is_one_wait(sites: Sequence[SharedCall]) -> bool:
    """Whether all others are surely asleep at the same lines: behind a full queue, hosts spin."""
    steps = sites[0].call.steps
    known = len(sites) == 1 and paths_differ(steps, steps) is False
    stacks = (working_stack(state.view) for state in sites[0].states)
    return known and all(stack is not None and not stack.active for stack in stacks)


def _runs_python(state: StackState) -> bool:
    """Whether it runs program code: with the GIL, or at other lines than before."""
    stack = working_stack(state.view)
    if state.activity != "running" or stack is None:
        return False
    moves = state.progress_seen.sign == "stack_moved"
    return moves or (stack.owns_gil and is_user_code(stack.frames[0]))


def _shared_calls(states: Iterable[StackState]) -> list[SharedCall]:
    """Ranks by call and place, the largest site first."""
    found: dict[object, tuple[C10dCall, list[StackState]]] = {}
    for state in states:
        if (call := state.call) is not None:
            key = (call.kind, call.group, call.peer, call.steps)
            found.setdefault(key, (call, []))[1].append(state)
    sites = [SharedCall(call, tuple(alike)) for call, alike in found.values()]
    return sorted(sites, key=lambda site: (-len(site.states), site.ranks))


def _not_entered(
    context: Context,
    sites: Sequence[SharedCall],
    cause: Cause,
    blamed: Sequence[StackState],
    others: Sequence[StackState],
) -> Finding:
    culprits = tuple(sorted(state.rank for state in blamed))
    nodes = context.graph.nodes_awaiting(culprits, context.overdue)
    waiting = {rank for node in nodes for rank in node.waiting}
    waiting_sites = [
        SharedCall(site.call, states)
        for site in sites
        if (states := tuple(state for state in site.states if state.rank in waiting))
    ]
    return Finding(
        kind="not_entered",
        detail=OutsideCall(tuple(waiting_sites), tuple(blamed), tuple(others)),
        key=("outside call", culprits),
        culprits=culprits,
        victims=frozenset(waiting),
        cause=cause,
        progress=blamed[0].progress,
        nodes=tuple(nodes),
        op=OpName(waiting_sites[0].call.kind),
    )


def _deadlock(states: Mapping[int, StackState], nodes: Sequence[WaitNode]) -> Finding:
    members = tuple(states[node.waits[0].rank] for node in nodes)
    still = all(state.progress == "none" for state in members)
    return Finding(
        kind="deadlock" if still else "undecided",
        detail=CallDeadlock(members),
        key=("call deadlock", frozenset(state.rank for state in members)),
        victims=frozenset(state.rank for state in members),
        parties=tuple((state.rank,) for state in members),
        cause="deadlock" if still else "unknown",
        progress="none" if still else "unknown",
        nodes=tuple(nodes),
        op=OpName(nodes[0].kind),
    )


def _undecided(
    detail: CallDetail, sites: Sequence[SharedCall], outside: Sequence[StackState] = ()
) -> Finding:
    states = [*outside, *(state for site in sites for state in site.states)]
    parties = [site.ranks for site in sites]
    if outside:
        parties.append(tuple(sorted(state.rank for state in outside)))
    return Finding(
        kind="undecided",
        detail=detail,
        key=(type(detail), *parties),
        victims=frozenset(rank for site in sites for rank in site.ranks),
        parties=tuple(parties) if len(parties) > 1 else (),
        progress=_progress_of_all(states),
        op=OpName(sites[0].call.kind),
    )


def _progress_of_all(states: Iterable[StackState]) -> Progress:
    """`active` if one moves, `none` if none does."""
    seen = {state.progress for state in states}
    if "active" in seen:
        return "active"
    return "none" if seen == {"none"} else "unknown"
