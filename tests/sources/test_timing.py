"""Clocks are asked for a few times at once, and then now and again."""

from __future__ import annotations

import itertools

from frtop_probe import wire
from frtop_tui.sources.timing import EVERY_NS, FIRST, LOST_NS, SOON_NS, Timing
from sources.seam import Ears, S


class Scene:
    def __init__(self) -> None:
        self.ears = Ears()
        self.timing = Timing(self.ears.line, itertools.count(1))
        self.timing.begin("n", S)

    def asked(self) -> int:
        return len(self.ears.asked)

    def answer(self, now: int) -> int | None:
        return self.timing.heard("n", self.ears.asked[-1][1].id, now)


def test_a_few_at_once_then_every_few_seconds() -> None:
    scene = Scene()
    scene.timing.turn(S)
    for n in range(FIRST):
        assert scene.asked() == n + 1
        assert scene.answer(S + n + 1) == S + n
    assert scene.asked() == FIRST
    scene.timing.turn(S + EVERY_NS - 1)
    assert scene.asked() == FIRST
    scene.timing.turn(S + EVERY_NS + FIRST)
    assert scene.asked() == FIRST + 1
    assert all(isinstance(question, wire.TimeRequest) for _, question in scene.ears.asked)


def test_no_second_question_while_one_is_under_way() -> None:
    scene = Scene()
    scene.timing.turn(S)
    scene.timing.turn(S + LOST_NS - 1)
    assert scene.asked() == 1
    scene.timing.turn(S + LOST_NS)
    assert scene.asked() == 2


def test_an_answer_that_was_given_up_is_no_measurement() -> None:
    scene = Scene()
    scene.timing.turn(S)
    late = scene.ears.asked[0][1].id
    scene.timing.turn(S + LOST_NS)
    assert scene.timing.heard("n", late, S + LOST_NS) is None


def test_a_doubted_clock_is_asked_soon_but_not_all_the_time() -> None:
    scene = Scene()
    scene.timing.turn(S)
    for n in range(FIRST):
        scene.answer(S + n)
    before = scene.asked()
    for tenth in range(20):
        now = 2 * S + tenth * S // 10
        scene.timing.hasten("n", now)
        scene.timing.turn(now)
        scene.answer(now)
    assert scene.asked() - before == 2 * S // SOON_NS


def test_a_place_that_is_forgotten_is_not_asked() -> None:
    scene = Scene()
    scene.timing.forget("n")
    scene.timing.hasten("n", S)
    scene.timing.turn(99 * S)
    assert not scene.ears.asked
