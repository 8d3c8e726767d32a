"""Looks at real processes: asleep in the kernel, holding the GIL, stopped, gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.host import Host, Operator, Rank, until
from frtop_probe import wire


class Scene:
    """Ranks of all kinds under one agent; keys by what they do."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.fifo = folder / "shard-0412"
        os.mkfifo(self.fifo)
        self.ranks: dict[str, Rank] = {}
        for doing in ("read", "gil", "child", "wait"):
            more = (str(self.fifo),) if doing == "read" else ()
            self.ranks[doing] = host.rank(doing, *more, rank=len(self.ranks))
        self.child = int(self.ranks["child"].line())
        self.ranks["wait"].process.send_signal(signal.SIGSTOP)
        self.operator: Operator = host.operator(host.agent())
        self.host = host
        pids = {
            rank.identity.pid: rank.key for rank in self.operator.state().ranks if rank.identity
        }
        self.keys = {doing: pids[rank.pid] for doing, rank in self.ranks.items()}

    def look(self, doing: str, pids: tuple[int, ...] = (), ops: int = 0) -> wire.Snapshot:
        (look,) = self.operator.look(self.keys[doing], pids=pids, ops=ops)
        return look


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with pytest.MonkeyPatch.context() as patch:
        host = Host(folder, patch)
        try:
            yield Scene(host, folder)
        finally:
            host.close()


def test_a_read_that_does_not_return_shows_call_and_path(scene: Scene) -> None:
    look = scene.look("read", ops=8)
    main = look.processes[0]
    assert (main.syscall, main.file, main.state) == ("read", str(scene.fifo), "S")
    assert main.wchan
    assert [op.number for op in look.ops] == [1]
    assert look.status is not None
    stack = next(t for t in look.dumps[0].threads if t.name == "MainThread")
    assert stack.frames[0].function == "read_for_ever"
    assert stack.frames[0].source == "os.read(descriptor, 1)"
    assert stack.tid == scene.ranks["read"].pid
    assert not stack.owns_gil


def test_threads_are_told_by_native_id(scene: Scene) -> None:
    look = scene.look("read")
    tids = {stack.tid for stack in look.dumps[0].threads}
    known = {thread.pid for thread in look.threads}
    assert tids == (known if sys.version_info >= (3, 11) else {scene.ranks["read"].pid, 0})
    calls = {thread.pid: thread.syscall for thread in look.threads}
    assert calls[scene.ranks["read"].pid] == "read"
    assert len(calls) == 2


def test_who_holds_the_gil_is_named(scene: Scene) -> None:
    look = scene.look("gil")
    (owner,) = [thread for thread in look.dumps[0].threads if thread.owns_gil]
    assert owner.frames[0].function == "hold_the_gil"
    (thread,) = [thread for thread in look.threads if thread.pid == owner.tid]
    assert thread.syscall in ("clock_nanosleep", "nanosleep")


def test_a_stopped_rank_can_be_looked_at(scene: Scene) -> None:
    look = scene.look("wait")
    assert look.processes[0].state == "T"
    assert look.dumps[0].threads


def test_children_are_seen_and_dumped_on_request(scene: Scene) -> None:
    look = scene.look("child", pids=(scene.child, scene.ranks["read"].pid, 1))
    assert [process.pid for process in look.processes] == [scene.ranks["child"].pid, scene.child]
    assert look.processes[1].parent == scene.ranks["child"].pid
    assert [dump.pid for dump in look.dumps] == [scene.ranks["child"].pid, scene.child]
    assert look.dumps[1].threads[0].frames[0].function == "with_a_child"


def test_several_ranks_are_seen_in_one_answer(scene: Scene) -> None:
    begun = time.monotonic()
    looks = scene.operator.look(*scene.keys.values(), 99)
    assert [look.key for look in looks] == list(scene.keys.values())
    assert all(look.dumps[0].threads for look in looks)
    assert time.monotonic() - begun < 2.5


def test_a_look_without_stacks_has_none(scene: Scene) -> None:
    (look,) = scene.operator.look(scene.keys["read"], stacks=False)
    assert look.dumps == ()
    assert look.processes


def test_unknown_ranks_are_refused_with_a_sentence(scene: Scene) -> None:
    answer = scene.operator.ask(wire.SnapshotRequest(9001, (77, 78)))
    assert isinstance(answer, wire.Error)
    assert "no such rank" in answer.text


def test_a_dead_rank_is_gone_but_its_ops_remain(scene: Scene) -> None:
    scene.host.rank("wait", rank=9)
    pid = scene.host.ranks[-1].pid

    def key() -> int | None:
        found = scene.operator.state().ranks
        return next((r.key for r in found if r.identity and r.identity.pid == pid), None)

    scene.keys["dead"] = until(key, "the new rank is adopted")
    scene.host.ranks[-1].kill()
    dead = scene.keys["dead"]
    until(
        lambda: [r for r in scene.operator.state().ranks if r.key == dead and r.exit_info], "death"
    )
    look = scene.look("dead", ops=4)
    assert look.processes == ()
    assert look.dumps[0].error == "gone"
    assert str(pid) in look.dumps[0].help
    assert [op.number for op in look.ops] == [1]


def test_more_looks_than_allowed_at_once_are_refused(scene: Scene) -> None:
    for number in range(12):
        ask = wire.SnapshotRequest(5000 + number, tuple(scene.keys.values()))
        scene.operator.dealer.send(wire.packed(ask))
    answers = [wire.decode_response(wire.unpacked(scene.operator.dealer.recv())) for _ in range(12)]
    refused = [answer for answer in answers if isinstance(answer, wire.Error)]
    assert refused
    assert len(refused) < 12
    assert "busy" in refused[0].text
