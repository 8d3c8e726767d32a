"""Verdicts from stacks alone, put into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.detectors.stuck.rendezvous import is_connecting
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.c10d_call import DEFAULT_GROUP, C10dCall, program_order
from frtop_tui.diagnosis.evidence.stack_state import StackState
from frtop_tui.diagnosis.model import OpName, Verdict, Why
from frtop_tui.diagnosis.wording.absence import Absence, absence_of, stacks_step
from frtop_tui.diagnosis.wording.phrases import who
from frtop_tui.diagnosis.wording.progress import progress_text
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.naming import folded

MOST_TOLD: Final = 4
_AGAIN: Final = "take the stacks of all ranks again some seconds later, and open both"
_ONCE: Final = "whether anything moves: stacks were taken once"


@dataclass(frozen=True, slots=True)
class CallSite:
    """Ranks that are in the same call at the same place."""

    call: C10dCall
    states: tuple[StackState, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(stand.rank for stand in self.states))

    @property
    def text(self) -> str:
        return f"{folded(self.ranks)} in {self.call.text}"

    @property
    def thread(self) -> str:
        """Which thread of theirs is in the call, "" for the main one."""
        return next((stand.thread for stand in self.states if stand.thread), "")


def not_entered(
    frame: ObservedFrame,
    call_sites: Sequence[CallSite],
    blamed: Sequence[StackState],
    others: Sequence[StackState],
) -> Verdict:
    """`blamed` are away for one cause while `camps` wait; `others` are not there either."""
    call_site, culprits = call_sites[0], tuple(sorted(stand.rank for stand in blamed))
    waiting = [rank for one in call_sites for rank in one.ranks]
    absence = absence_of(blamed[0].view, frame.now_ns) if not _leaves(blamed[0]) else _gone()
    evidence = [*_inside_texts(call_sites), *_position(blamed[0], call_site)]
    evidence += [*absence.evidence, *_shown(blamed[:1])]
    evidence += [f"rank {s.rank} is not there either: it {doing_text(s)}" for s in others[:3]]
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=blamed[0].progress,
        culprits=culprits,
        headline=_absent_text(frame, call_site, culprits, waiting),
        why=absence.why,
        next=absence.next,
        victims=frozenset(waiting),
        op=OpName(call_site.call.kind),
        evidence=tuple(evidence),
        missing=(*absence.missing, *_missing(frame, call_sites, blamed)),
    )


def undecided_outside(
    frame: ObservedFrame, call_sites: Sequence[CallSite], outside: Sequence[StackState]
) -> Verdict:
    """Some are inside, some are not, and whether these are to blame the stacks do not tell."""
    first = outside[0]
    head = "; ".join(call_site.text for call_site in call_sites[:2])
    named = ", ".join(f"rank {s.rank} {doing_text(s)}" for s in outside[:3])
    more = f", {len(outside) - 3} more are outside, too" if len(outside) > MOST_TOLD - 1 else ""
    if any(stand.has_left_call for stand in outside):
        reason, step = "these have come out of a call between two dumps, so it moves", _AGAIN
    elif all(stand.activity == "unclear" for stand in outside):
        reason = "what such a line waits for no Python stack shows: an op, a lock, a sleep"
        step = stacks_step(first.view, native=True)
    else:
        reason = "so many are outside that they may be on their way, or in another group"
        step = _AGAIN
    evidence = [*_inside_texts(call_sites), *_position(first, call_sites[0])]
    return _undecided(
        frame,
        call_sites,
        f"{head}; {named}{more}",
        reason,
        step,
        outside=outside,
        evidence=evidence,
    )


def together(frame: ObservedFrame, call_site: CallSite) -> Verdict:
    """All that were seen are in the same call at the same place."""
    head = f"all that were seen are in the same call: {call_site.text}"
    connecting = [s.rank for s in call_site.states if is_connecting(s.view)]
    if frame.coverage.unheard:
        reason = f"{folded(frame.coverage.unheard)} may be the one that is missing, or none is"
        step = f"take the stacks of {folded(frame.coverage.unheard)}, too; or read its output"
    elif connecting:
        reason = "they connect to the job's store, or wait there for ranks of which no stacks are"
        step = "are there more ranks than these? print MASTER_ADDR and MASTER_PORT of all of them"
    elif call_site.call.role == "rendezvous":
        reason = "a rank of which there are no stacks has not come, or they cannot connect"
        step = "are there more ranks than these? if not: can these hosts reach each other?"
    else:
        reason = (
            "either it has only begun, or the device or the transport does not finish it, or"
            " they are not in the same one of its turns: stacks have no numbers"
        )
        step = f"{_AGAIN}; run it under `frtop run`: then ops have numbers"
    return _undecided(frame, [call_site], head, reason, step)


def apart(frame: ObservedFrame, call_sites: Sequence[CallSite]) -> Verdict:
    """All are inside, but not of the same call: nobody can be blamed for being alone."""
    main, other = call_sites[0], call_sites[1]
    order, shown = program_order(other.states[0].path, main.states[0].path)
    mine = folded(other.ranks)
    head = f"{other.text}, {main.text}"
    evidence = _inside_texts(call_sites)
    alike = main.call.kind == other.call.kind
    if order in ("later", "earlier"):
        ahead = order == "later"
        head += f": {mine} {_are(other.ranks)} {'further on' if ahead else 'behind'} by its lines"
        front, back = (other, main) if ahead else (main, other)
        evidence.append(f"by lines, if no loop leads back: {shown}")
        reason = (
            f"{folded(front.ranks)} may have left out what {folded(back.ranks)}"
            f" {'wait' if len(back.ranks) > 1 else 'waits'} in, or gone on after it"
        )
    else:
        reason = "which of these comes first in the program their stacks do not tell"
    reason += "; or they are calls of different groups"
    if alike:
        reason += "; or one op, called from two places"
    step = f"compare the calls of ranks {main.ranks[0]} and {other.ranks[0]} before these lines"
    return _undecided(frame, call_sites, head, reason, step, evidence=evidence)


def ring(frame: ObservedFrame, states: Sequence[StackState]) -> Verdict:
    """Sends and receives that wait for each other; if nothing moves, they will for ever."""
    waits = [f"rank {s.rank} in {s.call.text}" for s in states if s.call is not None]
    still = all(stand.progress == "none" for stand in states)
    head = f"they wait for each other: {', '.join(waits[:MOST_TOLD])}"
    text = "each needs the other first: sends and receives meet in the wrong order"
    kind = states[0].call.kind if states[0].call is not None else ""
    return Verdict(
        kind="cycle" if still else "undecided",
        confidence="suspect",
        progress="none" if still else "unknown",
        culprits=(),
        headline=head,
        why=Why(
            "cycle" if still else "unknown",
            "software",
            text if still else f"{text}; or what was sent before, without waiting, is on its way",
        ),
        next="pair each send with a receive: on one of them the other first, or batch_isend_irecv"
        if still
        else _AGAIN,
        victims=frozenset(stand.rank for stand in states),
        parties=tuple((stand.rank,) for stand in states),
        op=OpName(kind),
        evidence=tuple(_shown(states[:MOST_TOLD])),
        missing=_missing(frame, [], states),
    )


def cause_of(stand: StackState) -> str:
    """The word for why a rank is not there."""
    return "out_of_loop" if _leaves(stand) else absence_cause(stand.view).cause


def doing_text(stand: StackState) -> str:
    """`loads data at train.py:14 (main)`."""
    at = f" at {stand.location.line}" if stand.location.line else ""
    if stand.call is not None:
        return f"is in {stand.call.text}"
    if stand.activity == "unclear":
        return f"sleeps in a C call{at}"
    return f"{absence_of(stand.view, 0).why.text.removeprefix('MainThread ')}"


def moving_text(inside: Sequence[StackState]) -> str:
    """For a job that was seen to move."""
    moved = [stand.rank for stand in inside if stand.progress == "active"]
    still = [stand.rank for stand in inside if stand.progress != "active"]
    them = "it" if len(moved) == 1 else "them"
    text = f"{folded(moved)} {_are(moved)} not where an earlier dump had {them}: the job moves"
    return f"{text}; {folded(still)} {_are(still)} in the same call" if still else text


def _undecided(
    frame: ObservedFrame,
    call_sites: Sequence[CallSite],
    head: str,
    reason: str,
    step: str,
    *,
    outside: Sequence[StackState] = (),
    evidence: Sequence[str] = (),
) -> Verdict:
    states = [stand for call_site in call_sites for stand in call_site.states]
    parties = [call_site.ranks for call_site in call_sites]
    if outside:
        parties.append(tuple(sorted(stand.rank for stand in outside)))
    return Verdict(
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        headline=head,
        why=Why("unknown", "unknown", reason),
        next=step,
        victims=frozenset(stand.rank for stand in states),
        parties=tuple(parties) if len(parties) > 1 else (),
        op=OpName(call_sites[0].call.kind),
        evidence=tuple(evidence or _inside_texts(call_sites)),
        missing=_missing(frame, [], states),
    )


def _absent_text(
    frame: ObservedFrame, call_site: CallSite, culprits: tuple[int, ...], waiting: Sequence[int]
) -> str:
    named, call = who(frame.ranks, culprits), call_site.call
    has, waits = Tense.PRESENT.has(culprits), Tense.PRESENT.waits(call_site.ranks)
    rest = set(waiting).difference(call_site.ranks)
    more = f"; {Tense.PRESENT.waits(rest)} elsewhere" if rest else ""
    if call.role == "implicit":
        return (
            f"{folded(call_site.ranks)} {_are(call_site.ranks)} in {call.text}, {named} not{more}"
        )
    if call.role == "p2p" and call.peer in culprits:
        answered = "sent" if "recv" in call.kind else "received"
        return f"{named} {has} not {answered}; {waits} in {call.text}{more}"
    return f"{named} {has} not entered {call.text}; {waits}{more}"


def _inside_texts(call_sites: Sequence[CallSite]) -> list[str]:
    """What the headline leaves out: further camps, and which thread it is."""
    if len(call_sites) == 1 and not call_sites[0].thread:
        return []
    return [
        f"{c.text}, in thread {c.thread}, for which the main one waits" if c.thread else c.text
        for c in call_sites[:MOST_TOLD]
    ]


def _shown(states: Sequence[StackState]) -> list[str]:
    """What two dumps of a rank tell; that there is only one is said once."""
    return [
        f"rank {s.rank}: {progress_text(s.progress_seen)}"
        for s in states
        if s.view.prior_snapshot is not None
    ]


def _position(stand: StackState, call_site: CallSite) -> list[str]:
    """Where in the program a rank is that is not inside, beside those who are."""
    order, shown = program_order(stand.path, call_site.states[0].path)
    if order == "later":
        return [f"rank {stand.rank} is further on, if no loop leads back: {shown}"]
    if order == "earlier":
        return [f"rank {stand.rank} is before that call, if no loop led back: {shown}"]
    return []


def _missing(
    frame: ObservedFrame, call_sites: Sequence[CallSite], states: Sequence[StackState]
) -> tuple[str, ...]:
    found = []
    if call_sites and any(
        c.call.group != DEFAULT_GROUP and c.call.peer is None for c in call_sites
    ):
        found.append("the group: stacks name none, so that it may be one without those named")
    if any(call_site.call.role == "rendezvous" for call_site in call_sites):
        kind = call_sites[0].call.kind
        if kind != "init_process_group":
            found.append(f"who has to call {kind}: mostly every rank of the job")
    if all(stand.view.prior_snapshot is None for stand in states):
        found.append(_ONCE)
    if frame.coverage.unheard:
        found.append(f"{folded(frame.coverage.unheard)}: no stacks")
    return tuple(found)


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _leaves(stand: StackState) -> bool:
    return stand.call is not None and stand.call.is_teardown


def _gone() -> Absence:
    text = "MainThread leaves: it is in destroy_process_group, and will issue nothing more"
    step = "compare how many steps each rank makes: one has ended its loop before the others"
    return Absence(Why("out_of_loop", "software", text), step)
