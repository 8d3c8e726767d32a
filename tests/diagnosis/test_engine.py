"""What the judge remembers between frames, and what it forgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.scenes import Scene, only
from frtop_probe import wire
from frtop_tui.job.model import Frame


def hung() -> Scene:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    return scene


def test_it_is_confirmed_two_seconds_after_the_first_look() -> None:
    scene = hung()
    confidences = []
    for _ in range(12):
        confidences.append(only(scene.judge().frame).confidence)
        scene.pass_time(0.25)
    assert confidences[0] == "suspect"
    assert confidences[-1] == "confirmed"
    assert 8 <= confidences.index("confirmed") <= 11


def test_another_job_begins_anew() -> None:
    scene = hung()
    scene.settle()
    frame = scene.frame()
    other = replace(frame, job=wire.Job("elsewhere", 1, 4, "other", 0, "x"))
    assert only(scene.engine.judge(other).frame).confidence == "suspect"
    assert only(scene.engine.judge(frame).frame).confidence == "suspect"


def test_a_suspicion_that_pauses_begins_anew() -> None:
    scene = hung()
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


def test_health_says_since_when() -> None:
    scene = hung()
    found = scene.settle()
    assert (found.now_ns - found.since_ns) / 1e9 == pytest.approx(14, abs=0.1)


def test_a_healthy_job_is_so_since_it_was_first_seen() -> None:
    scene = Scene(4)
    begin = scene.now_ns
    assert scene.settle(3).since_ns == begin


def test_a_frame_without_ranks_passes_through() -> None:
    scene = Scene(4)
    frame = Frame(1, 2, problem="no agent")
    assert scene.engine.judge(frame).frame is frame


def test_ranks_are_blocked_since_they_wait_and_late_since_they_are_waited_for() -> None:
    found = hung().settle()
    for rank in range(4):
        assert (found.now_ns - found.ranks[rank].posture_since_ns) / 1e9 == pytest.approx(14, abs=1)


def test_views_nobody_has_to_say_anything_about_are_passed_on() -> None:
    scene = Scene(4)
    scene.hear()
    frame = scene.frame()
    judged = scene.engine.judge(frame).frame
    assert all(judged.ranks[rank] is frame.ranks[rank] for rank in range(4))
