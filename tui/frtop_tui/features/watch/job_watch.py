"""Watches one job: suspects, confirms, captures, reports. One step per frame."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.features.watch.capture_folder import CaptureFolder
from frtop_tui.features.watch.deliveries import Deliveries
from frtop_tui.features.watch.episodes import Decision, Episodes
from frtop_tui.features.watch.history import CulpritHistory
from frtop_tui.features.watch.job_end import local_names, plan_end
from frtop_tui.features.watch.job_file import JobFile
from frtop_tui.features.watch.lines import about, beside, event_of, variables_of
from frtop_tui.features.watch.offenders import DAY_S, DAYS, culprits_now, said_before
from frtop_tui.job.model import Writing
from frtop_tui.text.alarm import is_alarm

CAPTURE_NS: Final = 60_000_000_000
"""A capture that takes longer has failed: the report no longer waits for it."""


@dataclass(slots=True)
class Plan:
    """What the operator wants for every job."""

    every_s: float
    before_s: float
    captures: CaptureFolder | None
    dry_run: bool = False
    kill: bool = False
    slow: bool = False  # whether slow jobs are captured and reported, too


@dataclass(slots=True)
class _Capture:
    """A capture for a decision. `asked_ns`: when the source was asked for it, 0: not yet."""

    decision: Decision
    event: dict[str, Any]
    asked_ns: int = 0


class JobWatch:
    """Follows one job. `say` gets the lines; `frame` is the newest frame."""

    def __init__(
        self,
        source: Source,
        file: JobFile,
        plan: Plan,
        deliveries: Deliveries,
        *,
        history: CulpritHistory,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        self.frame: Frame | None = None
        self._file = file
        self._plan = plan
        self._deliveries = deliveries
        self._say = say
        self._history = history
        self._captures: deque[_Capture] = deque()
        self._trouble = ""
        self._announced = False
        self._source = source
        self._episodes = Episodes(
            file.load(), every_s=plan.every_s, before_s=plan.before_s, slow=plan.slow
        )

    @property
    def busy(self) -> bool:
        """Whether a capture is under way or due."""
        return bool(self._captures)

    @property
    def is_through(self) -> bool:
        """Whether the job has ended, and everything about it was reported."""
        if self.frame is None or self.busy:
            return False
        if any(
            not one.over and one.stage != "delivered" for one in self._episodes.reports.values()
        ):
            return False
        return self.frame.health == "ended" or is_alarm(self.frame)

    def use(self, source: Source) -> None:
        """Continues with another source of the same job, after the previous one failed."""
        if source is not self._source:
            self._source = source
            for one in self._captures:
                one.asked_ns = 0

    def step(self) -> None:
        """Takes the newest frame, and acts on it."""
        frame = self._source.frame()
        if frame is self.frame:
            return
        self.frame = frame
        if frame.job is None:
            return
        if not self._announced:
            self._announced = True
            self._say({"event": "watching", **about(frame), "ranks": len(frame.ranks)})
        decisions = self._episodes.judge(frame)
        for decision in decisions:
            self._take(frame, decision)
        if decisions:
            self._save()
        self._update_capture(frame)

    def _take(self, frame: Frame, decision: Decision) -> None:
        event = event_of(frame, decision)
        if decision.what == "confirmed" and decision.verdict is not None:
            event |= {"beside": beside(frame), "before": self._note(frame, decision.verdict)}
        if decision.what != "resumed":
            self._say(event)
        else:
            event["event"] = "confirmed"  # its recipients were not notified yet
        if decision.what in ("early", "confirmed", "resumed"):
            self._captures.append(_Capture(decision, event))

    def _note(self, frame: Frame, verdict: Verdict) -> list[str]:
        """What the history says about the culprits; then adds them to it."""
        history = self._history
        known = history.since(frame.wall_ns / 1e9 - DAYS * DAY_S)
        problems = [history.problem]
        if not self._plan.dry_run and (rows := culprits_now(frame, verdict)):
            history.add(rows)
            problems.append(history.problem)
        for problem in filter(None, problems):
            self._say({"event": "trouble", "problem": problem})
        return said_before(known, frame, verdict)

    def _update_capture(self, frame: Frame) -> None:
        """Asks for the next capture, or checks whether the current one is done."""
        if not self._captures:
            return
        one = self._captures[0]
        now_ns = time.monotonic_ns()
        known = self._episodes.reports.get(one.decision.cause)
        if one.decision.what == "resumed" and known is not None and known.stage == "captured":
            self._captured(frame, one, known.capture)
        elif self._plan.captures is None:
            self._captured(frame, one, "")
        elif self._plan.dry_run:
            about_job = {"cause": one.decision.cause, "job": one.event.get("job")}
            self._say({"event": "captured", **about_job, "dry_run": True})
            self._captured(frame, one, "")
        elif not one.asked_ns:
            one.asked_ns = now_ns
            self._source.capture(self._plan.captures.new_path(frame), automatic=True)
        elif (writing := _written_since(frame, one.asked_ns)) is not None:
            self._say(self._about_capture(one, writing, now_ns))
            self._captured(frame, one, writing.path if writing.state == "written" else "")
            self._make_room(self._plan.captures, writing.path)
        elif now_ns - one.asked_ns > CAPTURE_NS:
            late = Writing("capture", "failed", "")
            self._say(self._about_capture(one, late, now_ns))
            self._captured(frame, one, "")

    def _make_room(self, folder: CaptureFolder, newest: str) -> None:
        """Removes old captures, but none of this job's open episodes."""
        lasting = [one.capture for one in self._episodes.reports.values() if not one.over]
        removed = folder.make_room([newest, *lasting])
        if removed.paths:
            self._say({"event": "removed", "what": list(removed.paths)})
        if removed.problem:
            self._say({"event": "trouble", "problem": removed.problem})

    def _about_capture(self, one: _Capture, writing: Writing, now_ns: int) -> dict[str, Any]:
        ok = writing.state == "written"
        known = {
            "event": "captured", "cause": one.decision.cause, "job": one.event.get("job"),
            "ok": ok, "path": writing.path, "size": writing.size,
            "early": one.decision.what == "early",
            "took_s": round((now_ns - one.asked_ns) / 1e9, 1),
        }  # fmt: skip
        if writing.problem is not None:
            known["missing" if ok else "problem"] = str(writing.problem)
        elif not ok:
            known["problem"] = "no outcome in time"
        return known

    def _captured(self, frame: Frame, one: _Capture, path: str) -> None:
        """Sends the report, with the capture if there is one."""
        self._captures.popleft()
        cause = one.decision.cause
        if one.decision.what == "early":
            known = self._episodes.reports.get(cause)
            if known is not None:
                known.capture = path or known.capture
            self._save()
            return
        self._episodes.reach(cause, "captured", path)
        self._save()
        # Noted before the command starts: one that ends this watcher must not run again and again.
        self._episodes.reach(cause, "delivered")
        self._save()
        # Until now, ranks may have said more.
        event = {
            **one.event,
            "beside": beside(frame) or one.event.get("beside", []),
            "capture": path,
        }
        end = None
        if self._plan.kill and is_alarm(frame):  # the job may have recovered during the capture
            end = plan_end(frame, local_names())
        for said in self._deliveries.start(event, variables_of(frame, event, path), end):
            self._say(said)

    def _save(self) -> None:
        """Reports once if the state cannot be written; then the next watcher may repeat lines."""
        if self._plan.dry_run:
            return
        try:
            self._file.save(self._episodes.reports)
        except OSError as error:
            problem = f"the state cannot be written: {error.strerror or error}"
            if problem != self._trouble:
                self._say({"event": "trouble", "problem": problem})
            self._trouble = problem
        else:
            self._trouble = ""


def _written_since(frame: Frame, asked_ns: int) -> Writing | None:
    """The outcome of the capture requested at `asked_ns`; None while there is none."""
    for writing in frame.writings:
        over = writing.kind == "capture" and writing.state in ("written", "failed")
        if over and writing.at_ns >= asked_ns:
            return writing
    return None
