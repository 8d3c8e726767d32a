"""What the agent tells of a rank that was asked: its answer, or within two seconds why not."""

from __future__ import annotations

import asyncio
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

from agent.ringmaker import RingMaker
from frtop_probe import wire
from frtop_probe.agent import responders
from frtop_probe.agent.rank import Rank
from frtop_probe.eyes import proc
from frtop_probe.ring import socket_path
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from recorder.interactive_rank import InteractiveRank, interactive_ranks, wait_for

Asked = wire.TensorsResponse | wire.DataResponse


def tensors(rank: Rank, sequence: int = 0) -> wire.TensorsResponse:
    """Asked with a clock beside it, and a look at what is left open."""
    open_before = os.listdir("/proc/self/fd")  # noqa: PTH208
    begin = time.monotonic()
    answer = asyncio.run(responders.tensors("here", rank, wire.TensorsRequest(5, 1, sequence)))
    assert time.monotonic() - begin < 2
    assert len(os.listdir("/proc/self/fd")) == len(open_before)  # noqa: PTH208
    assert (answer.id, answer.host, answer.key) == (5, "here", rank.key)
    assert bool(answer.error) == bool(answer.help)
    assert wire.decode_response(wire.encode(answer)) == answer
    return answer


def data(rank: Rank, sequence: int, index: int, offset: int, size: int) -> wire.DataResponse:
    ask = wire.DataRequest(6, 1, sequence, index, offset, size)
    answer = asyncio.run(responders.data(rank, ask))
    assert (answer.id, answer.sequence, answer.index, answer.offset) == (6, sequence, index, offset)
    return answer


@contextmanager
def known(path: Path) -> Iterator[Rank]:
    ring = Ring(path)
    rank = Rank(1, ring, lives=True, pidfd=None)
    yield rank
    rank.release()
    ring.close()


@pytest.mark.torch
def test_a_rank_answers_or_it_is_told_why_it_cannot(tmp_path: Path) -> None:
    with interactive_ranks(tmp_path / "rings", 2) as pair, known(pair[0].ring.path) as rank:
        told_rank: InteractiveRank = pair[0]
        assert tensors(rank).error == "none"
        told_rank.run(
            "saved['x'] = torch.arange(8.)\n"
            "saved['handle'] = dist.all_reduce(saved['x'], async_op=True)"
        )
        sequence = told_rank.newest()
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

        # It sleeps in C with the GIL.
        told_rank.start("ctypes.PyDLL(None).usleep(3_200_000)")
        wait_for(lambda: _beat_age(rank) > 1.2, "silence")
        refused = tensors(rank)
        assert (refused.error, refused.ops) == ("silent", ())
        told_rank.expect("done")
        assert tensors(rank).ops

        told_rank.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: _state(rank) == "T", "it stops")
        refused = tensors(rank)
        assert refused.error == "stopped"
        assert f"kill -CONT {rank.pid}" in refused.help
        assert data(rank, sequence, 0, 0, 4).error == "stopped"
        told_rank.process.send_signal(signal.SIGCONT)
        assert tensors(rank).ops

        told_rank.run("lifecycle.stop()")
        refused = tensors(rank)
        assert refused.error == "missing"
        assert "stopped" in refused.help
        told_rank.process.kill()
        told_rank.process.wait()
        assert tensors(rank).error == "gone"


def _beat_age(rank: Rank) -> float:
    return (time.monotonic_ns() - rank.ring.cell(StatusCell.BEAT_NS)) / 1e9


def _state(rank: Rank) -> str:
    seen = proc.stat(rank.pid)
    return seen.state if seen else ""


def test_a_rank_without_a_socket_cannot_be_asked(tmp_path: Path) -> None:
    maker = RingMaker(tmp_path)
    with known(maker.path) as rank:
        assert tensors(rank).error == "missing"
        maker.cells[StatusCell.STATE] = State.OFF
        assert "notes" in tensors(rank).help
        socket_path.socket_of(maker.path).touch()  # no socket at all
        assert tensors(rank).error == "missing"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "deadline"),  # hangs up
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
def test_what_a_rank_says_is_not_trusted(tmp_path: Path, reply: bytes, error: str) -> None:
    maker = RingMaker(tmp_path)
    with known(maker.path) as rank, _impostor(socket_path.socket_of(maker.path), reply):
        maker.beat()
        answer = tensors(rank)
        assert answer.error == error
        assert answer.help.isprintable()


def test_a_rank_that_beats_but_does_not_answer_is_waited_for_no_longer(tmp_path: Path) -> None:
    maker = RingMaker(tmp_path)
    path = socket_path.socket_of(maker.path)
    with known(maker.path) as rank, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        threading.Timer(1.0, maker.beat).start()
        assert tensors(rank).error == "deadline"
        # That one is still in the queue, and no more fit in.
        maker.cells[StatusCell.BEAT_NS] = 1
        begin = time.monotonic()
        assert tensors(rank).error == "silent"
        assert time.monotonic() - begin < 0.5


@contextmanager
def _impostor(path: Path, reply: bytes) -> Iterator[None]:
    """Answers one request with these bytes."""
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
