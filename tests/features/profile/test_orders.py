"""Orders for torch's profiler: who cannot is named, and whatever fails leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.fakes import FakeConnections, S, frame_of, rank_view
from features.profile.test_merged import merged
from frtop_probe import wire
from frtop_probe.features.profile.files import read_piece
from frtop_probe.features.profile.messages import (
    ProfileFile,
    ProfileRank,
    ProfileResponse,
    ReadProfile,
)
from frtop_tui.connect.pieces import FIRST_PIECE
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.profile.follow import ProfileOrders
from frtop_tui.features.profile.model import ProfileOptions, ProfileProgress
from frtop_tui.features.profile.withdrawals import AWAITED_NS, REPEATED_NS, ProfileWithdrawals
from frtop_tui.features.profile.words import progress_text
from frtop_tui.job.model import HostView
from waiting import wait_for

WALL = 10**18
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 5.0, "dur": 1.0}


def trace(events: int = 3) -> bytes:
    document = {"baseTimeNanoseconds": WALL, "traceEvents": [EVENT] * events}
    return json.dumps(document).encode()


class Agent:
    """Responds as the agents of all ranks would. A rank's key is its number and 1."""

    def __init__(self) -> None:
        self.files = {"trace": trace()}
        self.ready_after = 2
        self.why: dict[int, tuple[str, str]] = {}
        """By key: an error of the rank, with its text."""
        self.asked: dict[int, list[str]] = {}
        self.pieces = 0
        self.hold: set[int] = set()
        """Keys of ranks whose pieces are on their way."""
        self.held: list[tuple[str, wire.Request]] = []
        self.deaf = 0
        """So many withdrawals of each rank do not reach it."""
        self.busy = 0
        """So many requests are refused first, as an agent does that has many under way."""

    def __call__(self, host: str, request: wire.Request) -> wire.Response | None:
        if self.busy:
            self.busy -= 1
            return wire.Error(request.id, "busy", "busy")
        if isinstance(request, wire.HistoryRequest):
            return wire.HistoryResponse(request.id, host, request.key, wire.History())
        if isinstance(request, ReadProfile) and request.key in self.hold:
            self.held.append((host, request))
            return None
        if isinstance(request, ReadProfile):
            return self._piece(request)
        assert isinstance(request, ProfileRank)
        asked = self.asked.setdefault(request.key, [])
        asked.append(request.action)
        error, text = self.why.get(request.key, ("", ""))
        if request.action == "withdraw" and asked.count("withdraw") <= self.deaf:
            error, text = "deadline", "the profiler is being started or stopped"
        ready = len(asked) > self.ready_after
        files = tuple(ProfileFile(name, len(data)) for name, data in self.files.items())
        return ProfileResponse(
            request.id, host, request.key, S,
            stage="" if error else "ready" if ready else "running", first=1, last=2,
            clocks=((S, WALL), (2 * S, WALL + S)) if ready else (), files=files if ready else (),
            error=error, help=text,
        )  # fmt: skip

    def _piece(self, request: ReadProfile) -> wire.Response:
        self.pieces += 1
        data = self.files[request.name]
        piece = data[request.offset : request.offset + request.size]
        place = (request.id, request.key, request.offset)
        return wire.Piece(*place, len(piece), len(data), zlib.compress(piece), packed=True)


class Scene:
    def __init__(self, path: Path) -> None:
        self.path, self.agent, self.connections = path, Agent(), FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.orders = ProfileOrders(self.tracker)
        self.now = S
        self.frame = frame_of(*(rank_view(rank, "n") for rank in range(4)))

    def order(self, *ranks: int, frame: Frame | None = None, **options: Any) -> ProfileProgress:
        """Gives an order and returns how it begins."""
        chosen = ProfileOptions(**{"steps": 2, "wait_s": 5.0, **options})
        self.orders.order(frame or self.frame, ranks, chosen, self.path, self.now)
        return self.progress

    @property
    def progress(self) -> ProfileProgress:
        assert self.orders.progress is not None
        return self.orders.progress

    def step(self) -> None:
        """Half a second later."""
        self.now += S // 2
        self.connections.sent += self.agent.held
        self.agent.held = []
        self.connections.respond(self.tracker.receive, self.agent, self.now)
        self.tracker.update(self.now)
        self.orders.update(self.frame, self.now)

    def run_until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if not condition():
                self.step()
            return condition()

        wait_for(holds, lambda: str(self.progress), pause_s=0.002)

    def finish(self) -> ProfileProgress:
        self.run_until(lambda: not self.orders.under_way)
        return self.progress

    def names(self) -> list[str]:
        self.orders.close(self.now)
        return sorted(path.name for path in self.path.parent.iterdir())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "out"
    folder.mkdir()
    one = Scene(folder / "out.json.gz")
    yield one
    one.orders.close(one.now)


