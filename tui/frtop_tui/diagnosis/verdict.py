"""Findings put into words: who, what, why, and the next step; one function per kind.

Verdicts on deaths are in `obituary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.absence import Absence
from frtop_tui.diagnosis.blame import Blame, Culprits
from frtop_tui.diagnosis.devices import Behind
from frtop_tui.diagnosis.judged import OpName, Progress, Verdict, Why
from frtop_tui.diagnosis.phrases import (
    at_line,
    chain_evidence,
    crowd_text,
    group_key,
    has,
    kind_of,
    last_op_evidence,
    op_text,
    wait_evidence,
    wait_text,
    who,
)
from frtop_tui.diagnosis.point import Crowd, Point
from frtop_tui.diagnosis.signatures import Disagreement, wording
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import Moment, ObservedFrame, Rank
from frtop_tui.job.naming import folded, group_label

TOLD_NS: Final = 2_000_000_000
"""Members that are heard at all have told what they issued by then."""


def not_entered(
    frame: ObservedFrame,
    points: Sequence[Point],
    waiting: Crowd,
    blamed: Culprits,
    blame: Blame,
) -> Verdict:
    """`blamed`, one cause of `blame`, are awaited at all of `points`, by all in `waiting`."""
    point, culprits, absence = points[0], blamed.ranks, blamed.absence
    waiting = waiting.without(culprits)
    evidence = [*wait_evidence(point, frame.now_ns), *absence.evidence, blamed.progress[1]]
    evidence += last_op_evidence(frame.ranks, culprits)
    evidence += chain_evidence(points)
    if blame.moving:
        evidence.append(f"{folded(blame.moving)} not there either, but moving")
    if blame.kept:
        evidence.append(f"{folded(blame.kept)} not there either: kept by a lock or a store")
    if blame.unknown:
        evidence.append(f"{folded(blame.unknown)} not there either; whether they move is not known")
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=blamed.progress[0],
        culprits=culprits,
        headline=_absent_text(frame, point, culprits, waiting),
        why=absence.why,
        next=absence.next,
        victims=waiting.folded,
        group=group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.told_since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(evidence),
        missing=(*absence.missing, *_not_seen(point)),
    )


def _not_seen(point: Point) -> tuple[str, ...]:
    """Members that may be absent as well, for all that is known."""
    if not point.unseen:
        return ()
    return (f"{folded(point.unseen)} cannot be seen: not there either, perhaps",)


def doubted(verdict: Verdict, point: Point) -> Verdict:
    """`verdict` on a wait of which nobody can say who has to come."""
    text = f"who has to call {point.kind} is not known; mostly every rank of the job"
    return replace(verdict, missing=(*verdict.missing, text))


def _absent_text(
    frame: ObservedFrame, point: Point, culprits: Sequence[int], waiting: Crowd
) -> str:
    named = f"{who(frame.ranks, culprits)} {has(culprits)} not"
    if not point.op.p2p:
        return f"{named} entered {op_text(point)}; {crowd_text(waiting)}"
    answered = "sent" if "recv" in point.kind else "received"
    others = waiting.ranks.difference(point.waiting)
    more = f"; {wait_text(others)} behind it" if others else ""
    return f"{named} {answered}; {wait_text(point.waiting)} in {op_text(point)}{more}"


def mismatch(found: Disagreement, frame: Moment, victims: set[int], *, fatal: bool) -> Verdict:
    """Different ops at the same place of a group; `fatal` if deaths follow from it."""
    culprits = () if _is_open(found, frame) else found.culprits
    main, other = found.parties[0], found.parties[1]
    label = group_label(found.group.name, found.group.description)
    # No number: some of them count from another op on.
    place = f"#{found.number} of {label}" if found.number else label
    upto = "up to" if found.number else "in"
    mine = f"{wording(other.op.signature)}{at_line(other.op)}"
    theirs = f"{wording(main.op.signature)}{at_line(main.op)}"
    if culprits:
        head = (
            f"{who(frame.ranks, other.ranks)} called {mine} {'as' if found.number else 'in'}"
            f" {place}, where {folded(main.ranks)} called {theirs}"
        )
        step = (
            f"compare the calls of rank {other.ranks[0]} {upto} {place} with those of rank"
            f" {main.ranks[0]}: one too many, one too few, or a branch on the rank"
        )
    else:
        head = (
            f"{folded(other.ranks)} and {folded(main.ranks)} disagree"
            f" {'on' if found.number else 'in'} {place}: {mine} against {theirs}"
        )
        step = f"compare the calls of ranks {other.ranks[0]} and {main.ranks[0]} {upto} {place}"
    if _is_same_call(main.op, other.op):
        step = (
            f"see what sets the {found.field}{at_line(main.op)} on ranks {other.ranks[0]} and"
            f" {main.ranks[0]}, and whether either skipped a call before"
        )
    outcome = "they wait for each other" if victims else "data may be wrong without any error"
    if fatal:
        outcome = "the deaths follow from it"
    differs = "differ" if found.field == "splits" else "differs"
    over = all(view.state in ("dead", "done") for view in frame.ranks.values())
    if over:
        outcome += "; the job has ended"
    return Verdict(
        kind="mismatch",
        confidence="confirmed",
        progress="none" if victims or over else "active",
        culprits=culprits,
        parties=tuple(party.ranks for party in found.parties)
        if not culprits
        else ((tuple(culprits), main.ranks)),
        headline=head,
        why=Why("mismatch", "software", f"the {found.field} {differs}; {outcome}"),
        next=step,
        victims=fold(victims - set(culprits)),
        group=group_key(found.group),
        op=OpName(kind_of(main.op), found.number or None),
        since_ns=found.since_ns,
        evidence=tuple(
            f"{folded(party.ranks)}: {wording(party.op.signature)}{at_line(party.op)}"
            for party in found.parties[:6]
        ),
    )


def _is_same_call(one: wire.Op, other: wire.Op) -> bool:
    """Whether it is one line of one program that called the same with other arguments."""
    known = one.site is not None and bool(one.site.line)
    return known and one.site == other.site and kind_of(one) == kind_of(other)


def _is_open(found: Disagreement, frame: Moment) -> bool:
    """Whether it may be told yet who is the minority: some members have not been heard of it."""
    members = members_of(found.group.ranks)
    if not found.is_open(len(members) - sum(len(party.ranks) for party in found.parties)):
        return False
    told = {rank for party in found.parties for rank in party.ranks}
    untold = [rank for rank in members if rank not in told]
    fresh = frame.now_ns - found.since_ns < TOLD_NS
    return fresh or any(_cannot_tell(frame.ranks.get(rank)) for rank in untold)


def _cannot_tell(view: Rank | None) -> bool:
    return view is None or view.state == "unheard"


def stuck(
    frame: ObservedFrame,
    point: Point,
    culprit: Rank | None,
    absence: Absence | None,
    head: str = "",
) -> Verdict:
    """All have entered, and it does not finish. `culprit` has, but is stopped since."""
    culprits: tuple[int, ...] = ()
    if culprit is not None:
        culprits = (culprit.rank,)
        head = f"{who(frame.ranks, culprits)} entered {op_text(point)} and was then stopped"
    if absence is None:
        text = (
            "all have entered with what looks like the same op;"
            " the device or the transport does not finish it"
        )
        step = "look at links and devices of these hosts: `ss -ti`, `ip -s link`, dmesg"
        absence = Absence(Why("transport", "network", text), step)
    head = head or f"all have entered {op_text(point)}, and it does not finish"
    waiting = set(point.waiting) - set(culprits)
    return Verdict(
        kind="stuck",
        confidence="suspect",
        progress="none",
        culprits=culprits,
        headline=f"{head}; {wait_text(waiting)}",
        why=absence.why,
        next=absence.next,
        victims=fold(waiting),
        group=group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.told_since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=(*wait_evidence(point, frame.now_ns), *absence.evidence),
        missing=absence.missing,
    )


def device_behind(frame: ObservedFrame, point: Point, late: Behind, progress: Progress) -> Verdict:
    """All have issued it, and the devices of a few are not where those of the others are."""
    label = group_label(point.group.name, point.group.description) if point.group else "its group"
    named = folded(late.ranks)
    if late.begun:
        head = f"the device of {named} is behind: others have completed #{late.number} of {label}"
        text = f"all have issued {op_text(point)}; this device is not through with #{late.number}"
    else:
        head = f"the device of {named} has not begun #{late.number} of {label}: others are at it"
        text = f"all have issued {op_text(point)}; what came before it keeps this device"
    waiting = {rank for rank in point.members if rank not in late.ranks}
    return Verdict(
        kind="stuck",
        confidence="suspect",
        progress=progress,
        culprits=late.ranks,
        headline=head + (", or its dump is the oldest" if point.undated else ""),
        why=Why("device", "device", text),
        next=f"look at the device of {named}: nvidia-smi, dmesg; what ran there before it?",
        victims=fold(waiting),
        group=group_key(point.group),
        op=OpName(point.kind, late.number),
        since_ns=point.told_since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(wait_evidence(point, frame.now_ns)),
    )


def undecided(frame: ObservedFrame, point: Point, reason: str, step: str) -> Verdict:
    """Somebody waits out of the ordinary, and who is to blame cannot be said."""
    return Verdict(
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        headline=f"{wait_text(point.waiting)} in {op_text(point)}; {reason}",
        why=Why("unheard" if point.unseen else "unknown", "unknown", reason),
        next=step,
        victims=fold(point.waiting),
        group=group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.told_since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(wait_evidence(point, frame.now_ns)),
        missing=(f"{folded(point.unseen)} cannot be seen",) if point.unseen else (),
    )


def urgency(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    """Roots with victims first, then those that get nowhere, then by time."""
    return (
        verdict.kind == "undecided",
        not verdict.victims,
        verdict.progress == "active",
        verdict.since_ns,
    )
