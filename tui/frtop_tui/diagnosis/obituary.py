"""Verdicts on ranks that died, or left, and what became of those that needed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.deaths import INTERRUPTED, Death
from frtop_tui.diagnosis.judged import OpName, Progress, Verdict, Why
from frtop_tui.diagnosis.phrases import (
    Missed,
    after_death,
    broken_evidence,
    cut,
    death_layer,
    death_text,
    ended_age,
    ended_ns,
    group_key,
    has,
    op_text,
    wait_evidence,
    wait_text,
    who,
)
from frtop_tui.diagnosis.places import place_line
from frtop_tui.diagnosis.points import Point
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.naming import duration, folded

_UNSURE: Final = frozenset({"unknown", "abort", "network"})
"""An abort may be a victim of other ranks' ops: their rings are read first."""


def exited(
    frame: ObservedFrame,
    ranks: Sequence[int],
    victims: set[int],
    *,
    point: Point | None = None,
    missed: Missed | None = None,
) -> Verdict:
    """`ranks` left cleanly although others still need them.

    Of the `victims` those at `point` wait; the rest broke off in what the first of
    `ranks` `missed`.
    """
    views = frame.ranks
    ages = [ended_age(views[rank], frame.now_ns) for rank in ranks]
    first = views[ranks[0]]
    code = first.exit_info.exit_code if first.exit_info is not None else None
    status = "with exit status 0" if code == 0 else "in an orderly way"
    waiting = victims & set(point.waiting) if point is not None else set()
    then = [wait_text(waiting)] if waiting else []
    if victims - waiting:
        then.append(f"{folded(victims - waiting)} lost their connections to it")
    before, op, group = "", None, None
    if point is not None:
        before = f" before {op_text(point)}"
        op, group = OpName(point.kind, point.number), point.group
    elif missed is not None:
        before = f" before {missed.text}"
        op, group = OpName(missed.kind, missed.number or None), missed.group
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
        headline=f"{who(views, ranks)} left the program {status}{before}; {', '.join(then)}",
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
    frame: ObservedFrame,
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
    if view.exception is not None and view.exception.main:
        evidence += [f"  {place_line(raised_in)}" for raised_in in view.exception.frames[:4]]
    evidence += broken_evidence(frame.ranks, followers)
    then = f"; {wait_text(waiting)}" if waiting else ""
    if followers - waiting and not waiting:
        then = f"; {folded(followers)} ended after it"
    point = points[0] if points else None
    # Nobody among them is to blame when somebody told them all to end.
    outside = first.nature == "ended" and len(ranks) > 1
    how = f"{'were ended from outside' if outside else 'died'}: {cut(first.text)}"
    if first.cause == INTERRUPTED:
        how = f"{'was' if len(ranks) == 1 else 'were'} {first.text}"
    return Verdict(
        kind="dead",
        confidence="suspect" if first.nature in _UNSURE else "confirmed",
        progress="none",
        culprits=() if outside else ranks,
        headline=f"{who(frame.ranks, ranks)} {how}{then}",
        why=Why(first.cause, death_layer(first), death_text(first)),
        next=after_death(first, view),
        victims=fold((waiting | followers) - set(ranks)),
        group=group_key(point.group) if point is not None else None,
        op=OpName(point.kind, point.number) if point is not None else None,
        since_ns=first.at_ns,
        left_s=point.left_s(frame.now_ns) if point is not None else None,
        evidence=tuple(evidence),
    )


def aborted(frame: ObservedFrame, deaths: Sequence[Death], followers: set[int]) -> Verdict:
    """Ranks that were aborted, a moment ago: whose op it was is not known yet."""
    first = deaths[0]
    ranks = sorted(death.rank for death in deaths)
    return Verdict(
        kind="undecided",
        confidence="suspect",
        progress="none",
        culprits=(),
        headline=f"{who(frame.ranks, ranks)} died: {cut(first.text)}; whether of its own"
        " doing, the last ops of all who died will tell",
        why=Why(
            first.cause, "unknown", "gloo aborts the victims of an op that does not fit theirs"
        ),
        next="wait a moment: their rings are being read",
        victims=fold({*ranks, *followers}),
        since_ns=first.at_ns,
        evidence=tuple(f"rank {death.rank}: {death.text}" for death in deaths[:4]),
    )


def broken(frame: ObservedFrame, followers: Sequence[Death]) -> Verdict:
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
    frame: ObservedFrame,
    ranks: Sequence[int],
    deaths: Sequence[Death],
    waiting: set[int],
    progress: tuple[Progress, str],
) -> Verdict:
    """`ranks` live and are behind, but the others' connections closed: they left the group.

    Some that have not noticed may be `waiting` still.
    """
    first = deaths[0]
    victims = {death.rank for death in deaths}
    return Verdict(
        kind="not_entered",
        confidence="suspect",
        progress=progress[0],
        culprits=tuple(ranks),
        headline=f"{who(frame.ranks, ranks)} closed the connections while {folded(victims)}"
        f" still had ops to do{f'; {wait_text(waiting)}' if waiting else ''}",
        why=Why(
            "out_of_loop",
            "software",
            "it destroyed its process group, or is on its way out of the program",
        ),
        next="compare the number of steps per rank, and where each calls destroy_process_group",
        victims=fold(victims | waiting),
        since_ns=first.at_ns,
        evidence=(*(f"rank {death.rank}: {death.text}" for death in deaths[:4]), progress[1]),
    )


def timed_out(
    frame: ObservedFrame, behind: Sequence[int], deaths: Sequence[Death], missed: Missed
) -> Verdict:
    """The others gave up after their own timeout; `behind` were the ones they waited for."""
    first = deaths[0]
    victims = {death.rank for death in deaths}
    after = f" after {duration(first.waited_s)}" if first.waited_s else ""
    return Verdict(
        kind="not_entered",
        confidence="confirmed",
        progress="none",
        culprits=tuple(behind),
        headline=f"{who(frame.ranks, behind)} {has(behind)} not entered"
        f" {missed.text} in time; {folded(victims)} gave up waiting{after}",
        why=Why(
            "unknown",
            "unknown",
            "the job was ended by its own timeout; why it was late was not seen",
        ),
        next=f"read the end of rank {behind[0]}'s own output",
        victims=fold(victims),
        group=group_key(missed.group),
        op=OpName(missed.kind, missed.number),
        since_ns=first.at_ns - int(first.waited_s * 1e9),
        evidence=tuple(f"rank {death.rank}: {death.text}" for death in deaths[:4]),
    )
