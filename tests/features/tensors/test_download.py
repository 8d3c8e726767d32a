"""A download writes all tensors of a pending op to a safetensors file, or no file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
from msgspec.structs import replace

from connect.fakes import FakeConnections, S, frame_of, rank_view
from frtop_probe import wire
from frtop_probe.features.tensors.messages import ReadTensor, SummarizeTensors
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.follow import TensorDownload
from frtop_tui.job.model import Problem
from waiting import wait_for

OP = wire.Op(9, 1, 8812, wire.Signature("all_reduce"), None, 5)
GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3")


def summary(role: str, dtype: str, shape: tuple[int, ...], size: int) -> wire.TensorSummary:
    return wire.TensorSummary(role, dtype, shape, "cpu", size, 0)


def read(content: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Returns dtype, shape and data by name, as the package `safetensors` reads them."""
    found = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


class Agent:
    """Responds as a rank's agent would, from `data`, in pieces of at most `most` bytes."""

    def __init__(self) -> None:
        self.data = [os.urandom(1_000_000), os.urandom(6), b""]
        self.tensors: tuple[wire.TensorSummary, ...] = (
            summary("input", "float32", (250, 1000), 1_000_000),
            summary("input", "bfloat16", (3,), 6),
            summary("output", "int64", (0, 4), 0),
        )
        self.most = 10**9
        self.completes_after = 10**9
        self.requests = 0
        self.under_way = 0

    def __call__(self, host: str, request: wire.Request) -> wire.Response:
        if isinstance(request, SummarizeTensors):
            ops = (wire.OpTensors(9, self.tensors),)
            return wire.TensorsResponse(request.id, host, request.key, 1, ops)
        assert isinstance(request, ReadTensor)
        assert (request.key, request.sequence) == (4, 9)
        self.requests += 1
        address = request.id, request.key, request.offset
        if self.requests > self.completes_after:
            return wire.Piece(*address, error="none", help="the op has completed meanwhile")
        data = self.data[request.index]
        end = request.offset + min(request.size, self.most)
        piece = data[request.offset : end]
        return wire.Piece(*address, len(piece), len(data), piece)


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.files = FileWorker()
        self.agent = Agent()
        self.download: TensorDownload | None = None

    def frame(self, **fields: Any) -> Frame:
        return frame_of(rank_view(3, "n", pending=(OP,), groups={1: GROUP}, **fields))

    def begin(self, frame: Frame | None = None) -> TensorDownload:
        self.download = TensorDownload(
            self.tracker, self.files, frame or self.frame(),
            rank=3, sequence=9, path=self.path, now=S,
        )  # fmt: skip
        return self.download

    def run_until(
        self,
        condition: Callable[[], bool],
        agent: Callable[[str, wire.Request], wire.Response] | None = None,
    ) -> None:
        """Responds to requests, as `self.agent` or another one, until `condition` holds."""

        def holds() -> bool:
            if condition():
                return True
            most = self.connections.respond(self.tracker.receive, agent or self.agent, 2 * S)
            self.agent.under_way = max(self.agent.under_way, most)
            self.files.update(2 * S)
            return False

        wait_for(holds, lambda: f"{self.download and self.download.writing}", pause_s=0.001)

    def save(self, frame: Frame | None = None) -> TensorDownload:
        download = self.begin(frame)
        self.run_until(lambda: download.over)
        return download

    def left_over(self) -> list[str]:
        self.files.close()
        return sorted(path.name for path in self.path.parent.iterdir())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    one = Scene(tmp_path / "op.safetensors")
    yield one
    one.files.close()


def test_the_file_has_the_data_of_the_rank_and_says_what_it_is(scene: Scene) -> None:
    writing = scene.save().writing
    assert (writing.state, writing.problem) == ("written", None)
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
    assert scene.agent.under_way == 2  # never more pieces
    assert scene.left_over() == [scene.path.name]
    with safetensors.safe_open(str(scene.path), framework="np") as file:
        said = file.metadata()
    assert said["job"] == "train.py (node0:29500)"
    assert (said["rank"], said["op"], said["kind"], said["group"], said["sequence"]) == (
        "3", "8812", "all_reduce", "default_pg", "9",
    )  # fmt: skip
    assert said["time"].startswith("2001-09-09T01:46:40")


def test_the_rest_of_a_short_response_is_requested_again(scene: Scene) -> None:
    scene.agent.most = 70_001
    assert scene.save().writing.state == "written"
    assert read(scene.path.read_bytes())["input.0"][2] == scene.agent.data[0]


