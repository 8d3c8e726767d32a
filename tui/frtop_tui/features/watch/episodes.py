"""Decides which verdicts of a job to report: each once per episode, within the rate limit.

Pure: frames go in, decisions come out. The state folder keeps the reports across restarts.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct

from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.unprepared import is_least_since
from frtop_tui.text.alarm import haste, is_alarm

CALM_S: Final = 5.0
"""An episode is over after this long without a verdict; one frame without it proves nothing."""
SLACK_S: Final = 2.0
"""How much the wall clocks of two runs of the watcher may differ."""
MOST_CAUSES: Final = 32
"""The most reports kept per job; the oldest are dropped."""
_CALM: Final = frozenset({"healthy", "starting", "ended"})

Stage = Literal["suspect", "slow", "confirmed", "captured", "delivered"]
_NEWS_ONLY: Final = frozenset({"suspect", "slow"})
What = Literal["suspect", "slow", "early", "confirmed", "resumed", "limited", "over"]


class Report(Struct):
    """What was reported about one cause in one job.

    Attributes:
        stage: how far it came; after `delivered` nothing is left to do. `slow` asks for no more
            than a line.
        at_s: Unix time of the first line of this stage of `suspect`, `slow` or `confirmed`.
        capture: path of the last capture, "" for none.
        early: whether a capture was taken without waiting for the confirmation.
        over: whether the episode has ended.
    """

    stage: Stage
    at_s: float
    capture: str = ""
    early: bool = False
    over: bool = False


class Decision(NamedTuple):
    """One thing to do: `why` says what the haste is, or how long nothing more is said."""

    what: What
    cause: str
    verdict: Verdict | None = None
    why: str = ""


class Episodes:
    """The episodes of one job. Owner and only writer of its reports."""

    def __init__(
        self, reports: dict[str, Report], *, every_s: float, before_s: float, slow: bool = False
    ) -> None:
        """`reports` are of earlier runs. With `slow` a slow job is captured and reported, too.

        Otherwise it is news only: the job goes on, and nothing is lost.
        """
        self.reports = reports
        self._slow = slow
        self._every_s = every_s
        self._before_s = before_s
        self._under_way: set[str] = set()
        """Causes whose report this run of the watcher has begun to deliver."""
        self._limited: set[str] = set()
        self._calm_since: int | None = None

    def judge(self, frame: Frame) -> list[Decision]:
        """What to do now."""
        verdict = frame.verdicts[0] if frame.verdicts else None
        if verdict is None or frame.job is None:
            return self._without_verdict(frame)
        self._calm_since = None
        cause = cause_of(verdict)
        report, now_s = self.reports.get(cause), frame.wall_ns / 1e9
        is_slow = verdict.kind == "slow" and verdict.confidence == "confirmed"
        alarm = is_alarm(frame) or (self._slow and is_slow and frame.health == "slow")
        if report is not None and (report.over or _is_newer(frame, verdict, report)):
            left_s = report.at_s + self._every_s - now_s
            if left_s > 0 and not (alarm and report.stage in _NEWS_ONLY):
                return self._limit(cause, verdict, left_s) if alarm else []
            report = None
        if alarm:
            return self._confirm(cause, verdict, report, now_s)
        decisions = []
        if report is None or (is_slow and report.stage == "suspect"):
            said: Literal["slow", "suspect"] = "slow" if is_slow else "suspect"
            report = self._put(cause, Report(said, now_s))
            decisions.append(Decision(said, cause, verdict))
        why = haste(frame, verdict, self._before_s)
        if why and report.stage in _NEWS_ONLY and not self._has_capture:
            report.early = True
            decisions.append(Decision("early", cause, verdict, why))
        return decisions

    def reach(self, cause: str, stage: Stage, capture: str = "") -> None:
        report = self.reports.get(cause)
        if report is not None:
            report.stage = stage
            report.capture = capture or report.capture

    @property
    def _has_capture(self) -> bool:
        """Whether one was taken, or asked for, of what still lasts, whatever it was called then."""
        lasting = [one for one in self.reports.values() if not one.over]
        return any(one.early or one.stage not in _NEWS_ONLY for one in lasting)

    def _confirm(
        self, cause: str, verdict: Verdict, report: Report | None, now_s: float
    ) -> list[Decision]:
        if report is None or report.stage in _NEWS_ONLY:
            early, capture = (report.early, report.capture) if report is not None else (False, "")
            self._put(cause, Report("confirmed", now_s, capture=capture, early=early))
            self._under_way.add(cause)
            return [Decision("confirmed", cause, verdict)]
        if report.stage != "delivered" and cause not in self._under_way:
            self._under_way.add(cause)  # of a watcher that ended before it was through
            return [Decision("resumed", cause, verdict)]
        return []

    def _limit(self, cause: str, verdict: Verdict, left_s: float) -> list[Decision]:
        if cause in self._limited:
            return []
        self._limited.add(cause)
        return [
            Decision("limited", cause, verdict, f"the same was reported; again in {left_s:.0f} s")
        ]

    def _put(self, cause: str, report: Report) -> Report:
        self.reports.pop(cause, None)
        while len(self.reports) >= MOST_CAUSES:
            del self.reports[min(self.reports, key=lambda one: self.reports[one].at_s)]
        self.reports[cause] = report
        self._limited.discard(cause)
        return report

    def _without_verdict(self, frame: Frame) -> list[Decision]:
        if frame.job is None or frame.health not in _CALM:
            return []
        if self._calm_since is None:
            self._calm_since = frame.now_ns
        if frame.now_ns - self._calm_since < CALM_S * 1e9:
            return []
        ended = [cause for cause, report in self.reports.items() if not report.over]
        for cause in ended:
            self.reports[cause].over = True
        self._under_way.difference_update(ended)
        self._limited.clear()
        return [Decision("over", cause) for cause in ended]


def cause_of(verdict: Verdict) -> str:
    """What is reported once: the kind and the cause, not the ranks, which may change."""
    return f"{verdict.kind}/{verdict.why.cause}"


def _is_newer(frame: Frame, verdict: Verdict, report: Report) -> bool:
    """Whether what lasts began after it was reported: the episode in between was not seen to end.

    Where only the first look dates it, it may be the reported one.
    """
    if not verdict.since_ns or is_least_since(frame, verdict.since_ns):
        return False
    begun_s = (frame.wall_ns - frame.now_ns + verdict.since_ns) / 1e9
    return begun_s > report.at_s + SLACK_S
