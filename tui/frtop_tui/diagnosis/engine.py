"""The judge: from a frame to who is waited for, why, and whether it is hung.

Reasons by cause: what follows from a named root is no verdict of its own. Pure apart from
what has to be remembered between frames (`Memory`): who was suspected when, and what was so
before somebody died. What else is kept from frame to frame only saves work: from the same
frame and the same memory an engine that saw all frames before and a new one come to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.annotate import Annotator
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.detectors.detect import Case
from frtop_tui.diagnosis.detectors.long_waits import lasting, lasting_texts
from frtop_tui.diagnosis.detectors.mismatch.checksums import OpsRequest
from frtop_tui.diagnosis.detectors.stacks_only import judge_stacks_only
from frtop_tui.diagnosis.detectors.stalled_outside_ops import OutsideOps, outside
from frtop_tui.diagnosis.graph.wait_graph import WaitGraph
from frtop_tui.diagnosis.history.before_death import last_said, story
from frtop_tui.diagnosis.history.false_alarms import hung_findings
from frtop_tui.diagnosis.history.memory import Memory
from frtop_tui.diagnosis.look_requests import LookRequest, in_question
from frtop_tui.diagnosis.model import Frame, Verdict, judged_frame, unjudged
from frtop_tui.job.model import Health, ObservedFrame
from frtop_tui.job.naming import job_key

__all__ = ["Engine", "Judgement", "LookRequest", "OpsRequest"]

MOST_VERDICTS = 8
QUIET_NS: Final = 1_000_000_000
"""An agent speaks several times a second."""
_DATED: Final = frozenset({"ended", "unheard"})
"""Healths of which the ranks themselves tell since when: it need not be first seen here."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged frame, and what to look at next to know more."""

    frame: Frame
    looks: tuple[LookRequest, ...] = ()
    ops: tuple[OpsRequest, ...] = ()


class Engine:
    """Judges the frames of one job in order; another job begins anew."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory if memory is not None else Memory()
        self._begin()

    def _begin(self) -> None:
        self._survey = RankIndex()
        self._points = WaitGraph(self._survey)
        self._light = Annotator(self._survey)
        self._now_ns = 0

    def judge(self, frame: ObservedFrame) -> Judgement:
        """Fills in what only the comparison of ranks tells."""
        job = job_key(frame.job) if frame.job is not None else None
        memory = self.memory
        if job != memory.job:
            memory = self.memory = Memory(job)
            self._begin()
        if not frame.ranks:
            return Judgement(unjudged(frame))
        by_stacks = judge_stacks_only(frame)
        if by_stacks is not None:
            return Judgement(by_stacks)
        if frame.now_ns < self._now_ns:
            self._begin()  # what time made of waits is kept as well, and does not go back
        self._now_ns = frame.now_ns
        memory.false_alarms.learn(frame.ranks)
        parted = memory.partings.judge(frame)
        memory.found.keep(parted.found)
        self._survey.update(frame.ranks)
        self._points.update(frame.now_ns, _quiet(frame))
        case = Case(frame, self._survey, self._points, memory)
        found, at_rest = (*case.verdicts(), *parted.verdicts), OutsideOps()
        if frame.recorded is None and all(verdict.kind == "mismatch" for verdict in found):
            at_rest = outside(frame, self._survey, memory.rest)
        found = (*found[: MOST_VERDICTS - len(at_rest.verdicts)], *at_rest.verdicts)
        memory.suspicions.forget(frame.now_ns)
        for verdict in hung_findings(found):
            ripe = self._points.overdue(frame.now_ns)
            memory.false_alarms.record(
                p for p in ripe if not set(verdict.culprits).isdisjoint(p.free)
            )
        late = {
            rank: verdict.since_ns
            for verdict in reversed(found)
            if verdict.kind == "not_entered"
            for rank in verdict.culprits
        }
        waits = [] if found else lasting(self._points, frame.now_ns)
        deaths = self._survey.deaths
        verdicts, before = found, tuple[str, ...]()
        if deaths.some and memory.before is not None:
            verdicts, before = story(memory.before, found, deaths)
        waiting = waits[0].since_ns if waits else at_rest.open_since_ns
        health = health_of(frame.health, verdicts, waiting=bool(waits or waiting))
        judged = judged_frame(
            frame,
            self._light.ranks(frame, late),
            health=health,
            since_ns=self._since(health, verdicts, waiting, frame),
            groups=self._light.groups(frame),
            verdicts=verdicts,
            notes=(
                *before,
                *lasting_texts(waits, frame.now_ns),
                *case.notes(found),
                *at_rest.notes,
            ),
        )
        if not deaths.some:
            memory.before = last_said(memory.before, judged)
        order = in_question(
            found, case.suspicious(), (*case.ranks_needing_stacks(), *at_rest.wanted)
        )
        looks = memory.inquiry.wanted(frame.ranks, order, found, frame.now_ns)
        autopsies = memory.inquiry.autopsies(frame.ranks, case.unopened(), frame.now_ns)
        return Judgement(judged, (*looks, *autopsies), parted.wanted)

    def _since(
        self, health: Health, verdicts: Sequence[Verdict], waiting_ns: int, frame: ObservedFrame
    ) -> int:
        """Since when it has been so: by what happened, else when it was first seen."""
        memory = self.memory
        if health != memory.health:
            memory.health, memory.since_ns = health, frame.now_ns
        if verdicts and verdicts[0].since_ns:
            return verdicts[0].since_ns
        if all(view.dumped for view in frame.ranks.values()):
            return 0  # first seen when the file was read
        if health == "waiting":
            return waiting_ns
        return frame.since_ns if health in _DATED else memory.since_ns


def _quiet(frame: ObservedFrame) -> dict[str, int]:
    """Hosts that have not been heard for a moment, and when they were last."""
    return {
        host.name: host.heard_ns
        for host in frame.hosts
        if host.heard_ns and frame.now_ns - host.heard_ns > QUIET_NS
    }


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
