"""Tensors of a pending op into a safetensors file, piece by piece, or no file at all."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.sources.errands import Errands
from frtop_tui.sources.saving import Saving
from frtop_tui.sources.scribe import Scribe
from sources.seam import Ears, S, frame_of, rank_view

OP = wire.Op(9, 1, 8812, wire.Signature("all_reduce"), None, 5)
GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3")


def summary(role: str, dtype: str, shape: tuple[int, ...], size: int) -> wire.TensorSummary:
    return wire.TensorSummary(role, dtype, shape, "cpu", size, 0)


def read(content: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and data by name, as the package of that name reads them."""
    found = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


class Agent:
    """Answers as a rank's agent would, from `data`, in pieces no larger than `most`."""

    def __init__(self) -> None:
        self.data = [os.urandom(1_000_000), os.urandom(6), b""]
        self.tensors: tuple[wire.TensorSummary, ...] = (
            summary("input", "float32", (250, 1000), 1_000_000),
            summary("input", "bfloat16", (3,), 6),
            summary("output", "int64", (0, 4), 0),
        )
        self.most = 10**9
        self.completes_after = 10**9
        self.asked = 0
        self.under_way = 0

    def __call__(self, place: str, question: wire.Request) -> wire.Response:
        if isinstance(question, wire.TensorsRequest):
            ops = (wire.OpTensors(9, self.tensors),)
            return wire.TensorsResponse(question.id, place, question.key, 1, ops)
        assert isinstance(question, wire.DataRequest)
        assert (question.key, question.sequence) == (4, 9)
        self.asked += 1
        told = question.id, question.key, question.sequence, question.index, question.offset
        if self.asked > self.completes_after:
            return wire.DataResponse(*told, 0, b"", "none", "the op has completed meanwhile")
        whole = self.data[question.index]
        end = question.offset + min(question.size, self.most)
        return wire.DataResponse(*told, len(whole), whole[question.offset : end])


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ears = Ears()
        self.errands = Errands(self.ears.line, itertools.count(1))
        self.scribe = Scribe()
        self.agent = Agent()
        self.saving: Saving | None = None

    def frame(self, **fields: Any) -> Frame:
        return frame_of(rank_view(3, "n", pending=(OP,), groups={1: GROUP}, **fields))

    def begin(self, frame: Frame | None = None) -> Saving:
        self.saving = Saving(
            self.errands, self.scribe, frame or self.frame(),
            rank=3, sequence=9, path=self.path, now=S,
        )  # fmt: skip
        return self.saving

    def go_on(self, until: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not until():
            assert time.monotonic() < end, self.saving and self.saving.writing
            most = self.ears.answer(self.errands.settle, self.agent, 2 * S)
            self.agent.under_way = max(self.agent.under_way, most)
            self.scribe.turn(2 * S)

    def save(self, frame: Frame | None = None) -> Saving:
        saving = self.begin(frame)
        self.go_on(lambda: saving.over)
        return saving

    def left_over(self) -> list[str]:
        self.scribe.close()
        return sorted(path.name for path in self.path.parent.iterdir())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    one = Scene(tmp_path / "op.safetensors")
    yield one
    one.scribe.close()


def test_what_is_saved_is_what_the_rank_has(scene: Scene) -> None:
    writing = scene.save().writing
    assert (writing.state, writing.problem) == ("written", "")
    assert writing.done == writing.total == 1_000_006
    content = scene.path.read_bytes()
    assert writing.size == len(content)
    found = read(content)
    assert found == {
        "input.0": ("F32", (250, 1000), scene.agent.data[0]),
        "input.1": ("BF16", (3,), scene.agent.data[1]),
        "output.0": ("I64", (0, 4), b""),
    }
    assert scene.path.stat().st_mode & 0o777 == 0o600
    assert scene.left_over() == [scene.path.name]


def test_the_file_says_what_it_is(scene: Scene) -> None:
    scene.save()
    with safetensors.safe_open(str(scene.path), framework="np") as file:
        said = file.metadata()
    assert said["job"] == "train.py (node0:29500)"
    assert (said["rank"], said["op"], said["kind"], said["group"], said["sequence"]) == (
        "3", "8812", "all_reduce", "default_pg", "9",
    )  # fmt: skip
    assert said["time"].startswith("2001-09-09T01:46:40")


def test_never_more_than_two_pieces_are_under_way(scene: Scene) -> None:
    scene.save()
    assert scene.agent.under_way == 2


def test_an_agent_that_gives_less_than_asked_for_is_asked_for_the_rest(scene: Scene) -> None:
    scene.agent.most = 70_001
    assert scene.save().writing.state == "written"
    assert read(scene.path.read_bytes())["input.0"][2] == scene.agent.data[0]


def test_an_op_that_completes_meanwhile_leaves_no_file(scene: Scene) -> None:
    scene.agent.completes_after = 2
    writing = scene.save().writing
    assert writing.state == "failed"
    assert "all_reduce #8812 of rank 3: the op has completed meanwhile" in writing.problem
    assert scene.left_over() == []


def test_what_was_there_stays_when_it_fails(scene: Scene) -> None:
    scene.path.write_text("precious")
    scene.agent.completes_after = 1
    scene.save()
    assert scene.path.read_text() == "precious"


@pytest.mark.parametrize(("tensor", "words"), [
    (summary("input", "complex128", (2,), 32), "safetensors has no complex128"),
    (summary("input", "float32", (2,), 9), "its 9 bytes are not those of its shape"),
    (wire.TensorSummary("input", "float32", (2,), "cuda:0", 8, 2, error="device stuck"),
     "input.0 cannot be read: device stuck"),
])  # fmt: skip
def test_what_cannot_be_saved_is_named(
    scene: Scene, tensor: wire.TensorSummary, words: str
) -> None:
    scene.agent.tensors = (tensor,)
    writing = scene.save().writing
    assert writing.state == "failed"
    assert words in writing.problem
    assert not scene.agent.asked
    assert scene.left_over() == []


def test_a_rank_that_cannot_answer_says_so(scene: Scene) -> None:
    saving = scene.begin()
    (asked,) = scene.ears.asked
    silent = wire.TensorsResponse(
        asked[1].id, "n", 4, 1, error="silent", help="holds the GIL; wait"
    )
    scene.errands.settle("n", silent, 2 * S)
    assert (saving.writing.state, saving.writing.problem) == ("failed", "holds the GIL; wait")


def test_what_the_rank_told_before_is_not_asked_again(scene: Scene) -> None:
    told = wire.TensorsResponse(1, "n", 4, 1, (wire.OpTensors(9, scene.agent.tensors),))
    scene.begin(scene.frame(tensors=told))
    scene.go_on(lambda: bool(scene.ears.asked))
    assert all(isinstance(question, wire.DataRequest) for _, question in scene.ears.asked)


def test_other_data_than_asked_for_is_refused(scene: Scene) -> None:
    whole = scene.agent.__class__.__call__

    def shifted(place: str, question: wire.Request) -> wire.Response:
        answer = whole(scene.agent, place, question)
        if not isinstance(answer, wire.DataResponse):
            return answer
        return wire.DataResponse(
            answer.id, 4, 9, answer.index, answer.offset, 1, answer.data + b"x"
        )

    saving = scene.begin()
    end = time.monotonic() + 20
    while not saving.over and time.monotonic() < end:
        scene.ears.answer(scene.errands.settle, shifted, 2 * S)
        scene.scribe.turn(2 * S)
    assert "other data came than asked for" in saving.writing.problem
    assert scene.left_over() == []


def test_a_folder_that_is_not_there_is_said(scene: Scene, tmp_path: Path) -> None:
    scene.path = tmp_path / "nowhere" / "op.safetensors"
    writing = scene.save().writing
    assert writing.state == "failed"
    assert "No such file or directory; name another file" in writing.problem


def test_giving_up_leaves_nothing(scene: Scene) -> None:
    scene.agent.most = 50_000
    saving = scene.begin()
    scene.go_on(lambda: saving.writing.done > 0)
    saving.give_up("frtop was closed", 3 * S)
    assert scene.left_over() == []


def test_an_unknown_rank_is_said(scene: Scene) -> None:
    view: JudgedRank = rank_view(0, "n")
    assert "rank 3 is not known" in scene.begin(frame_of(view)).writing.problem


def test_giving_up_before_anything_has_come_leaves_nothing(scene: Scene) -> None:
    told = wire.TensorsResponse(1, "n", 4, 1, (wire.OpTensors(9, scene.agent.tensors),))
    saving = scene.begin(scene.frame(tensors=told))
    saving.give_up("frtop was closed", 2 * S)
    assert scene.left_over() == []


def test_what_appears_meanwhile_stays(scene: Scene) -> None:
    scene.agent.most = 50_000
    saving = scene.begin()
    scene.go_on(lambda: saving.writing.done > 0)
    scene.path.write_text("another screen's")
    scene.go_on(lambda: saving.over)
    assert saving.writing.path == str(scene.path.with_name("op-2.safetensors"))
    assert scene.left_over() == ["op-2.safetensors", "op.safetensors"]
    assert scene.path.read_text() == "another screen's"


@pytest.mark.parametrize("shape", [(-2, -125_000), (2**62, 2**62)])
def test_shapes_that_cannot_be_leave_no_file(scene: Scene, shape: tuple[int, ...]) -> None:
    size = 1_000_000 if shape[0] < 0 else 4 * 2**124
    scene.agent.tensors = (summary("input", "float32", shape, size),)
    assert scene.save().writing.state == "failed"
    assert scene.left_over() == []