def test_an_op_that_completes_meanwhile_leaves_only_what_was_there(scene: Scene) -> None:
    scene.path.write_text("precious")
    scene.agent.completes_after = 2
    writing = scene.save().writing
    assert writing.state == "failed"
    assert "all_reduce #8812 of rank 3: the op has completed meanwhile" in str(writing.problem)
    assert scene.left_over() == [scene.path.name]
    assert scene.path.read_text() == "precious"


@pytest.mark.parametrize(("tensor", "words"), [
    (summary("input", "complex128", (2,), 32), "safetensors has no complex128"),
    (summary("input", "float32", (2,), 9), "its 9 bytes do not fit its shape"),
    (wire.TensorSummary("input", "float32", (2,), "cuda:0", 8, 2, error="device stuck"),
     "input.0 cannot be read: device stuck"),
    (summary("input", "float32", (-2, -125_000), 1_000_000), "do not fit its shape"),
    (summary("input", "float32", (2**62, 2**62), 4 * 2**124), ""),
])  # fmt: skip
def test_a_tensor_that_cannot_be_saved_is_named(
    scene: Scene, tensor: wire.TensorSummary, words: str
) -> None:
    scene.agent.tensors = (tensor,)
    writing = scene.save().writing
    assert writing.state == "failed"
    assert words in str(writing.problem)
    assert not scene.agent.requests
    assert scene.left_over() == []


def test_a_rank_that_cannot_respond_is_a_problem(scene: Scene) -> None:
    download = scene.begin()
    (sent,) = scene.connections.sent
    silent = wire.TensorsResponse(sent[1].id, "n", 4, 1, error="silent", help="holds the GIL; wait")
    scene.tracker.receive("n", silent, 2 * S)
    assert (download.writing.state, str(download.writing.problem)) == (
        "failed",
        "holds the GIL; wait",
    )


def test_a_known_description_is_not_requested_again(scene: Scene) -> None:
    described = wire.TensorsResponse(1, "n", 4, 1, (wire.OpTensors(9, scene.agent.tensors),))
    download = scene.begin(scene.frame(tensors=described))
    scene.run_until(lambda: bool(scene.connections.sent))
    assert all(isinstance(request, ReadTensor) for _, request in scene.connections.sent)
    download.give_up(Problem("frtop was closed"), 2 * S)
    assert scene.left_over() == []


def test_data_that_does_not_match_the_request_is_refused(scene: Scene) -> None:
    respond = scene.agent.__class__.__call__

    def shifted(host: str, request: wire.Request) -> wire.Response:
        response = respond(scene.agent, host, request)
        if not isinstance(response, wire.Piece):
            return response
        return replace(response, data=response.data + b"x")

    download = scene.begin()
    scene.run_until(lambda: download.over, shifted)
    assert "the response does not match the request" in str(download.writing.problem)
    assert scene.left_over() == []


def test_a_missing_folder_is_a_problem(scene: Scene, tmp_path: Path) -> None:
    scene.path = tmp_path / "nowhere" / "op.safetensors"
    writing = scene.save().writing
    assert writing.state == "failed"
    assert "No such file or directory; name another file" in str(writing.problem)


def test_a_full_disk_is_a_problem_that_names_the_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    writing = scene.save().writing
    assert writing.state == "failed"
    assert str(writing.problem).startswith(f"{scene.path}: No space left on device")
    assert scene.left_over() == []


def test_giving_up_leaves_no_file(scene: Scene) -> None:
    scene.agent.most = 50_000
    download = scene.begin()
    scene.run_until(lambda: download.writing.done > 0)
    download.give_up(Problem("frtop was closed"), 3 * S)
    assert scene.left_over() == []


def test_an_unknown_rank_is_a_problem(scene: Scene) -> None:
    view: JudgedRank = rank_view(0, "n")
    assert "rank 3 is not known" in str(scene.begin(frame_of(view)).writing.problem)


def test_a_file_that_appears_meanwhile_stays(scene: Scene) -> None:
    scene.agent.most = 50_000
    download = scene.begin()
    scene.run_until(lambda: download.writing.done > 0)
    scene.path.write_text("another screen's")
    scene.run_until(lambda: download.over)
    assert download.writing.path == str(scene.path.with_name("op-2.safetensors"))
    assert scene.left_over() == ["op-2.safetensors", "op.safetensors"]
    assert scene.path.read_text() == "another screen's"
