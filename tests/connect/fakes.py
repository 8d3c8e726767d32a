"""Connections without sockets: they record requests, and a test responds to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import HostView

S = 1_000_000_000
JOB = wire.Job("node0", 29500, 4, "run", 0, "n", "train.py")


class FakeConnections:
    """Records requests, or refuses to send while it is not `up`."""

    def __init__(self) -> None:
        self.up = True
        self.sent: list[tuple[str, wire.Request]] = []

    def send(self, host: str, request: wire.Request) -> bool:
        if self.up:
            self.sent.append((host, request))
        return self.up

    def take_snapshot_requests(self) -> list[tuple[str, tuple[int, ...], bool]]:
        """Host, keys and stacks of the recorded snapshot requests; forgets all requests."""
        found = [
            (host, request.keys, request.stacks)
            for host, request in self.sent
            if isinstance(request, wire.SnapshotRequest)
        ]
        self.sent.clear()
        return found

    def respond(
        self,
        receive: Callable[[str, wire.Response, int], None],
        agent: Callable[[str, wire.Request], wire.Response | None],
        now: int,
    ) -> int:
        """Lets `agent` respond to all recorded requests; gives their number."""
        sent, self.sent = self.sent, []
        for host, request in sent:
            response = agent(host, request)
            if response is not None:
                receive(host, response, now)
        return len(sent)


def rank_view(rank: int, host: str, **fields: Any) -> JudgedRank:
    identity = wire.Identity(100 + rank, 1, rank, 0, JOB, torch="2.13.0")
    known: dict[str, Any] = {
        "state": "moving", "state_since_ns": 0, "reported_ns": 0, "identity": identity,
    }  # fmt: skip
    return JudgedRank(rank=rank, host=host, key=rank + 1, clock_ns=0, **{**known, **fields})


def frame_of(*views: JudgedRank, now: int = 0, **fields: Any) -> Frame:
    hosts = tuple(
        HostView(name, "reporting") for name in dict.fromkeys(view.host for view in views)
    )
    known: dict[str, Any] = {"job": JOB, "hosts": hosts, "ranks": {v.rank: v for v in views}}
    return Frame(now, 10**18 + now, **{**known, **fields})
