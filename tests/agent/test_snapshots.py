"""Snapshots of real processes: blocked in the kernel, holding the GIL, stopped, ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.agent_host import Host, Operator, RankProcess
from frtop_probe import wire
from waiting import wait_for


class RankScene:
    """Ranks in different states under one agent; `keys` by their action."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.fifo = folder / "shard-0412"
        os.mkfifo(self.fifo)
        self.ranks: dict[str, RankProcess] = {}
        for action in ("read", "gil", "child", "wait"):
            more = (str(self.fifo),) if action == "read" else ()
            self.ranks[action] = host.rank(action, *more, rank=len(self.ranks))
        self.child = int(self.ranks["child"].read_line())
        self.ranks["wait"].process.send_signal(signal.SIGSTOP)
        self.operator: Operator = host.operator(host.agent())
        self.host = host
        pids = {
            rank.identity.pid: rank.key for rank in self.operator.state().ranks if rank.identity
        }
        self.keys = {action: pids[rank.pid] for action, rank in self.ranks.items()}

    def snapshot(self, action: str, pids: tuple[int, ...] = (), ops: int = 0) -> wire.Snapshot:
        (snapshot,) = self.snapshots(self.keys[action], pids=pids, ops=ops)
        return snapshot

    def snapshots(self, *keys: int, **more: Any) -> tuple[wire.Snapshot, ...]:
        """Asks again for what a busy host did not give within the agent's two seconds."""

        def in_time() -> tuple[wire.Snapshot, ...] | None:
            found = self.operator.snapshots(*keys, **more)
            late = any(dump.error == "deadline" for one in found for dump in one.dumps)
            return None if late else found

        return wait_for(in_time, "snapshots without a deadline that passed")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankScene]:
    folder = tmp_path_factory.mktemp("scene")
    with pytest.MonkeyPatch.context() as patch:
        host = Host(folder, patch)
        try:
            yield RankScene(host, folder)
        finally:
            host.close()


def test_a_blocked_read_shows_call_path_and_threads(scene: RankScene) -> None:
    snapshot = scene.snapshot("read", ops=8)
    main = snapshot.processes[0]
    assert (main.syscall, main.file, main.state) == ("read", str(scene.fifo), "S")
    assert main.wchan
    assert [op.number for op in snapshot.ops] == [1]
    assert snapshot.status is not None
    stack = next(t for t in snapshot.dumps[0].threads if t.name == "MainThread")
    assert stack.frames[0].function == "read_for_ever"
    assert stack.frames[0].source == "os.read(descriptor, 1)"
    assert stack.tid == scene.ranks["read"].pid
    assert not stack.owns_gil
    tids = {stack.tid for stack in snapshot.dumps[0].threads}
    calls = {thread.pid: thread.syscall for thread in snapshot.threads}
    assert tids == (set(calls) if sys.version_info >= (3, 11) else {stack.tid, 0})
    assert len(calls) == 2
    assert calls[stack.tid] == "read"


def test_the_gil_holder_is_found(scene: RankScene) -> None:
    snapshot = scene.snapshot("gil")
    (owner,) = [thread for thread in snapshot.dumps[0].threads if thread.owns_gil]
    assert owner.frames[0].function == "hold_the_gil"
    (thread,) = [thread for thread in snapshot.threads if thread.pid == owner.tid]
    assert thread.syscall in ("clock_nanosleep", "nanosleep")


def test_children_are_listed_and_dumped_on_request(scene: RankScene) -> None:
    snapshot = scene.snapshot("child", pids=(scene.child, scene.ranks["read"].pid, 1))
    assert [process.pid for process in snapshot.processes] == [
        scene.ranks["child"].pid,
        scene.child,
    ]
    assert snapshot.processes[1].parent == scene.ranks["child"].pid
    assert [dump.pid for dump in snapshot.dumps] == [scene.ranks["child"].pid, scene.child]
    assert snapshot.dumps[1].threads[0].frames[0].function == "with_a_child"


def test_one_response_has_snapshots_of_several_ranks(scene: RankScene) -> None:
    snapshots = scene.snapshots(*scene.keys.values(), 99)
    assert [snapshot.key for snapshot in snapshots] == list(scene.keys.values())
    assert all(snapshot.dumps[0].threads for snapshot in snapshots)
    assert snapshots[-1].processes[0].state == "T"  # a stopped rank has stacks, too
    (plain,) = scene.operator.snapshots(scene.keys["read"], stacks=False)
    assert plain.dumps == ()
    assert plain.processes


def test_unknown_ranks_are_refused(scene: RankScene) -> None:
    response = scene.operator.request(wire.SnapshotRequest(9001, (77, 78)))
    assert isinstance(response, wire.Error)
    assert "no longer has this rank" in response.text


def test_a_dead_rank_has_ops_but_no_stacks(scene: RankScene) -> None:
    scene.host.rank("wait", rank=9)
    pid = scene.host.ranks[-1].pid

    def key() -> int | None:
        found = scene.operator.state().ranks
        return next((r.key for r in found if r.identity and r.identity.pid == pid), None)

    scene.keys["dead"] = wait_for(key, "the agent tracks the new rank")
    scene.host.ranks[-1].kill()
    dead = scene.keys["dead"]
    wait_for(
        lambda: [r for r in scene.operator.state().ranks if r.key == dead and r.exit_info], "death"
    )
    snapshot = scene.snapshot("dead", ops=4)
    assert snapshot.processes == ()
    assert snapshot.dumps[0].error == "gone"
    assert str(pid) in snapshot.dumps[0].help
    assert [op.number for op in snapshot.ops] == [1]


def test_too_many_snapshot_requests_are_refused(scene: RankScene) -> None:
    for number in range(12):
        request = wire.SnapshotRequest(5000 + number, (scene.keys["wait"],))
        scene.operator.dealer.send(wire.to_frame(request))
    responses = [
        wire.decode_response(wire.from_frame(scene.operator.dealer.recv())) for _ in range(12)
    ]
    refused = [response for response in responses if isinstance(response, wire.Error)]
    assert refused
    assert len(refused) < 12
    assert "busy" in refused[0].text
