"""Words for ranks known by stacks only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from frtop_tui.diagnosis.cases.stacks_alone.detect import (
    CallDeadlock,
    DifferentCalls,
    MaybeComing,
    OutsideCall,
    SameCall,
    SharedCall,
    WhyOpen,
    is_later,
    leaves,
)
from frtop_tui.diagnosis.causes import CAUSES
from frtop_tui.diagnosis.evidence.c10d_call import (
    DEFAULT_GROUP,
    ProgramOrder,
    is_connecting,
    program_order,
)
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.stack_location import compiles
from frtop_tui.diagnosis.evidence.stack_state import StackState, stack_state
from frtop_tui.diagnosis.evidence.working_thread import working_name, working_stack
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.absence import Absence, absence_of, stacks_step
from frtop_tui.diagnosis.words.phrases import (
    OF_RPC,
    PAIR_MESSAGES,
    WRONG_ORDER,
    Tense,
    progress_text,
    who,
)
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded

_SAME_LINES: Final = frozenset({"stack_same", "stack_same_child", "stack_runs"})
_MOST_SHOWN: Final = 4
_MOST_PLACES_IN_HEAD: Final = 3
_MOST_PLACES: Final = 16
_AGAIN: Final = "take the stacks of all ranks again some seconds later, and open both"
_DUMPS: Final = (
    "put Flight Recorder dumps of all ranks beside these stacks: they show which rank has not"
    " issued which op"
)
_WHY_OPEN: Final[dict[WhyOpen, str]] = {
    "moves": "some have left a call between two dumps, so the job moves",
    "device": (
        "no Python stack shows what holds a device: behind a full queue every host stops at"
        " whatever it launches next, whichever rank is late"
    ),
    "later": "may be past that call, or one iteration of a loop behind",
    "many": "so many are outside that they may be on their way, or in another group",
    "unclear": "their stacks do not show what the C call at that line waits for",
    "running": "a running rank may arrive at any moment",
}
_GONE: Final = Absence(
    Why.of("out_of_loop"),
    CAUSES["out_of_loop"].step,
)


def outside_call(
    finding: Finding, detail: OutsideCall, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ranks are in no call and why, which wait where, and which are absent too."""
    sites, first = detail.sites, detail.blamed[0]
    absence = _GONE if leaves(first) else absence_of(first.view, frame.now_ns)
    evidence = [*_inside_texts(sites), *_positions([first], sites[0]), *absence.evidence]
    evidence += _progress_texts(detail.blamed[:1])
    evidence += [f"rank {s.rank} is absent too: it {_doing_text(s)}" for s in detail.others[:3]]
    return Sentences(
        _absent_text(frame, sites[0], finding),
        absence.why,
        absence.next,
        tuple(evidence),
        (*absence.missing, *_missing(frame, detail.blamed, sites)),
    )


