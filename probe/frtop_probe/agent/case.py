"""One recorded job on this host: its ranks, and what of them belongs into its black box."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Final, cast

import msgspec

from frtop_probe import wire
from frtop_probe.agent.histories import history
from frtop_probe.agent.lastlooks import LastLooks
from frtop_probe.agent.rank import Rank
from frtop_probe.agent.standstill import Standstill
from frtop_probe.ring.recording import BOX_SUFFIX

MAX_ROWS: Final = 16 * 8192
"""Ops of all ranks together; those of more ranks than sixteen are told less far back."""
FORGOTTEN_NS: Final = 60_000_000_000
"""How long after a standstill its looks may still explain a death."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PART: Final = 48
_NEVER: Final = 2**63


class Case:
    """What is remembered of one job.

    It has `failed` from its first bad end on. A box is `wanted` from then on, or when the
    agent must leave while the job stands still.
    """

    def __init__(self, host: str, record: str, job: wire.Job) -> None:
        self.record = record
        self.job = job
        self.ranks: dict[int, Rank] = {}
        self.before: wire.Update | None = None
        self.failed = False
        self.wanted = False
        self.changed = asyncio.Event()
        self.closed = False
        self.watched = False
        self.looks = LastLooks(host)
        self.standstill = Standstill()
        self._host = host
        self._dead: set[int] = set()
        self._ended: dict[int, wire.RankUpdate] = {}
        self._histories: dict[int, tuple[str, bytes]] = {}

    @property
    def over(self) -> bool:
        """Whether all ranks have ended, and how has been told."""
        return all(rank.exit_info is not None for rank in self.ranks.values())

    @property
    def living(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.lives]

    def suits(self, record: str, job: wire.Job) -> bool:
        """Whether a rank that says so of itself belongs here; what is not known yet may fit."""
        mine = self.job
        return (
            not self.closed
            and self.record == record
            and _agree(mine.nonce, job.nonce)
            and _agree(mine.master_addr, job.master_addr)
            and _agree(mine.master_port, job.master_port)
            and _agree(mine.world_size, job.world_size)
            and (mine.run_id, mine.attempt) == (job.run_id, job.attempt)
        )

    def admit(self, rank: Rank, job: wire.Job) -> None:
        """Takes a rank in, and what it knows of the job."""
        if rank.key in self.ranks and job == self.job:
            return
        self.ranks[rank.key] = rank
        self.watched = self.watched or rank.lives
        mine = self.job
        self.job = wire.Job(
            mine.master_addr or job.master_addr,
            mine.master_port or job.master_port,
            mine.world_size or job.world_size,
            mine.run_id,
            mine.attempt,
            mine.nonce or job.nonce,
            mine.name or job.name,
        )

    def leave(self, rank: Rank) -> None:
        """Lets a rank go that belongs elsewhere, or has made itself a new ring."""
        self.ranks.pop(rank.key, None)

    def mourn(self, rank: Rank) -> bool:
        """Takes note of a rank's death or ending; whether there is one, and it is new."""
        if rank.lives:
            return False
        if rank.exit_info is not None:
            if rank.key in self._ended:
                return False
            self._ended[rank.key] = rank.full()
            self._dead.add(rank.key)
            return True
        if rank.key in self._dead:
            return False
        self._dead.add(rank.key)
        return True

    def moved(self, now_ns: int) -> None:
        """Forgets looks that no longer say anything about what will come."""
        if not self.wanted and self.standstill.over_for_ns(now_ns) > FORGOTTEN_NS:
            self.looks.forget(now_ns - FORGOTTEN_NS)

    def ranks_now(self, now_ns: int) -> tuple[wire.RankUpdate, ...]:
        """All ranks as of now; those that have ended as they were told."""
        return tuple(
            self._ended.get(rank.key) or rank.reread(now_ns) for rank in self.ranks.values()
        )

    async def histories(self, most: int | None = None) -> tuple[wire.HistoryResponse, ...]:
        """The ops of all ranks, or of the `most` that died first.

        They are encoded already, fit only for being written: those of a rank that has died,
        or does nothing, need not be read again, and what is dead may have to make room.
        """
        limit = MAX_ROWS // max(1, len(self.ranks))
        order = sorted(self.ranks.values(), key=lambda rank: (rank.died_ns or _NEVER, rank.key))
        found: list[wire.HistoryResponse] = []
        for rank in order[:most]:
            stamp = "dead"
            known = self._histories.get(rank.key)
            try:
                if rank.lives:
                    stamp = repr(rank.progress)
                if known is None or known[0] != stamp:
                    told = await history(rank, limit)
                    data = wire.encode(wire.HistoryResponse(0, self._host, rank.key, told))
                    known = self._histories[rank.key] = (stamp, data)
            except ValueError:
                pass  # its ring had to make room meanwhile
            if known is not None:
                found.append(cast("wire.HistoryResponse", msgspec.Raw(known[1])))
        return tuple(found)

    def close(self) -> None:
        """Lets go of all but the ranks: their job is over, its box written or not wanted."""
        self.closed = True
        self.before = None
        self.looks = LastLooks(self._host)
        self._histories.clear()
        self._ended.clear()

    def file_name(self, host: str, instance: str) -> str:
        """Readable, and that of no other box: agents are told apart by their instance."""
        return f"{self.file_stem(host)}-{_clean(instance[:6])}{BOX_SUFFIX}"

    def file_stem(self, host: str) -> str:
        """What boxes of this job and host have in common, by whatever agent."""
        job = self.job
        which = job.nonce or job.run_id or f"{job.master_addr}-{job.master_port}"
        return "-".join(map(_clean, (job.name or "job", which, f"a{job.attempt}", host)))


def fetchers(ranks: Iterable[Rank]) -> tuple[int, ...]:
    """DataLoader workers that these ranks wait for now."""
    fetches = (rank.view.present().fetch for rank in ranks)
    return tuple(
        fetch.worker_pid
        for fetch in fetches
        if fetch is not None and fetch.begin_ns > fetch.end_ns and fetch.worker_pid
    )


def _agree(one: str | int, other: str | int) -> bool:
    return one == other or not one or not other


def _clean(text: str) -> str:
    return _UNFIT.sub("_", text)[:_MAX_PART].strip(".") or "_"
