"""Everything of all ranks within a deadline, and names for what is missing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.export import capture
from frtop_tui.job.model import HostView
from frtop_tui.sources import collecting
from frtop_tui.sources.collecting import DEADLINE_NS, HOSTS_AT_ONCE, Collecting
from frtop_tui.sources.errands import Errands
from frtop_tui.sources.scribe import Scribe
from sources.seam import Ears, S, frame_of, rank_view

OP = wire.Op(9, 1, 8812, wire.Signature("all_reduce"), None, 5)


def agent(place: str, question: wire.Request) -> wire.Response | None:
    """Answers everything, except on a host that is deaf."""
    if place == "deaf":
        return None
    if isinstance(question, wire.SnapshotRequest):
        looks = tuple(wire.Snapshot(key, 1) for key in question.keys)
        return wire.SnapshotResponse(question.id, place, looks)
    if isinstance(question, wire.HistoryRequest):
        return wire.HistoryResponse(question.id, place, question.key, wire.History())
    assert isinstance(question, wire.TensorsRequest)
    return wire.TensorsResponse(question.id, place, question.key, 1)


Answers = Callable[[str, wire.Request], wire.Response | None]


class Scene:
    def __init__(self) -> None:
        self.ears = Ears()
        self.errands = Errands(self.ears.line, itertools.count(1))
        self.scribe = Scribe()
        self.written: list[tuple[Frame, Sequence[int], Sequence[str]]] = []
        self.now = S
        self.at_once: list[list[str]] = []
        self.kinds: list[str] = []

    def write(
        self,
        path: Path,
        frame: Frame,
        histories: Mapping[int, wire.HistoryResponse],
        missing: Sequence[str],
        *,
        over: bool,
    ) -> int:
        assert not over
        self.written.append((frame, sorted(histories), missing))
        return 4321

    def begin(self, frame: Frame) -> Collecting:
        return Collecting(
            self.errands, self.scribe, frame,
            path=Path("x.cap"), automatic=True, now=self.now, write=self.write,
        )  # fmt: skip

    def go_on(
        self, one: Collecting, frame: Frame, seconds: int = 60, answers: Answers = agent
    ) -> None:
        for _ in range(20 * seconds):
            self.now += S // 20
            now_frame = Frame(self.now, self.now, job=frame.job, ranks=frame.ranks)
            one.turn(now_frame, self.now)
            self.at_once.append([place for place, _ in self.ears.asked])
            self.kinds += [type(question).__name__ for _, question in self.ears.asked]
            self.ears.answer(self.errands.settle, answers, self.now)
            self.errands.turn(self.now)
            if one.writing.state == "writing":
                break
        end = time.monotonic() + 20
        while not one.over and time.monotonic() < end:
            self.scribe.turn(self.now)


@pytest.fixture
def scene() -> Iterator[Scene]:
    one = Scene()
    yield one
    one.scribe.close()


def ranks(hosts: Sequence[str], each: int, **fields: Any) -> list[JudgedRank]:
    return [rank_view(n, hosts[n // each], **fields) for n in range(len(hosts) * each)]


def test_all_ranks_are_asked_for_everything(scene: Scene) -> None:
    frame = frame_of(*ranks(["a", "b"], 2, pending=(OP,)))
    one = scene.begin(frame)
    scene.go_on(one, frame)
    assert (one.writing.state, one.writing.size, one.writing.problem) == ("written", 4321, "")
    assert (one.writing.done, one.writing.total, one.writing.automatic) == (4, 4, True)
    ((_, histories, missing),) = scene.written
    assert (histories, list(missing)) == ([0, 1, 2, 3], [])
    assert (
        sorted(scene.kinds)
        == ["HistoryRequest"] * 4 + ["SnapshotRequest"] * 2 + ["TensorsRequest"] * 4
    )
    assert scene.kinds[:2] == ["SnapshotRequest", "SnapshotRequest"]


def test_the_frame_that_is_written_has_the_answers_in_it(scene: Scene) -> None:
    frame = frame_of(*ranks(["a"], 1))
    one = scene.begin(frame)
    scene.go_on(one, frame)
    ((written, _, _),) = scene.written
    assert written.now_ns > frame.now_ns


def test_a_host_has_one_question_at_a_time_and_hosts_are_asked_side_by_side(scene: Scene) -> None:
    frame = frame_of(*ranks([f"n{n}" for n in range(128)], 8))
    one = scene.begin(frame)
    scene.go_on(one, frame)
    assert one.writing.state == "written"
    assert max(map(len, scene.at_once)) == HOSTS_AT_ONCE
    assert all(len(set(places)) == len(places) for places in scene.at_once)
    ((_, histories, missing),) = scene.written
    assert (len(histories), list(missing)) == (1024, [])


def test_a_host_that_does_not_answer_is_named_and_nobody_else_waits(scene: Scene) -> None:
    frame = frame_of(*ranks(["a", "deaf"], 2))
    begun = scene.now
    one = scene.begin(frame)
    scene.go_on(one, frame)
    assert scene.now - begun <= DEADLINE_NS + S
    ((_, histories, missing),) = scene.written
    assert histories == [0, 1]
    assert "no history of ranks 2-3: no answer in 20 s" in missing
    assert "no stacks of ranks 2-3: no answer in 20 s" in missing
    assert one.writing.state == "written"
    assert "ranks 2-3" in one.writing.problem
    assert one.writing.done == 4


def test_who_may_only_look_gets_no_tensors_and_is_told(scene: Scene) -> None:
    views = ranks(["a", "b"], 1, pending=(OP,))
    hosts = (HostView("a", "heard", may_act=False), HostView("b", "heard"))
    frame = frame_of(*views, hosts=hosts)
    scene.go_on(scene.begin(frame), frame)
    ((_, _, missing),) = scene.written
    assert list(missing) == ["no tensors of rank 0: our key may only read on a"]
    assert scene.kinds.count("TensorsRequest") == 1


def test_read_only_asks_nothing_of_the_ranks(scene: Scene) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,)), read_only="started with --read-only")
    scene.go_on(scene.begin(frame), frame)
    assert "TensorsRequest" not in scene.kinds
    ((_, _, missing),) = scene.written
    assert list(missing) == ["no tensors of ranks 0-1: started with --read-only"]


@pytest.mark.parametrize("posture", ["silent", "stopped"])
def test_ranks_that_cannot_answer_are_not_asked(scene: Scene, posture: str) -> None:
    frame = frame_of(*ranks(["a"], 2, pending=(OP,), state=posture))
    scene.go_on(scene.begin(frame), frame)
    assert "TensorsRequest" not in scene.kinds
    ((_, _, missing),) = scene.written
    assert list(missing) == [f"no tensors of ranks 0-1: {posture}, cannot answer"]


def test_ranks_that_are_not_heard_are_named(scene: Scene) -> None:
    frame = frame_of(rank_view(0, "a"), rank_view(1, "b", state="unheard"))
    scene.go_on(scene.begin(frame), frame)
    ((_, histories, missing),) = scene.written
    assert histories == [0]
    assert list(missing) == ["no stacks and history of rank 1: b is not heard"]


def test_of_very_many_ranks_only_the_newest_ops(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "ROWS", 100)
    frame = frame_of(*ranks(["a"], 4))
    one = scene.begin(frame)
    one.turn(frame, scene.now)
    scene.ears.answer(scene.errands.settle, agent, scene.now)
    one.turn(frame, scene.now)
    ((_, question),) = scene.ears.asked
    assert isinstance(question, wire.HistoryRequest)
    assert question.limit == 25


def test_another_wish_meanwhile_is_answered(scene: Scene) -> None:
    one = scene.begin(frame_of(*ranks(["a"], 1)))
    one.refuse(Path("y.cap"))
    assert one.writing.problem == "already capturing: y.cap was not begun"
    assert one.writing.state == "collecting"


def test_nothing_to_capture_is_said(scene: Scene) -> None:
    writing = scene.begin(Frame(0, 0)).writing
    assert writing.state == "failed"
    assert "nothing to capture" in writing.problem


def test_a_file_that_cannot_be_written_is_said(scene: Scene) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device", "x.cap")

    frame = frame_of(*ranks(["a"], 1))
    one = Collecting(
        scene.errands, scene.scribe, frame, path=Path("x.cap"), automatic=False, now=S, write=full
    )
    scene.go_on(one, frame)
    assert (one.writing.state, one.writing.problem.partition(";")[0]) == (
        "failed", "x.cap: No space left on device",
    )  # fmt: skip


@pytest.mark.parametrize("before", [False, True])
def test_what_appears_meanwhile_stays_what_was_there_is_replaced(
    scene: Scene, tmp_path: Path, before: bool
) -> None:
    path = tmp_path / "hang.cap"
    begun: list[Path] = []
    if before:
        path.write_text("named by a person")

    def write(there: Path, *content: Any, over: bool) -> int:
        if not before and not begun:
            path.write_text("another screen's")
        begun.append(there)
        return capture.write(there, *content, over=over)

    frame = frame_of(*ranks(["a"], 1))
    one = Collecting(
        scene.errands, scene.scribe, frame, path=path, automatic=False, now=S, write=write
    )
    scene.go_on(one, frame)
    assert one.writing.path == str(path if before else tmp_path / "hang-2.cap")
    assert capture.read(Path(one.writing.path)).ranks
    assert before or path.read_text() == "another screen's"


def test_more_than_was_asked_for_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "ROWS", 1)
    endless = wire.History(rows=(wire.HistoryRow(1, 1, 1, 0, 0, 1, 1, 1),) * 100)

    def generous(place: str, question: wire.Request) -> wire.Response | None:
        answer = agent(place, question)
        if isinstance(answer, wire.HistoryResponse):
            return wire.HistoryResponse(answer.id, place, answer.key, endless)
        return answer

    frame = frame_of(*ranks(["a"], 1))
    one = scene.begin(frame)
    scene.go_on(one, frame, answers=generous)
    _, histories, missing = scene.written[0]
    assert not histories
    assert "no history of rank 0: more was told than asked for" in missing


@pytest.mark.parametrize(("error", "help_", "why"), [
    ("none", "waits in no op that has tensors", "nothing pending that has tensors"),
    ("missing", "", "they answer nobody: their recorder is older"),
    ("failed", "out of memory", "out of memory"),
])  # fmt: skip
def test_why_there_are_no_tensors_is_a_sentence(
    scene: Scene, error: str, help_: str, why: str
) -> None:
    def cannot(place: str, question: wire.Request) -> wire.Response | None:
        if isinstance(question, wire.TensorsRequest):
            return wire.TensorsResponse(question.id, place, question.key, 1, (), error, help_)
        return agent(place, question)

    frame = frame_of(*ranks(["a"], 2, pending=(OP,)))
    scene.go_on(scene.begin(frame), frame, answers=cannot)
    ((_, _, missing),) = scene.written
    (told,) = missing
    assert told.startswith(f"no tensors of ranks 0-1: {why}")
