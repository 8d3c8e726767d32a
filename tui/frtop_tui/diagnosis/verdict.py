"""Findings put into words: who, what, why, and the next step; one function per kind."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe.ring.fold import fold
from frtop_tui.diagnosis.absence import Absence
from frtop_tui.diagnosis.deaths import Death
from frtop_tui.diagnosis.phrases import (
    Missed,
    after_death,
    at_line,
    broken_evidence,
    cut,
    death_text,
    ended_age,
    ended_ns,
    group_key,
    has,
    kind_of,
    last_op_evidence,
    op_text,
    wait_evidence,
    wait_text,
    who,
)
from frtop_tui.diagnosis.places import place_line
from frtop_tui.diagnosis.points import Point
from frtop_tui.diagnosis.signatures import Disagreement, wording
from frtop_tui.job.model import (
    Frame,
    OpName,
    Progress,
    RankView,
    Verdict,
    Why,
)
from frtop_tui.job.naming import duration, folded, group_label


def not_entered(
    frame: Frame,
    points: Sequence[Point],
    culprits: Sequence[int],
    absence: Absence,
    *,
    progress: tuple[Progress, str],
    others: Sequence[int] = (),
) -> Verdict:
    """`culprits` are awaited at all of `points`, of which the first waits longest.

    `others` have not entered either, but are on their way.
    """
    point = points[0]
    waiting = {rank for one in points for rank in one.waiting} - set(culprits)
    evidence = [*wait_evidence(point, frame.now_ns), *absence.evidence, progress[1]]
    evidence += last_op_evidence(frame.ranks, culprits)
    if others:
        evidence.append(f"{folded(others)} not there either, but moving")
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=progress[0],
        culprits=tuple(culprits),
        headline=_absent_text(frame, point, culprits, waiting),
        why=absence.why,
        next=absence.next,
        victims=fold(waiting),
        group=group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(evidence),
        missing=absence.missing,
    )


def _absent_text(frame: Frame, point: Point, culprits: Sequence[int], waiting: set[int]) -> str:
    named = f"{who(frame.ranks, culprits)} {has(culprits)} not"
    if not point.op.p2p:
        return f"{named} entered {op_text(point)}; {wait_text(waiting)}"
    answered = "sent" if "recv" in point.kind else "received"
    others = waiting - set(point.waiting)
    more = f"; {wait_text(others)} behind it" if others else ""
    return f"{named} {answered}; {wait_text(point.waiting)} in {op_text(point)}{more}"


def exited(
    frame: Frame,
    ranks: Sequence[int],
    victims: set[int],
    *,
    point: Point | None = None,
    missed: Missed | None = None,
) -> Verdict:
    """`ranks` left cleanly although others still need them.

    The others wait at `point`, or they broke off in what the first of `ranks` `missed`.
    """
    views = frame.ranks
    ages = [ended_age(views[rank], frame.now_ns) for rank in ranks]
    first = views[ranks[0]]
    code = first.ending.exit_code if first.ending is not None else None
    status = "with exit status 0" if code == 0 else "in an orderly way"
    before, then = "", f"{folded(victims)} lost their connections to it"
    op = group = None
    if point is not None:
        before, then = f" before {op_text(point)}", wait_text(victims)
        op, group = OpName(point.kind, point.number), point.group
    elif missed is not None:
        before = f" before {missed.text}"
        op, group = OpName(missed.kind, missed.number), missed.group
    many = len(ranks) > len(victims)
    evidence = [
        f"rank {rank} ended {duration(age)} ago" for rank, age in zip(ranks, ages, strict=True)
    ][:4]
    evidence += wait_evidence(point, frame.now_ns) if point is not None else []
    evidence += broken_evidence(frame.ranks, victims)
    return Verdict(
        kind="dead",
        confidence="confirmed",
        progress="none",
        culprits=() if many else tuple(ranks),
        parties=(tuple(sorted(victims)), tuple(ranks)) if many else (),
        headline=f"{who(views, ranks)} left the program {status}{before}; {then}",
        why=Why(
            "exited",
            "software",
            f"it ended by itself {duration(max(ages))} ago while others still had ops to do:"
            " fewer batches, or an early return",
        ),
        next="compare the number of steps per rank: uneven data, or `break`/`return` on one rank"
        " (torch.distributed.algorithms.join.Join evens them out)",
        victims=fold(victims),
        group=group_key(group),
        op=op,
        since_ns=min(ended_ns(views[rank]) for rank in ranks),
        left_s=point.left_s(frame.now_ns) if point is not None else None,
        evidence=tuple(evidence),
    )


def dead(
    frame: Frame,
    deaths: Sequence[Death],
    points: Sequence[Point],
    followers: set[int],
) -> Verdict:
    """Ranks that died of the same cause, the first one first."""
    first = deaths[0]
    ranks = tuple(sorted(death.rank for death in deaths))
    waiting = {rank for one in points for rank in one.waiting} - set(ranks)
    view = frame.ranks[first.rank]
    evidence = [
        f"rank {death.rank} {duration((frame.now_ns - death.at_ns) / 1e9)} ago: {death.text}"
        for death in deaths[:4]
    ]
    if view.raised is not None and view.raised.main:
        evidence += [f"  {place_line(raised_in)}" for raised_in in view.raised.frames[:4]]
    evidence += broken_evidence(frame.ranks, followers)
    then = f"; {wait_text(waiting)}" if waiting else ""
    if followers - waiting and not waiting:
        then = f"; {folded(followers)} ended after it"
    point = points[0] if points else None
    # Nobody among them is to blame when somebody told them all to end.
    outside = first.nature == "ended" and len(ranks) > 1
    how = "were ended from outside" if outside else "died"
    return Verdict(
        kind="dead",
        # An abort may be a victim of other ranks' ops: their rings are read first.
        confidence="suspect" if first.nature in ("unknown", "abort") else "confirmed",
        progress="none",
        culprits=() if outside else ranks,
        headline=f"{who(frame.ranks, ranks)} {how}: {cut(first.text)}{then}",
        why=Why(first.cause, "software", death_text(first)),
        next=after_death(first, view),
        victims=fold((waiting | followers) - set(ranks)),
        group=group_key(point.group) if point is not None else None,
        op=OpName(point.kind, point.number) if point is not None else None,
        since_ns=first.at_ns,
        left_s=point.left_s(frame.now_ns) if point is not None else None,
        evidence=tuple(evidence),
    )


def broken(frame: Frame, followers: Sequence[Death]) -> Verdict:
    """Everybody's connection closed, and nobody is known who closed the first."""
    first = followers[0]
    return Verdict(
        kind="undecided",
        confidence="suspect",
        progress="none",
        culprits=(),
        headline=f"{folded(death.rank for death in followers)} ended, none of itself:"
        f" {cut(first.text)}",
        why=Why("unknown", "network", "connections broke before any rank that is seen died"),
        next="look at the hosts that are not heard, and at the launcher's own output",
        since_ns=first.at_ns,
        evidence=tuple(f"rank {death.rank}: {death.text}" for death in followers[:6]),
        missing=(folded(frame.coverage.unheard),) if frame.coverage.unheard else (),
    )


