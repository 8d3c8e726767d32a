"""A rank's reply about its tensors, or the reason why there is none."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from pathlib import Path

import pytest

from agent.test_rank_client import asked, tracked_rank
from frtop_probe import wire
from frtop_probe.agent import rank_client
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.features.tensors.messages import ReadTensor, SummarizeTensors
from frtop_probe.proc import processes
from frtop_probe.ring.layout import StatusCell
from recorder.interactive_rank import InteractiveRank, interactive_ranks
from waiting import DEADLINE_S, wait_for


def tensors(rank: RingRank, sequence: int = 0) -> wire.TensorsResponse:
    found: wire.TensorsResponse = asked(rank, SummarizeTensors(5, 1, sequence))
    return found


def data(rank: RingRank, sequence: int, index: int, offset: int, size: int) -> wire.Piece:
    request = ReadTensor(6, 1, offset, size, sequence, index)
    response = asyncio.run(rank_client.pass_on("here", request, rank))
    assert isinstance(response, wire.Piece)
    assert (response.id, response.key, response.offset) == (6, 1, offset)
    return response


@pytest.mark.torch
def test_a_rank_replies_or_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_client, "DEADLINE_S", 2 * DEADLINE_S)  # not met here, but once
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with interactive_ranks(tmp_path / "rings", 2) as pair, tracked_rank(pair[0].ring.path) as rank:
        recorded: InteractiveRank = pair[0]
        assert tensors(rank).error == "none"
        reply, _ = asyncio.run(rank_client.query(rank, {"ask": "trace", "peer": 1}))
        # Nobody has announced this process as the agent; without Yama 1 it would not matter.
        assert "not the agent" in reply["help"] or "ptrace_scope is" in reply["help"]
        assert not asyncio.run(rank_client.ask_for_permission(rank))
        recorded.run(
            "saved['x'] = torch.arange(8.)\n"
            "saved['handle'] = dist.all_reduce(saved['x'], async_op=True)"
        )
        sequence = recorded.newest()
        (op,) = tensors(rank).ops
        (summary,) = op.tensors
        assert (op.sequence, op.error) == (sequence, "")
        assert (summary.role, summary.dtype, summary.shape) == ("input", "float32", (8,))
        assert (summary.minimum, summary.maximum, summary.mean) == (0, 7, 3.5)
        assert summary.first == tuple("01234567")
        assert tensors(rank, sequence).ops == (op,)
        assert tensors(rank, sequence + 1).ops[0].error == "it is no longer pending"

        found = data(rank, sequence, 0, 4, 1 << 40)
        assert (found.total, found.data) == (32, struct.pack("7f", *range(1, 8)))
        assert data(rank, sequence, 1, 0, 4).error == "failed"
        assert data(rank, sequence + 1, 0, 0, 4).error == "gone"

        # The rank waits in C and holds the GIL.
        recorded.start(f"ctypes.PyDLL(None).open({os.fsencode(gate)!r}, os.O_RDONLY)")
        wait_for(lambda: _heartbeat_age(rank) > 1.2, "silence")
        monkeypatch.setattr(rank_client, "DEADLINE_S", 0.5)
        refused = tensors(rank)
        assert (refused.error, refused.ops) == ("silent", ())
        monkeypatch.setattr(rank_client, "DEADLINE_S", 2 * DEADLINE_S)
        os.close(os.open(gate, os.O_WRONLY))
        recorded.expect("done")
        assert tensors(rank).ops

        recorded.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: _state(rank) == "T", "it stops")
        refused = tensors(rank)
        assert refused.error == "stopped"
        assert f"kill -CONT {rank.pid}" in refused.help
        assert data(rank, sequence, 0, 0, 4).error == "stopped"
        recorded.process.send_signal(signal.SIGCONT)
        assert tensors(rank).ops

        recorded.run("lifecycle.stop()")
        refused = tensors(rank)
        assert refused.error == "missing"
        assert "stopped" in refused.help
        recorded.process.kill()
        recorded.process.wait()
        assert tensors(rank).error == "gone"


def _heartbeat_age(rank: RingRank) -> float:
    return (time.monotonic_ns() - rank.ring.cell(StatusCell.HEARTBEAT_NS)) / 1e9


def _state(rank: RingRank) -> str:
    seen = processes.read_stat(rank.pid)
    return seen.state if seen else ""
