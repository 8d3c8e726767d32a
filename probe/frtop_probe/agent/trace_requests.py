"""Asks prepared ranks to let this agent read them, if Yama requires their permission.

It asks when a rank is first seen, until the rank has answered, so it never replaces a permission
that the program gives later. It asks only after a refusal, so it leaves alone a rank that allows
everybody.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from typing import Final

from frtop_probe.agent.rank_client import SILENT_NS, ask_for_permission
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.proc import daemon_thread
from frtop_probe.proc.process_rights import read_yama
from frtop_probe.proc.ptrace_refusal import RESTRICTED
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import StatusCell

PAUSE_S: Final = 1.0
TRIES: Final = 3
"""Most requests to a rank that refuses, or does not understand."""


class TraceRequests:
    """Checks the ranks of a tracker periodically."""

    def __init__(
        self,
        tracker: RankTracker,
        scope: Callable[[], str] = read_yama,
        is_refused: Callable[[int], bool] | None = None,
    ) -> None:
        """`scope` reads kernel.yama.ptrace_scope; `is_refused` takes a pid."""
        self._tracker = tracker
        self._scope = scope
        self._is_refused = is_refused or _is_refused
        self._settled: set[int] = set()
        """Keys of ranks that need not be asked (again)."""
        self._tries: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except Exception as error:  # noqa: BLE001 - the worker's boundary: next round asks
                self._tracker.note(f"ranks could not be asked for permission to trace: {error!r}")
            await asyncio.sleep(PAUSE_S)

    async def check(self) -> None:
        """Asks the new ranks."""
        ranks = self._tracker.ranks
        self._settled &= ranks.keys()
        self._tries = {key: count for key, count in self._tries.items() if key in ranks}
        new = [
            rank
            for key, rank in ranks.items()
            if key not in self._settled and isinstance(rank, RingRank) and _can_answer(rank)
        ]
        if not new or self._scope() != RESTRICTED:
            return
        try:
            refused = await daemon_thread.run(lambda: self._refused(new), "frtop trace trial")
        except RuntimeError:  # no thread: try next time
            return
        self._settled |= {rank.key for rank in new} - {rank.key for rank in refused}
        await asyncio.gather(*map(self._ask, refused))

    def _refused(self, ranks: Iterable[RingRank]) -> list[RingRank]:
        return [rank for rank in ranks if self._is_refused(rank.pid)]

    async def _ask(self, rank: RingRank) -> None:
        tries = self._tries[rank.key] = self._tries.get(rank.key, 0) + 1
        if await ask_for_permission(rank) or tries >= TRIES:
            self._settled.add(rank.key)


def _can_answer(rank: RingRank) -> bool:
    """Whether the answering thread runs: other requests must not wait behind ours."""
    try:
        return (
            rank.lives and time.monotonic_ns() - rank.ring.cell(StatusCell.HEARTBEAT_NS) < SILENT_NS
        )
    except RingError:  # closed or damaged: the next tick reports it
        return False


def _is_refused(pid: int) -> bool:
    """Whether the kernel refuses to open a process's memory; reads nothing."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False
    return False
