"""Stands where the sockets are: keeps what was asked, and answers when told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import HostView
from frtop_tui.sources.line import Line

S = 1_000_000_000
JOB = wire.Job("node0", 29500, 4, "run", 0, "n", "train.py")


class Ears:
    """Keeps what was asked, or refuses to send."""

    def __init__(self) -> None:
        self.open = True
        self.asked: list[tuple[str, wire.Request]] = []

    @property
    def line(self) -> Line:
        return cast("Line", self)

    def ask(self, place: str, question: wire.Request) -> bool:
        if self.open:
            self.asked.append((place, question))
        return self.open

    def looks(self) -> list[tuple[str, tuple[int, ...], bool]]:
        found = [
            (p, q.keys, q.stacks) for p, q in self.asked if isinstance(q, wire.SnapshotRequest)
        ]
        self.asked.clear()
        return found

    def answer(
        self,
        settle: Callable[[str, wire.Response, int], None],
        agent: Callable[[str, wire.Request], wire.Response | None],
        now: int,
    ) -> int:
        """Lets `agent` answer all that was asked; gives how much that was."""
        asked, self.asked = self.asked, []
        for place, question in asked:
            answer = agent(place, question)
            if answer is not None:
                settle(place, answer, now)
        return len(asked)


def rank_view(rank: int, host: str, **fields: Any) -> JudgedRank:
    identity = wire.Identity(100 + rank, 1, rank, 0, JOB, torch="2.13.0")
    known: dict[str, Any] = {"state": "moving", "state_since_ns": 0, "heard_ns": 0}
    return JudgedRank(
        rank=rank, host=host, key=rank + 1, identity=identity, clock_ns=0, **{**known, **fields}
    )


def frame_of(*views: JudgedRank, now: int = 0, **fields: Any) -> Frame:
    hosts = tuple(HostView(name, "heard") for name in dict.fromkeys(view.host for view in views))
    known: dict[str, Any] = {"job": JOB, "hosts": hosts, "ranks": {v.rank: v for v in views}}
    return Frame(now, 10**18 + now, **{**known, **fields})