def left_group(
    frame: Frame, ranks: Sequence[int], deaths: Sequence[Death], progress: tuple[Progress, str]
) -> Verdict:
    """`ranks` live and are behind, but the others' connections closed: they left the group."""
    first = deaths[0]
    victims = {death.rank for death in deaths}
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=progress[0],
        culprits=tuple(ranks),
        headline=f"{who(frame.ranks, ranks)} closed the connections while {folded(victims)}"
        " still had ops to do",
        why=Why(
            "out_of_loop",
            "software",
            "it destroyed its process group, or is on its way out of the program",
        ),
        next="compare the number of steps per rank, and where each calls destroy_process_group",
        victims=fold(victims),
        since_ns=first.at_ns,
        evidence=(*(f"rank {death.rank}: {death.text}" for death in deaths[:4]), progress[1]),
    )


def timed_out(
    frame: Frame, behind: Sequence[int], deaths: Sequence[Death], missed: Missed
) -> Verdict:
    """The others gave up after their own timeout; `behind` were the ones they waited for."""
    first = deaths[0]
    victims = {death.rank for death in deaths}
    return Verdict(
        kind="not_entered",
        confidence="confirmed",
        progress="none",
        culprits=tuple(behind),
        headline=f"{who(frame.ranks, behind)} {has(behind)} not entered"
        f" {missed.text} in time; {folded(victims)} gave up waiting",
        why=Why(
            "unknown",
            "unknown",
            "the job was ended by its own timeout; why it was late was not seen",
        ),
        next=f"read the end of rank {behind[0]}'s own output",
        victims=fold(victims),
        group=group_key(missed.group),
        op=OpName(missed.kind, missed.number),
        since_ns=first.at_ns,
        evidence=tuple(f"rank {death.rank}: {death.text}" for death in deaths[:4]),
    )


