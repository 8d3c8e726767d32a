"""Which requests the live source sends by itself, and what waits for a response."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connect.fakes import FakeConnections, S
from frtop_probe import wire
from frtop_tui.connect.agent_requests import MAX_RANKS, STACKS_CHUNK, WATCH_NS, AgentRequests
from frtop_tui.connect.request_tracker import BUSY_RETRY_NS, RESPONSE_NS
from frtop_tui.diagnosis.cases.mismatch.checksums import OpsRequest
from frtop_tui.diagnosis.look_requests import LookRequest
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.state import JobState
from history_rows import HistoryRow, packed

WANTED_OPS = OpsRequest("node0", 3, 2, 1, 9, 16, 5)
SIGNATURE = wire.Signature("all_reduce", "sum")

TIMEOUT_NS = round(wire.RankRequest.timeout_s * 1e9)


class RecordingState(JobState):
    """Records ops and refusals that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, int, int, list[int]]] = []
        self.refusals: list[str] = []

    def apply_ops(self, host: str, key: int, hint: int, ops: tuple[wire.Op, ...]) -> None:
        self.ops.append((host, key, hint, [op.number for op in ops]))

    def set_refused(self, name: str, text: str) -> None:
        self.refusals.append(f"{name}: {text}")


class Scene:
    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.state = RecordingState()
        self.requests = AgentRequests(self.connections.send, self.state)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def frame_of(*ranks: tuple[int, str, int]) -> Frame:
    identity = wire.Identity(1, 1, 0, 0, wire.Job("a", 1, 2))
    views = {
        rank: JudgedRank(rank, host, key, identity, "moving", 0, 0, 0) for rank, host, key in ranks
    }
    return Frame(0, 0, ranks=views)


def snapshots(number: int, keys: Sequence[int], late: Sequence[int] = ()) -> wire.SnapshotResponse:
    """A response in which the dumps of the `late` keys were not reached in time."""
    threads = (
        wire.ThreadStack(1, 1, "MainThread", True, False, (wire.TraceFrame("f", "a.py", 1),)),
    )
    taken = []
    for key in keys:
        failed = wire.StackDump(key, error="deadline")
        dump = failed if key in late else wire.StackDump(key, threads)
        taken.append(wire.Snapshot(key, 1, dumps=(dump,)))
    return wire.SnapshotResponse(number, "n", tuple(taken))


# snapshots for the diagnosis


def test_a_host_gets_one_request_and_one_more_for_snapshots_without_stacks(scene: Scene) -> None:
    wanted = (("n", 1, True), ("m", 1, True), ("n", 2, True), ("n", 3, False))
    scene.requests.want([LookRequest(host, key, (), stacks) for host, key, stacks in wanted])
    scene.requests.update(frame_of(), S)
    assert scene.connections.take_snapshot_requests() == [
        ("n", (1, 2), True), ("m", (1,), True), ("n", (3,), False),
    ]  # fmt: skip


def test_the_next_request_follows_the_response(scene: Scene) -> None:
    scene.requests.want([LookRequest("n", 1, (), True)])
    scene.requests.update(frame_of(), S)
    (first,) = scene.connections.sent
    scene.connections.sent.clear()
    scene.requests.want([LookRequest("n", 2, (), True)])
    scene.requests.update(frame_of(), 2 * S)
    assert not scene.connections.sent
    scene.requests.receive("n", wire.SnapshotResponse(first[1].id, "n", ()), 2 * S)
    scene.requests.update(frame_of(), 2 * S)
    assert scene.connections.take_snapshot_requests() == [("n", (2,), True)]


def test_ranks_beyond_the_limit_follow_the_response(scene: Scene) -> None:
    scene.requests.want([LookRequest("n", key, (), True) for key in range(MAX_RANKS + 2)])
    scene.requests.update(frame_of(), S)
    ((_, request),) = scene.connections.sent
    scene.connections.sent.clear()
    scene.requests.receive("n", wire.SnapshotResponse(request.id, "n", ()), S)
    scene.requests.update(frame_of(), S)
    rest = (MAX_RANKS, MAX_RANKS + 1)
    assert scene.connections.take_snapshot_requests() == [("n", rest, True)]


def test_what_the_diagnosis_wanted_of_a_former_agent_is_forgotten(scene: Scene) -> None:
    scene.connections.up = False
    scene.requests.want([LookRequest("n", 1, (), True), LookRequest("m", 2, (), True)])
    scene.requests.update(frame_of(), S)
    scene.requests.identified("n", same=False)
    scene.requests.identified("m", same=True)
    scene.connections.up = True
    scene.requests.update(frame_of(), S)
    assert scene.connections.take_snapshot_requests() == [("m", (2,), True)]


