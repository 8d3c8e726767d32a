"""What is asked of whom, and what is kept when it cannot be asked now."""

from __future__ import annotations

from typing import cast

import pytest

from frtop_probe import wire
from frtop_tui.diagnosis.look_requests import LookRequest
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.sources.asking import ANSWER_NS, WATCH_NS, Asking
from frtop_tui.sources.line import Line
from sources.seam import Ears

S = 1_000_000_000


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def asking(ears: Ears) -> Asking:
    return Asking(cast("Line", ears))


def frame_of(*ranks: tuple[int, str, int]) -> Frame:
    identity = wire.Identity(1, 1, 0, 0, wire.Job("a", 1, 2))
    views = {
        rank: JudgedRank(rank, host, key, identity, "moving", 0, 0, 0) for rank, host, key in ranks
    }
    return Frame(0, 0, ranks=views)


def test_looks_of_two_kinds_at_one_host_are_both_asked(ears: Ears, asking: Asking) -> None:
    asking.want([LookRequest("n", 1, (), True), LookRequest("n", 2, (), False)])
    asking.turn(frame_of(), S)
    assert ears.looks() == [("n", (1,), True), ("n", (2,), False)]


def test_one_request_per_host(ears: Ears, asking: Asking) -> None:
    asking.want(
        [
            LookRequest("n", 1, (), True),
            LookRequest("m", 1, (), True),
            LookRequest("n", 2, (), True),
        ]
    )
    asking.turn(frame_of(), S)
    assert ears.looks() == [("n", (1, 2), True), ("m", (1,), True)]


def test_a_host_that_owes_an_answer_is_asked_after_it(ears: Ears, asking: Asking) -> None:
    asking.want([LookRequest("n", 1, (), True)])
    asking.turn(frame_of(), S)
    (first,) = ears.asked
    ears.asked.clear()
    asking.want([LookRequest("n", 2, (), True)])
    asking.turn(frame_of(), 2 * S)
    assert not ears.asked
    asking.settle("n", wire.SnapshotResponse(first[1].id, "n", ()), 2 * S)
    asking.turn(frame_of(), 2 * S)
    assert ears.looks() == [("n", (2,), True)]


def test_an_answer_that_never_comes_is_given_up(ears: Ears, asking: Asking) -> None:
    asking.want([LookRequest("n", 1, (), True)])
    asking.turn(frame_of(), S)
    ears.asked.clear()
    asking.want([LookRequest("n", 1, (), True)])
    asking.turn(frame_of(), S + ANSWER_NS)
    assert ears.looks() == [("n", (1,), True)]


def test_a_dump_that_cannot_leave_now_leaves_later(ears: Ears, asking: Asking) -> None:
    frame = frame_of((0, "n", 7), (1, "m", 8))
    ears.open = False
    asking.dump(frozenset({0, 1}))
    asking.turn(frame, S)
    ears.open = True
    asking.turn(frame, S)
    assert ears.looks() == [("n", (7,), True), ("m", (8,), True)]
    asking.turn(frame, 2 * S)
    assert not ears.asked


def test_what_is_watched_is_asked_for_again_and_again(ears: Ears, asking: Asking) -> None:
    frame = frame_of((0, "n", 7))
    asking.watch(frozenset({0}))
    kinds = []
    for turn in range(4):
        asking.turn(frame, S + turn * WATCH_NS)
        for place, question in ears.asked:
            asking.settle(place, wire.SnapshotResponse(question.id, place, ()), S)
        kinds += [stacks for _, _, stacks in ears.looks()]
    assert kinds == [True, False, True, False]


def test_a_rank_that_went_is_watched_without_harm(ears: Ears, asking: Asking) -> None:
    asking.watch(frozenset({5}))
    asking.dump(frozenset({5}))
    asking.turn(frame_of((0, "n", 7)), S)
    assert not ears.asked


def test_a_state_that_is_owed_is_not_asked_for_twice(ears: Ears, asking: Asking) -> None:
    asking.state("n", S)
    asking.state("n", S)
    assert len(ears.asked) == 1
    asking.state("n", S, anew=True)
    assert len(ears.asked) == 2
    asking.turn(None, S + ANSWER_NS)
    assert len(ears.asked) == 3


def test_a_slow_host_is_not_buried_under_the_same_question(ears: Ears, asking: Asking) -> None:
    asking.state("n", 0)
    for half_second in range(1, 121):
        asking.turn(None, half_second * S // 2)
    states = [question for _, question in ears.asked if isinstance(question, wire.StateRequest)]
    assert len(states) == 5  # at 0, 3, 9, 21 and 51 s


def test_a_host_that_takes_long_is_given_the_time_for_looks_too(ears: Ears, asking: Asking) -> None:
    asking.state("n", 0)
    asking.settle("n", wire.StateResponse(1, wire.Update("n", "i", 1, 0, 0)), 5 * S)
    asking.want([LookRequest("n", 1, (), True)])
    asking.turn(frame_of(), 5 * S)
    ears.asked.clear()
    asking.want([LookRequest("n", 1, (), True)])
    asking.turn(frame_of(), 14 * S)
    assert not ears.asked
    asking.turn(frame_of(), 15 * S)
    assert ears.looks() == [("n", (1,), True)]