def maybe_coming(
    _finding: Finding, detail: MaybeComing, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ranks are inside, which are not, and why none of them is blamed."""
    sites, outside = detail.sites, detail.outside
    states = [*outside, *_states_in(sites)]
    reason = _WHY_OPEN[detail.why]
    if detail.why == "later":
        later = [s.rank for s in outside if is_later(s, sites)]
        reason = f"{folded(later)} {reason}"
    step = _DUMPS if _stand_still(states) else _AGAIN
    if detail.why == "unclear":
        step = stacks_step(outside[0].view, native=True)
    elif detail.why == "device":
        step = _DUMPS
    evidence = _positions(outside, sites[0])
    return _undecided(frame, states, (_standing_text(states), reason, step), evidence)


def same_call(_finding: Finding, detail: SameCall, frame: BaseFrame, _tense: Tense) -> Sentences:
    """Where all ranks are, and why the call may not finish."""
    site, unreachable = detail.site, _unseen(frame)
    if unreachable:
        reason = f"{folded(unreachable)} may be missing, or no rank is"
        step = f"take the stacks of {folded(unreachable)}, too; or read its output"
    elif site.call.kind == "init_rpc":
        reason = "they connect to RPC's store, or wait there for ranks without stacks"
        step = OF_RPC
    elif any(is_connecting(working_stack(state.view)) for state in site.states):
        reason = "they connect to the job's store, or wait there for ranks without stacks"
        step = "are there more ranks than these? print MASTER_ADDR and MASTER_PORT of all of them"
    elif site.call.role == "rendezvous":
        reason = "a rank without stacks has not arrived, or they cannot connect"
        step = "are there more ranks than these? if not: can these hosts reach each other?"
    else:
        begun = "" if _stand_still(site.states) else "it has only begun, or "
        reason = (
            f"either {begun}the device or the transport does not finish it, or"
            " they are in different iterations of it: stacks have no op numbers"
        )
        step = _DUMPS if _stand_still(site.states) else f"{_AGAIN}; or {_DUMPS}"
    head = f"all that were seen are in the same call: {_standing_text(site.states)}"
    return _undecided(frame, site.states, (head, reason, step))


def different_calls(
    _finding: Finding, detail: DifferentCalls, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which ranks are in which call, and which are further on by their lines."""
    main, other = detail.sites[0], detail.sites[1]
    states = _states_in(detail.sites)
    order, shown = program_order(other.states[0].path, main.states[0].path)
    head = _standing_text(states)
    reason, evidence = "their stacks do not show which of these comes first in the program", []
    if order in ("later", "earlier"):
        ahead = order == "later"
        where = "further on" if ahead else "behind"
        head += f": {folded(other.ranks)} {Tense.PRESENT.are(other.ranks)} {where} by its lines"
        front, back = (other, main) if ahead else (main, other)
        evidence.append(f"by lines, if no loop leads back: {shown}")
        reason = (
            f"{folded(front.ranks)} may have skipped what {folded(back.ranks)}"
            f" {'wait' if len(back.ranks) > 1 else 'waits'} in, or gone past it"
        )
    reason += "; or they are calls of different groups"
    if main.call.kind == other.call.kind:
        reason += "; or one op, called from two places"
    step = f"compare the calls of ranks {main.ranks[0]} and {other.ranks[0]} before these lines"
    if any(state.at_device for state in states):
        reason, step = f"{_WHY_OPEN['device']}; {reason}", f"{_DUMPS}; {step}"
    return _undecided(frame, states, (head, reason, step), evidence)


def call_deadlock(
    finding: Finding, detail: CallDeadlock, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Sends and receives that wait for each other; if nothing moves, forever."""
    shown = detail.states[:_MOST_SHOWN]
    waits = [f"rank {s.rank} in {s.call.text}" for s in shown if s.call is not None]
    text, step, deadlock = WRONG_ORDER, PAIR_MESSAGES, ": a deadlock"
    if finding.kind == "undecided":
        deadlock = ""
        text, step = f"{text}; or an earlier message, sent without waiting, is on its way", _AGAIN
    return Sentences(
        f"{' and '.join(waits)} wait for each other{deadlock}",
        Why(finding.cause, "software", text),
        step,
        tuple(_progress_texts(shown)),
        _missing(frame, detail.states),
    )


def stack_notes(states: Mapping[int, StackState], ranks: Iterable[int]) -> list[str]:
    """What stacks show without a finding: no rank is in a call, or the job moves."""
    inside = [state for state in states.values() if state.activity == "inside"]
    if states and not inside:
        still = _stillness(states.values())
        places = "; ".join(_standing(states.values())[:_MOST_PLACES])
        unseen = [rank for rank in ranks if rank not in states]
        nobody = f"there are no stacks of {folded(unseen)}" if unseen else ""
        nobody = nobody or "no rank is inside a collective"
        return [f"{places}; {nobody}", *still]
    return [_moving_text(inside)] if any(s.progress == "active" for s in inside) else []


def stack_texts(views: Iterable[Rank]) -> list[str]:
    """What ranks are doing, by stacks that are newer than their ops."""
    known = (view for view in views if working_location(view) is not None)
    states = [state for view in known if (state := stack_state(view)) is not None]
    return [f"by stacks: {text}" for text in _standing(states)[:_MOST_PLACES]]


def _doing_text(state: StackState) -> str:
    """`loads data at train.py:14 (main)`."""
    at = f" at {state.location.line}" if state.location.line else ""
    stack = working_stack(state.view)
    if state.at_device and state.location.kind in ("device", "computing", "unknown"):
        compiler = " while it compiles," if stack is not None and compiles(stack.frames) else ""
        return f"waits for its device{compiler}{at}"
    if state.call is not None:
        thread = f", in thread {state.thread}, for which the main one waits"
        return f"is in {state.call.text}{thread if state.thread else ''}"
    if state.location.kind == "dataloader":
        return f"loads data{at}"
    if state.activity == "unclear":
        return f"sleeps in a C call{at}"
    return absence_of(state.view, 0).why.text.removeprefix(f"{working_name(state.view)} ")


def _moving_text(inside: Sequence[StackState]) -> str:
    moved = [state.rank for state in inside if state.progress == "active"]
    still = [state.rank for state in inside if state.progress != "active"]
    them, are = "it" if len(moved) == 1 else "them", Tense.PRESENT.are
    text = f"{folded(moved)} {are(moved)} not where an earlier dump had {them}: the job moves"
    return f"{text}; {folded(still)} {are(still)} in the same call" if still else text


def _standing(states: Iterable[StackState]) -> list[str]:
    """Ranks by what they do, the fewest first: these differ."""
    found: dict[str, list[int]] = {}
    for state in states:
        found.setdefault(_doing_text(state), []).append(state.rank)
    ordered = sorted(found.items(), key=lambda item: len(item[1]))
    texts = []
    for text, ranks in ordered:
        several = f" are {text[3:]}" if text.startswith("is ") else f": each {text}"
        texts.append(f"{folded(ranks)}{f' {text}' if len(ranks) == 1 else several}")
    return texts


def _standing_text(states: Sequence[StackState]) -> str:
    """The fewest and the most; if that leaves some out, `_undecided` lists all."""
    texts = _standing(states)
    if len(texts) <= _MOST_PLACES_IN_HEAD:
        return "; ".join(texts)
    *few, most = (*texts[: _MOST_PLACES_IN_HEAD - 1], texts[-1])
    more = len(texts) - _MOST_PLACES_IN_HEAD
    return "; ".join([*few, f"{more} more places", most])


def _states_in(sites: Sequence[SharedCall]) -> list[StackState]:
    """All states, those of the largest site last."""
    return [state for site in reversed(sites) for state in site.states]


def _stand_still(states: Sequence[StackState]) -> bool:
    """Whether two dumps show all of them at the same lines."""
    return all(state.progress_seen.sign in _SAME_LINES for state in states)


def _stillness(states: Iterable[StackState]) -> list[str]:
    """A line, if all are where they were in an earlier dump."""
    known = [*states]
    if not known or not _stand_still(known):
        return []
    seconds = min(state.progress_seen.seconds for state in known)
    line = f"nothing has moved in {seconds:.1f}s between two dumps: all are at the same lines"
    busy = [state.rank for state in known if state.progress_seen.sign == "stack_runs"]
    return [f"{line}; {folded(busy)}: computing there, or busy-waiting" if busy else line]


def _undecided(
    frame: BaseFrame,
    states: Sequence[StackState],
    words: tuple[str, str, str],
    more: Sequence[str] = (),
) -> Sentences:
    """`words` are the head, the reason, and what to do; `more` is evidence beside the places."""
    head, reason, step = words
    places = _standing(states)
    listed = places[:_MOST_PLACES] if len(places) > _MOST_PLACES_IN_HEAD else []
    evidence = (*listed, *more, *_stillness(states))
    why = Why.of("unknown", reason)
    return Sentences(head, why, step, evidence, _missing(frame, states))


def _absent_text(frame: BaseFrame, site: SharedCall, finding: Finding) -> str:
    named, call = who(frame.ranks, finding.culprits), site.call
    has, waits = Tense.PRESENT.has(finding.culprits), Tense.PRESENT.waits(site.ranks)
    rest = finding.victims.difference(site.ranks)
    more = f"; {Tense.PRESENT.waits(rest)} elsewhere" if rest else ""
    if call.role == "implicit":
        are = Tense.PRESENT.are(site.ranks)
        return f"{folded(site.ranks)} {are} in {call.text}, {named} not{more}"
    if call.role == "p2p" and call.peer in finding.culprits:
        answered = "sent" if "recv" in call.kind else "received"
        return f"{named} {has} not {answered}; {waits} in {call.text}{more}"
    return f"{named} {has} not entered {call.text}; {waits}{more}"


def _inside_texts(sites: Sequence[SharedCall]) -> list[str]:
    """What the headline leaves out: further call sites, and threads."""
    lines = []
    for site in sites[:_MOST_SHOWN]:
        thread = next((state.thread for state in site.states if state.thread), "")
        where = f", in thread {thread}, for which the main one waits" if thread else ""
        if where or len(sites) > 1:
            lines.append(f"{folded(site.ranks)} in {site.call.text}{where}")
    return lines


def _progress_texts(states: Sequence[StackState]) -> list[str]:
    """What two dumps of each rank show; a single dump is reported once, elsewhere."""
    return [
        f"rank {s.rank}: {progress_text(s.progress_seen)}"
        for s in states
        if s.view.prior_snapshot is not None
    ]


def _positions(states: Iterable[StackState], site: SharedCall) -> list[str]:
    """Where ranks outside are in the program, relative to those inside."""
    found: dict[tuple[ProgramOrder, str], list[int]] = {}
    for state in states:
        found.setdefault(program_order(state.path, site.states[0].path), []).append(state.rank)
    texts = {
        "later": "further on, if no loop leads back",
        "earlier": "before that call, if no loop led back",
    }
    return [
        f"{folded(ranks)} {Tense.PRESENT.are(ranks)} {texts[order]}: {shown}"
        for (order, shown), ranks in found.items()
        if order in texts
    ]


def _missing(
    frame: BaseFrame, states: Sequence[StackState], sites: Sequence[SharedCall] = ()
) -> tuple[str, ...]:
    found = []
    if any(site.call.group != DEFAULT_GROUP and site.call.peer is None for site in sites):
        found.append("the group: stacks do not name it, so it may be one without the named ranks")
    if any(site.call.role == "rendezvous" for site in sites):
        kind = sites[0].call.kind
        if kind != "init_process_group":
            found.append(f"which ranks have to call {kind}: usually all of them")
    if all(state.view.prior_snapshot is None for state in states):
        found.append("whether anything moves: stacks were taken once")
    if unseen := _unseen(frame):
        found.append(f"{folded(unseen)}: no stacks")
    return tuple(found)


def _unseen(frame: BaseFrame) -> list[int]:
    """Ranks without stacks."""
    blind = (rank for rank, view in frame.ranks.items() if working_stack(view) is None)
    return sorted({*frame.coverage.unreachable, *blind})
