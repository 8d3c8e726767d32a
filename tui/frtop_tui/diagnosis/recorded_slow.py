"""Who was slow in a job that was recorded: by the last minutes of its histories.

The rules are those of a live job, and so are the windows: minutes, of which the newest decides.
Those before it only say since when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.slow.slow import SlowDetail, SlowState, slow
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.health import health_of
from frtop_tui.diagnosis.history.slow_episodes import SlowEpisodes
from frtop_tui.diagnosis.model import Frame, observed
from frtop_tui.diagnosis.wording.phrases import Tense
from frtop_tui.diagnosis.wording.verdict import sentences, verdict_of
from frtop_tui.job.model import Health, ObservedFrame
from frtop_tui.job.statistics import JobStatistics

MAY_BE_SLOW: Final[frozenset[Health]] = frozenset({"healthy", "ended"})
"""Nothing worse is wrong with such a job. One that has ended was slow."""


def with_slow(frame: Frame, minutes: Iterable[JobStatistics]) -> Frame:
    """`frame` with verdicts on who was slow at its end; beside a death only as notes.

    Args:
        frame: of a file.
        minutes: of its histories, the newest first; as many are taken as show the same.
    """
    died = bool(frame.verdicts) and all(one.kind == "dead" for one in frame.verdicts)
    # Of a job that was seen in part that is all that keeps it from being called well.
    in_part = frame.health == "undecided" and frame.coverage.heard < frame.coverage.expected
    if not died and (frame.verdicts or not (in_part or frame.health in MAY_BE_SLOW)):
        return frame
    findings = findings_in(observed(frame), minutes)
    if not findings:
        return frame
    tense = Tense.PAST if died or frame.health == "ended" else Tense.PRESENT
    said = [sentences(one, frame, tense) for one in findings]
    if died:
        notes = (f"before that: {one.headline}" for one in said)
        return replace(frame, notes=(*frame.notes, *notes))
    verdicts = tuple(verdict_of(one, words) for one, words in zip(findings, said, strict=True))
    health = health_of(frame.health, verdicts, waiting=False)
    return replace(frame, verdicts=verdicts, health=health, since_ns=verdicts[0].since_ns)


def findings_in(frame: ObservedFrame, minutes: Iterable[JobStatistics]) -> Sequence[Finding]:
    """Who is slow in the newest of `minutes`, since the first that shows it."""
    found = (_within(frame, minute) for minute in minutes)
    newest = next(found, ())
    if not newest:
        return ()
    keys = {one.key for one in newest}
    before = list(takewhile(lambda several: keys & {one.key for one in several}, found))
    episodes = SlowEpisodes()
    for several in reversed(before):
        episodes.apply([one for one in several if one.key in keys])
    return [
        replace(one, confidence="confirmed") if _is_sure(one) else one
        for one in episodes.apply(newest)
    ]


def _within(frame: ObservedFrame, minute: JobStatistics) -> tuple[Finding, ...]:
    as_of_then = replace(frame, statistics=minute, now_ns=min(frame.now_ns, minute.until_ns))
    return slow(as_of_then, SlowState())


def _is_sure(finding: Finding) -> bool:
    return isinstance(finding.detail, SlowDetail) and finding.detail.sure