def reasons(progress: ProfileProgress) -> dict[int, str]:
    return {rank.rank: rank.text for rank in progress.ranks if rank.stage == "failed"}


def test_a_rank_that_holds_the_gil_is_named_and_the_others_are_there(scene: Scene) -> None:
    silent = "process 102 lives but has run no Python for 8 s"
    scene.agent.why[2 + 1] = ("silent", silent)
    scene.order(0, 1, 2)
    scene.run_until(lambda: [rank.stage for rank in scene.progress.ranks].count("done") == 2)
    assert silent in progress_text(scene.progress)  # a person sees what is waited for
    progress = scene.finish()
    assert progress.state == "written"
    assert reasons(progress) == {2: f"{silent}: the order is withdrawn"}
    about = merged(scene.path)["otherData"]
    assert list(about["ranks"]) == ["0", "1"]
    assert silent in about["missing"][0]
    assert scene.agent.asked[3][-1] == "withdraw"
    assert scene.agent.asked[3].count("begin") == scene.agent.asked[3].index("withdraw") <= 4


@pytest.mark.parametrize(
    "why", [("silent", "it runs no Python"), ("busy", "another operator profiles this rank")]
)
def test_a_rank_that_is_free_later_is_profiled_too(scene: Scene, why: tuple[str, str]) -> None:
    scene.agent.why[1] = why
    scene.order(0, 1)
    scene.run_until(lambda: why[1] in progress_text(scene.progress))
    scene.agent.why.clear()
    progress = scene.finish()
    assert (progress.state, reasons(progress)) == ("written", {})


def test_eight_ranks_of_a_host_that_takes_four_requests_at_a_time(scene: Scene) -> None:
    scene.frame = frame_of(*(rank_view(rank, "n") for rank in range(8)))
    scene.agent.busy = 4
    scene.order(*range(8))
    progress = scene.finish()
    assert reasons(progress) == {}
    assert progress.state == "written"


def test_a_rank_that_dies_while_it_profiles_is_named(scene: Scene) -> None:
    scene.agent.ready_after = 4
    scene.order(0, 1)
    scene.run_until(lambda: scene.progress.ranks[1].stage == "running")
    scene.agent.why[2] = ("gone", "process 101 has ended: see how it ended")
    progress = scene.finish()
    assert reasons(progress) == {1: "process 101 has ended: see how it ended"}
    assert progress.state == "written"


def test_a_rank_that_dies_after_it_has_written_is_in_the_trace(scene: Scene) -> None:
    scene.agent.files["trace"] = trace(60_000)
    assert len(scene.agent.files["trace"]) > 2 * FIRST_PIECE
    scene.order(1)
    scene.run_until(lambda: scene.agent.pieces > 0)
    scene.agent.why[2] = ("gone", "process 101 has ended: see how it ended")
    scene.frame = frame_of(rank_view(0, "n"))  # nobody shows it any more
    progress = scene.finish()
    assert (progress.state, reasons(progress)) == ("written", {})


def test_a_withdrawal_is_repeated_until_the_rank_has_reported_it(scene: Scene) -> None:
    scene.agent.deaf = 2
    scene.order(0, 1)
    assert scene.finish().state == "written"
    assert [asked.count("withdraw") for asked in scene.agent.asked.values()] == [3, 3]


def test_a_rank_that_never_hears_it_holds_nobody_up_for_long(scene: Scene) -> None:
    scene.agent.deaf = 1000
    scene.order(0)
    assert scene.finish().state == "written"

    withdrawals, begun = ProfileWithdrawals(scene.tracker), scene.now
    withdrawals.withdraw(rank_view(1, "n"), scene.tracker.agent("n"), "ab", begun, awaited=True)
    while scene.now - begun < 2 * REPEATED_NS:
        assert withdrawals.are_awaited(scene.now) == (scene.now - begun < AWAITED_NS)
        scene.step()
        withdrawals.update(scene.now)
    assert 3 < len(scene.agent.asked[2]) <= REPEATED_NS / S


def test_another_operator_is_not_disturbed(scene: Scene) -> None:
    scene.agent.why[1] = ("busy", "another operator profiles this rank")
    scene.order(0)
    progress = scene.finish()
    assert progress.state == "failed"
    assert "another operator profiles this rank" in str(progress.problem)
    assert scene.names() == []


def test_what_is_complete_is_written_without_the_others(scene: Scene) -> None:
    scene.agent.why[2] = ("silent", "process 101 lives but has run no Python for 8 s")
    scene.order(0, 1)
    assert not scene.progress.can_be_ended
    scene.run_until(lambda: scene.progress.ranks[0].stage == "done")
    assert scene.progress.can_be_ended
    scene.orders.withdraw(scene.now, keep=True)
    progress = scene.finish()
    assert progress.state == "written"
    why = "process 101 lives but has run no Python for 8 s: the order was ended before it was done"
    assert reasons(progress) == {1: why}
    assert why in merged(scene.path)["otherData"]["missing"][0]
    assert scene.agent.asked[2][-1] == "withdraw"
    assert scene.names() == ["out.json.gz"]


