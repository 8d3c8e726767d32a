"""A rank's reply about its tensors, or within two seconds the reason why there is none."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import rank_client
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.features.tensors.messages import ReadTensor, SummarizeTensors
from frtop_probe.proc import processes
from frtop_probe.ring import socket_path
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from recorder.interactive_rank import InteractiveRank, interactive_ranks
from waiting import DEADLINE_S, wait_for


def tensors(
    rank: RingRank, sequence: int = 0, within_s: float = DEADLINE_S
) -> wire.TensorsResponse:
    """Asks for tensors; checks the time taken, and that no descriptor stays open."""
    gc.collect()  # what earlier tests left to the collector is not counted
    open_before = os.listdir("/proc/self/fd")  # noqa: PTH208
    begin = time.monotonic()
    request = SummarizeTensors(5, 1, sequence)
    response = asyncio.run(rank_client.pass_on("here", request, rank))
    assert isinstance(response, wire.TensorsResponse)
    assert time.monotonic() - begin < DEADLINE_S
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(open_before)  # noqa: PTH208
    assert (response.id, response.host, response.key) == (5, "here", rank.key)
    assert bool(response.error) == bool(response.help)
    assert wire.decode_response(wire.encode(response)) == response
    return response


def data(rank: RingRank, sequence: int, index: int, offset: int, size: int) -> wire.Piece:
    request = ReadTensor(6, 1, offset, size, sequence, index)
    response = asyncio.run(rank_client.pass_on("here", request, rank))
    assert isinstance(response, wire.Piece)
    assert (response.id, response.key, response.offset) == (6, 1, offset)
    return response


@contextmanager
def tracked_rank(path: Path) -> Iterator[RingRank]:
    ring = Ring(path)
    rank = RingRank(1, ring, lives=True, pidfd=None)
    yield rank
    rank.release()
    ring.close()


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
        assert tensors(rank, sequence + 1).ops[0].error == "it is not pending any more"

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


def test_a_rank_without_a_socket_is_missing(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    with tracked_rank(builder.path) as rank:
        assert tensors(rank).error == "missing"
        builder.cells[StatusCell.STATE] = State.OFF
        assert "notes" in tensors(rank).help
        socket_path.socket_of(builder.path).touch()  # not a socket
        assert tensors(rank).error == "missing"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "deadline"),  # closes the connection
        (b"\x00\x00", "deadline"),
        (struct.pack("!II", 1 << 31, 0), "failed"),
        (struct.pack("!II", 2, 1 << 31) + b"{}", "failed"),
        (struct.pack("!II", 3, 0) + b"\xff{}", "failed"),
        (struct.pack("!II", 2000, 0) + b"[" * 2000, "failed"),
        (struct.pack("!II", 18, 0) + b'{"error":"silent"}', "failed"),
        (struct.pack("!II", 15, 0) + b'{"ops":[["x"]]}', "failed"),
        (struct.pack("!II", 36, 0) + b'{"ops":[[%d,[]]]}' % 10**20, "failed"),
        (struct.pack("!II", 43, 0) + b'{"error":"failed","help":"a\\u001b[31m\\nb"}   ', "failed"),
    ],
)
def test_malformed_replies_are_refused(tmp_path: Path, reply: bytes, error: str) -> None:
    builder = RingBuilder(tmp_path)
    with (
        tracked_rank(builder.path) as rank,
        fake_responder(socket_path.socket_of(builder.path), reply),
        beating(builder),
    ):
        response = tensors(rank)
        assert response.error == error
        assert response.help.isprintable()


def test_a_rank_that_does_not_reply_meets_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = RingBuilder(tmp_path)
    path = socket_path.socket_of(builder.path)
    with tracked_rank(builder.path) as rank, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with beating(builder):
            assert tensors(rank).error == "deadline"
        # The first connection is still in the queue, which has no room for another.
        builder.cells[StatusCell.HEARTBEAT_NS] = 1
        monkeypatch.setattr(rank_client, "DEADLINE_S", 2 * DEADLINE_S)
        assert tensors(rank).error == "silent"


@contextmanager
def beating(builder: RingBuilder) -> Iterator[None]:
    """Beats ten times a second, as a rank that lives."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.1):
            builder.heartbeat()

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def fake_responder(path: Path, reply: bytes) -> Iterator[None]:
    """Answers one request with `reply`."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listener.close()
