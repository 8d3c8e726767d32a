"""Findings put into words: who, what, why, and the next step; one function per kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from frtop_probe import wire
from frtop_probe.ring.fold import fold
from frtop_tui.diagnosis.absence import Absence
from frtop_tui.diagnosis.deaths import Death
from frtop_tui.diagnosis.places import short_file
from frtop_tui.diagnosis.points import Point
from frtop_tui.diagnosis.signatures import Disagreement, wording
from frtop_tui.job.model import (
    Frame,
    GroupKey,
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
    progress: tuple[Progress, str],
    others: Sequence[int],
) -> Verdict:
    """`culprits` are awaited at all of `points`, of which the first waits longest.

    `others` have not entered either, but are on their way.
    """
    point = points[0]
    waiting = {rank for one in points for rank in one.waiting} - set(culprits)
    evidence = [*_wait_evidence(point, frame.now_ns), *absence.evidence, progress[1]]
    evidence += _position_evidence(frame.ranks, point, culprits)
    if others:
        evidence.append(f"{folded(others)} not there either, but moving")
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=progress[0],
        culprits=tuple(culprits),
        headline=f"{_who(frame.ranks, culprits)} {_has(culprits)} not entered"
        f" {op_text(point)}; {_waits(waiting)}",
        why=absence.why,
        next=absence.next,
        victims=fold(waiting),
        group=_group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(evidence),
        missing=absence.missing,
    )


def exited(frame: Frame, ranks: Sequence[int], point: Point | None, victims: set[int]) -> Verdict:
    """`ranks` left cleanly although others still need them."""
    views = frame.ranks
    ages = [_ended_age(views[rank], frame.now_ns) for rank in ranks]
    first = views[ranks[0]]
    code = first.ending.exit_code if first.ending is not None else None
    status = "with exit status 0" if code == 0 else "in an orderly way"
    of = f" before {op_text(point)}" if point is not None else ""
    many = len(ranks) > len(victims)
    evidence = [f"rank {rank} ended {duration(age)} ago" for rank, age in zip(ranks, ages)][:4]
    evidence += _wait_evidence(point, frame.now_ns) if point is not None else []
    evidence += _broken(frame.ranks, victims)
    return Verdict(
        kind="dead",
        confidence="confirmed",
        progress="none",
        culprits=() if many else tuple(ranks),
        parties=(tuple(sorted(victims)), tuple(ranks)) if many else (),
        headline=f"{_who(views, ranks)} left the program {status}{of}; {_waits(victims)}",
        why=Why(
            "exited",
            "software",
            f"it ended by itself {duration(max(ages))} ago while others still had ops to do:"
            " fewer batches, or an early return",
        ),
        next="compare the number of steps per rank: uneven data, or `break`/`return` on one rank"
        " (torch.distributed.algorithms.join.Join evens them out)",
        victims=fold(victims),
        group=_group_key(point.group) if point is not None else None,
        op=OpName(point.kind, point.number) if point is not None else None,
        since_ns=min(_ended_ns(views[rank]) for rank in ranks),
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
        evidence += [
            f"  {short_file(frame_.file)}:{frame_.line} ({frame_.function})"
            for frame_ in view.raised.frames[:4]
        ]
    evidence += _broken(frame.ranks, followers)
    then = f"; {_waits(waiting)}" if waiting else ""
    if followers - waiting and not waiting:
        then = f"; {folded(followers)} ended after it"
    point = points[0] if points else None
    return Verdict(
        kind="dead",
        confidence="suspect" if first.nature == "unknown" else "confirmed",
        progress="none",
        culprits=ranks,
        headline=f"{_who(frame.ranks, ranks)} died: {_short(first.text)}{then}",
        why=Why(first.cause, "software", _death_text(first)),
        next=_after_death(first, view),
        victims=fold((waiting | followers) - set(ranks)),
        group=_group_key(point.group) if point is not None else None,
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
        headline=f"{folded(d.rank for d in followers)} ended, and none of itself: {_short(first.text)}",
        why=Why("unknown", "network", "connections broke before any rank that is seen died"),
        next="look at the hosts that are not heard, and at the launcher's own output",
        since_ns=first.at_ns,
        evidence=tuple(f"rank {death.rank}: {death.text}" for death in followers[:6]),
        missing=(folded(frame.coverage.unheard),) if frame.coverage.unheard else (),
    )


def timed_out(frame: Frame, behind: Sequence[int], deaths: Sequence[Death]) -> Verdict:
    """The others gave up after their own timeout; `behind` were the ones they waited for."""
    first = deaths[0]
    victims = {death.rank for death in deaths}
    return Verdict(
        kind="not_entered",
        confidence="confirmed",
        progress="none",
        culprits=tuple(behind),
        headline=f"{_who(frame.ranks, behind)} {_has(behind)} not come in time:"
        f" {folded(victims)} gave up waiting",
        why=Why(
            "unknown",
            "unknown",
            "the job was ended by its own timeout; why it was late was not seen",
        ),
        next=f"read the end of rank {behind[0]}'s own output",
        victims=fold(victims),
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
    mine = f"{wording(other.op.signature)}{_at(other.op)}"
    theirs = f"{wording(main.op.signature)}{_at(main.op)}"
    if culprits:
        head = (
            f"{_who(frame.ranks, other.ranks)} called {mine} as {place}, where"
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
        group=_group_key(found.group),
        op=OpName(_kind(main.op), found.number),
        since_ns=since_ns,
        evidence=tuple(
            f"{folded(party.ranks)}: {wording(party.op.signature)}{_at(party.op)}"
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
        next="use the groups, or pair sends with receives, in one order on all ranks",
        victims=fold(rank for ranks, _ in sides for rank in ranks),
        group=_group_key(sides[0][1].group),
        op=OpName(sides[0][1].kind, sides[0][1].number),
        since_ns=min(point.since_ns for point in ring),
        left_s=min((s for p in ring if (s := p.left_s(frame.now_ns)) is not None), default=None),
        evidence=tuple(line for p in ring[:4] for line in _wait_evidence(p, frame.now_ns)),
    )


def stuck(frame: Frame, point: Point, culprit: RankView | None, absence: Absence | None) -> Verdict:
    """All have entered, and it does not finish. `culprit` has, but is stopped since."""
    culprits: tuple[int, ...] = ()
    if culprit is not None and absence is not None:
        why, step, culprits = absence.why, absence.next, (culprit.rank,)
        head = f"{_who(frame.ranks, culprits)} entered {op_text(point)} and was then stopped"
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
        headline=f"{head}; {_waits(waiting)}",
        why=why,
        next=step,
        victims=fold(waiting),
        group=_group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(_wait_evidence(point, frame.now_ns)),
    )


def undecided(frame: Frame, point: Point, reason: str, step: str) -> Verdict:
    """Somebody waits out of the ordinary, and who is to blame cannot be said."""
    return Verdict(
        kind="undecided",
        confidence="suspect",
        progress="unknown",
        culprits=(),
        headline=f"{_waits(point.waiting)} in {op_text(point)}; {reason}",
        why=Why("unheard" if point.unseen else "unknown", "unknown", reason),
        next=step,
        victims=fold(point.waiting),
        group=_group_key(point.group),
        op=OpName(point.kind, point.number),
        since_ns=point.since_ns,
        left_s=point.left_s(frame.now_ns),
        evidence=tuple(_wait_evidence(point, frame.now_ns)),
        missing=(f"{folded(point.unseen)} cannot be seen",) if point.unseen else (),
    )


def op_text(point: Point) -> str:
    """`all_reduce #8812 of default_pg`."""
    number = f" #{point.number}" if point.number is not None else ""
    if point.group is None or point.op.pseudo:
        return f"{point.kind}{number}"
    peer = point.op.signature.peer if point.op.signature is not None else None
    side = ""
    if point.op.p2p and peer is not None:
        side = f" {'from' if 'recv' in point.kind else 'to'} rank {peer}"
    label = group_label(point.group.name, point.group.description)
    return f"{point.kind}{number}{side} of {label}"


def _who(views: Mapping[int, RankView], ranks: Sequence[int]) -> str:
    """`rank 2 (node4 pid 90077)`; several ranks without their places."""
    if len(ranks) == 1 and (view := views.get(ranks[0])) is not None:
        host = "" if view.host in ("", "local") else f"{view.host} "
        return f"rank {view.rank} ({host}pid {view.identity.pid})"
    return folded(ranks)


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _waits(ranks: Iterable[int]) -> str:
    known = set(ranks)
    if not known:
        return "nobody waits yet"
    return f"{folded(known)} {'waits' if len(known) == 1 else 'wait'}"


def _group_key(group: wire.Group | None) -> GroupKey | None:
    return GroupKey(group.name, group.ranks, group.epoch) if group is not None else None


def _kind(op: wire.Op) -> str:
    return op.signature.kind if op.signature is not None else "an op"


def _at(op: wire.Op) -> str:
    return f" at {short_file(op.site.file)}:{op.site.line}" if op.site is not None else ""


def _wait_evidence(point: Point, now_ns: int) -> list[str]:
    oldest = min(point.waits, key=lambda wait: wait.since_ns)
    usual = oldest.op.usual_ns / 1e9
    text = f"rank {oldest.rank} waits in {op_text(point)} for"
    text += f" {duration((now_ns - oldest.since_ns) / 1e9)}"
    if oldest.op.usual_count:
        text += f" (there usually {duration(usual) if usual >= 1 else f'{usual * 1e3:.0f}ms'})"
    text += _at(oldest.op)
    if not oldest.sure:
        text += "; seen from outside only, not by its stack"
    return [text]


def _position_evidence(
    views: Mapping[int, RankView], point: Point, culprits: Sequence[int]
) -> list[str]:
    """How far the culprits are in the group, and what they did last."""
    lines = []
    for rank in culprits[:3]:
        view = views.get(rank)
        if view is None:
            continue
        fronts = [front for front in view.fronts.values() if front.last is not None]
        last = max(fronts, key=lambda front: front.issued_ns, default=None)
        if last is not None and last.last is not None:
            group = view.groups.get(last.group)
            label = group_label(group.name, group.description) if group is not None else ""
            lines.append(
                f"rank {rank} last issued {_kind(last.last)} #{last.number} of {label}{_at(last.last)}"
            )
    return lines


def _broken(views: Mapping[int, RankView], ranks: Iterable[int]) -> list[str]:
    """One line of what the followers raised."""
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.raised is not None:
            text = view.raised.text.strip().splitlines()
            return [f"then rank {rank}: {view.raised.kind}: {text[0][:160] if text else ''}"]
    return []


def _ended_ns(view: RankView) -> int:
    return view.ending.at_ns + view.clock_ns if view.ending is not None else 0


def _ended_age(view: RankView, now_ns: int) -> float:
    return max(0.0, (now_ns - _ended_ns(view)) / 1e9)


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def _death_text(death: Death) -> str:
    if death.cause == "signal":
        return f"ended by {death.text}, by nothing that was seen here"
    if death.cause == "exit_status":
        return f"it ended with {death.text}, without an exception that was seen"
    return death.text


def _after_death(death: Death, view: RankView) -> str:
    if death.cause == "exception" and view.raised is not None and view.raised.frames:
        own = next(
            (
                f
                for f in view.raised.frames
                if "/torch/" not in f.file and "site-packages" not in f.file
            ),
            view.raised.frames[0],
        )
        return f"look at {short_file(own.file)}:{own.line} ({own.function})"
    if death.cause == "oom":
        return f"less memory per rank on {view.host}, or a higher limit: dmesg | grep -i oom"
    if death.cause == "signal":
        return f"on {view.host}: dmesg | tail; who sent it: the scheduler, an operator, the kernel?"
    return f"read the end of rank {death.rank}'s own output"
