"""Jobs with stragglers by hand: what ranks do in steps, as the statistics of their ops.

    job = SteppingJob(4)
    job.run(100, late={2: 30.0})
    statistics = job.statistics()

A small model of what happens: a rank computes for some ms, issues a collective, and all who are in
it leave it when the last one has come, and its data has been moved. Times are in ms.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp, StepSplit

MS = 1_000_000
BEGUN_NS = 10_100_000_000_000
SITE = wire.Site("/home/me/train.py", 20, "train")

Milliseconds = float
Work = Callable[[int, int], Milliseconds]
"""By rank and step."""


@dataclass
class Meeting:
    """One collective of each step: in which groups, after how much work, how long data moves."""

    groups: tuple[tuple[int, ...], ...]
    work: Work
    transfer: Callable[[tuple[int, ...]], Milliseconds] = lambda _: 0.5
    waits: bool = True  # False: asynchronous, waited for in the next meeting that waits
    kind: str = "all_reduce"
    site: wire.Site = SITE
    name: str = "dp"
    bytes: int = 1 << 20


@dataclass
class SteppingJob:
    """Ranks that step together. `noise` is a share of all work."""

    world: int = 4
    noise: float = 0.02
    seed: int = 1
    error_ns: int | None = 0
    meetings: list[Meeting] = field(default_factory=list)
    ended: dict[int, float] = field(init=False)
    blocked: defaultdict[int, float] = field(init=False)
    data: Mapping[int, Milliseconds] = field(default_factory=dict)
    stride: int = 1
    steps: dict[int, list[StepSplit]] = field(init=False)
    ops: dict[tuple[str, tuple[int, ...]], list[SampledOp]] = field(init=False)

    def __post_init__(self) -> None:
        self.ended = dict.fromkeys(range(self.world), BEGUN_NS / MS)
        self.blocked = defaultdict(float)
        self.steps = {rank: [] for rank in range(self.world)}
        self.ops = {}
        self._random = random.Random(self.seed)
        self._step = 0

    @property
    def everybody(self) -> tuple[int, ...]:
        return tuple(range(self.world))

    def run(self, steps: int, *, late: Mapping[int, Milliseconds] | None = None) -> SteppingJob:
        """Runs steps in which the ranks in `late` have more work before the first meeting."""
        for _ in range(steps):
            begun = dict(self.ended)
            self.blocked.clear()
            for place, meeting in enumerate(self.meetings):
                self._meet(meeting, (late or {}) if not place else {})
            for rank in self.everybody:
                self.steps[rank].append(
                    StepSplit(
                        self._step,
                        round(self.ended[rank] * MS),
                        round((self.ended[rank] - begun[rank]) * MS),
                        round(self.data[rank] * MS) if rank in self.data else None,
                        round(self.blocked[rank] * MS),
                        round(self.blocked[rank] * MS),
                    )
                )
            self._step += 1
        return self

    def _meet(self, meeting: Meeting, late: Mapping[int, Milliseconds]) -> None:
        for group in meeting.groups:
            arrivals = {}
            for rank in group:
                work = meeting.work(rank, self._step) * (1 + self._random.gauss(0, self.noise))
                arrivals[rank] = self.ended[rank] + max(0.0, work) + late.get(rank, 0.0)
            end = max(arrivals.values()) + meeting.transfer(group)
            ops = self.ops.setdefault((meeting.name, group), [])
            ops.append(
                SampledOp(
                    len(ops) + 1,
                    {rank: round(at * MS) for rank, at in arrivals.items()},
                    complete=True,
                    kind=meeting.kind,
                    site=meeting.site,
                    bytes=meeting.bytes,
                    ended_ns=round(end * MS),
                    error_ns=self.error_ns,
                )
            )
            for rank in group:
                if meeting.waits:
                    self.blocked[rank] += end - arrivals[rank]
                    self.ended[rank] = end
                else:
                    self.ended[rank] = arrivals[rank]

    def statistics(
        self, *, steps: bool = True, p2p: Sequence[tuple[int, ...]] = (), device: bool = False
    ) -> JobStatistics:
        """All of it; `p2p` are groups in which ranks send and receive, too."""
        groups = [
            SampledGroup(
                GroupKey(f"{name} {group}", fold(group)),
                group,
                tuple(op for op in ops if op.number % self.stride == 0),
                self.stride,
            )
            for (name, group), ops in self.ops.items()
        ]
        calls = []
        for meeting in {(one.name, one.kind): one for one in self.meetings}.values():
            keys = tuple(GroupKey(f"{meeting.name} {one}", fold(one)) for one in meeting.groups)
            ranks = tuple(sorted({rank for one in meeting.groups for rank in one}))
            count = sum(len(self.ops[meeting.name, one]) for one in meeting.groups)
            total = sum(
                (op.ended_ns or 0) - at
                for one in meeting.groups
                for op in self.ops[meeting.name, one]
                for at in op.arrivals.values()
            )
            calls.append(
                CallRow(
                    meeting.kind, keys, meeting.site, meeting.bytes, ranks, count=count,
                    bytes=count * meeting.bytes, total_ns=total, on_device=device,
                    waited_ns=total if meeting.waits else 0,
                )
            )  # fmt: skip
        calls += [
            CallRow("send", (GroupKey(f"pp {one}", fold(one)),), SITE, 1024, one, p2p=True, count=9)
            for one in p2p
        ]
        until = round(max(self.ended.values()) * MS)
        return JobStatistics(
            BEGUN_NS,
            until,
            BEGUN_NS,
            self.everybody,
            calls=tuple(calls),
            groups=tuple(groups),
            steps={rank: tuple(those) for rank, those in self.steps.items()} if steps else {},
            clock_error_ns=self.error_ns,
        )


def data_parallel(world: int = 4, work: Milliseconds = 200.0, **fields: object) -> SteppingJob:
    """All ranks reduce one gradient in each step."""
    job = SteppingJob(world, **fields)  # type: ignore[arg-type]
    job.meetings = [Meeting((job.everybody,), lambda rank, step: work)]
    return job