def test_a_file_on_its_way_is_waited_for_until_asked_once_more(scene: Scene) -> None:
    scene.agent.hold = {1, 2}  # no piece of these comes
    scene.agent.why[3] = ("silent", "it runs no Python")
    scene.order(0, 1, 2)
    scene.run_until(lambda: [one.stage for one in scene.progress.ranks][:2] == ["fetching"] * 2)
    scene.orders.withdraw(scene.now, keep=True)
    scene.step()
    assert [one.stage for one in scene.progress.ranks] == ["fetching", "fetching", "failed"]
    scene.orders.withdraw(scene.now, keep=True)  # nothing is here yet: it goes on
    scene.agent.hold = {2}
    scene.run_until(lambda: scene.progress.ranks[0].stage == "done")
    scene.orders.withdraw(scene.now, keep=True)
    progress = scene.finish()
    assert progress.state == "written"
    assert [*reasons(progress)] == [1, 2]
    assert list(merged(scene.path)["otherData"]["ranks"]) == ["0"]


def test_where_nothing_is_complete_nothing_is_written(scene: Scene) -> None:
    scene.agent.ready_after = 1000
    scene.order(0, 1)
    scene.step()
    scene.orders.withdraw(scene.now, keep=True)
    assert scene.finish().state == "withdrawn"
    assert scene.names() == []


def test_a_full_disk_here_ends_the_order_and_withdraws_it(scene: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not possible here")
    try:
        before = folder / "out.json.gz"
        before.write_bytes(b"mine")
        scene.path = before
        scene.agent.files["trace"] = trace(60_000)
        scene.order(0, 1)
        progress = scene.finish()
        assert progress.state == "failed"
        assert progress.problem is not None
        assert str(progress.problem) == (
            f"{folder}: No space left on device; name another file, or make room there"
        )
        scene.step()
        assert [asked[-1] for asked in scene.agent.asked.values()] == ["withdraw"] * 2
        assert scene.names() == ["out.json.gz"]
        assert before.read_bytes() == b"mine"
        assert os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize > 2 << 20
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_that_is_there_is_left(scene: Scene) -> None:
    scene.path.write_bytes(b"mine")
    (scene.path.parent / "out-2.rank0.execution.json").write_bytes(b"mine too")
    scene.agent.files["execution"] = b"{}"
    scene.order(0, execution=True)
    progress = scene.finish()
    assert progress.path.endswith("out-2.json.gz")
    assert scene.path.read_bytes() == b"mine"
    assert len(scene.names()) == 4
    assert (scene.path.parent / "out-2.rank0.execution.json").read_bytes() == b"mine too"


def test_nobody_is_asked_where_that_may_not_be(scene: Scene) -> None:
    reads_only = replace(scene.frame, hosts=(HostView("n", "reporting", may_act=False),))
    scene.order(0, frame=reads_only)
    scene.frame = reads_only
    assert "our key may only read on n" in str(scene.finish().problem)
    read_only = replace(scene.frame, read_only="this screen was started with --read-only")
    scene.frame = read_only
    scene.order(0)
    assert "started with --read-only" in str(scene.finish().problem)
    view = rank_view(0, "n")
    scene.frame = frame_of(replace(view, identity=replace(view.identity, prepared=False)))
    scene.order(0)
    assert "it has no recorder" in str(scene.finish().problem)
    assert scene.agent.asked == {}


def test_more_than_64_ranks_are_too_many(scene: Scene) -> None:
    scene.frame = frame_of(*(rank_view(rank, "n") for rank in range(65)))
    progress = scene.order(*range(65))
    assert progress.state == "failed"
    assert str(progress.problem) == "65 ranks are too many; mark at most 64"
    assert scene.connections.sent == []


def test_what_an_agent_sends_is_checked(scene: Scene) -> None:
    scene.agent.files = {"../../evil": b"x"}
    scene.order(0)
    assert "torch wrote no trace" in str(scene.finish().problem)
    scene.agent.files = {"trace": b'{"traceEvents": [{"ph": "X", "name": "x", "ts": []}]}'}
    scene.order(0)
    assert "the trace of rank 0 cannot be read" in str(scene.finish().problem)
    assert scene.names() == []


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever owns the folder may put one there between the listing and the reading."""
    os.mkfifo(tmp_path / "1-1.trace.json")
    with pytest.raises(OSError, match="not the rank's own file"):
        read_piece(tmp_path / "1-1.trace.json", 0, 10)