# stacks that the operator asks for


def test_stacks_that_cannot_be_requested_now_are_requested_later(scene: Scene) -> None:
    frame = frame_of((0, "n", 7), (1, "m", 8))
    scene.connections.up = False
    scene.requests.take_stacks(frame, {0, 1}, S)
    scene.requests.update(frame, S)
    scene.connections.up = True
    scene.requests.update(frame, S)
    assert sorted(scene.connections.take_snapshot_requests()) == [
        ("m", (8,), True),
        ("n", (7,), True),
    ]
    scene.requests.update(frame, 2 * S)
    assert not scene.connections.sent


def respond_to_chunks(
    scene: Scene,
    frame: Frame,
    late: Sequence[int] = (),
    first: int = 0,
) -> list[tuple[int, ...]]:
    """Responds to every chunk in turn; gives the keys of each; the first of `late` fail once."""
    chunks: list[tuple[int, ...]] = []
    now = S
    scene.requests.update(frame, now)
    while scene.connections.sent:
        ((_, request),) = scene.connections.sent  # never two at a time
        scene.connections.sent.clear()
        assert isinstance(request, wire.SnapshotRequest)
        chunks.append(request.keys)
        now += 2 * S
        failed = [key for key in late if not first or len(chunks) <= first]
        scene.requests.receive("n", snapshots(request.id, request.keys, failed), now)
        scene.requests.update(frame, now)
    return chunks


def test_stacks_of_many_ranks_are_requested_in_chunks(scene: Scene) -> None:
    frame = frame_of(*((rank, "n", 100 + rank) for rank in range(30)))
    scene.requests.take_stacks(frame, range(30), S)
    chunks = respond_to_chunks(scene, frame)
    assert [len(chunk) for chunk in chunks] == [STACKS_CHUNK] * 3 + [6]
    assert sorted(key for chunk in chunks for key in chunk) == list(range(100, 130))


def test_ranks_that_the_agent_did_not_reach_in_time_are_requested_once_more(scene: Scene) -> None:
    frame = frame_of(*((rank, "n", 100 + rank) for rank in range(10)))
    scene.requests.take_stacks(frame, range(10), S)
    chunks = respond_to_chunks(scene, frame, late=[101, 109])
    keys = [key for chunk in chunks for key in chunk]
    assert sorted(keys) == sorted([*range(100, 110), 101, 109])


def test_a_chunk_without_a_response_does_not_hold_up_the_next(scene: Scene) -> None:
    frame = frame_of(*((rank, "n", rank) for rank in range(STACKS_CHUNK + 1)))
    scene.requests.take_stacks(frame, range(STACKS_CHUNK + 1), S)
    scene.requests.update(frame, S)
    scene.connections.sent.clear()
    scene.requests.update(frame, S + TIMEOUT_NS)
    assert scene.connections.take_snapshot_requests() == [("n", (STACKS_CHUNK,), True)]


def test_chunks_with_keys_of_a_former_agent_are_given_up(scene: Scene) -> None:
    frame = frame_of(*((rank, "n", rank) for rank in range(3 * STACKS_CHUNK)))
    scene.requests.take_stacks(frame, range(3 * STACKS_CHUNK), S)
    scene.requests.update(frame, S)
    scene.connections.sent.clear()
    scene.requests.disconnected("n", S)
    scene.requests.identified("n", same=False)
    for second in range(2, 30):
        scene.requests.update(frame, second * S)
    assert not scene.connections.sent


def test_stacks_asked_for_after_a_restart_are_requested(scene: Scene) -> None:
    scene.requests.take_stacks(frame_of((0, "n", 7)), [0], S)
    scene.requests.disconnected("n", S)
    scene.requests.identified("n", same=False)
    scene.connections.sent.clear()
    scene.requests.take_stacks(frame_of((0, "n", 8)), [0], S)
    for second in range(2, 5):
        scene.requests.update(frame_of((0, "n", 8)), second * S)
    assert scene.connections.take_snapshot_requests() == [("n", (8,), True)]


# watched ranks


