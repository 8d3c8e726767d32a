"""A rank's reply to what was passed on, or within two seconds the reason why there is none."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import rank_client
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.ring import beside
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from waiting import DEADLINE_S, wait_for


def asked(rank: RingRank, request: wire.RankRequest) -> Any:
    """Passes a request on; checks the time taken, and that no descriptor stays open."""
    gc.collect()  # what earlier tests left to the collector is not counted
    open_before = os.listdir("/proc/self/fd")  # noqa: PTH208
    begin = time.monotonic()
    given = asyncio.run(rank_client.pass_on("here", request, rank))
    assert isinstance(given, request.answer)
    response: Any = given
    assert time.monotonic() - begin < DEADLINE_S
    gc.collect()
    # The responder, a thread of this process, may still be closing its end.
    wait_for(
        lambda: len(os.listdir("/proc/self/fd")) == len(open_before),  # noqa: PTH208
        "no descriptor stays open",
    )
    assert (response.id, response.host, response.key) == (request.id, "here", rank.key)
    assert bool(response.error) == bool(response.help)
    assert wire.decode_response(wire.encode(response)) == response
    return response


def changed(rank: RingRank) -> wire.RecordingResponse:
    found: wire.RecordingResponse = asked(rank, wire.ChangeRecording(5, 1))
    return found


@contextmanager
def tracked_rank(path: Path) -> Iterator[RingRank]:
    ring = Ring(path)
    rank = RingRank(1, ring, lives=True, pidfd=None)
    yield rank
    rank.release()
    ring.close()


def test_a_rank_without_a_socket_is_missing(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    with tracked_rank(builder.path) as rank:
        assert changed(rank).error == "missing"
        builder.cells[StatusCell.STATE] = State.OFF
        assert "notes" in changed(rank).help
        beside.socket_of(builder.path).touch()  # not a socket
        assert changed(rank).error == "missing"


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
        (struct.pack("!II", 18, 0) + b'{"recorded":["x"]}', "failed"),
        (struct.pack("!II", 50, 0) + b'{"recorded":[[],false,%d]}   ' % 10**24, "failed"),
        (struct.pack("!II", 43, 0) + b'{"error":"failed","help":"a\\u001b[31m\\nb"}   ', "failed"),
    ],
)
def test_malformed_replies_are_refused(tmp_path: Path, reply: bytes, error: str) -> None:
    builder = RingBuilder(tmp_path)
    with (
        tracked_rank(builder.path) as rank,
        fake_responder(beside.socket_of(builder.path), reply),
        beating(builder),
    ):
        response = changed(rank)
        assert response.error == error
        assert response.help.isprintable()


def test_a_rank_that_does_not_reply_meets_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = RingBuilder(tmp_path)
    path = beside.socket_of(builder.path)
    with tracked_rank(builder.path) as rank, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        monkeypatch.setattr(rank_client, "DEADLINE_S", 0.2)
        with beating(builder):
            assert changed(rank).error == "deadline"
        # The first connection is still in the queue, which has no room for another.
        builder.cells[StatusCell.HEARTBEAT_NS] = 1
        monkeypatch.setattr(rank_client, "DEADLINE_S", 2 * DEADLINE_S)
        assert changed(rank).error == "silent"


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
