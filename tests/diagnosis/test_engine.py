"""What the judge remembers between frames, and what it forgets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene, one_sleeps, only, told
from frtop_probe import wire
from frtop_tui.job.model import ObservedFrame, Problem


def test_it_is_confirmed_two_seconds_after_the_first_look() -> None:
    scene = one_sleeps()
    confidences = []
    for _ in range(12):
        confidences.append(only(scene.judge().frame).confidence)
        scene.pass_time(0.25)
    assert confidences[0] == "suspect"
    assert confidences[-1] == "confirmed"
    assert 8 <= confidences.index("confirmed") <= 11


def test_another_job_begins_anew() -> None:
    scene = one_sleeps()
    scene.settle()
    frame = scene.frame()
    other = replace(frame, job=wire.Job("elsewhere", 1, 4, "other", 0, "x"))
    assert only(scene.engine.judge(other).frame).confidence == "suspect"
    assert only(scene.engine.judge(frame).frame).confidence == "suspect"


def test_a_suspicion_that_pauses_begins_anew() -> None:
    scene = one_sleeps()
    scene.settle()
    pending = {rank: list(actor.pending) for rank, actor in scene.actors.items()}
    for actor in scene.actors.values():
        actor.pending.clear()
    for _ in range(14):
        scene.pass_time(0.5)
        scene.judge()
    for rank, ops in pending.items():
        scene.actors[rank].pending.extend(ops)
    assert only(scene.judge().frame).confidence == "suspect"


def test_a_healthy_job_is_so_since_it_was_first_seen() -> None:
    scene = Scene(4)
    scene.does(range(4), "all_reduce")
    begin = scene.now_ns
    assert scene.settle(3).since_ns == begin


def test_a_frame_without_ranks_passes_through() -> None:
    scene = Scene(4)
    frame = scene.engine.judge(ObservedFrame(1, 2, problem=Problem("no agent"))).frame
    assert (frame.now_ns, frame.wall_ns, frame.problem) == (1, 2, Problem("no agent"))


def test_ranks_are_blocked_since_they_wait_and_late_since_they_are_waited_for() -> None:
    found = one_sleeps().settle()
    for rank in range(4):
        assert (found.now_ns - found.ranks[rank].state_since_ns) / 1e9 == pytest.approx(14, abs=1)


TIMED_OUT = "[/w/gloo/unbound_buffer.cc:78] Timed out waiting 60000ms for recv operation"


def test_what_was_seen_of_a_hang_outlives_its_timeout() -> None:
    scene = one_sleeps()
    before = only(scene.settle())
    for rank in (0, 1, 3):
        scene.actors[rank].pending.clear()
    scene.judge()  # the ops have failed, and it is not known yet that the ranks raised
    scene.pass_time(0.5)
    for rank in (0, 1, 3):
        scene.raises(rank, "RuntimeError", TIMED_OUT, ago=0.3)
    for ended in (False, True):
        if ended:
            scene.ends(2, signal=15, ago=0.1)
        after = only(scene.judge().frame)
        assert (after.why, after.culprits, after.since_ns) == (
            before.why,
            before.culprits,
            before.since_ns,
        )
        assert "in time; ranks 0-1,3 gave up waiting after 1m00s" in after.headline
        assert after.headline.endswith("then rank 2 was ended by SIGTERM") == ended
        assert ".cc" not in " ".join([after.headline, *after.evidence])
        scene.pass_time(60)


@pytest.mark.parametrize(("signal", "words"), [
    (2, "were interrupted (ctrl+c)"), (15, "were ended by SIGTERM"),
])  # fmt: skip
def test_what_was_seen_of_a_hang_outlives_who_ended_it(signal: int, words: str) -> None:
    scene = one_sleeps()
    before = only(scene.settle())
    scene.pass_time(0.5)
    scene.ends(2, signal=signal, ago=0.4)
    scene.judge()
    for rank in (0, 1, 3):
        scene.ends(rank, signal=signal, ago=0.2)
    for _ in range(3):
        frame = scene.judge().frame
        after = only(frame)
        assert (after.kind, after.culprits, after.why) == ("not_entered", (2,), before.why)
        assert after.headline.endswith(f"then ranks 0-3 {words}")
        assert (after.left_s, frame.health) == (None, "hung")
        scene.pass_time(30)


def test_a_hang_that_was_over_is_no_part_of_how_the_job_ended() -> None:
    scene = one_sleeps()
    scene.settle()
    for rank in (0, 1, 3):
        scene.actors[rank].pending.clear()
    scene.pass_time(0.5)
    scene.does([2], "all_reduce", ago=0.2)
    scene.judge()
    scene.pass_time(0.5)
    for rank in range(4):
        scene.ends(rank, signal=15, ago=0.2)
    assert told(scene.judge().frame, "kind", "culprits") == ("dead", ())


def test_a_wait_that_goes_on_after_a_death_is_told_as_it_is() -> None:
    scene = one_sleeps()
    scene.settle()
    scene.raises(0, "RuntimeError", TIMED_OUT, ago=0.3)
    after = only(scene.settle())
    assert (after.kind, after.culprits) == ("not_entered", (2,))
    assert "has not entered" in after.headline
