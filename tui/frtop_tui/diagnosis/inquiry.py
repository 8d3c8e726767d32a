"""Which ranks to look at now: those in question and a few that wait, never all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.points import Point
from frtop_tui.diagnosis.waiting import is_fetching
from frtop_tui.job.model import RankView, Verdict

AGAIN_NS: Final = 1_000_000_000
SETTLED_AGAIN_NS: Final = 5_000_000_000
"""A culprit that is confirmed is looked at more seldom: it is known already."""
MOST: Final = 16
SUSPECTS_PER_POINT: Final = 6
WAITERS_PER_POINT: Final = 2


class Wanted(NamedTuple):
    """One rank to look at; `pids` are children of it whose stacks are wanted too."""

    host: str
    key: int
    pids: tuple[int, ...]
    stacks: bool


class Inquiry:
    """Remembers when each rank was asked about last."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}

    def wanted(
        self,
        ranks: Mapping[int, RankView],
        points: Sequence[Point],
        verdicts: Iterable[Verdict],
        now_ns: int,
    ) -> tuple[Wanted, ...]:
        """At most `MOST` looks, the most useful ones first."""
        settled = {
            rank
            for verdict in verdicts
            if verdict.confidence == "confirmed" and verdict.progress != "unknown"
            for rank in verdict.culprits
        }
        order: dict[int, None] = {}
        for verdict in verdicts:
            for rank in verdict.culprits[:SUSPECTS_PER_POINT]:
                order[rank] = None
        for point in points:
            for rank in [*point.sinks, *point.onward][:SUSPECTS_PER_POINT]:
                order[rank] = None
        for point in points:
            for wait in point.waits[:WAITERS_PER_POINT]:
                order[wait.rank] = None
        found: list[Wanted] = []
        for rank in order:
            view = ranks.get(rank)
            if view is None or view.ending is not None or view.posture == "unheard":
                continue
            again = SETTLED_AGAIN_NS if rank in settled else AGAIN_NS
            if now_ns - self._asked.get(rank, -again) < again:
                continue
            self._asked[rank] = now_ns
            found.append(Wanted(view.host, view.key, _children(view), stacks=True))
            if len(found) == MOST:
                break
        if len(self._asked) > 4096:
            self._asked = {r: at for r, at in self._asked.items() if now_ns - at < AGAIN_NS}
        return tuple(found)


def _children(view: RankView) -> tuple[int, ...]:
    """The worker that is waited for, else children that are plainly stuck."""
    fetch = view.present.fetch if view.present is not None else None
    if fetch is not None and is_fetching(view) and fetch.worker_pid:
        return (fetch.worker_pid,)
    if view.look is None:
        return ()
    children = view.look.processes[1:]
    stuck = [c.pid for c in children if places.classify(None, c).kind == "file_io"]
    return tuple(stuck[:2])
