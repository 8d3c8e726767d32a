"""Native stacks through a real agent: of ranks with and without a recorder, one at a time."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from agent.agent_host import Host
from agent.unprepared_fakes import unprepared_rank
from frtop_probe import wire
from frtop_probe.agent.snapshots import NativeStacksTaker, SnapshotTaker
from frtop_probe.stacks import native_stacks
from stacks.debugged import HOLDS, Debugged, debugger
from waiting import wait_for_async


def test_a_rank_is_held_for_its_stacks_goes_on_and_has_none_when_it_has_ended(host: Host) -> None:
    rank = host.rank("wait")
    operator = host.operator(host.agent())
    known = operator.ranks()
    key = known[0].key
    operator.dealer.send(wire.to_frame(wire.NativeStacksRequest(101, key)))
    operator.dealer.send(wire.to_frame(wire.NativeStacksRequest(102, key)))
    second, first = (
        wire.decode_response(wire.from_frame(operator.dealer.recv())) for _ in range(2)
    )
    assert isinstance(second, wire.Error), second
    assert (second.id, second.reason) == (102, "busy")
    assert f"process {rank.pid}" in second.text
    assert isinstance(first, wire.NativeStacksResponse), first
    assert (first.id, first.key, first.dump.error, first.note) == (101, key, "", "")
    assert first.tool in ("py-spy", "pystack")
    assert 0 < first.stopped_ns < native_stacks.MAX_STOP_S * 1e9
    frames = first.dump.threads[0].frames
    assert {frame.native for frame in frames} == {True, False}
    states = {one.process.state for one in operator.state().ranks if one.process}
    assert states <= {"S", "R"}
    rank.do("op x")
    rank.kill()
    operator.exit_info(key)
    response = operator.request(wire.NativeStacksRequest(103, key))
    assert isinstance(response, wire.NativeStacksResponse)
    assert (response.dump.error, response.tool) == ("gone", "")
    unknown = operator.request(wire.NativeStacksRequest(104, 999))
    assert isinstance(unknown, wire.Error)
    assert unknown.reason == "gone"


async def test_a_rank_without_a_recorder_has_native_stacks() -> None:
    with closing(Debugged()) as target:
        rank = unprepared_rank(pid=target.pid)
        response = await NativeStacksTaker().take("n", wire.NativeStacksRequest(1, rank.key), rank)
        assert isinstance(response, wire.NativeStacksResponse)
        assert response.dump.threads[0].tid == target.pid
        assert not rank.held
        target.finish()


async def test_what_holds_a_rank_is_not_shown_as_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_stacks, "MAX_STOP_S", 0.5)
    tool = debugger(tmp_path, HOLDS)
    monkeypatch.setattr(native_stacks, "find_tool", lambda: tool)
    with closing(Debugged()) as target:
        rank = unprepared_rank(pid=target.pid)
        before = rank._new_process()
        assert before is not None
        taking = asyncio.ensure_future(
            NativeStacksTaker().take("n", wire.NativeStacksRequest(1, rank.key), rank)
        )
        await wait_for_async(target.tracers, "the tool is attached")
        assert rank._new_process() is None
        request = wire.SnapshotRequest(2, (rank.key,), stacks=False)
        other = unprepared_rank()
        (snapshot,) = await SnapshotTaker().take(request, (rank, other), 0.2)
        assert snapshot.processes[0].pid == other.pid, "the held rank is left out"
        assert rank.held
        (snapshot,) = await SnapshotTaker().take(request, (rank,), 5)
        assert taking.done(), "the snapshot has waited"
        assert {one.state for one in (*snapshot.processes, *snapshot.threads)} <= {"S", "R"}
        response = await taking
        assert isinstance(response, wire.NativeStacksResponse)
        assert response.dump.error == "deadline"
        target.finish()
