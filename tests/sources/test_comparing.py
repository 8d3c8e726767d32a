"""Ops asked of ranks for the diagnosis: each question ends in the job's state."""

from __future__ import annotations

from typing import cast

import pytest

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.mismatch.checksums import OpsRequest
from frtop_tui.job.state import JobState
from frtop_tui.sources.asking import Asking
from frtop_tui.sources.comparing import Comparing
from frtop_tui.sources.errands import PATIENCE_NS
from sources.seam import Ears

S = 1_000_000_000
WANTED = OpsRequest("node0", 3, 2, 1, 9, 16, 5)
SIGNATURE = wire.Signature("all_reduce", "sum")


class Told(JobState):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, int, int, list[int]]] = []

    def apply_ops(self, host: str, key: int, parting: int, ops: tuple[wire.Op, ...]) -> None:
        self.heard.append((host, key, parting, [op.number for op in ops]))


class Scene:
    def __init__(self) -> None:
        self.ears, self.state = Ears(), Told()
        self.asking = Asking(self.ears.line)
        self.comparing = Comparing(self.asking.errands, self.state)

    def answer(self, *rows: wire.HistoryRow) -> None:
        ((place, question),) = self.ears.asked
        history = wire.History((SIGNATURE,), (), rows)
        answer = wire.HistoryResponse(question.id, place, 3, history)
        self.asking.settle(place, answer, 2 * S)


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.comparing.want([WANTED], S)
    return made


def row(number: int, group: int = 1, flags: int = 0) -> wire.HistoryRow:
    return wire.HistoryRow(number, group, number, 1, 0, S, 5, 7, flags)


def test_a_rank_is_asked_for_some_ops_of_a_group(scene: Scene) -> None:
    ((place, question),) = scene.ears.asked
    asked = cast("wire.HistoryRequest", question)
    assert place == "node0"
    assert (asked.key, asked.group, asked.first, asked.last) == (3, 1, 9, 16)


def test_what_it_tells_is_in_the_state(scene: Scene) -> None:
    scene.answer(row(9), row(16))
    assert scene.state.heard == [("node0", 3, 5, [9, 16])]


def test_an_agent_that_tells_all_it_has_is_understood(scene: Scene) -> None:
    scene.answer(row(8), row(9), row(10, group=2), row(11, flags=2), row(17))
    assert scene.state.heard == [("node0", 3, 5, [9])]


def test_no_answer_is_an_answer_too(scene: Scene) -> None:
    scene.asking.errands.turn(S + PATIENCE_NS)
    assert scene.state.heard == [("node0", 3, 5, [])]
