"""A verdict from stacks alone: who is inside which call, who is not, who is further on.

Where nothing records ops there are no numbers and mostly no groups. So nothing here is ever
more than a suspicion, and the odd one out is not blamed for being alone: it may be ahead.
Blamed is who is in no call at all, while enough others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.annotate import judged_ranks
from frtop_tui.diagnosis.blocked.blocked_op import Wait
from frtop_tui.diagnosis.evidence.c10d_call import C10dCall, paths_differ
from frtop_tui.diagnosis.evidence.stack_state import StackState, stack_state
from frtop_tui.diagnosis.model import Frame, Verdict, judged_frame
from frtop_tui.diagnosis.wording import stacks_only as accounts
from frtop_tui.diagnosis.wording.stacks_only import CallSite
from frtop_tui.job.model import ObservedFrame, Rank
from frtop_tui.job.naming import folded

PAIR: Final = 2
MOST_RINGS: Final = 4
_ANYBODY: Final = -1


def judge_stacks_only(frame: ObservedFrame) -> Frame | None:
    """The judged frame, where stacks are all that is known of the ranks; else None.

    Nobody is called healthy by a stack: without a verdict it is undecided.
    """
    views = frame.ranks.values()
    if any(_is_recorded(view) for view in views):
        return None
    found = (stack_state(view) for view in views)
    states = {stand.rank: stand for stand in found if stand is not None}
    if not states:
        return None
    inside = [stand for stand in states.values() if stand.activity == "inside"]
    verdicts, notes = tuple[Verdict, ...](), tuple[str, ...]()
    if not inside:
        notes = (f"{_where(states.values())}; nobody is inside a collective",)
    elif any(stand.progress == "active" for stand in inside):
        notes = (accounts.moving_text(inside),)
    else:
        verdicts = _verdicts(frame, states, inside)
    late = {rank: 0 for verdict in verdicts for rank in verdict.culprits}
    waits = {stand.rank: _wait(stand) for stand in inside if stand.progress != "active"}
    decided = bool(verdicts) and verdicts[0].kind != "undecided"
    return judged_frame(
        frame,
        judged_ranks(frame.ranks, waits, late, frame.now_ns),
        health="held up" if decided else "undecided",
        since_ns=0,
        verdicts=verdicts,
        notes=notes,
    )


def _is_recorded(view: Rank) -> bool:
    """Whether anything is known of a rank that its stacks do not tell."""
    known = view.groups or view.pending or view.exit_info is not None
    return bool(known) or view.status is not None


def _verdicts(
    frame: ObservedFrame, states: Mapping[int, StackState], inside: Sequence[StackState]
) -> tuple[Verdict, ...]:
    call_sites = _by_call_site(inside)
    awaited, of_anybody = _awaited(states)
    outside = [
        stand
        for stand in states.values()
        if stand.activity != "inside" and (of_anybody or awaited.get(stand.rank))
    ]
    if not outside:
        return _all_inside(frame, states, call_sites)
    blamed = _blamed(outside, call_sites, len(states))
    if not blamed:
        return (accounts.undecided_outside(frame, call_sites, outside),)
    causes: dict[str, list[StackState]] = {}
    for stand in blamed:
        causes.setdefault(accounts.cause_of(stand), []).append(stand)
    return tuple(
        accounts.not_entered(
            frame,
            _waiting_for(call_sites, of_anybody.union(*(awaited[one.rank] for one in mine))),
            mine,
            [stand for stand in outside if stand not in mine],
        )
        for mine in causes.values()
    )


def _blamed(
    outside: Sequence[StackState], call_sites: Sequence[CallSite], seen: int
) -> list[StackState]:
    """As few as can be justified; none where too many are outside, or may come any moment."""
    if any(stand.has_left_call for stand in outside):
        return []  # they went on meanwhile: so will the others
    if 2 * len(outside) >= seen and seen != PAIR:
        return []
    candidates = [stand for stand in outside if stand.activity == "away"]
    if not candidates and _is_one_place(call_sites):
        candidates = [stand for stand in outside if stand.activity == "running"]
    for progress in ("none", "unknown", "active"):
        chosen = [stand for stand in candidates if stand.progress == progress]
        if chosen:
            return chosen
    return []


def _is_one_place(call_sites: Sequence[CallSite]) -> bool:
    """Whether all are surely at the same lines, which takes lines that are known."""
    return (
        len(call_sites) == 1
        and paths_differ(call_sites[0].call.steps, call_sites[0].call.steps) is False
    )


def _all_inside(
    frame: ObservedFrame, states: Mapping[int, StackState], call_sites: Sequence[CallSite]
) -> tuple[Verdict, ...]:
    rings = _rings(states)
    if rings:
        return tuple(accounts.ring(frame, ring) for ring in rings[:MOST_RINGS])
    if len(call_sites) == 1:
        return (accounts.together(frame, call_sites[0]),)
    return (accounts.apart(frame, call_sites),)


def _by_call_site(inside: Iterable[StackState]) -> list[CallSite]:
    """Those in the same call at the same place, the largest camp first."""
    found: dict[object, list[StackState]] = {}
    for stand in inside:
        assert stand.call is not None
        call = stand.call
        found.setdefault((call.kind, call.group, call.peer, call.steps), []).append(stand)
    call_sites = [
        CallSite(states[0].call, tuple(states)) for states in found.values() if states[0].call
    ]
    return sorted(call_sites, key=lambda call_site: (-len(call_site.states), call_site.ranks))


def _waiting_for(call_sites: Sequence[CallSite], waiting: set[int]) -> list[CallSite]:
    """The camps without those that wait for somebody else."""
    kept = [CallSite(c.call, tuple(s for s in c.states if s.rank in waiting)) for c in call_sites]
    return [call_site for call_site in kept if call_site.states]


def _awaited(states: Mapping[int, StackState]) -> tuple[dict[int, set[int]], set[int]]:
    """Of each rank outside who waits for it alone, as a receive does; and who for anybody."""
    found: dict[int, set[int]] = {r: set() for r, s in states.items() if s.activity != "inside"}
    of_anybody: set[int] = set()
    for start, stand in states.items():
        if stand.activity != "inside":
            continue
        path: set[int] = set()
        here = start
        while here in states and here not in path and here not in found:
            path.add(here)
            here = _edge(states[here])
        if here == _ANYBODY:
            of_anybody.add(start)
        elif here in found:
            found[here].add(start)
    return found, of_anybody


def _edge(stand: StackState) -> int:
    """The one rank that it waits for, or anybody."""
    call = stand.call
    known = call is not None and call.role == "p2p" and call.peer is not None
    return call.peer if call is not None and known and call.peer is not None else _ANYBODY


def _rings(states: Mapping[int, StackState]) -> list[list[StackState]]:
    """Sends and receives that wait for each other in a circle."""
    found: dict[frozenset[int], list[StackState]] = {}
    done: set[int] = set()
    for start in states:
        path: list[int] = []
        here = start
        while here in states and here not in done and here not in path:
            path.append(here)
            onward = _edge(states[here])
            met = onward in states and _answers(states[here], states[onward])
            here = _ANYBODY if met else onward
        if here in path:
            ring = path[path.index(here) :]
            found[frozenset(ring)] = [states[rank] for rank in ring]
        done.update(path)
    return list(found.values())


def _answers(one: StackState, other: StackState) -> bool:
    """Whether the other is in the half that belongs to this one's."""
    mine, theirs = one.call, other.call
    if mine is None or theirs is None or theirs.role != "p2p":
        return False
    receives = "recv" in mine.kind
    return receives != ("recv" in theirs.kind) and theirs.peer in (one.rank, None)


def _wait(stand: StackState) -> Wait:
    call = stand.call
    assert call is not None
    op = wire.Op(
        sequence=0,
        group=0,
        number=0,
        signature=wire.Signature(call.kind, peer=call.peer),
        site=wire.Site(call.frame.file, call.frame.line, call.frame.function),
        issued_ns=0,
        sync=True,
    )
    at = stand.view.state_since_ns
    return Wait(stand.rank, op, at, _is_sure(call), undated=True)


def _is_sure(call: C10dCall) -> bool:
    return call.role != "implicit"


def _where(states: Iterable[StackState]) -> str:
    """`ranks 0-2: loads data; rank 3: runs`: at most three of them."""
    found: dict[str, list[int]] = {}
    for stand in states:
        found.setdefault(accounts.doing_text(stand), []).append(stand.rank)
    told = [f"{folded(ranks)}: {text}" for text, ranks in list(found.items())[:3]]
    return "; ".join(told) + ("; ..." if len(found) > len(told) else "")
