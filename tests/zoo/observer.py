"""Observes one program frame by frame, and compares what frtop says with the ground truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from frtop_tui.diagnosis.model import Frame, Verdict
from zoo.details import details
from zoo.ground_truth import Case, Mode, headlines
from zoo.outcomes import (
    NO_DATA,
    OutcomeClass,
    of_control,
    of_fault,
    why_not_right,
    wrong_claim,
)

STABLE_S: Final = 2.0
"""Time in s for which verdicts must not change."""
START_S: Final = 60.0
SETTLED_S: Final = 6.0
"""Time in s after which a verdict that is less exact, or wrong, is taken for the last one."""
SEEN_S: Final = 10.0
"""Time in s after which a job may begin although not all of its ranks were seen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. Times are in s after the fault; None means never.

    `failure` is "" if all verdicts were right. Without the recorder it is "" unless one was
    wrong; `reached`, `reason` and `details` say the rest.
    """

    failure: str
    name: str = ""
    mode: Mode = "sync"
    who_s: float | None = None
    confirmed_s: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    health: str = ""
    dumps: Path | None = None  # Flight Recorder dumps of the same job, if requested
    log: str = ""
    reached: OutcomeClass | str = ""
    reason: str = ""
    details: str = ""


class Observer:
    """Checks one program frame by frame."""

    def __init__(
        self, case: Case, folder: Path, frame: Callable[[], Frame], running: Callable[[], bool]
    ) -> None:
        self._case, self._folder = case, folder
        self._frame, self._running = frame, running
        self._false_claim = ""

    def fault(self) -> Outcome:
        """Observes a fault until all verdicts are right and stable, or time is up."""
        case, began = self._case, time.monotonic()
        who: float | None = None
        confirmed: float | None = None
        frame = self._frame()
        while True:
            fault_time = self._fault_time_s()
            now = time.monotonic()
            if now - (fault_time or began) > (case.within_s if fault_time else START_S):
                break
            if confirmed is not None and now - (fault_time or began) - confirmed > STABLE_S:
                break
            if fault_time is None and not self._running():
                self._false_claim = self._false_claim or "ended before the fault"
                break
            frame = self._next(frame)
            elapsed = time.monotonic() - fault_time if fault_time else 0.0
            self._check(frame, early=fault_time is None)
            if case.identified(frame.verdicts):
                who = elapsed if who is None else who
                if case.confirmed(frame.verdicts):
                    confirmed = elapsed if confirmed is None else confirmed
                else:
                    confirmed = None
            else:
                who = confirmed = None
        failure = self._false_claim
        if not case.confirmed(frame.verdicts):
            failure = "; ".join(filter(None, [failure, case.mistakes(frame.verdicts)]))
        elif confirmed is None:
            failure = "; ".join(filter(None, [failure, "too late"]))
        return Outcome(
            failure,
            who_s=who,
            confirmed_s=confirmed,
            verdicts=frame.verdicts,
            health=frame.health,
        )

    def control(self) -> Outcome:
        """Observes a healthy control for `lasts_s` after it is first seen, or until it ends."""
        end = time.monotonic() + START_S
        frame, seen = self._frame(), False
        verdicts: tuple[Verdict, ...] = ()
        while time.monotonic() < end:
            frame = self._next(frame)
            if frame.ranks and not seen:
                seen, end = True, time.monotonic() + self._case.lasts_s
            verdicts = frame.verdicts or verdicts
            if not self._false_claim and (wrong := self._case.false_claim(frame)):
                self._false_claim = wrong
            if seen and not self._running():
                end = min(end, time.monotonic() + STABLE_S)
        failure = self._false_claim
        if not seen:
            failure = failure or "never seen"
        elif frame.health in NO_DATA:
            failure = failure or f"no data at the end: {frame.health}"
        elif self._case.allowed and self._fault_time_s() is None:
            failure = failure or "its event did not happen"
        return Outcome(failure, verdicts=verdicts, health=frame.health)

    def _next(self, before: Frame) -> Frame:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if (frame := self._frame()) is not before:
                return frame
            time.sleep(0.02)
        return self._frame()

    def _check(self, frame: Frame, *, early: bool) -> None:
        """Records a wrong claim; before the fault, any verdict is wrong."""
        if self._false_claim:
            return
        if wrong := self._case.false_claim(frame):
            self._false_claim = wrong
        elif early and frame.verdicts and self._fault_time_s() is None:
            self._false_claim = f"before the fault: {headlines(frame.verdicts)}"

    def _fault_time_s(self) -> float | None:
        with suppress(OSError, ValueError):
            return int((self._folder / "fault").read_text()) / 1e9
        return None


class UnpreparedObserver(Observer):
    """Checks a program without the recorder, where frtop may also stay undecided.

    Times are those after the fault, or after frtop came if that was later.
    """

    def __init__(
        self, case: Case, folder: Path, frame: Callable[[], Frame], running: Callable[[], bool]
    ) -> None:
        super().__init__(case, folder, frame, running)
        self._came = time.monotonic()
        self._wrong_at = 0.0
        self._details = ""
        self._seen = False

    def fault(self) -> Outcome:
        case = self._case
        since: dict[OutcomeClass, float] = {}
        who: float | None = None
        frame, reached, ended = self._frame(), of_fault(case, self._frame()), 0.0
        while True:
            fault_time, now = self._fault_time_s(), time.monotonic()
            origin = max(fault_time or 0.0, self._came)
            if now - origin > (case.within_s if fault_time else START_S):
                break
            if self._is_settled(since, now) or (ended and now - ended > SETTLED_S):
                break
            if not self._running():
                ended = ended or now
            frame = self._take(frame, early=fault_time is None)
            before, reached = reached, of_fault(case, frame)
            elapsed = time.monotonic() - origin if fault_time else 0.0
            if reached != before or reached not in since:
                since = {reached: time.monotonic()}
            identified = case.identified(frame.verdicts)
            who = (elapsed if who is None else who) if identified else None
        confirmed = since["right"] - origin if "right" in since else None
        reason = why_not_right(case, frame, reached)
        if reached == "undecided" and ended and not frame.ranks:
            reason = "ended before it was seen"
        return self._outcome(frame, reached, reason, who, confirmed)

    def control(self) -> Outcome:
        end = time.monotonic() + START_S
        frame, seen = self._frame(), False
        verdicts: tuple[Verdict, ...] = ()
        while time.monotonic() < end and not self._is_settled({}, time.monotonic()):
            frame = self._take(frame, early=False)
            if frame.ranks and not seen:
                seen, end = True, time.monotonic() + self._case.lasts_s
            verdicts = frame.verdicts or verdicts
            if not self._running():
                end = min(end, time.monotonic() + STABLE_S)
        reached = of_control(frame)
        reason = why_not_right(self._case, frame, reached)
        if not seen:
            reached, reason = "undecided", "never seen"
        elif self._case.allowed and self._fault_time_s() is None:
            reached, reason = "undecided", "its event did not happen"
        return replace(self._outcome(frame, reached, reason), verdicts=verdicts)

    def _take(self, before: Frame, *, early: bool) -> Frame:
        frame = self._next(before)
        if not self._seen and self._is_seen(frame):
            self._seen = True
            (self._folder / "seen").touch()
        # The fault may have happened while the frame was on its way.
        early = early and self._fault_time_s() is None
        if not self._false_claim and (wrong := wrong_claim(self._case, frame, early=early)):
            self._false_claim, self._wrong_at = wrong, time.monotonic()
            self._details = details(frame)
        return frame

    def _is_seen(self, frame: Frame) -> bool:
        if time.monotonic() - self._came > SEEN_S:
            return True
        return len(frame.ranks) >= self._case.ranks and all(
            rank.groups for rank in frame.ranks.values()
        )

    def _is_settled(self, since: dict[OutcomeClass, float], now: float) -> bool:
        if self._wrong_at and now - self._wrong_at > SETTLED_S:
            return True
        limits: dict[OutcomeClass, float] = {"right": STABLE_S, "less exact": SETTLED_S}
        return any(kind in since and now - since[kind] > s for kind, s in limits.items())

    def _outcome(
        self,
        frame: Frame,
        reached: OutcomeClass,
        reason: str,
        who: float | None = None,
        confirmed: float | None = None,
    ) -> Outcome:
        text = "" if reached == "right" else details(frame)
        return Outcome(
            self._false_claim,
            who_s=who,
            confirmed_s=confirmed,
            verdicts=frame.verdicts,
            health=frame.health,
            reached="wrong" if self._false_claim else reached,
            reason=self._false_claim or reason,
            details="\nat the end: ".join(filter(None, (self._details, text))),
        )
