"""Nobody is in any op: whether something outside of the job keeps all ranks for good.

Storage that is gone stops all loaders in the same step, and no rank is left to wait for
another: no wait leads to a culprit. So each rank answers for itself. What also keeps a server
that has no work (a queue, a socket, a sleep) proves nothing here, as nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from frtop_tui.diagnosis.absence import absence_of, loader_place
from frtop_tui.diagnosis.blame import EXPLAINED, Culprits, blame
from frtop_tui.diagnosis.certainty import CERTAIN
from frtop_tui.diagnosis.inquiry import SUSPECTS_PER_POINT
from frtop_tui.diagnosis.memory import Suspicions, is_second_look_due, look_stamp
from frtop_tui.diagnosis.phrases import last_op_evidence, who
from frtop_tui.diagnosis.survey import Survey
from frtop_tui.diagnosis.waiting import WITHOUT_HISTORY_NS, last_activity_ns
from frtop_tui.job.model import Frame, Posture, RankView, Verdict
from frtop_tui.job.naming import duration

KEEPS: Final = frozenset({"file_io", "gil", "stopped", "store"})
"""Causes that are no rest, whoever waits or does not; so are fetches, mostly."""
_RESTS: Final = frozenset({"idle", "input", "pipe", "sleeping", "socket"})
"""Where a loader may be that has nothing to load yet: data may come from elsewhere as it arises."""
_OVER: Final[tuple[Posture, ...]] = ("dead", "done")
_UNKNOWN: Final[tuple[Posture, ...]] = ("unheard", "starting")


class Outside:
    """The ranks of a frame, if they have all been outside of ops for long; else nobody."""

    def __init__(self, frame: Frame, survey: Survey) -> None:
        self._frame = frame
        self._views: Mapping[int, RankView] = survey.views
        self.since_ns = max((group.issued_ns for group in frame.groups), default=0)
        self.ranks: tuple[int, ...] = ()
        """The first of those that live; more are not looked into."""
        self._living = len(survey.views) - sum(len(survey.postures.get(p, ())) for p in _OVER)
        self.is_open = False
        """Whether the next looks may tell that they get nowhere."""
        if self.since_ns and self._is_long(self.since_ns) and self._is_known(survey):
            self.ranks = self._at_rest()

    def verdicts(self, suspicions: Suspicions) -> list[Verdict]:
        """For each cause one, once it is confirmed that all of them get nowhere."""
        asked = self.ranks
        if not asked:
            return []
        found = blame(self._views, asked, self._frame.now_ns)
        every = found.culprits
        named = {rank for culprits in every for rank in culprits.ranks}
        kept = named | {*found.kept} == {*asked} and all(map(self._is_kept, every))
        still = all(culprits.progress[0] == "none" for culprits in every)
        first = [self._views[rank] for rank in asked[:SUSPECTS_PER_POINT]]
        unseen = any(view.look is None for view in first)
        self.is_open = unseen or (kept and (still or is_second_look_due(first)))
        if not (kept and still):
            return []
        sure = [self._is_confirmed(culprits, suspicions) for culprits in every]
        return [*map(self._verdict, every)] if all(sure) else []

    def notes(self) -> tuple[str, ...]:
        """What the first of them does, where that is no verdict."""
        views = map(self._views.__getitem__, self.ranks)
        seen = next((view for view in views if view.look is not None), None)
        text = f"nobody is in an op, and none was issued for {self._age}"
        if seen is not None:
            text += f"; rank {seen.rank}: {absence_of(seen, self._frame.now_ns).why.text}"
        return (text,) if self.ranks else ()

    @property
    def _age(self) -> str:
        return duration((self._frame.now_ns - self.since_ns) / 1e9)

    def _is_long(self, since_ns: int) -> bool:
        return self._frame.now_ns - since_ns > WITHOUT_HISTORY_NS

    def _is_known(self, survey: Survey) -> bool:
        """Whether all ranks are known as they are now, and nobody waits for another."""
        if survey.deaths.some or any(survey.postures.get(posture) for posture in _UNKNOWN):
            return False
        if any(not wait.side for wait in survey.waits.values()):
            return False
        first = next(iter(self._views.values()))
        return not first.dumped and len(self._views) >= first.identity.job.world_size

    def _at_rest(self) -> tuple[int, ...]:
        """The first of those that live; nobody, if one of them has done anything of late."""
        living = (view for view in self._views.values() if view.posture not in _OVER)
        first = [*islice(living, EXPLAINED)]
        moved = (last_activity_ns(view) + view.clock_ns for view in first)
        return tuple(view.rank for view in first) if all(map(self._is_long, moved)) else ()

    def _is_kept(self, culprits: Culprits) -> bool:
        cause = culprits.absence.why.cause
        if cause != "dataloader":
            return cause in KEEPS
        loaders = (loader_place(self._views[rank]) for rank in culprits.ranks)
        return all(place is None or place.kind not in _RESTS for place in loaders)

    def _is_confirmed(self, culprits: Culprits, suspicions: Suspicions) -> bool:
        views = [self._views[rank] for rank in culprits.ranks[:SUSPECTS_PER_POINT]]
        now = self._frame.now_ns
        stamp = now if culprits.absence.why.cause in CERTAIN else look_stamp(views)
        return stamp is not None and suspicions.confirms(("outside", culprits.ranks), stamp, now)

    def _verdict(self, culprits: Culprits) -> Verdict:
        absence, ranks = culprits.absence, culprits.ranks
        evidence = [*absence.evidence, culprits.progress[1]]
        evidence += last_op_evidence(self._views, ranks)
        if others := self._living - len(self.ranks):
            evidence.append(f"{others:,} more ranks are in no op either; they were not looked at")
        return Verdict(
            kind="not_entered",
            confidence="confirmed",
            progress="none",
            culprits=ranks,
            headline=(
                f"nobody is in an op, and none was issued for {self._age}:"
                f" {who(self._views, ranks)} {_get(ranks)} nowhere"
            ),
            why=absence.why,
            next=absence.next,
            since_ns=self.since_ns,
            evidence=tuple(evidence),
            missing=absence.missing,
        )


def _get(ranks: Sequence[int]) -> str:
    return "gets" if len(ranks) == 1 else "get"
