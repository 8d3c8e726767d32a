"""A rank that cannot be read or sent: its ring, or its memory, holds nonsense."""

from __future__ import annotations

import time
from contextlib import suppress

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.tracked_rank import TrackedRank


class UnreadableRank(TrackedRank):
    """Shows its process alone, and says why. What failed once is not read again."""

    def __init__(self, key: int, rank: TrackedRank, reason: str, pidfd: int | None) -> None:
        super().__init__(key, rank.pid, rank.start_ticks, lives=rank.lives, pidfd=pidfd)
        self.died_ns, self.exit, self.oom_file = rank.died_ns, rank.exit, rank.oom_file
        self._ring = rank.ring if isinstance(rank, RingRank) else None
        self._name = rank.name
        self._reason = reason
        if reason.startswith(wire.OF_RECORDER):
            self.recorder_note = reason
        self._identity = _identity_of(rank)
        self._is_sent = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def has_ring(self) -> bool:
        return self._ring is not None

    def update(self, now_ns: int) -> wire.RankUpdate | None:  # noqa: ARG002 - for all ranks
        process, gauges = self._new_process(), self._new_gauges()
        if not self._is_sent:
            self._is_sent = True
            return self.full()
        fresh = wire.RankUpdate(self.key, process=process, gauges=gauges)
        return None if fresh == wire.RankUpdate(self.key) else fresh

    def end(self, now_ns: int, oom_kills: int) -> wire.RankUpdate:
        self.lives = False
        self.died_ns = self.died_ns or now_ns
        self.exit_info = self._exit_info(now_ns, oom_kills, clean=False)
        self._process = None
        self.release()
        return self.full()

    def full(self) -> wire.RankUpdate:
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            process=self._process,
            exit_info=self.exit_info,
            notes=(self._reason,),
            gauges=self.gauges,
        )

    def last_sign_ns(self) -> int:
        return self._ring.header.monotonic_ns if self._ring is not None else time.monotonic_ns()

    def status(self) -> None:
        return None

    def recent_ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:  # noqa: ARG002 - likewise
        return (), 0

    @property
    def ops_note(self) -> str:
        return self._reason

    @property
    def record(self) -> str:
        return self._identity.record if self._identity is not None else ""

    @property
    def progress(self) -> int:
        return 0

    @property
    def has_failed(self) -> bool:
        ended = self.exit
        return ended is not None and (ended.signal is not None or ended.code not in (0, None))

    def remove_files(self) -> None:
        if self._ring is not None:
            self._ring.remove()


def _identity_of(rank: TrackedRank) -> wire.Identity:
    """Who it is, as it was last sent; else by its process. As of a rank without a recorder."""
    known = rank.identity
    with suppress(wire.WireError):
        if known is not None and wire.size_of_rank(known):
            return structs.replace(known, prepared=False, c10d_readable=False)
    job = wire.Job("", 0, 0)
    return wire.Identity(
        rank.pid, rank.start_ticks, -1, -1, job, prepared=False, c10d_readable=False
    )
