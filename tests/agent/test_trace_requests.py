"""An agent asks ranks that it may not read for permission: once, and only then."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.trace_requests import TRIES, TraceRequests
from frtop_probe.proc import processes
from frtop_probe.recorder.requests.responder import Responder
from frtop_probe.ring import beside
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring


class Rank:
    """A ring, and the thread that answers for it."""

    def __init__(self, folder: Path) -> None:
        self.builder = RingBuilder(folder)
        self.builder.heartbeat()
        self.asked: list[Mapping[str, Any]] = []
        self.says = ""
        self._over = False
        self._responder = Responder(beside.socket_of(self.builder.path), self._respond)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.ring = Ring(self.builder.path)
        self.tracked = RingRank(7, self.ring, lives=True, pidfd=None)

    def _respond(self, request: Mapping[str, Any], _: object) -> tuple[dict[str, Any], bytes]:
        self.asked.append(request)
        return {"error": "failed" if self.says else "", "help": self.says}, b""

    def _serve(self) -> None:
        while not self._over:
            self._responder.wait(0.05, lambda: True)

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._responder.close()
        self._responder.remove()
        self.ring.close()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    one = Rank(tmp_path)
    yield one
    one.close()


def check(rank: Rank, *, scope: str = "1", refused: bool = True, times: int = 3) -> list[Any]:
    """What the rank was asked in several rounds."""
    tracker = cast("RankTracker", SimpleNamespace(ranks={7: rank.tracked}))
    requests = TraceRequests(
        tracker, lambda: scope, lambda pid: refused and pid == rank.tracked.pid
    )

    async def rounds() -> None:
        for _ in range(times):
            await requests.check()

    asyncio.run(rounds())
    return rank.asked


def test_a_rank_is_asked_once_and_knows_who_asks(rank: Rank) -> None:
    assert check(rank) == [{"ask": "trace", "peer": os.getpid()}]


@pytest.mark.parametrize(("scope", "refused"), [
    ("0", True), ("2", True), ("3", True), ("", True),
    ("1", False),  # who may be read is left alone
])  # fmt: skip
def test_with_another_scope_or_the_right_to_read_nobody_is_asked(
    rank: Rank, scope: str, refused: bool
) -> None:
    assert check(rank, scope=scope, refused=refused) == []


def test_a_rank_that_says_no_is_asked_a_few_times(rank: Rank) -> None:
    rank.says = "FRTOP_PTRACER=0 in its environment"
    assert len(check(rank, times=TRIES + 2)) == TRIES


def test_a_rank_that_cannot_answer_is_not_asked_yet(rank: Rank) -> None:
    rank.builder.cells[StatusCell.HEARTBEAT_NS] = 1
    assert check(rank) == []
    rank.builder.heartbeat()
    assert len(check(rank)) == 1


def test_a_process_that_may_be_read_is_told_from_one_that_may_not() -> None:
    from frtop_probe.agent.trace_requests import _is_refused  # noqa: PLC0415

    assert not _is_refused(os.getpid())
    assert processes.read_stat(1 << 22) is None
    assert not _is_refused(1 << 22)
