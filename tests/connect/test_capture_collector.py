"""A capture has what the ranks send in time, and names what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.fakes import FakeConnections, S, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.connect import capture_collector
from frtop_tui.connect.capture_collector import (
    DEADLINE_NS,
    HISTORIES_AT_ONCE,
    HOSTS_AT_ONCE,
    CaptureCollector,
)
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.confirmation import Settling
from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict, Why
from frtop_tui.diagnosis.thresholds import COMPARED_NS, HEALTHY_NS, SLOW_CAUSE_NS
from frtop_tui.files import capture
from frtop_tui.job.statistics import JobStatistics
from history_rows import HistoryRow, packed
from waiting import wait_for

OP = wire.Op(9, 1, 8812, wire.Signature("all_reduce"), None, 5)


def respond(host: str, request: wire.Request) -> wire.Response | None:
    """Responds to everything, except on the host `deaf`."""
    if host == "deaf":
        return None
    if isinstance(request, wire.SnapshotRequest):
        taken = tuple(wire.Snapshot(key, 1) for key in request.keys)
        return wire.SnapshotResponse(request.id, host, taken)
    if isinstance(request, wire.HistoryRequest):
        return wire.HistoryResponse(request.id, host, request.key, wire.History())
    assert isinstance(request, wire.RankRequest)
    assert request.in_capture  # a feature's
    return wire.TensorsResponse(request.id, host, request.key, 1)


Agent = Callable[[str, wire.Request], wire.Response | None]


class Scene:
    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.files = FileWorker()
        self.written: list[tuple[Frame, Sequence[int], Sequence[str]]] = []
        self.now = S
        self.at_once: list[list[str]] = []
        self.kinds: list[str] = []
        self.devices: set[bool] = set()

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

    def begin(self, frame: Frame, **more: Any) -> CaptureCollector:
        known = {"path": Path("x.cap"), "automatic": True, "now": self.now, "write": self.write}
        return CaptureCollector(self.tracker, self.files, frame, **{**known, **more})

    def run(
        self, one: CaptureCollector, frame: Frame, seconds: int = 60, agent: Agent = respond
    ) -> None:
        self.sees(one, frame, seconds, agent)

        def is_over() -> bool:
            self.files.update(self.now)
            return one.over

        wait_for(is_over, "the capture is over", pause_s=0.001)

    def sees(
        self, one: CaptureCollector, frame: Frame, seconds: int, agent: Agent = respond
    ) -> None:
        """Lets time pass, up to the moment when all was collected."""
        for _ in range(20 * seconds):
            self.now += S // 20
            now_frame = replace(frame, now_ns=self.now, wall_ns=self.now)
            one.update(now_frame, self.now)
            self.at_once.append([host for host, _ in self.connections.sent])
            self.devices |= {
                request.devices
                for _, request in self.connections.sent
                if hasattr(request, "devices")
            }
            self.kinds += [type(request).__name__ for _, request in self.connections.sent]
            self.connections.respond(self.tracker.receive, agent, self.now)
            self.tracker.update(self.now)
            if one.writing.state == "writing":
                break


@pytest.fixture
def scene() -> Iterator[Scene]:
    one = Scene()
    yield one
    one.files.close()


def ranks(hosts: Sequence[str], each: int, **fields: Any) -> list[JudgedRank]:
    return [rank_view(n, hosts[n // each], **fields) for n in range(len(hosts) * each)]


def test_all_ranks_are_asked_for_everything(scene: Scene) -> None:
    frame = frame_of(*ranks(["a", "b"], 2, pending=(OP,)))
    one = scene.begin(frame)
    scene.run(one, frame)
    assert (one.writing.state, one.writing.size, one.writing.problem) == ("written", 4321, None)
    assert (one.writing.done, one.writing.total, one.writing.automatic) == (4, 4, True)
    ((written, histories, missing),) = scene.written
    assert (histories, list(missing)) == ([0, 1, 2, 3], [])
    assert written.now_ns > frame.now_ns  # it has the answers in it
    known = {"HistoryRequest": 4, "SnapshotRequest": 2}
    asked = Counter(scene.kinds)
    assert {kind: count for kind, count in asked.items() if kind in known} == known
    assert all(count == 4 for kind, count in asked.items() if kind not in known)  # of features
    assert scene.kinds[:4] == ["SnapshotRequest", "HistoryRequest"] * 2


def test_a_host_has_few_requests_at_a_time_and_hosts_are_asked_in_parallel(scene: Scene) -> None:
    frame = frame_of(*ranks([f"n{n}" for n in range(128)], 8))
    one = scene.begin(frame)
    scene.run(one, frame)
    assert one.writing.state == "written"
    assert max(len(set(places)) for places in scene.at_once) == HOSTS_AT_ONCE
    assert max(max(Counter(places).values(), default=0) for places in scene.at_once) == (
        HISTORIES_AT_ONCE
    )
    ((_, histories, missing),) = scene.written
    assert (len(histories), list(missing)) == (1024, [])


def test_a_host_that_does_not_answer_is_named_and_nobody_else_waits(scene: Scene) -> None:
    frame = frame_of(*ranks(["a", "deaf"], 2))
    begun = scene.now
    one = scene.begin(frame)
    scene.run(one, frame)
    assert scene.now - begun <= DEADLINE_NS + S
    ((_, histories, missing),) = scene.written
    assert histories == [0, 1]
    assert "no history of ranks 2-3: no response in 20 s" in missing
    assert "no stacks of ranks 2-3: no response in 20 s" in missing
    assert one.writing.state == "written"
    assert "ranks 2-3" in str(one.writing.problem)
    assert one.writing.done == 4


def test_ranks_that_are_not_reported_are_named(scene: Scene) -> None:
    frame = frame_of(rank_view(0, "a"), rank_view(1, "b", state="unreachable"))
    scene.run(scene.begin(frame), frame)
    ((_, histories, missing),) = scene.written
    assert histories == [0]
    assert list(missing) == ["no stacks or history of rank 1: b is unreachable"]


def test_of_very_many_ranks_only_the_newest_ops(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_collector, "MAX_ROWS", 100)
    frame = frame_of(*ranks(["a"], 4))
    one = scene.begin(frame)
    one.update(frame, scene.now)
    scene.connections.respond(scene.tracker.receive, respond, scene.now)
    one.update(frame, scene.now)
    requests = [request for _, request in scene.connections.sent]
    assert [request.limit for request in requests if isinstance(request, wire.HistoryRequest)] == (
        [25] * HISTORIES_AT_ONCE
    )


def test_a_second_capture_meanwhile_is_rejected(scene: Scene) -> None:
    one = scene.begin(frame_of(*ranks(["a"], 1)))
    one.refuse(Path("y.cap"))
    assert str(one.writing.problem) == (
        "already capturing: y.cap was not started; try again afterwards"
    )
    assert one.writing.state == "collecting"


def test_without_ranks_the_capture_fails(scene: Scene) -> None:
    writing = scene.begin(Frame(0, 0)).writing
    assert writing.state == "failed"
    assert "no rank of a job is known yet" in str(writing.problem)


@pytest.mark.parametrize("named", [("x.cap",), ()])
def test_a_file_that_cannot_be_written_is_a_problem(scene: Scene, named: tuple[str, ...]) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device", *named)

    frame = frame_of(*ranks(["a"], 1))
    one = scene.begin(frame, write=full)
    scene.run(one, frame)
    assert (one.writing.state, str(one.writing.problem)) == (
        "failed", "x.cap: No space left on device; name another file, or make room there",
    )  # fmt: skip


@pytest.mark.parametrize("before", [False, True])
def test_an_existing_file_is_replaced_and_a_later_one_stays(
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
    one = scene.begin(frame, path=path, write=write)
    scene.run(one, frame)
    assert one.writing.path == str(path if before else tmp_path / "hang-2.cap")
    assert capture.read(Path(one.writing.path)).ranks
    assert before or path.read_text() == "another screen's"


def test_a_response_longer_than_the_request_allows_is_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_collector, "MAX_ROWS", 1)
    endless = wire.History(columns=packed((HistoryRow(1, 1, 1, 0, 0, 1, 1, 1),) * 100))

    def generous(host: str, request: wire.Request) -> wire.Response | None:
        response = respond(host, request)
        if isinstance(response, wire.HistoryResponse):
            return wire.HistoryResponse(response.id, host, response.key, endless)
        return response

    frame = frame_of(*ranks(["a"], 1))
    one = scene.begin(frame)
    scene.run(one, frame, agent=generous)
    _, histories, missing = scene.written[0]
    assert not histories
    assert "no history of rank 0: the response is longer than the request allows" in missing


def test_a_job_that_ended_without_a_recorder_is_captured_as_it_was_seen(scene: Scene) -> None:
    """Its launcher kills all ranks in the moment in which the first death leads to a capture."""
    ended = {"state": "dead", "exit_info": wire.ExitInfo(1, signal=9)}
    views = ranks(["a"], 2, **ended)
    frame = frame_of(*(replace(v, identity=replace(v.identity, prepared=False)) for v in views))
    one = scene.begin(frame)
    scene.run(one, frame)
    assert (one.writing.state, one.writing.done) == ("written", 2)
    assert scene.kinds == []


MALFORMED = wire.HistoryColumns(
    wire.HistoryColumn(1, 1, b"\1\1"), wire.HistoryColumn(1, 4, b"\1"), *[wire.HistoryColumn(0)] * 9
)


def test_columns_that_do_not_fit_together_are_named_not_kept(scene: Scene) -> None:
    def hostile(host: str, request: wire.Request) -> wire.Response | None:
        response = respond(host, request)
        if isinstance(response, wire.HistoryResponse) and request.id % 2:
            history = wire.History(columns=MALFORMED)
            return wire.HistoryResponse(response.id, host, response.key, history)
        return response

    frame = frame_of(*ranks(["a"], 2))
    scene.run(scene.begin(frame), frame, agent=hostile)
    ((_, histories, missing),) = scene.written
    assert len(histories) == 1
    (said,) = missing
    assert "the response is malformed (group does not have 3 rows)" in said


SUSPECT = Verdict("stuck", "suspect", "none", (), "x", Why("unknown", "unknown", ""), "")
SLOW = replace(SUSPECT, kind="slow", confidence="confirmed", progress="active")
TOLD = JobStatistics(0, 1, 0)


@pytest.mark.parametrize(("frame", "watched_s", "settled"), [
    (frame_of(*ranks(["a"], 2), health="healthy", statistics=TOLD), 1, False),
    (frame_of(*ranks(["a"], 2), health="healthy", statistics=TOLD), HEALTHY_NS / S, True),
    (frame_of(*ranks(["a"], 2), health="healthy"), HEALTHY_NS / S, False),
    (frame_of(*ranks(["a"], 2), health="healthy"), COMPARED_NS / S, True),
    (frame_of(*ranks(["a"], 2), health="slow", verdicts=(SLOW,)), 0, False),
    (frame_of(*ranks(["a"], 2), health="slow", verdicts=(SLOW,)), SLOW_CAUSE_NS / S, True),
    (frame_of(*ranks(["a"], 2), health="slow",
              verdicts=(replace(SLOW, why=Why("data", "data", "")),)), 0, True),
    (frame_of(*ranks(["a"], 2, pending=(OP,)), health="healthy", statistics=TOLD), 0, False),
    (frame_of(*ranks(["a"], 2, pending=(OP,)), health="healthy", statistics=TOLD),
     HEALTHY_NS / S, True),
    (frame_of(*ranks(["a"], 2, state="stopped"), health="healthy"), 0, False),
    (frame_of(*ranks(["a"], 2), health="undecided"), 9, False),
    (frame_of(*ranks(["a"], 2), health="ended"), 0, True),
    (frame_of(*ranks(["a"], 2), health="hung", verdicts=(SUSPECT,)), 9, False),
    (frame_of(*ranks(["a"], 2), health="hung",
              verdicts=(replace(SUSPECT, confidence="confirmed"),)), 0, True),
])  # fmt: skip
def test_when_a_verdict_is_settled(frame: Frame, watched_s: float, settled: bool) -> None:
    settling = Settling(0)
    settling.is_over(frame, 0)
    assert settling.is_over(frame, round(watched_s * S)) is settled


def test_a_job_that_waited_until_now_is_not_settled() -> None:
    settling = Settling(0)
    settling.is_over(frame_of(*ranks(["a"], 2), health="undecided"), 0)
    frame = frame_of(*ranks(["a"], 2), health="healthy", statistics=TOLD)
    assert not settling.is_over(frame, 2 * HEALTHY_NS)


@pytest.mark.parametrize(("settle_s", "waits_s"), [(0, 0), (10, 10)])
def test_a_verdict_is_waited_for_only_where_it_is_asked(
    scene: Scene, settle_s: int, waits_s: int
) -> None:
    frame = frame_of(*ranks(["a"], 1), health="hung", verdicts=(SUSPECT,))
    begun = scene.now
    scene.run(scene.begin(frame, settle_ns=settle_s * S), frame)
    assert waits_s * S <= scene.now - begun < (waits_s + 1) * S


@pytest.mark.parametrize(("back_s", "waits_s", "missing"), [
    (4, 5, []),
    (99, 10, ["no news of ranks 2-3: they stopped reporting while this was collected"]),
])  # fmt: skip
def test_hosts_that_the_requests_silence_may_report_again_before_the_frame_is_written(
    scene: Scene, back_s: int, waits_s: int, missing: list[str]
) -> None:
    confirmed = replace(SUSPECT, confidence="confirmed")
    before = frame_of(*ranks(["a", "b"], 2), health="hung", verdicts=(confirmed,))
    gone = {rank: replace(view, state="unreachable") for rank, view in before.ranks.items()}
    silenced = replace(
        before,
        ranks={**before.ranks, **{rank: gone[rank] for rank in (2, 3)}},
        health="undecided", verdicts=(SUSPECT,),
    )  # fmt: skip
    suspected = replace(before, verdicts=(SUSPECT,))
    one, begun = scene.begin(before), scene.now
    scene.sees(one, silenced, back_s)
    scene.sees(one, suspected, 1)
    scene.run(one, before)
    ((written, _, said),) = scene.written
    assert list(said) == missing
    assert written.verdicts == ((SUSPECT,) if missing else (confirmed,))
    assert waits_s * S <= scene.now - begun < (waits_s + 1) * S


def test_an_interrupted_capture_has_what_came_and_names_the_rest(scene: Scene) -> None:
    frame = frame_of(*ranks(["a", "deaf"], 2), health="hung", verdicts=(SUSPECT,))
    one = scene.begin(frame, settle_ns=10 * S)
    for _ in range(20):
        scene.now += S // 20
        one.update(replace(frame, now_ns=scene.now), scene.now)
        scene.connections.respond(scene.tracker.receive, respond, scene.now)
    assert one.writing.state == "collecting"
    one.finish(scene.now)
    scene.run(one, frame)
    ((_, histories, missing),) = scene.written
    assert histories == [0, 1]
    assert list(missing) == [
        "no stacks of ranks 2-3: it was interrupted",
        "no history of ranks 2-3: it was interrupted",
    ]
    assert (one.writing.state, one.writing.done) == ("written", 4)


def test_a_redacted_capture_says_so_to_its_writer(scene: Scene) -> None:
    said: list[object] = []

    def write(*_: object, **options: object) -> int:
        said.append(options.get("redact"))
        return 1

    frame = frame_of(*ranks(["a"], 1))
    for redact in (False, True):
        scene.run(scene.begin(frame, redact=redact, write=write), frame)
    assert said == [None, True]