def mismatch(
    found: Disagreement, frame: Frame, victims: set[int], since_ns: int, *, waiting: bool
) -> Verdict:
    """Different ops at the same place of a group."""
    culprits = found.culprits
    main, other = found.parties[0], found.parties[1]
    label = group_label(found.group.name, found.group.description)
    place = f"#{found.number} of {label}"
    mine = f"{wording(other.op.signature)}{at_line(other.op)}"
    theirs = f"{wording(main.op.signature)}{at_line(main.op)}"
    if culprits:
        head = (
            f"{who(frame.ranks, other.ranks)} called {mine} as {place}, where"
            f" {folded(main.ranks)} called {theirs}"
        )
        step = (
            f"compare the calls of rank {other.ranks[0]} up to {place} with those of rank"
            f" {main.ranks[0]}: one too many, one too few, or a branch on the rank"
        )
    else:
        head = (
            f"{folded(other.ranks)} and {folded(main.ranks)} disagree on {place}:"
            f" {mine} against {theirs}"
        )
        step = f"compare the calls of ranks {other.ranks[0]} and {main.ranks[0]} up to {place}"
    outcome = "they wait for each other" if waiting else "data may be wrong without any error"
    if any(
        frame.ranks[r].ending is not None
        for p in found.parties
        for r in p.ranks
        if r in frame.ranks
    ):
        outcome = "the deaths follow from it"
    return Verdict(
        kind="mismatch",
        confidence="confirmed",
        progress="none" if waiting else "active",
        culprits=culprits,
        parties=tuple(party.ranks for party in found.parties)
        if not culprits
        else ((tuple(culprits), main.ranks)),
        headline=head,
        why=Why("mismatch", "software", f"the {found.field} differs; {outcome}"),
        next=step,
        victims=fold(victims - set(culprits)),
        group=group_key(found.group),
        op=OpName(kind_of(main.op), found.number),
        since_ns=since_ns,
        evidence=tuple(
            f"{folded(party.ranks)}: {wording(party.op.signature)}{at_line(party.op)}"
            for party in found.parties[:6]
        ),
    )


def cycle(frame: Frame, ring: Sequence[Point]) -> Verdict:
    """Blocked ranks that wait for each other."""
    sides = sorted(((tuple(sorted(p.waiting)), p) for p in ring), key=lambda side: side[0])
    waits = [f"{folded(ranks)} in {op_text(point)}" for ranks, point in sides]
    return Verdict(
        kind="cycle",
        confidence="suspect",
        progress="none",
        culprits=(),
        parties=tuple(ranks for ranks, _ in sides),
        headline=f"they wait for each other: {', '.join(waits[:3])}",
        why=Why(
            "cycle",
            "software",
            "each needs the other first: "
            + (
                "sends and receives meet in the wrong order"
                if any(p.op.p2p for p in ring)
                else "groups are used in different orders"
            ),
        ),
        next="pair each send with a receive: on one of them the other first, or batch_isend_irecv"
        if any(point.op.p2p for point in ring)
        else "use these groups in the same order on all of their ranks",
        victims=fold(rank for ranks, _ in sides for rank in ranks),
        group=group_key(sides[0][1].group),
        op=OpName(sides[0][1].kind, sides[0][1].number),
        since_ns=min(point.since_ns for point in ring),
        left_s=min((s for p in ring if (s := p.left_s(frame.now_ns)) is not None), default=None),
        evidence=tuple(line for p in ring[:4] for line in wait_evidence(p, frame.now_ns)),
    )


def stuck(frame: Frame, point: Point, culprit: RankView | None, absence: Absence | None) -> Verdict:
    """All have entered, and it does not finish. `culprit` has, but is stopped since."""
    culprits: tuple[int, ...] = ()
    if culprit is not None and absence is not None:
        why, step, culprits = absence.why, absence.next, (culprit.rank,)
        head = f"{who(frame.ranks, culprits)} entered {op_text(point)} and was then stopped"
    else:
        why = Why(
            "transport",
            "network",
            "all have entered with what looks like the same op;"
            " the device or the transport does not finish it",
        )
        step = "look at links and devices of these hosts: `ss -ti`, `ip -s link`, dmesg"
        head = f"all have entered {op_text(point)}, and it does not finish"
    waiting = set(point.waiting) - set(culprits)
    return Verdict(
        kind="stuck",
        confidence="suspect",
        progress="none",
        culprits=culprits,
        headline=f"{head}; {wait_text(waiting)}",
        why=why,
        next=step,
        victims=fold(waiting),
        group=group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(wait_evidence(point, frame.now_ns)),
    )


def undecided(frame: Frame, point: Point, reason: str, step: str) -> Verdict:
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
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(wait_evidence(point, frame.now_ns)),
        missing=(f"{folded(point.unseen)} cannot be seen",) if point.unseen else (),
    )
