"""Questions that somebody waits for: each ends once, with an answer or with a reason."""

from __future__ import annotations

import itertools

import pytest

from frtop_probe import wire
from frtop_tui.sources.errands import BUSY_AGAIN_NS, PATIENCE_NS, Errands
from sources.seam import Ears, S


class Scene:
    def __init__(self) -> None:
        self.ears = Ears()
        self.errands = Errands(self.ears.line, itertools.count(1))
        self.told: list[wire.Response] = []

    def ask(self) -> int:
        question = wire.HistoryRequest(0, 7)
        return self.errands.ask("n", question, lambda answer, _: self.told.append(answer), S)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_answer_is_told_once(scene: Scene) -> None:
    number = scene.ask()
    answer = wire.HistoryResponse(number, "n", 7, wire.History())
    for _ in range(2):
        scene.errands.settle("n", answer, 2 * S)
    scene.errands.turn(99 * S)
    assert scene.told == [answer]


def test_a_refusal_is_an_answer(scene: Scene) -> None:
    refusal = wire.Error(scene.ask(), "no such rank", "gone")
    scene.errands.settle("n", refusal, 2 * S)
    assert scene.told == [refusal]


def test_an_agent_that_is_busy_is_asked_again(scene: Scene) -> None:
    number = scene.ask()
    scene.errands.settle("n", wire.Error(number, "busy", "busy"), 2 * S)
    scene.errands.turn(2 * S + BUSY_AGAIN_NS)
    assert [question.id for _, question in scene.ears.asked] == [number, number]
    assert not scene.told


def test_what_a_lost_connection_took_along_is_asked_again(scene: Scene) -> None:
    scene.ask()
    scene.errands.forget("n")
    scene.errands.met("n", same=True)
    scene.ears.open = False
    scene.errands.turn(2 * S)
    scene.ears.open = True
    scene.errands.turn(3 * S)
    scene.errands.turn(4 * S)
    assert len(scene.ears.asked) == 2


@pytest.mark.parametrize(("open_", "words"), [(True, "no answer from n in 8 s"),
                                              (False, "n cannot be reached")])  # fmt: skip
def test_silence_ends_too(scene: Scene, open_: bool, words: str) -> None:
    scene.ears.open = open_
    scene.ask()
    scene.errands.turn(S + PATIENCE_NS - 1)
    assert not scene.told
    scene.errands.turn(S + PATIENCE_NS)
    (answer,) = scene.told
    assert isinstance(answer, wire.Error)
    assert answer.reason == "deadline"
    assert words in answer.text


def test_an_agent_that_does_not_know_the_words(scene: Scene) -> None:
    scene.ask()
    refusal = wire.Error(0, "older than the screen", "words")
    scene.errands.settle("other", refusal, S)
    assert not scene.told
    scene.errands.settle("n", refusal, S)
    assert scene.told == [refusal]


def test_an_answer_from_elsewhere_is_none(scene: Scene) -> None:
    number = scene.ask()
    scene.errands.settle("m", wire.HistoryResponse(number, "m", 7, wire.History()), 2 * S)
    assert not scene.told


def test_what_is_dropped_is_not_told(scene: Scene) -> None:
    scene.errands.drop(scene.ask())
    scene.errands.turn(99 * S)
    assert not scene.told


def test_another_agent_is_not_asked_what_was_meant_for_the_former(scene: Scene) -> None:
    scene.ask()
    scene.ears.asked.clear()
    scene.errands.forget("n")
    scene.errands.turn(2 * S)
    assert not scene.ears.asked  # who it is has not been said yet
    scene.errands.met("n", same=False)
    scene.errands.turn(3 * S)
    (answer,) = scene.told
    assert isinstance(answer, wire.Error)
    assert (answer.reason, scene.ears.asked) == ("gone", [])

    def then(answer: wire.Response, _: int) -> None:
        scene.told.append(answer)

    scene.errands.ask("n", wire.HistoryRequest(0, 7), then, 3 * S, agent=0)  # keys of the former
    scene.errands.turn(4 * S)
    assert [type(answer) for answer in scene.told] == [wire.Error] * 2
    now = scene.errands.agent("n")
    scene.errands.ask("n", wire.HistoryRequest(0, 7), then, 3 * S, agent=now)
    assert len(scene.ears.asked) == 1
