"""Statistics by rank: who comes last, how far behind the first, and how long its steps take. Pure.

Only sampled ops tell who came last. They are the same ones for all ranks of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from msgspec import Struct

from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.step_table import newest_steps

MOST_OPS: Final = 64
"""Newest sampled ops of a group that are looked at: 64 of a group of 10,000 take 0.3 s."""


class RankFigures(Struct, frozen=True):
    """One rank. Times in ns, None where nothing is known.

    `others_ns` is the time that the other members would not have waited, had it come with the one
    before it: of the sampled ops only, summed over the members.
    """

    rank: int
    host: str
    ops: int = 0
    last: int = 0
    after_ns: int | None = None
    others_ns: int = 0
    step_ns: int | None = None
    data_ns: int | None = None
    steps: int = 0

    @property
    def text(self) -> str:
        """What a filter searches."""
        return f"rank {self.rank} {self.host}".lower()


def rank_rows(statistics: JobStatistics, hosts: dict[int, str]) -> list[RankFigures]:
    """A row for every rank that answered, in order of rank."""
    ops: dict[int, int] = {}
    last: dict[int, int] = {}
    others: dict[int, int] = {}
    after: dict[int, list[int]] = {}
    for group in statistics.groups:
        for op in group.arrivals[-MOST_OPS:]:
            if not op.complete or len(op.arrivals) < 2:
                continue
            first, latest, before = _ends(op.arrivals)
            for rank, at in op.arrivals.items():
                ops[rank] = ops.get(rank, 0) + 1
                after.setdefault(rank, []).append(at - first)
            if latest[0] - before > (op.error_ns or 0):
                rank = latest[1]
                last[rank] = last.get(rank, 0) + 1
                waited = (latest[0] - before) * (len(op.arrivals) - 1)
                others[rank] = others.get(rank, 0) + waited
    rows = []
    newest = newest_steps(statistics)
    for rank in sorted({*statistics.ranks, *ops}):
        steps = newest.get(rank, ())
        data = [step.data_ns for step in steps if step.data_ns is not None]
        rows.append(
            RankFigures(
                rank,
                hosts.get(rank, ""),
                ops.get(rank, 0),
                last.get(rank, 0),
                int(median(after[rank])) if rank in after else None,
                others.get(rank, 0),
                int(median(step.took_ns for step in steps)) if steps else None,
                int(median(data)) if data else None,
                len(statistics.steps.get(rank, ())),
            )
        )
    return rows


def _ends(arrivals: Mapping[int, int]) -> tuple[int, tuple[int, int], int]:
    """The first time, the last one with its rank, and the one before the last."""
    times = sorted((at, rank) for rank, at in arrivals.items())
    return times[0][0], times[-1], times[-2][0]
