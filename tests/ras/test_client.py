"""The client against a stand-in on a real socket: every deadline holds, a status is asked once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from frtop_probe.ras import client
from ras.answers import TEXT, as_json, communicator, rank
from ras.stand_in import StandIn
from waiting import DEADLINE_S

JSON = as_json(communicator([rank(0, 10), rank(1, 11, 8811)]))
Serve = Callable[..., StandIn]


def answer(form: str) -> bytes:
    return JSON if form == "json" else TEXT.encode()


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[StandIn] = []

    def start(**options: object) -> StandIn:
        servers.append(StandIn(answer, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for one in servers:
        one.close()


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1 << 20)


def ask(server: StandIn, version: tuple[int, ...] = (), answer_s: float = 1.0) -> client.Answer:
    return asyncio.run(client.ask([server.host], server.port, version, answer_s=answer_s))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_json_is_asked_for_once(serve: Serve, host: str) -> None:
    server = serve(host=host)
    found = ask(server)
    assert found.report is not None
    assert (found.report.form, found.error, found.asked) == ("json", "", True)
    assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "STATUS"]


def test_an_older_nccl_answers_as_text(serve: Serve) -> None:
    server = serve(knows_json=False)
    found = ask(server)
    assert found.report is not None
    assert (found.report.form, found.report.nccl_version) == ("text", "2.27.3")
    assert server.commands[-2:] == ["SET FORMAT json", "VERBOSE STATUS"]


def test_an_nccl_known_to_be_older_is_not_asked_for_json(serve: Serve) -> None:
    server = serve(knows_json=False)
    assert ask(server, (2, 27, 3)).report is not None
    assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "VERBOSE STATUS"]


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize(
    ("fault", "error", "text", "asked"),
    [
        ("slow", "deadline", "not complete within 1 s: 0 bytes came", True),
        ("trickle", "deadline", "not complete within 1 s", True),
        ("cut", "cut", "cut off", True),
        ("garbage", "malformed", "not RAS's answer", True),
        ("endless", "malformed", "larger than 1 MiB", True),
        ("silent", "deadline", "were not greeted", False),
        ("other", "malformed", "this is not NCCL's RAS", False),
        ("long line", "malformed", "lines are too long", False),
    ],
)
def test_a_server_that_fails_is_a_reason_within_a_deadline(
    serve: Serve, fault: str, error: str, text: str, *, asked: bool
) -> None:
    server = serve(fault=fault)
    begin = time.monotonic()
    found = ask(server)
    assert (found.error, found.asked, found.report) == (error, asked, None)
    assert text in found.text
    assert time.monotonic() - begin < DEADLINE_S / 2
    assert server.statuses == asked


def test_nobody_listens(serve: Serve) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        found = asyncio.run(client.ask(["127.0.0.1", "::1"], port))
    assert (found.error, found.asked) == ("closed", False)


def test_a_listener_with_a_full_queue_is_a_deadline() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for client_socket in waiting:
            client_socket.setblocking(False)
            client_socket.connect_ex(one.getsockname())
        found = asyncio.run(client.ask(["127.0.0.1"], one.getsockname()[1]))
        for client_socket in waiting:
            client_socket.close()
    assert (found.error, found.asked) == ("deadline", False)


def test_a_process_that_never_greets_is_passed_by_for_one_that_does(serve: Serve) -> None:
    """The kernel picks among the listeners on a port: some tries reach the other."""
    silent = serve(fault="silent")
    good = serve(port=silent.port)
    for _ in range(8):
        found = ask(silent)
        assert (silent.statuses, found.error) in ((0, ""), (0, "deadline"))
        if found.report is not None:
            break
    assert good.statuses >= 1