def test_a_watched_rank_is_requested_again_and_again(scene: Scene) -> None:
    frame = frame_of((0, "n", 7))
    scene.requests.watch(frozenset({0}))
    with_stacks = []
    for turn in range(4):
        scene.requests.update(frame, S + turn * WATCH_NS)
        for host, request in scene.connections.sent:
            scene.requests.receive(host, wire.SnapshotResponse(request.id, host, ()), S)
        with_stacks += [stacks for _, _, stacks in scene.connections.take_snapshot_requests()]
    assert with_stacks == [True, False, True, False]


def test_a_rank_that_is_gone_is_not_requested(scene: Scene) -> None:
    scene.requests.watch(frozenset({5}))
    scene.requests.take_stacks(frame_of((0, "n", 7)), [5], S)
    scene.requests.update(frame_of((0, "n", 7)), S)
    assert not scene.connections.sent


# states


def test_a_state_is_not_requested_twice(scene: Scene) -> None:
    scene.requests.request_state("n", S)
    scene.requests.request_state("n", S)
    assert len(scene.connections.sent) == 1
    scene.requests.request_state("n", S, anew=True)
    assert len(scene.connections.sent) == 2
    scene.requests.update(None, S + RESPONSE_NS)
    assert len(scene.connections.sent) == 3


def test_a_state_request_that_cannot_leave_is_sent_later(scene: Scene) -> None:
    scene.connections.up = False
    scene.requests.request_state("n", S)
    scene.connections.up = True
    scene.requests.update(None, S)
    assert not scene.connections.sent
    scene.requests.update(None, S + BUSY_RETRY_NS)
    assert len(scene.connections.sent) == 1
    scene.requests.update(None, S + 2 * BUSY_RETRY_NS)
    assert len(scene.connections.sent) == 1


def test_a_late_state_ends_the_newer_request(scene: Scene) -> None:
    scene.requests.request_state("n", 0)
    scene.requests.update(None, RESPONSE_NS)
    first = scene.connections.sent[0][1].id
    update = wire.Update("n", "i", 1, 0, 0)
    scene.requests.receive("n", wire.StateResponse(first, update), RESPONSE_NS + 1)
    scene.requests.update(None, 100 * S)
    assert len(scene.connections.sent) == 2


def test_a_refused_state_is_reported_and_requested_later(scene: Scene) -> None:
    scene.requests.request_state("n", S)
    ((_, request),) = scene.connections.sent
    scene.requests.receive("n", wire.Error(request.id, "not admitted; ask", "permission"), S)
    assert scene.state.refusals == ["n: not admitted; ask"]
    scene.requests.request_state("n", S)
    scene.requests.update(None, S + RESPONSE_NS - 1)
    assert len(scene.connections.sent) == 1
    scene.requests.update(None, S + RESPONSE_NS)
    assert len(scene.connections.sent) == 2


# ops to compare


def row(number: int, group: int = 1, flags: int = 0) -> HistoryRow:
    return HistoryRow(number, group, number, 1, 0, S, 5, 7, flags)


def ops_response(connections: FakeConnections, *rows: HistoryRow) -> wire.HistoryResponse:
    ((_, request),) = connections.sent
    return wire.HistoryResponse(
        request.id, "node0", 3, wire.History((SIGNATURE,), (), packed(rows))
    )


def test_a_rank_is_asked_for_some_ops_of_a_group(scene: Scene) -> None:
    scene.requests.compare_ops([WANTED_OPS], S)
    ((host, request),) = scene.connections.sent
    assert host == "node0"
    assert isinstance(request, wire.HistoryRequest)
    assert (request.key, request.group, request.first, request.last) == (3, 1, 9, 16)


def test_the_ops_of_a_response_are_in_the_state(scene: Scene) -> None:
    scene.requests.compare_ops([WANTED_OPS], S)
    scene.requests.receive("node0", ops_response(scene.connections, row(9), row(16)), 2 * S)
    assert scene.state.ops == [("node0", 3, 5, [9, 16])]


def test_ops_that_were_not_asked_for_are_left_out(scene: Scene) -> None:
    scene.requests.compare_ops([WANTED_OPS], S)
    rows = (row(8), row(9), row(10, group=2), row(11, flags=2), row(17))
    scene.requests.receive("node0", ops_response(scene.connections, *rows), 2 * S)
    assert scene.state.ops == [("node0", 3, 5, [9])]


def test_without_a_response_the_state_gets_no_ops(scene: Scene) -> None:
    scene.requests.compare_ops([WANTED_OPS], S)
    scene.requests.update(None, S + TIMEOUT_NS)
    assert scene.state.ops == [("node0", 3, 5, [])]
