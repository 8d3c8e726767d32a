"""What of a job's verdicts is news."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.episodes import Decision, Episodes, Report, Stage
from screens import scenes

SECOND = 1_000_000_000
LASTS_S = 40.0


def at(frame: Frame, seconds: float, *, since_s: float = -LASTS_S) -> Frame:
    """The frame, so much later; its first verdict lasts since `since_s` of the same clock."""
    base = scenes.hung()
    passed = int(seconds * SECOND)
    since = base.now_ns + int(since_s * SECOND)
    verdicts = tuple(replace(one, since_ns=since) for one in frame.verdicts)
    return replace(
        frame, now_ns=base.now_ns + passed, wall_ns=base.wall_ns + passed, verdicts=verdicts
    )


def suspect(*, left_s: float | None = None) -> Frame:
    frame = scenes.hung()
    verdict = replace(frame.verdicts[0], confidence="suspect", left_s=left_s)
    return replace(frame, health="held up", verdicts=(verdict,))


def new(reports: dict[str, Report] | None = None) -> Episodes:
    return Episodes(reports if reports is not None else {}, every_s=600.0, before_s=30.0)


def whats(decisions: list[Decision]) -> list[str]:
    return [one.what for one in decisions]


def test_a_hang_is_suspected_confirmed_and_over_once_each() -> None:
    episodes = new()
    assert whats(episodes.judge(at(suspect(), 0))) == ["suspect"]
    assert episodes.judge(at(suspect(), 1)) == []
    assert whats(episodes.judge(at(scenes.hung(), 2))) == ["confirmed"]
    assert episodes.judge(at(scenes.hung(), 3)) == []
    assert episodes.judge(at(suspect(), 4)) == []
    assert episodes.judge(at(scenes.healthy(), 5)) == []  # one frame proves nothing
    assert whats(episodes.judge(at(scenes.healthy(), 11))) == ["over"]
    assert episodes.judge(at(scenes.healthy(), 12)) == []


def test_the_same_cause_is_not_reported_again_until_its_time() -> None:
    episodes = new()
    episodes.judge(at(scenes.hung(), 0))
    episodes.judge(at(scenes.healthy(), 5))
    episodes.judge(at(scenes.healthy(), 11))
    assert whats(episodes.judge(at(scenes.hung(), 60, since_s=50))) == ["limited"]
    assert episodes.judge(at(scenes.hung(), 61, since_s=50)) == []
    assert whats(episodes.judge(at(scenes.hung(), 601, since_s=50))) == ["confirmed"]


def test_another_cause_is_reported_at_once() -> None:
    episodes = new()
    episodes.judge(at(scenes.hung(), 0))
    frame = scenes.hung()
    why = replace(frame.verdicts[0].why, cause="exited")
    other = replace(frame, verdicts=(replace(frame.verdicts[0], why=why),))
    assert whats(episodes.judge(at(other, 1))) == ["confirmed"]


@pytest.mark.parametrize(("left_s", "expected"), [(29.0, True), (31.0, False), (None, False)])
def test_with_little_time_left_the_capture_does_not_wait(
    left_s: float | None, expected: bool
) -> None:
    episodes = new()
    decisions = episodes.judge(at(suspect(left_s=left_s), 0))
    assert whats(decisions) == ["suspect", *(["early"] if expected else [])]
    if expected:
        assert decisions[1].why == "the op's timeout ends the job in 29 s"
    assert episodes.judge(at(suspect(left_s=left_s), 1)) == []
    assert whats(episodes.judge(at(scenes.hung(), 2))) == ["confirmed"]


def test_a_verdict_that_wavers_is_captured_early_once() -> None:
    episodes = new()
    assert whats(episodes.judge(at(suspect(left_s=20), 0))) == ["suspect", "early"]
    frame = suspect(left_s=19)
    other = replace(frame, verdicts=(replace(frame.verdicts[0], kind="undecided"),))
    assert whats(episodes.judge(at(other, 1))) == ["suspect"]


@pytest.mark.parametrize(
    ("stage", "said"), [("confirmed", ["resumed"]), ("captured", ["resumed"]), ("delivered", [])]
)
def test_what_was_not_delivered_is_taken_up_by_a_successor(stage: Stage, said: list[str]) -> None:
    first = new()
    (decision,) = first.judge(at(scenes.hung(), 0))
    first.reach(decision.cause, stage)
    second = new(first.reports)
    assert whats(second.judge(at(scenes.hung(), 60))) == said
    assert second.judge(at(scenes.hung(), 61)) == []


def test_a_hang_that_began_after_the_report_is_another_one() -> None:
    first = new()
    (decision,) = first.judge(at(scenes.hung(), 0))
    first.reach(decision.cause, "delivered")
    second = new(first.reports)  # nobody saw the first one end
    assert whats(second.judge(at(scenes.hung(), 700, since_s=650))) == ["confirmed"]


def slow() -> Frame:
    frame = scenes.hung()
    verdict = replace(frame.verdicts[0], kind="slow", progress="active", left_s=None)
    return replace(frame, health="slow", verdicts=(verdict,))


def test_a_slow_job_is_one_line_unless_more_is_asked_for() -> None:
    episodes = new()
    assert whats(episodes.judge(at(slow(), 0))) == ["slow"]
    assert episodes.judge(at(slow(), 60)) == []
    asked = Episodes({}, every_s=600.0, before_s=30.0, slow=True)
    assert whats(asked.judge(at(slow(), 0))) == ["confirmed"]


def test_who_may_be_slow_is_suspected_until_it_is_sure() -> None:
    suspected = replace(slow(), verdicts=(replace(slow().verdicts[0], confidence="suspect"),))
    for asked, said in ((False, "slow"), (True, "confirmed")):
        episodes = Episodes({}, every_s=600.0, before_s=30.0, slow=asked)
        assert whats(episodes.judge(at(suspected, 0))) == ["suspect"]
        assert episodes.judge(at(suspected, 5)) == []
        assert whats(episodes.judge(at(slow(), 10))) == [said]
        assert episodes.judge(at(slow(), 15)) == []


def test_a_slow_job_that_hangs_is_news() -> None:
    episodes = new()
    episodes.judge(at(slow(), 0))
    assert whats(episodes.judge(at(scenes.hung(), 30, since_s=25))) == ["confirmed"]
