"""The judge: from a frame to who is waited for, why, and whether it is hung.

Reasons by cause: what follows from a named root is no verdict of its own. Pure apart from
what has to be remembered between frames: who was suspected when, and what was so before
somebody died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_tui.diagnosis.camps import judged_by_stacks
from frtop_tui.diagnosis.deaths import deaths_of
from frtop_tui.diagnosis.inquiry import Inquiry, Wanted, in_question
from frtop_tui.diagnosis.lasting import lasting, lasting_texts
from frtop_tui.diagnosis.light import judged_groups, judged_ranks
from frtop_tui.diagnosis.memory import Found, Suspicions
from frtop_tui.diagnosis.partings import Partings, WantedOps
from frtop_tui.diagnosis.points import Point
from frtop_tui.diagnosis.reasoning import Case
from frtop_tui.diagnosis.story import Before, last_said, story
from frtop_tui.job.model import Frame, Health, Verdict
from frtop_tui.job.naming import JobKey, job_key

__all__ = ["Engine", "Judgement", "Wanted", "WantedOps"]

MOST_VERDICTS = 8
_DATED: Final = frozenset({"ended", "unheard"})
"""Healths of which the ranks themselves tell since when: it need not be first seen here."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged frame, and what to look at next to know more."""

    frame: Frame
    looks: tuple[Wanted, ...] = ()
    ops: tuple[WantedOps, ...] = ()


class Engine:
    """Judges the frames of one job in order; another job begins anew."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, job: JobKey | None) -> None:
        self._job = job
        self._suspicions = Suspicions()
        self._found = Found()
        self._partings = Partings()
        self._inquiry = Inquiry()
        self._before: Before | None = None
        self._health: Health | None = None
        self._since_ns = 0

    def judge(self, frame: Frame) -> Judgement:
        """Fills in what only the comparison of ranks tells."""
        job = job_key(frame.job) if frame.job is not None else None
        if job != self._job:
            self._begin(job)
        if not frame.ranks:
            return Judgement(frame)
        by_stacks = judged_by_stacks(frame)
        if by_stacks is not None:
            return Judgement(by_stacks)
        parted = self._partings.judge(frame)
        self._found.keep(parted.found)
        case = Case(frame, self._suspicions, self._found)
        found = (*case.verdicts(), *parted.verdicts)[:MOST_VERDICTS]
        self._suspicions.forget(frame.now_ns)
        late = {
            rank: verdict.since_ns
            for verdict in reversed(found)
            if verdict.kind == "not_entered"
            for rank in verdict.culprits
        }
        waits = [] if found else lasting(case.points.all.values(), frame.now_ns)
        deaths = deaths_of(frame.ranks)
        verdicts, before = found, tuple[str, ...]()
        if deaths.some and self._before is not None:
            verdicts, before = story(self._before, found, deaths)
        health = health_of(frame.health, verdicts, waiting=bool(waits))
        judged = replace(
            frame,
            health=health,
            since_ns=self._since(health, verdicts, waits, frame),
            ranks=judged_ranks(frame.ranks, case.waits, late, frame.now_ns),
            groups=judged_groups(frame.groups, frame.ranks, case.waits, frame.now_ns),
            verdicts=verdicts,
            notes=(*before, *lasting_texts(waits, frame.now_ns), *case.notes(found)),
        )
        if not deaths.some:
            self._before = last_said(self._before, judged)
        order = in_question(found, case.suspicious(), case.uneven())
        looks = self._inquiry.wanted(frame.ranks, order, found, frame.now_ns)
        autopsies = self._inquiry.autopsies(frame.ranks, case.unopened(), frame.now_ns)
        return Judgement(judged, (*looks, *autopsies), parted.wanted)

    def _since(
        self, health: Health, verdicts: Sequence[Verdict], waits: Sequence[Point], frame: Frame
    ) -> int:
        """Since when it has been so: by what happened, else when it was first seen."""
        if health != self._health:
            self._health = health
            self._since_ns = frame.now_ns
        if verdicts and verdicts[0].since_ns:
            return verdicts[0].since_ns
        if all(view.dumped for view in frame.ranks.values()):
            return 0  # first seen when the file was read
        if health == "waiting":
            return waits[0].since_ns
        return frame.since_ns if health in _DATED else self._since_ns


def health_of(before: Health, verdicts: Sequence[Verdict], *, waiting: bool) -> Health:
    """The job's health by its first verdict, else as it was `before` anybody judged."""
    if not verdicts and waiting and before in ("healthy", "starting"):
        return "waiting"
    if not verdicts:
        return "ended" if before == "dead" else before
    first = verdicts[0]
    if first.kind == "dead":
        return "dead"
    if first.kind == "mismatch":
        return "diverged"
    if first.kind == "undecided":
        return "undecided"
    hung = first.confidence == "confirmed" and first.progress == "none"
    return "hung" if hung else "held up"
