"""Nobody is in any op: whether something outside of the job keeps all ranks for good.

Storage that is gone stops all loaders in the same step, and no rank is left to wait for
another: no wait leads to a culprit. So each rank answers for itself, and all have to be kept:
one that is elsewhere may be whom the others wait for. As nobody waits, nobody is in a hurry to
say so, and what also keeps a rank that has nothing to do (a queue, a socket, a sleep, a lock)
proves nothing. Nor do writes: a sync of a checkpoint takes its time in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.absence import absence_of, loader
from frtop_tui.diagnosis.blame import EXPLAINED, Blame, Culprits, blame
from frtop_tui.diagnosis.memory import Suspicions
from frtop_tui.diagnosis.phrases import last_op_evidence, who
from frtop_tui.diagnosis.progress import progress_of
from frtop_tui.diagnosis.survey import Survey
from frtop_tui.diagnosis.waiting import WITHOUT_HISTORY_NS, last_activity_ns
from frtop_tui.job.model import Frame, Posture, RankView, Verdict
from frtop_tui.job.naming import duration, folded

QUIET_NS: Final = WITHOUT_HISTORY_NS
"""So long nobody has issued an op before anybody is looked at."""
HUNG_NS: Final = 60_000_000_000
STILL_NS: Final = 4_000_000_000
"""So long it has to go on that all are kept, in looks."""
UNSEEN_NS: Final = 15_000_000_000
"""Looks that have not come by then may never come."""
OPEN_AGAIN_NS: Final = 2_200_000_000
"""Two looks have to be 2 s apart to be compared."""
NEAR_NS: Final = 6_000_000_000
"""What looks that are further apart tell may be over since the first of them."""
KEPT_AGAIN_NS: Final = 5_000_000_000
FREE_AGAIN_NS: Final = 30_000_000_000
"""A server may be at rest for days."""
_OVER: Final[tuple[Posture, ...]] = ("dead", "done")
_UNKNOWN: Final[tuple[Posture, ...]] = ("unheard", "starting")
_WRITES: Final = ("write", "pwrite", "fsync", "fdatasync", "sync", "msync")

State = Literal[
    "kept",  # for good, as far as looks tell
    "open",  # another look will tell
    "free",  # it gets on, or is where one may rest
]


@dataclass(frozen=True, slots=True)
class Outside:
    """What there is to say of a job of which nobody is in an op, and whom to look at.

    `open_since_ns` is since when, as long as looks may yet tell that it is hung; else 0.
    """

    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    wanted: tuple[int, ...] = ()
    open_since_ns: int = 0


def outside(frame: Frame, survey: Survey, suspicions: Suspicions) -> Outside:
    """Nothing of a job in which somebody is in an op, or was of late, or is not known."""
    since_ns = max((group.issued_ns for group in frame.groups), default=0)
    if not since_ns or frame.now_ns - since_ns < QUIET_NS or not _nobody_waits(survey):
        return Outside()
    living = [view for view in survey.views.values() if view.posture not in _OVER]
    # Of very many, some from everywhere.
    asked = living[:: -(-len(living) // EXPLAINED) or 1]
    if not asked or not _rest(asked, frame.now_ns - QUIET_NS):
        return Outside()
    return _Inquest(frame, since_ns, living, asked).result(suspicions)


def _nobody_waits(survey: Survey) -> bool:
    """Whether all ranks are known as they are now, and nobody waits for another."""
    if survey.deaths.some or any(survey.postures.get(posture) for posture in _UNKNOWN):
        return False
    if any(not wait.side for wait in survey.waits.values()):
        return False
    views = survey.views.values()
    first = next(iter(views))
    return len(views) >= first.identity.job.world_size and not any(v.dumped for v in views)


def _rest(views: Sequence[RankView], since_ns: int) -> bool:
    """Whether none of them has done anything since."""
    return all(last_activity_ns(view) + view.clock_ns <= since_ns for view in views)


class _Inquest:
    """All that `asked`, some of those `living`, have to say, who were in no op `since_ns`."""

    def __init__(
        self, frame: Frame, since_ns: int, living: Sequence[RankView], asked: Sequence[RankView]
    ) -> None:
        self._frame = frame
        self._now_ns = frame.now_ns
        self._since_ns = since_ns
        self._living = living
        self._asked = asked
        states = {self._state(view) for view in asked}
        self._together: State = (
            "free" if "free" in states else "open" if "open" in states else "kept"
        )

    def result(self, suspicions: Suspicions) -> Outside:
        """What comes of it."""
        now_ns, verdicts = self._now_ns, tuple[Verdict, ...]()
        if self._together == "kept" and self._is_confirmed(suspicions):
            verdicts = self._verdicts()
        elif self._together == "open" and suspicions.confirms(
            "open outside", now_ns, now_ns, UNSEEN_NS
        ):
            self._together = "free"  # for all that can be seen
        is_open = self._together != "free" and not verdicts
        pace_ns = OPEN_AGAIN_NS if is_open else KEPT_AGAIN_NS if verdicts else FREE_AGAIN_NS
        notes = () if verdicts else (self._note(),)
        return Outside(verdicts, notes, self._wanted(pace_ns), self._since_ns if is_open else 0)

    def _state(self, view: RankView) -> State:
        if view.posture == "stopped":
            return "kept"
        if not self._seen_since(view.look, view):
            return "open"
        if not self._is_kept(view, absence_of(view, self._now_ns).why.cause):
            return "free"
        if not self._seen_since(view.prior_look, view):
            return "open"
        return "kept" if progress_of(view, self._now_ns)[0] == "none" else "free"

    def _seen_since(self, look: wire.Look | None, view: RankView) -> bool:
        return look is not None and look.at_ns + view.clock_ns > self._since_ns

    def _is_kept(self, view: RankView, cause: str) -> bool:
        """Whether it is at what is no rest for anybody, by what the kernel says as well."""
        if cause == "store":
            # Of very many, one that was not looked at may have to set the key.
            return len(self._living) == len(self._asked) and places.polls(view.process)
        if cause == "dataloader":
            return _reads(loader(view))
        return cause == "gil" or (cause == "file_io" and _reads(view.process))

    def _is_confirmed(self, suspicions: Suspicions) -> bool:
        stamps = (
            view.look.at_ns + view.clock_ns if view.look is not None else self._now_ns
            for view in self._asked
        )
        still = suspicions.confirms("kept outside", min(stamps), self._now_ns, STILL_NS)
        long = self._now_ns - self._since_ns >= HUNG_NS
        return still and long and _rest(self._living, self._now_ns - QUIET_NS)

    def _wanted(self, pace_ns: int) -> tuple[int, ...]:
        """Whom to look at next, first who was looked at longest ago."""
        due: dict[int, int] = {}
        for view in self._asked:
            if view.look is None and self._together == "free":
                continue
            at_ns = view.look.at_ns + view.clock_ns if view.look is not None else 0
            if self._now_ns - at_ns > (OPEN_AGAIN_NS if self._is_vague(view) else pace_ns):
                due[view.rank] = at_ns
        return tuple(sorted(due, key=due.__getitem__))

    def _is_vague(self, view: RankView) -> bool:
        """Whether its looks are so far apart that what it did may be over since."""
        look, prior = view.look, view.prior_look
        if look is None or not self._is_kept(view, absence_of(view, self._now_ns).why.cause):
            return False
        return prior is None or look.at_ns - prior.at_ns > NEAR_NS

    def _note(self) -> str:
        """What one of them does, where that is no verdict: of one that is not kept, if any."""
        text = f"nobody is in an op, and none was issued for {self._age}"
        seen = [view for view in self._asked if view.look is not None]
        if seen:
            view = next((v for v in seen if self._state(v) == self._together), seen[0])
            text += f"; rank {view.rank}: {absence_of(view, self._now_ns).why.text}"
        return text

    def _verdicts(self) -> tuple[Verdict, ...]:
        """One for each cause."""
        views = self._frame.ranks
        found = blame(views, [view.rank for view in self._asked], self._now_ns)
        return tuple(self._verdict(culprits, found) for culprits in found.culprits)

    def _verdict(self, culprits: Culprits, found: Blame) -> Verdict:
        absence, ranks, views = culprits.absence, culprits.ranks, self._frame.ranks
        evidence = [*absence.evidence, culprits.progress[1], *last_op_evidence(views, ranks)]
        if found.kept:
            evidence.append(f"{folded(found.kept)} in no op either: kept by a lock or a store")
        if others := len(self._living) - len(self._asked):
            evidence.append(f"{others:,} more ranks are in no op either; they were not looked at")
        nowhere = "gets nowhere" if len(ranks) == 1 else "get nowhere"
        return Verdict(
            kind="not_entered",
            confidence="confirmed",
            progress="none",
            culprits=ranks,
            headline=(
                f"nobody is in an op, and none was issued for {self._age}:"
                f" {who(views, ranks)} {nowhere}"
            ),
            why=absence.why,
            next=absence.next,
            since_ns=self._since_ns,
            evidence=tuple(evidence),
            missing=absence.missing,
        )

    @property
    def _age(self) -> str:
        return duration((self._now_ns - self._since_ns) / 1e9)


def _reads(process: wire.Process | None) -> bool:
    """Whether a process is in a file, other than to write to it; or is stopped."""
    if process is None:
        return False
    if process.state in "Tt":
        return True
    in_file = places.classify(None, process).kind == "file_io"
    return in_file and not places.system_call(process).startswith(_WRITES)
